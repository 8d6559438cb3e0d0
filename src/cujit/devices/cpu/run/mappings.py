"""Global memory of the CPU device: in mappings of its own, between pages that nobody may touch.

    nobody | … array 0 | nobody | … array 1 | nobody …      arrays end where a page ends, so an overrun faults at once
    nobody | array 0 … | array 1 … | … | nobody             slabs, once so many arrays live that the system has no more
                                                            mappings: APART bytes lie behind each array

What is freed is kept for the next array of its size, up to some memory. Freeing takes no lock, as it may come in the
midst of anything: lists of Python add and give an element whole.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import mmap
import sys
from collections import defaultdict
from collections.abc import Callable

from cujit.errors import spell
from cujit.forks import Lock
from cujit.values import NamedTuple

ALIGNMENT = 256
"""Bytes. Source: CUDA C++ Programming Guide, "Device Memory Accesses": allocations align to at least 256 bytes."""

GUARD_BYTES = 512
"""Bytes behind each block in which nothing else lies: an address there is one beyond the block, and of nobody else."""

_PAGE = mmap.PAGESIZE
_MOST_GUARDED = 12_000
"""Arrays that have pages of their own around them: the system gives a process 65,530 mappings, each takes two. Source:
Linux, Documentation/admin-guide/sysctl/vm.rst, ``max_map_count``."""

_SMALL = 64 << 10
"""Bytes up to which mappings are made for many arrays at once."""
_MADE = 32
"""Small arrays that a mapping is made for."""
_SLAB = 1 << 20
"""Bytes of a slab."""
_MOST_SMALL = 1024
"""Freed small arrays of one size that keep their pages."""
_MOST_LARGE, _LARGEST_KEPT = 8, 8 << 20
"""Freed large arrays that are kept, and the bytes of one above which it is not."""
_HUGE = 4 << 20
"""Bytes from which the system is asked for large pages, as NumPy does."""

_NORESERVE = 0x4000
"""``MAP_NORESERVE``. Source: Linux, include/uapi/asm-generic/mman-common.h, on x86-64 and AArch64."""


def aligned(offset: int, align: int) -> int:
    """Round up to a multiple of ``align``."""
    return (offset + align - 1) // align * align


class ArraySlot:
    """Memory of one array: the address, and how it goes back. It is free when nobody refers to this any more."""

    __slots__ = ("_free", "_place", "address")

    def __init__(self, address: int, place: int, free: Callable[[int], None]) -> None:
        self.address, self._place, self._free = address, place, free

    def __del__(self, is_over: Callable[[], bool] = sys.is_finalizing) -> None:
        if not is_over():  # otherwise the names of this module may be gone, and the system takes all memory back
            self._free(self._place)


class _MemoryCalls(NamedTuple):
    """Functions of the system."""

    map: Callable[..., int | None]
    protect: Callable[[int, int, int], int]
    unmap: Callable[[int, int], int]
    advise: Callable[[int, int, int], int]


@functools.cache
def _system() -> _MemoryCalls:
    library = ctypes.CDLL(None)
    word, number = ctypes.c_void_p, ctypes.c_int
    library.mmap.restype, library.mmap.argtypes = word, [word, ctypes.c_size_t, number, number, number, ctypes.c_long]
    for function in (library.mprotect, library.munmap, library.madvise):
        function.argtypes = [word, ctypes.c_size_t, number]
    library.munmap.argtypes = [word, ctypes.c_size_t]
    return _MemoryCalls(library.mmap, library.mprotect, library.munmap, library.madvise)


_ADDRESS_BITS = 47
_OPEN, _CLOSED = mmap.PROT_READ | mmap.PROT_WRITE, 0


def _mapped(size: int, protection: int) -> int:
    """Map so many bytes.

    Raises:
        MemoryError: there are none.
    """
    if size >> _ADDRESS_BITS:  # ctypes would cut it off
        raise MemoryError(f"can't map {spell(size)} bytes of memory")
    found = _system().map(None, size, protection, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE, -1, 0)
    if found is None or found == ctypes.c_void_p(-1).value:
        raise MemoryError(f"can't map {spell(size)} bytes of memory")
    return found


def _open(place: int, size: int) -> None:
    """Open memory at addresses that were mapped without access.

    Raises:
        MemoryError: there is none.
    """
    if _system().protect(place, size, _OPEN):
        raise MemoryError(f"can't map {spell(size)} bytes of memory")


class _Free:
    """Free places of arrays of so many bytes: some ``ready``, and others ``untouched``, which have no pages."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.ready: list[int] = []
        self.untouched: list[int] = []

    def add(self, place: int) -> None:
        """Keep one for the next array of its size; if there are many, give its pages back."""
        if len(self.ready) < _MOST_SMALL:
            self.ready.append(place)
        else:
            _system().advise(place, self.size, mmap.MADV_DONTNEED)
            self.untouched.append(place)


class Mappings:
    """All memory of a process that arrays of the CPU device have."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._guarded = 0
        self._free = tuple(_Free(pages * _PAGE) for pages in range(_SMALL // _PAGE + 1))
        """Free places of small arrays between guards, by their pages."""
        self._large: list[tuple[int, int]] = []
        """Pages and place of those of large arrays, the oldest first."""
        self._slabs: defaultdict[int, list[int]] = defaultdict(list)
        """Free places in slabs, by the bytes from one to the next."""

    def take(self, size: int, *, new: bool = False) -> ArraySlot:
        """Get so many bytes, at a multiple of 256; many that are ``new`` are zeros, which take memory where written.

        Raises:
            MemoryError: there are none.
        """
        room = aligned(max(size, 1), ALIGNMENT)
        pages = -(-room // _PAGE)
        if pages * _PAGE > _SMALL:
            place = (0 if new else self._kept(pages)) or self._guard(pages, 1)
            free: Callable[[int], None] = functools.partial(self._end, pages)
        else:
            kept = self._free[pages]
            free = kept.add
            try:
                place = kept.ready.pop()
            except IndexError:
                place = self._untouched(kept, pages)
        if not place:
            return self._in_slab(aligned(room + GUARD_BYTES, ALIGNMENT))
        return ArraySlot(place + pages * _PAGE - room, place, free)

    def _untouched(self, kept: _Free, pages: int) -> int:
        """Return a small place that is new, or whose pages were released. 0 if there are enough between guards."""
        if kept.untouched:
            with contextlib.suppress(IndexError):  # another thread came first
                return kept.untouched.pop()
        return self._guard(pages, _MADE)

    # -- between guards ----------------------------------------------------------------------------------

    def _guard(self, pages: int, count: int) -> int:
        """Make places between guards, and give one; 0 where there are enough of these."""
        size = pages * _PAGE
        if self._guarded + count > _MOST_GUARDED:
            return 0
        with self._lock:
            if self._guarded + count > _MOST_GUARDED:
                return 0
            self._guarded += count
        begin = _mapped(count * (size + _PAGE) + _PAGE, _CLOSED)
        places = [begin + _PAGE + k * (size + _PAGE) for k in range(count)]
        for place in places:
            _open(place, size)
        if size >= _HUGE:
            _system().advise(begin + _PAGE, size, mmap.MADV_HUGEPAGE)
        if count > 1:
            self._free[pages].untouched += places[1:]
        return places[0]

    def _kept(self, pages: int) -> int:
        """Take a place of a large array that was freed; 0 where there is none of that size."""
        for each in [each for each in self._large if each[0] == pages]:
            with contextlib.suppress(ValueError):  # another thread came first
                self._large.remove(each)
                return each[1]
        return 0

    def _end(self, pages: int, place: int) -> None:
        """Keep a place for the next large array of its size, and give back the oldest of those that are kept."""
        going = pages, place
        if pages * _PAGE <= _LARGEST_KEPT:
            self._large.append(going)
            if len(self._large) <= _MOST_LARGE:
                return
            going = self._large.pop(0)
        _system().unmap(going[1] - _PAGE, (going[0] + 2) * _PAGE)
        self._guarded -= 1

    # -- side by side ------------------------------------------------------------------------------------

    def _in_slab(self, step: int) -> ArraySlot:
        """Take a place in a slab, with others side by side; a large one is alone, and has no guard."""
        if step > _SLAB:
            size = aligned(step, _PAGE)
            place = _mapped(size, _OPEN)
            return ArraySlot(place, place, lambda place: (_system().unmap(place, size), None)[1])
        free = self._slabs[step]
        try:
            place = free.pop()
        except IndexError:
            begin = _mapped(_SLAB + 2 * _PAGE, _CLOSED) + _PAGE
            _open(begin, _SLAB)
            place, *more = range(begin, begin + _SLAB - step + 1, step)
            free += more
        return ArraySlot(place, place, free.append)


MAPPINGS = Mappings()


def readable_ranges() -> list[tuple[int, int]]:
    """List what this process may read, from address to address; neighbours count as one.

    Source: Linux, proc_pid_maps(5).
    """
    try:
        with open("/proc/self/maps") as file:
            lines = file.read().splitlines()
    except OSError:
        return []
    found: list[tuple[int, int]] = []
    for line in lines:
        span, permissions = line.split()[:2]
        low, high = (int(part, 16) for part in span.split("-"))
        if permissions[0] != "r":
            continue
        if found and found[-1][1] == low:
            found[-1] = found[-1][0], high
        else:
            found.append((low, high))
    return found


def is_readable(address: int) -> bool:
    """Return whether this process may read at an address. It may not in guards."""
    return any(low <= address < high for low, high in readable_ranges())
