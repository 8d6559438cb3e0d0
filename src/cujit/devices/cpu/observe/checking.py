"""Kernels under the checks of ``cujit.cpu(check=…)``: what a launch of them needs, and what they found."""

from __future__ import annotations

import bisect
import contextlib
import ctypes
import os
import secrets
import sys
import weakref
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from cujit.devices.cpu.ir.program import WARP, is_queued
from cujit.devices.cpu.native.structures import (
    PATTERN,
    STACK_BYTES,
    Event,
    Span,
    Tracker,
    Watch,
    checks_bits,
)  # fmt: skip
from cujit.devices.cpu.observe.findings import CheckedRun, finding_of
from cujit.devices.cpu.observe.watching import Checks
from cujit.devices.cpu.observe.watching import Watch as KernelWatch
from cujit.devices.cpu.run.launch import WORKSPACE_BYTES, HostBlock, live_blocks
from cujit.devices.cpu.run.mappings import APART, aligned, is_readable, readable_ranges
from cujit.devices.watch import Sources
from cujit.errors import ArgumentError
from cujit.forks import Lock
from cujit.values import dataclass, replace

if TYPE_CHECKING:
    from types import FrameType

    from cujit.devices.cpu.analysis.body import Body
    from cujit.devices.cpu.codegen.warp import Observer
    from cujit.devices.cpu.run.launch import Launch
    from cujit.devices.cpu.run.lines import Lines
    from cujit.devices.shapes import HostExtent, LaunchShape


class CheckingWatcher:
    """Checks every kernel that is loaded on a device; ``ledger`` knows the device's memory."""

    options = ("lineinfo",)

    def __init__(self, checks: Checks, *, knows_all: bool = False) -> None:
        self.checks = checks
        self.ledger = _Ledger(keeps_marks=checks.init, knows_all=knows_all)
        self.sources = Sources()

    def watch(self, name: str, body: Body, lines: Lines) -> _CheckedKernel:
        """Begin with a kernel."""
        del name
        return _CheckedKernel(self, body, lines)


class _CheckedKernel(KernelWatch):
    """One kernel under checks."""

    def __init__(self, watcher: CheckingWatcher, body: Body, lines: Lines) -> None:
        from cujit.formats.ptx.isa.semantics import Effect  # for what is compiled with checks

        self._checks = watcher.checks
        self._ledger = watcher.ledger
        self._lines = lines
        self._program = body.program
        self._uses_stack = bool(body.functions) or any(op.opcode == "alloca" for op in body.program.ops)
        ops = [op for each in body.bodies for op in each.program.ops]
        self._fenced = any(op.form.meaning.effect is Effect.ORDERS for op in ops)
        self._copies = any(is_queued(op) for op in ops)
        self._runs: dict[int, CheckedRun] = {}

    def observer(self) -> Observer:
        """Give what instruments the kernel."""
        from cujit.devices.cpu.observe.instrumentation import Checker  # for those who compile

        return Checker(self._checks, fenced=self._fenced, copies=self._copies)

    @contextlib.contextmanager
    def running(self, launch: Launch, shape: LaunchShape, extents: Sequence[HostExtent] = ()) -> Iterator[None]:
        """Say what there is of memory, for the time of a launch."""
        parameters = ctypes.string_at(launch.parameters, self._program.parameters_size)
        workspace = _Known(launch.workspace, WORKSPACE_BYTES, "the memory in which a cooperative grid waits")
        lent = self._ledger.lent(extents)
        table = self._ledger.table(parameters, [workspace, *lent] if launch.workspace else lent)
        watch = self._watch(launch, shape, table)
        address = ctypes.addressof(launch)
        self._runs[address] = CheckedRun(shape, table.place_of, watch)
        launch.checks = ctypes.addressof(watch)
        try:
            yield
        finally:
            launch.checks = 0
            del self._runs[address]

    def _watch(self, launch: Launch, shape: LaunchShape, table: _Table) -> Watch:
        checks = self._checks
        stride = aligned(launch.shared_bytes + 1, _SHARED_UNIT)
        marks = ctypes.sizeof(Tracker) + (stride // _STRIP_BYTES * _RECORDS_BYTES if checks.race else 0)
        entries = aligned(marks + (stride if checks.init else 0), 64)
        records = _KINDS * stride * ctypes.sizeof(ctypes.c_uint32) if checks.race else 0
        most_events = (_KINDS + 1) * stride + _LEAST_EVENTS
        numbered = ctypes.sizeof(Event) + ctypes.sizeof(ctypes.c_uint32)
        piece = entries + records + (most_events * numbered if checks.race else 0)
        cluster = max(launch.cluster_x * launch.cluster_y * launch.cluster_z, 1)
        return Watch(
            spans=ctypes.addressof(table.spans),
            count=len(table.spans) - 1,
            checks=checks.bits,
            warps=-(-shape.block.volume // WARP),
            shared_limit=launch.shared_bytes,
            shared_stride=stride,
            cluster_blocks=cluster,
            piece_bytes=aligned(piece, 64) if checks.race or checks.init else 0,
            entries=entries,
            marks=marks,
            events=entries + records,
            most_events=most_events,
            local_bytes=self._program.local_size,
            stack_bytes=STACK_BYTES if self._uses_stack else 0,
            parameter_bytes=self._program.parameters_size,
            serial=secrets.randbits(63),
        )

    def explain(self, launch: Launch) -> str | None:
        """Say what a check found; None for a fault that no check found."""
        run = self._runs.get(ctypes.addressof(launch))
        return None if run is None else finding_of(launch, run, self._lines)


_KINDS = 3
"""Records of a byte: who wrote it, and two who read it."""

_SHARED_UNIT = 1024
"""Bytes in which marks and records of shared memory are counted."""

_STRIP_BYTES = 32
"""Bytes of memory that may have one record of each kind, at least."""

_RECORDS_BYTES = 16
"""Bytes of the records of a strip."""

_LEAST_EVENTS = 1 << 13
"""Events that there is room for, beside those that records may name."""


def room_for(launch: Launch, local_bytes: int) -> int:
    """Add what the checks need to the bytes of local memory of one of the pool's threads."""
    watch = Watch.from_address(launch.checks)
    watch.local_total = local_bytes
    return local_bytes * 2 if watch.checks & checks_bits()["init"] else local_bytes


# -- what memory there is: what kernels may access, and what was freed ---------------------------------------


_PACKAGE = str(Path(__file__).parents[3])
_COMMAND_LINE = str(Path(_PACKAGE, "cli"))
_INSTALLED = frozenset({"site-packages", "dist-packages"})
"""Folders of packages that users install, and seldom wrote."""
_STANDARD = str(Path(os.__file__).parent) + os.sep

_QUARANTINE_BYTES = 256 << 20
_QUARANTINE_BLOCKS = 4096
"""Freed memory is kept, so that who uses it is told; beyond so much the oldest goes."""

_LEAST_ADDRESS, _MOST_ADDRESS = 1 << 16, 1 << 47
"""What a parameter has to be to count as an address. Source: Linux, Documentation/arch/x86/x86_64/mm.rst."""


@dataclass(frozen=True)
class _Known:
    """A range of memory: address, size in bytes, what to call it, whether it was freed, where its marks are (or 0)."""

    begin: int
    size: int
    words: str
    freed: bool = False
    marks: int = 0
    apart: int = APART
    """Bytes behind it in which nothing else lies; -1 where something may begin at its end."""

    @property
    def end(self) -> int:
        """The address behind it."""
        return self.begin + self.size


@dataclass(frozen=True)
class _Table:
    """The ranges of one launch, sorted, and the same for machine code (with one more at the end).

    ``holds`` is what has to stay for so long; it ``has_others`` where memory of others was looked for, and
    ``knows_all`` where there is none.
    """

    known: tuple[_Known, ...]
    spans: ctypes.Array[Span]
    holds: tuple[object, ...]
    has_others: bool = False
    knows_all: bool = False

    def place_of(self, address: int, size: int) -> str:
        """Say where an access lies to the range nearest to it."""
        if self.knows_all and is_readable(address) and not self._is_near(address):
            return "memory of the host, which was neither allocated for the device nor registered with it"
        if not self.known:
            return "the device has no memory allocated"
        nearest = min(self.known, key=lambda k: max(k.begin - address, address + size - k.end, 0))
        return _relation(nearest, address, size)

    def _is_near(self, address: int) -> bool:
        return any(known.begin - known.apart <= address < known.end + known.apart for known in self.known)


def _relation(known: _Known, address: int, size: int) -> str:
    inside = address - known.begin
    if address >= known.end:
        beyond = address - known.end
        where = f"{beyond:,} bytes past the end of" if beyond else "just past the end of"
    elif address < known.begin:
        before = known.begin - address
        where = f"{before:,} bytes before"
    elif address + size > known.end:
        where = f"the last {address + size - known.end:,} bytes are past the end of"
    else:
        where = f"at byte {inside:,} of"
    return f"{where} {known.words}"


class _Ledger:
    """The memory of one device. ``keeps_marks``: also which of its bytes were written; ``knows_all``: all there is.

    Any thread may call it: each entry holds the lock. ``_freed`` alone is written without, as the garbage collector may
    run in a thread that holds some lock.
    """

    def __init__(self, *, keeps_marks: bool, knows_all: bool) -> None:
        self._keeps_marks, self._knows_all = keeps_marks, knows_all
        self._blocks: dict[int, tuple[_Known, npt.NDArray[np.uint8] | None]] = {}
        self._quarantine: deque[tuple[_Known, object]] = deque()
        self._modules: list[tuple[weakref.ref[HostBlock], Mapping[str, tuple[int, int]]]] = []
        self._adopted: weakref.WeakValueDictionary[int, _Known] = weakref.WeakValueDictionary()
        self._changes = 0
        self._last: tuple[object, _Table] | None = None
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
        marks = None
        known = _Known(block.address, block.size, f"the {block.size:,}-byte array allocated {_caller()}")
        if self._keeps_marks and block.size:
            rows = -(-block.size // len(PATTERN))
            marks = np.zeros(rows * len(PATTERN), np.uint8)
            known = replace(known, marks=marks.ctypes.data)
            np.ctypeslib.as_array((ctypes.c_uint8 * len(PATTERN) * rows).from_address(block.address))[:] = list(PATTERN)
        with self._settled():
            self._blocks[block.address] = known, marks
            self._quarantine = deque(each for each in self._quarantine if each[0].begin != block.address)  # of a graph
            self._changes += 1
        weakref.finalize(block, self._free, block.address, block.memory).atexit = False

    def call(self, address: int, words: str) -> None:
        """Have messages call the memory that was allocated at an address so."""
        with self._settled():
            known, marks = self._blocks[address]
            self._blocks[address] = replace(known, words=words), marks
            self._changes += 1

    def _free(self, address: int, memory: object) -> None:
        """Note that memory was freed: now if the lock is open, else when it is taken next."""
        self._freed.append((address, memory))
        if not self._lock._is_owned() and self._lock.acquire(blocking=False):
            try:
                with self._settled():
                    pass
            finally:
                self._lock.release()

    def _put_away(self, address: int, memory: object) -> None:
        known, _ = self._blocks.pop(address)
        self._changes += 1
        if not known.size:
            return
        words = known.words.replace("the ", "the freed ", 1)
        self._quarantine.append((replace(known, freed=True, marks=0, words=words), memory))
        total = sum(k.size for k, _ in self._quarantine)
        while self._quarantine and (total > _QUARANTINE_BYTES or len(self._quarantine) > _QUARANTINE_BLOCKS):
            total -= self._quarantine.popleft()[0].size

    def adopt(self, address: int, size: int) -> _Known:
        """Note memory of others, for as long as somebody holds the answer. All of it counts as written.

        Raises:
            ArgumentError: some of it is noted already.
        """
        known = _Known(address, size, f"the {size:,} bytes adopted {_caller()}", apart=-1)
        with self._settled():
            self._adopt(known)
        return known

    def _adopt(self, known: _Known) -> None:
        others = [(other.begin, other.end) for other in self._adopted.values()]
        others += [(begin, begin + length) for begin, length in live_blocks()]
        if any(begin < known.end and known.begin < end for begin, end in others):
            raise ArgumentError(
                f"of the {known.size:,} bytes at {known.begin:#x} some are known as another allocation",
                help="close the array that adopted them; memory of cujit's own arrays is known without being adopted",
            )
        self._adopted[known.begin] = known

    def written(self, address: int, size: int) -> None:
        """Note that the host has written bytes."""
        if not self._keeps_marks or not size:
            return
        with self._settled():
            for known, marks in list(self._blocks.values()):
                if marks is not None and known.begin <= address and address + size <= known.end:
                    marks[address - known.begin :][:size] = 1
                    if size == known.size:
                        self._blocks[known.begin] = replace(known, marks=0), None
                        self._changes += 1

    def module(self, memory: HostBlock, variables: Mapping[str, tuple[int, int]]) -> None:
        """Note a module: offset and size of its variables in its memory."""
        with self._lock:
            self._modules.append((weakref.ref(memory), variables))

    def lent(self, extents: Sequence[HostExtent]) -> list[_Known]:
        """List memory of the host that a launch is given, where it is not known already; what overlaps is one range."""
        found: list[_Known] = []
        for begin, size, words in sorted(extents):
            if found and begin < found[-1].end:
                found[-1] = replace(found[-1], size=max(found[-1].end, begin + size) - found[-1].begin)
            else:
                found.append(_Known(begin, size, words, apart=0))
        ours = [(known.begin, known.end) for known in self._adopted.values()]
        ours += [(begin, begin + size) for begin, size in live_blocks()] if found else []
        return [k for k in found if not any(low < k.end and k.begin < high for low, high in ours)]

    # -- what a launch needs -----------------------------------------------------------------------------

    def table(self, parameters: bytes, more: Sequence[_Known] = ()) -> _Table:
        """Make the table for a launch with these parameters, which may access ``more`` as well.

        What they point to, and is not ours, is memory of others, if not all is known: all that is mapped there counts
        as theirs. Where all
        is as it was for the launch before, and nothing is of others, the table is, too.
        """
        with self._settled():
            return self._table(parameters, more)

    def _table(self, parameters: bytes, more: Sequence[_Known]) -> _Table:
        modules = [(block, variables) for ref, variables in self._modules if (block := ref()) is not None]
        adopted = [replace(known) for known in self._adopted.values()]  # which end with their owners, not with a launch
        live, images = live_blocks(), {block.address for block, _ in modules}
        key, last = (self._changes, parameters, tuple(more), live, images), self._last
        if last is not None and last[0] == key and not adopted:
            table = last[1]
        else:
            found = [*more, *adopted, *_variables(modules), *self._known(live, images)]
            table = self._sorted(found, parameters)
            self._last = None if adopted or table.has_others else (key, table)
        return replace(table, holds=(*table.holds, [block for block, _ in modules]))

    def _known(self, live: Iterable[tuple[int, int]], images: Collection[int]) -> Iterator[_Known]:
        """List the arrays of this device, and those of others that are ``live``, but for the images of modules."""
        for begin, size in live:
            ours = self._blocks.get(begin)
            if ours is not None:
                yield ours[0]
            elif begin not in images and size:
                yield _Known(begin, size, f"the {size:,} bytes allocated at {begin:#x}")

    def _sorted(self, found: list[_Known], parameters: bytes) -> _Table:
        """Make a table of what was found, what was freed, and what of others the parameters lead to."""
        ours, freed = dict(self._blocks), list(self._quarantine)
        found = sorted([*found, *(k for k, _ in freed)], key=lambda k: k.begin)
        others = [] if self._knows_all else _of_others(parameters, found)
        found = sorted([*found, *others], key=lambda k: k.begin)
        spans = (Span * (len(found) + 1))(*(Span(k.begin, k.end, k.freed, k.marks) for k in found))
        return _Table(tuple(found), spans, (ours, freed), bool(others), self._knows_all)


def _variables(modules: Iterable[tuple[HostBlock, Mapping[str, tuple[int, int]]]]) -> Iterator[_Known]:
    for block, variables in modules:
        for name, (at, n) in variables.items():
            if n:
                yield _Known(block.address + at, n, f"the variable {name} ({n:,} bytes)")


def _caller() -> str:
    """Say from where this was called: outside of cujit, and of what is installed where anything else called that."""
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
    return nearest or "by a program that is not of Python"


def _of_others(parameters: bytes, known: list[_Known]) -> list[_Known]:
    # What lies less than APART bytes behind memory of ours is nobody's: a parameter there is one beyond the end.
    words = np.frombuffer(parameters[: len(parameters) // 8 * 8], np.uint64).tolist()
    begins = [k.begin for k in known]
    found: list[_Known] = []
    mappings: list[tuple[int, int]] | None = None
    for address in sorted({w for w in words if _LEAST_ADDRESS <= w < _MOST_ADDRESS}):
        at = bisect.bisect_right(begins, address) - 1
        if (at >= 0 and address <= known[at].end + known[at].apart) or (found and address < found[-1].end):
            continue
        mappings = readable_ranges() if mappings is None else mappings
        end = next((high for low, high in mappings if low <= address < high), 0)
        if at + 1 < len(begins):
            end = min(end, begins[at + 1])
        if end > address:
            found.append(_Known(address, end - address, f"memory of others at {address:#x}"))
    return found
