"""The memory of a device under checks: accessible ranges, freed ranges, and checks of the values that
the host reads.
"""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import itertools
import os
import secrets
import sys
import weakref
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from cujit.devices.cpu.native.checking import (
    LEAST_ADDRESS,
    MOST_ADDRESS,
    PATTERN,
    STORES,
    CheckedMemory,
    KnownMemory,
    Reach,
    Span,
)
from cujit.devices.cpu.observe.checked_launch import users_of
from cujit.devices.cpu.observe.records import AccessRecords
from cujit.devices.cpu.observe.unwritten import ByteMarks, RawStores, first_raw
from cujit.devices.cpu.run.launch import CHANGES, HostBlock, count_change, live_blocks
from cujit.devices.cpu.run.mappings import GUARD_BYTES, is_readable, readable_ranges
from cujit.errors import ArgumentError, KernelFaultError, counted
from cujit.forks import Lock
from cujit.values import dataclass, replace

if TYPE_CHECKING:
    from types import FrameType

    from cujit.devices.shapes import HostExtent


_PACKAGE = str(Path(__file__).parents[3])
_COMMAND_LINE = str(Path(_PACKAGE, "cli"))
_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of packages that users install, and seldom wrote."""
_STANDARD = str(Path(os.__file__).parent) + os.sep

_QUARANTINE_BYTES = 256 << 20
_QUARANTINE_BLOCKS = 4096
"""Freed memory is kept, so that who uses it is told; beyond so much the oldest goes."""


@dataclass(frozen=True)
class Known:
    """A range of memory: its address, size in bytes, description, reach, marks, and records."""

    begin: int
    size: int
    words: str
    reach: Reach = Reach.LIVE
    marks: ByteMarks | None = None
    records: AccessRecords | None = None
    of_host: bool = False
    """The host sees it without a copy: raw values are reported at the end of a launch."""
    guard_bytes: int = GUARD_BYTES
    """Bytes behind it in which nothing else lies; -1 where something may begin at its end."""
    before: int = 0
    """Bytes of what its words name that lie before it."""

    @property
    def end(self) -> int:
        """The address after the last byte of the range."""
        return self.begin + self.size


@dataclass(frozen=True)
class Table:
    """The sorted ranges of one launch, and the same ranges as ``spans`` for machine code, with an additional last span.

    ``holds`` keeps objects alive as long as the table. ``knows_all`` is set if there is no externally allocated memory.
    """

    known: tuple[Known, ...]
    spans: ctypes.Array[Span]
    knows_all: bool = False
    holds: tuple[object, ...] = ()

    @classmethod
    def of(cls, known: Iterable[Known], *, knows_all: bool) -> Table:
        """Make the table of some ranges."""
        found = tuple(sorted(known, key=lambda k: k.begin))
        spans = (Span * (len(found) + 1))(
            *(
                Span(k.begin, k.end, k.reach, *(0 if of is None else of.address for of in (k.marks, k.records)))
                for k in found
            )
        )
        return cls(found, spans, knows_all)

    def place_of(self, address: int, size: int, other: tuple[int, int, str] | None) -> str:
        """Describe the location of an access relative to the nearest known range, or to an ``other`` that is nearer."""
        if other is None and self.knows_all and is_readable(address) and not self._is_near(address):
            return "host memory that was neither allocated for the device nor registered with it"
        known = self.known if other is None else (*self.known, Known(*other))
        if not known:
            return "the device has no memory allocated"
        nearest = min(known, key=lambda k: max(k.begin - address, address + size - k.end, 0))
        return _relation(nearest, address, size)

    def name_of(self, address: int) -> str:
        """Name the memory that an address is in; "" if it is not known."""
        return next((k.words for k in self.known if k.begin <= address < k.end), "")

    def _is_near(self, address: int) -> bool:
        return any(known.begin - known.guard_bytes <= address < known.end + known.guard_bytes for known in self.known)


def _relation(known: Known, address: int, size: int) -> str:
    inside = address - known.begin + known.before
    if address >= known.end:
        beyond = address - known.end
        where = f"{counted(beyond, 'byte')} past the end of" if beyond else "just past the end of"
    elif address < known.begin:
        where = f"{counted(known.begin - address, 'byte')} before"
    elif address + size > known.end:
        past = address + size - known.end
        where = f"{'the last byte is' if past == 1 else f'the last {past:,} bytes are'} past the end of"
    else:
        where = f"at byte {inside:,} of"
    return f"{where} {known.words}"


class MemoryLedger:
    """The memory of one device. If ``keeps_marks`` is set, the ledger also records which bytes were written.

    ``knows_all`` is set if all memory is known. ``cuts_views`` distinguishes the memory of a view from the rest of its
    array. ``keeps_records`` provides memory for records of accesses.

    Any thread may call a method, because each public method holds the lock. Only ``_freed`` is written without the
    lock, because the garbage collector may run in a thread that holds a lock.
    """

    def __init__(self, *, keeps_marks: bool, keeps_records: bool, cuts_views: bool, knows_all: bool) -> None:
        self._keeps_marks, self._cuts_views, self._knows_all = keeps_marks, cuts_views, knows_all
        self._keeps_records = keeps_records
        self.stores = RawStores()
        self._spare: dict[tuple[int, int], ByteMarks] = {}
        self._lent_records: dict[tuple[int, int], AccessRecords] = {}
        self._blocks: dict[int, Known] = {}
        self._quarantine: deque[tuple[Known, object]] = deque()
        self._modules: list[tuple[weakref.ref[HostBlock], list[Known]]] = []
        self._adopted: weakref.WeakValueDictionary[int, Known] = weakref.WeakValueDictionary()
        self._offered: list[tuple[KnownMemory, Table]] = []
        self.checked = CheckedMemory(changes=ctypes.addressof(CHANGES), serial=secrets.randbits(64))
        """What native code starts launches by."""
        self._running = 0
        self._forgot_at = 0
        """What ``CHANGES`` was when the stores were looked through and none could be dropped; 0 before."""
        self._lock = Lock()
        self._freed: deque[tuple[int, object]] = deque()

    @contextlib.contextmanager
    def _settled(self) -> Iterator[None]:
        """Hold the lock, with all that was freed in quarantine."""
        with self._lock:
            while self._freed:
                self._put_away(*self._freed.popleft())
            yield

    # -- what the device tells ---------------------------------------------------------------------------

    def add(self, block: HostBlock) -> None:
        """Note memory that was allocated, and where in the user's program that was."""
        words = f"the {block.size:,}-byte array allocated {_caller()}"
        known = Known(block.address, block.size, words, records=self._records(block.address, block.size))
        if self._keeps_marks and block.size:
            rows = -(-block.size // len(PATTERN))
            known = replace(known, marks=ByteMarks(block.address, block.size, written=False))
            np.ctypeslib.as_array((ctypes.c_uint8 * len(PATTERN) * rows).from_address(block.address))[:] = list(PATTERN)
        with self._settled():
            self._blocks[block.address] = known
            self._quarantine = deque(each for each in self._quarantine if each[0].begin != block.address)  # of a graph
            count_change()
        weakref.finalize(block, self._free, block.address, block.memory).atexit = False

    def call(self, address: int, words: str) -> None:
        """Set how messages name the memory that was allocated at an address."""
        with self._settled():
            self._blocks[address] = replace(self._blocks[address], words=words)
            count_change()

    def _free(self, address: int, memory: object) -> None:
        """Record that memory was freed: now if the lock is free, otherwise when the lock is next acquired."""
        self._freed.append((address, memory))
        count_change()
        if not self._lock._is_owned() and self._lock.acquire(blocking=False):
            try:
                with self._settled():
                    pass
            finally:
                self._lock.release()

    def _put_away(self, address: int, memory: object) -> None:
        known = self._blocks.pop(address)
        if not known.size:
            return
        words = known.words.replace("the ", "the freed ", 1)
        self._quarantine.append((replace(known, reach=Reach.FREED, marks=None, records=None, words=words), memory))
        total = sum(k.size for k, _ in self._quarantine)
        while self._quarantine and (total > _QUARANTINE_BYTES or len(self._quarantine) > _QUARANTINE_BLOCKS):
            total -= self._quarantine.popleft()[0].size

    def adopt(self, address: int, size: int) -> Known:
        """Record externally allocated memory for the lifetime of the result. All of the memory counts as written.

        Raises:
            ArgumentError: some of the memory is already recorded.
        """
        marks = self._written_marks(address, size)
        words, records = f"the {size:,} bytes adopted {_caller()}", self._records(address, size)
        known = Known(address, size, words, marks=marks, records=records, of_host=True, guard_bytes=-1)
        with self._settled():
            self._adopt(known)
            count_change()
        return known

    def _adopt(self, known: Known) -> None:
        others = [(other.begin, other.end) for other in self._adopted.values()]
        others += [(begin, begin + length) for begin, length in live_blocks()]
        if any(begin < known.end and known.begin < end for begin, end in others):
            raise ArgumentError(
                f"some of the {known.size:,} bytes at {known.begin:#x} already belong to another allocation",
                help="close the array that adopted them; you don't need to adopt the memory of cujit's own arrays",
            )
        self._adopted[known.begin] = known

    def written(self, address: int, size: int) -> None:
        """Note that the host has written bytes."""
        found = self._marked(address, size)
        if found is not None:
            found[1].write(address, size)

    def copied(self, to: int, source: int, size: int) -> None:
        """Record that bytes of this device were copied, including which bytes are raw."""
        with self._settled():
            self._copied(to, source, size)

    def _copied(self, to: int, source: int, size: int) -> None:
        known = self._marked(source, size)
        marks = None if known is None else known[1].of(source, size)
        target = self._marked(to, size)
        if known is None or marks is None or target is None:
            self.written(to, size)
            return
        bare = known[1].unwritten(source, size)
        elsewhere = np.uint8(0 if (to - source) % len(PATTERN) == 0 else 2 * STORES)
        target[1].take(to, np.where(bare, elsewhere, np.where(marks == 0, np.uint8(1), marks)))

    def read(self, address: int, size: int, dtype: np.dtype[Any], *, shared: bool = False) -> None:
        """Raise an error if elements that the host copies were never written.

        In ``shared`` memory, only stored raw values are errors, because other code may write the other elements later.

        Raises:
            KernelFaultError: an element was never written.
        """
        with self._settled():
            self._read(address, size, dtype, shared=shared)

    def _read(self, address: int, size: int, dtype: np.dtype[Any], *, shared: bool) -> None:
        found = self._marked(address, size)
        if found is None:
            return
        known, marks = found
        raw = first_raw(marks, address, size, dtype, self.stores, holes=not shared)
        if raw is None:
            return
        inside = address + raw.offset - known.begin
        how = "holds a value that was never written" if raw.mark else "was never written"
        what = f"element {raw.number}, at byte {inside:,} of {known.words}, {how}"
        does = "other code can read it here" if shared else "the host copies it here"
        raise _unwritten("", f"{what}, and {does}", address + raw.offset, self.stores.words_of(raw.mark // 2))

    def _marked(self, address: int, size: int) -> tuple[Known, ByteMarks] | None:
        """Return the memory that contains a range, and its marks, or None if the memory has no marks."""
        if not self._keeps_marks or not size:
            return None
        with self._settled():
            first = self._blocks.get(address)
            variables = (known for block, all_ in self._modules if block() is not None for known in all_)
            for known in itertools.chain(() if first is None else (first,), self._blocks.values(), variables):
                if known.marks is not None and known.begin <= address and address + size <= known.end:
                    return known, known.marks
        return None

    def _records(self, address: int, size: int, *, always_written: bool = False) -> AccessRecords | None:
        return AccessRecords(address, size, always_written=always_written) if self._keeps_records and size else None

    def _written_marks(self, address: int, size: int) -> ByteMarks | None:
        return ByteMarks(address, size, written=True) if self._keeps_marks and size else None

    def module(self, memory: HostBlock, variables: Mapping[str, tuple[int, int]]) -> None:
        """Note a module: offset and size of its variables in its memory."""
        found = [
            Known(
                memory.address + at,
                size,
                f"the variable {name} ({size:,} bytes)",
                marks=self._written_marks(memory.address + at, size),
                records=self._records(memory.address + at, size, always_written=True),
            )
            for name, (at, size) in variables.items()
            if size
        ]
        with self._lock:
            if found or all(block() is not memory for block, _ in self._modules):  # modules without variables share it
                self._modules.append((weakref.ref(memory), found))
            count_change()

    def settle(self, kernel: str, table: Table, extents: Sequence[HostExtent], stored: Callable[[int], str]) -> None:
        """Finish a successful launch, and raise an error if the launch left raw values in host memory.

        Raises:
            KernelFaultError: the launch left raw values in host memory.
        """
        for known in table.known:
            marks = known.marks
            if marks is None or not known.of_host:
                continue
            if marks.plain:
                self._spare[known.begin, known.size] = marks
            else:
                self._look(kernel, known, marks, [e for e in extents if _holds(known, e.view)], stored)

    def _look(
        self,
        kernel: str,
        known: Known,
        marks: ByteMarks,
        views: Iterable[HostExtent],
        stored: Callable[[int], str],
    ) -> None:
        """Report the first raw element in host memory: an element of a view of the memory, otherwise a byte."""
        ranges = [(view, *view.view, np.dtype((np.void, view.item))) for view in views]
        for view, begin, size, dtype in [*ranges, (None, known.begin, known.size, np.dtype(np.uint8))]:
            raw = first_raw(marks, begin, size, dtype, self.stores, holes=False)
            if raw is None:
                continue
            address = begin + raw.offset
            marks.write(known.begin, known.size)
            what = f"byte {address - known.begin:,} of {known.words}"
            if view is not None:
                what = f"{view.element_at(address)} {view.called}"
            words = f"{what} holds a value that was never written, and the host can read it when the kernel ends"
            raise _unwritten(kernel, words, address, stored(raw.mark // 2))

    def lent(self, extents: Sequence[HostExtent]) -> list[Known]:
        """Return the host memory that a launch receives, except memory that is already known. Overlapping ranges are
        merged.
        """
        found = _merged(extents)
        if not found:
            return []
        with self._settled():
            ours = [(known.begin, known.end) for known in self._adopted.values()]
        ours += [(begin, begin + size) for begin, size in live_blocks()]
        found = [k for k in found if not any(low < k.end and k.begin < high for low, high in ours)]
        if self._keeps_records:
            held, made = self._lent_records, {(k.begin, k.size): k for k in found}
            self._lent_records = {key: held.get(key) or AccessRecords(*key) for key in made}
            found = [replace(k, records=self._lent_records[key]) for key, k in made.items()]
        if self._cuts_views:
            found = [part for known in found for part in _cut(known, extents)]
        if self._keeps_marks:
            spare, self._spare = self._spare, {}
            found = [
                replace(k, marks=spare.get((k.begin, k.size)) or self._written_marks(k.begin, k.size), of_host=True)
                for k in found
            ]
        return found

    @contextlib.contextmanager
    def launching(self) -> Iterator[None]:
        """Keep the numbers of stores for the duration of a launch. Before the launch, drop unused numbers."""
        with self._settled():
            if self.stores.full and not self._running and self._forgot_at != CHANGES.value:
                self._forget_stores()
            self._running += 1
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1

    def _forget_stores(self) -> None:
        count_change()  # native code leaves launches to Python from here on
        if users_of(self.checked):
            return
        variables = (known for block, all_ in self._modules if block() is not None for known in all_)
        known = itertools.chain(self._blocks.values(), self._adopted.values(), variables)
        self.stores.forget([each.marks for each in known if each.marks is not None])
        self._forgot_at = CHANGES.value if self.stores.full else 0

    def launch_ended(self) -> None:
        """Let the next launch drop old stores if this launch used the last store number."""
        if self.stores.full and not self._forgot_at:
            count_change()  # native code leaves that launch to Python

    # -- what a launch needs -----------------------------------------------------------------------------

    def table(self, parameters: bytes, more: Sequence[Known] = ()) -> Table:
        """Return the table for a launch with these parameters, which may also access ``more``.

        Unless all memory is known, parameters may point to externally allocated memory. The table then includes all
        memory that is mapped there.
        """
        with self._settled():
            adopted = [replace(k) for k in self._adopted.values()]  # which end with their owners, not with a launch
            modules = tuple(block for ref, _ in self._modules if (block := ref()) is not None)
            table = self._own()
            if more or adopted:
                table = Table.of([*more, *adopted, *table.known], knows_all=self._knows_all)
            others = [] if self._knows_all else _of_others(parameters, table.known)
            if others:
                table = Table.of([*table.known, *others], knows_all=False)
            return replace(table, holds=modules)

    def offered(self, spans: int) -> Table:
        """Return the table with the spans that native code read, by the address of the spans."""
        return next(table for _, table in self._offered if ctypes.addressof(table.spans) == spans)

    def _own(self) -> Table:
        """Return the table of the memory that is known without a launch: the previous table unless
        memory has changed.
        """
        changes = CHANGES.value
        if not self._offered or self._offered[-1][0].changes != changes:
            self._modules = [(block, found) for block, found in self._modules if block() is not None]
            blocks = [(block(), found) for block, found in self._modules]
            images = {block.address for block, _ in blocks if block is not None}
            found = [*(known for _, all_ in blocks for known in all_), *self._known(live_blocks(), images)]
            table = Table.of([*found, *(known for known, _ in self._quarantine)], knows_all=self._knows_all)
            known = KnownMemory(ctypes.addressof(table.spans), len(table.spans) - 1, changes)
            self._offered.append((known, table))
            self.checked.known = ctypes.addressof(known)
            if not users_of(self.checked):
                del self._offered[:-1]
        return self._offered[-1][1]

    def _known(self, live: Iterable[tuple[int, int]], images: Collection[int]) -> Iterator[Known]:
        """Yield the ``live`` arrays of this device and of other devices, except module images."""
        for begin, size in live:
            ours = self._blocks.get(begin)
            if ours is not None:
                yield ours
            elif begin not in images and size:
                yield Known(begin, size, f"the {size:,} bytes allocated at {begin:#x}")


def _merged(extents: Iterable[HostExtent]) -> list[Known]:
    found: list[Known] = []
    for begin, size, words, *_ in sorted(extents):
        if found and begin < found[-1].end:
            found[-1] = replace(found[-1], size=max(found[-1].end, begin + size) - found[-1].begin)
        else:
            found.append(Known(begin, size, words, guard_bytes=0))
    return found


def _unwritten(kernel: str, words: str, address: int, how: str) -> KernelFaultError:
    return KernelFaultError(
        f"kernel {kernel}: {words}{how}" if kernel else f"{words}{how}",
        kind="init",
        kernel=kernel,
        address=address,
        help="write the element first, in a kernel or with device.zeros(…); or copy only the written part: "
        "x[:n].numpy()",
    )


def _holds(known: Known, view: tuple[int, int]) -> bool:
    begin, size = view
    return known.begin <= begin and begin + size <= known.end


def _cut(known: Known, extents: Sequence[HostExtent]) -> Iterator[Known]:
    """Yield the parts of an array's memory: the views that launches received, and the rest."""

    def part(begin: int, end: int, reach: Reach) -> Iterator[Known]:
        if begin < end:
            yield replace(known, begin=begin, size=end - begin, before=begin - known.begin, reach=reach)

    at = known.begin
    for begin, size in sorted(e.view for e in extents if _holds(known, e.view)):
        yield from part(at, begin, Reach.OUTSIDE)
        yield from part(max(at, begin), begin + size, Reach.LIVE)
        at = max(at, begin + size)
    yield from part(at, known.end, Reach.OUTSIDE if at > known.begin else Reach.LIVE)


def _caller() -> str:
    """Return a description of the nearest caller outside of cujit.

    An installed package counts only if no other code called it.
    """
    frame: FrameType | None = sys._getframe(1)
    nearest = ""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(_COMMAND_LINE) and not nearest:
            return "by the command line"
        if not file.startswith((_PACKAGE, "<frozen ")):
            where = f"at {file}:{frame.f_lineno}"
            if not _INSTALLED.intersection(Path(file).parts) and not file.startswith(_STANDARD):
                return where
            nearest = nearest or where
        frame = frame.f_back
    return nearest or "by a program not written in Python"


def _of_others(parameters: bytes, known: Sequence[Known]) -> list[Known]:
    # What lies less than APART bytes behind memory of ours is nobody's: a parameter there is one beyond the end.
    words = np.frombuffer(parameters[: len(parameters) // 8 * 8], np.uint64).tolist()
    begins = [k.begin for k in known]
    found: list[Known] = []
    mappings: list[tuple[int, int]] | None = None
    for address in sorted({w for w in words if LEAST_ADDRESS <= w < MOST_ADDRESS}):
        at = bisect.bisect_right(begins, address) - 1
        if (at >= 0 and address <= known[at].end + known[at].guard_bytes) or (found and address < found[-1].end):
            continue
        mappings = readable_ranges() if mappings is None else mappings
        end = next((high for low, high in mappings if low <= address < high), 0)
        if at + 1 < len(begins):
            end = min(end, begins[at + 1])
        if end > address:
            found.append(Known(address, end - address, f"externally allocated memory at {address:#x}"))
    return found
