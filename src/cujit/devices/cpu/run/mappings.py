"""Global memory of the CPU device, in separate mappings between closed pages, which are inaccessible.

    closed | … array 0 | closed | … array 1 | closed …      arrays end at a page's end, so an overrun faults directly
    closed | array 0 … | array 1 … | … | closed             slabs, once so many arrays live that the system has no more
                                                            mappings: APART bytes follow each array

Freed memory is kept for the next array of its size, up to a limit. Freeing needs no lock, because it may interrupt any
code: Python's lists add and remove an element atomically.
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
    """The memory of one array: its address, and the function that frees it. The memory is freed when the slot is no
    longer referenced.
    """

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
    """Map ``size`` bytes of memory, and return their address.

    Raises:
        MemoryError: the system can't map the memory.
    """
    if size >> _ADDRESS_BITS:  # ctypes would cut it off
        raise MemoryError(f"can't map {spell(size)} bytes of memory")
    found = _system().map(None, size, protection, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE, -1, 0)
    if found is None or found == ctypes.c_void_p(-1).value:
        raise MemoryError(f"can't map {spell(size)} bytes of memory")
    return found


def _open(place: int, size: int) -> None:
    """Allow access to memory that was mapped without access.

    Raises:
        MemoryError: there isn't enough memory.
    """
    if _system().protect(place, size, _OPEN):
        raise MemoryError(f"can't map {spell(size)} bytes of memory")


class _Free:
    """Free places for arrays of ``size`` bytes. The places in ``untouched`` have no pages, unlike the places in
    ``ready``.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.ready: list[int] = []
        self.untouched: list[int] = []

    def add(self, place: int) -> None:
        """Keep a freed place for the next array of its size. If many places are ready, release the
        pages of this place.
        """
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
        """Allocate ``size`` bytes at a multiple of 256.

        With ``new``, a large allocation contains zeros, and uses physical memory only for the pages that are written
        to.

        Raises:
            MemoryError: there isn't enough memory.
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
        """Return a small place that is new or has released pages. Return 0 if there are enough places
        between guards.
        """
        if kept.untouched:
            with contextlib.suppress(IndexError):  # another thread came first
                return kept.untouched.pop()
        return self._guard(pages, _MADE)

    # -- between guards ----------------------------------------------------------------------------------

    def _guard(self, pages: int, count: int) -> int:
        """Map ``count`` places between guard pages, and return the address of one place. Return 0 if there are enough
        such places.
        """
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
        """Remove the place of a freed large array of this size from the list, and return it. Return 0 if there is no
        such place.
        """
        for each in [each for each in self._large if each[0] == pages]:
            with contextlib.suppress(ValueError):  # another thread came first
                self._large.remove(each)
                return each[1]
        return 0

    def _end(self, pages: int, place: int) -> None:
        """Keep the place of a freed array for the next large array of its size.

        If too many places are kept, unmap the oldest. If this place is too large to keep, unmap this place.
        """
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
        """Return a place in a slab, which contains adjacent places. A large place is mapped
        separately, without guards.
        """
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
    """Return the address ranges that this process may read. Adjacent ranges are merged.

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
