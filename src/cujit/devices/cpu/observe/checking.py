"""Kernels under the checks of ``cujit.cpu(check=…)``: the data that their launches need, and the findings."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import secrets
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from cujit.devices.backend import title_of
from cujit.devices.cpu.ir.program import WARP, is_in_tensor_memory, is_queued
from cujit.devices.cpu.native.checking import Event, Tracker, Watch, checks_bits
from cujit.devices.cpu.native.structures import STACK_BYTES
from cujit.devices.cpu.observe.checked_launch import CheckedLaunch
from cujit.devices.cpu.observe.findings import CheckedRun, finding_of, words_outside
from cujit.devices.cpu.observe.ledger import Known, MemoryLedger, Table
from cujit.devices.cpu.observe.stories import story_of
from cujit.devices.cpu.observe.watching import Checks
from cujit.devices.cpu.observe.watching import WatchedKernel as KernelWatch
from cujit.devices.cpu.run.launch import WORKSPACE_BYTES
from cujit.devices.cpu.run.mappings import aligned
from cujit.devices.watch import Sources
from cujit.errors import CheckWarning

if TYPE_CHECKING:
    from cujit.devices.cpu.analysis.body import Body
    from cujit.devices.cpu.codegen.warp import Observer
    from cujit.devices.cpu.run.launch import Launch
    from cujit.devices.cpu.run.source_map import Lines
    from cujit.devices.shapes import HostExtent, LaunchShape
    from cujit.errors.stories import Story


class CheckingWatcher:
    """Checks every kernel that is loaded on a device; ``ledger`` knows the device's memory."""

    options = ("lineinfo",)

    def __init__(self, checks: Checks, *, knows_all: bool = False) -> None:
        self.checks = checks
        self.ledger = MemoryLedger(
            keeps_marks=checks.init, keeps_records=checks.race, cuts_views=checks.memory, knows_all=knows_all
        )
        self.sources = Sources()

    def watch(self, name: str, body: Body, lines: Lines) -> _CheckedKernel:
        """Begin with a kernel."""
        return _CheckedKernel(self, title_of(name), body, lines)


class _CheckedKernel(KernelWatch):
    """One kernel under checks."""

    def __init__(self, watcher: CheckingWatcher, title: str, body: Body, lines: Lines) -> None:
        from cujit.devices.cpu.observe import access_sites  # for what is compiled with checks
        from cujit.formats.ptx.isa.semantics import Effect  # for what is compiled with checks

        self._checks = watcher.checks
        self._ledger = watcher.ledger
        self._lines = lines
        self._title = title
        self._number = next(_NUMBERS)
        self._program = body.program
        self._uses_stack = bool(body.functions) or any(op.opcode == "alloca" for op in body.program.ops)
        ops = [op for each in body.bodies for op in each.program.ops]
        self._fenced = any(op.form.meaning.effect is Effect.ORDERS for op in ops)
        self._copies = any(is_queued(op) for op in ops)
        self._proxied = any(
            op.opcode == "wgmma" or is_in_tensor_memory(op) or (op.opcode == "cp" and "bulk" in op.modifiers)
            for op in ops
        )
        self._grain = access_sites.least_grain(ops)
        groups = access_sites.written_parameters(ops) if self._checks.race and not body.calls else None
        words = [word for group in groups or () for word in (len(group), *group)]
        self._writes = None if groups is None else (ctypes.c_uint32 * (len(words) + 1))(*words)
        self._runs: dict[int, CheckedRun] = {}

    def observer(self) -> Observer:
        """Return the observer that instruments the kernel."""
        from cujit.devices.cpu.observe.instrumentation import Checker  # for those who compile

        return Checker(self._checks, fenced=self._fenced, copies=self._copies)

    @contextlib.contextmanager
    def running(self, launch: Launch, shape: LaunchShape, extents: Sequence[HostExtent] = ()) -> Iterator[None]:
        """Register the memory that the kernel may access, for the duration of a launch."""
        parameters = ctypes.string_at(launch.parameters, self._program.parameters_size)
        workspace = Known(launch.workspace, WORKSPACE_BYTES, "the memory in which a cooperative grid waits")
        lent = self._ledger.lent(extents)
        table = self._ledger.table(parameters, [workspace, *lent] if launch.workspace else lent)
        watch = self._watch(launch, shape)
        watch.spans, watch.count = ctypes.addressof(table.spans), len(table.spans) - 1
        watch.serial = secrets.randbits(63)
        launch.checks = ctypes.addressof(watch)
        with self._ledger.launching(), self._telling(launch, shape, table, watch) as stored:
            yield
            self._ledger.settle(self._title, table, extents, stored)

    @contextlib.contextmanager
    def _telling(
        self, launch: Launch, shape: LaunchShape, table: Table, watch: Watch
    ) -> Iterator[Callable[[int], str]]:
        """Register a launch so that its findings can be described, and yield the function that describes a store."""
        address = ctypes.addressof(launch)
        stored = functools.partial(self._stored, watch.serial, table)
        run = self._runs[address] = CheckedRun(shape, table.place_of, watch, stored)
        try:
            yield stored
        finally:
            launch.checks = 0
            stored(0)
            self._ledger.launch_ended()
            del self._runs[address]
            if watch.outside:
                words = words_outside(launch, run, self._title, self._lines)
                warnings.warn(words, CheckWarning, stacklevel=2)

    def checked(self, job: Launch, shape: LaunchShape, code: int, size: int) -> CheckedLaunch:
        """Prepare a launch that native code starts."""
        return CheckedLaunch(self._ledger.checked, job, self._watch(job, shape), code, size)

    @contextlib.contextmanager
    def left(self, launch: Launch, shape: LaunchShape, checked: CheckedLaunch) -> Iterator[bool]:
        """Yield whether a launch that native code started has run. If it has, its findings are available in the
        context.
        """
        with checked.left(launch) as watch:
            if watch.stale:
                yield False
                return
            with self._telling(launch, shape, self._ledger.offered(watch.spans), watch):
                yield True

    def _stored(self, launch: int, table: Table, number: int) -> str:
        """Return a description of a store that wrote a raw value to memory, by the number of the store."""
        self._ledger.stores.learn(launch, self._title, self._lines, table.name_of)
        return self._ledger.stores.words_of(number)

    def _watch(self, launch: Launch, shape: LaunchShape) -> Watch:
        checks = self._checks
        stride = aligned(launch.shared_bytes + 1, _SHARED_UNIT)
        marks = ctypes.sizeof(Tracker) + (stride // _STRIP_BYTES * _RECORDS_BYTES if checks.race else 0)
        entries = aligned(marks + (stride if checks.init else 0), 64)
        records = _KINDS * stride * ctypes.sizeof(ctypes.c_uint32) if checks.race else 0
        most_events = (_KINDS + 1) * stride + _LEAST_EVENTS
        numbered = ctypes.sizeof(Event) + ctypes.sizeof(ctypes.c_uint32)
        phases = aligned(entries + records + (most_events * numbered if checks.race else 0), 64)
        words = (stride + WARP) * ctypes.sizeof(ctypes.c_uint32)
        bands = (stride // WARP + 2) * _BAND_BYTES
        piece = phases + (words + bands if checks.race else 0)
        cluster = max(launch.cluster_x * launch.cluster_y * launch.cluster_z, 1)
        return Watch(
            checks=checks.bits,
            warps=-(-shape.block.volume // WARP),
            shared_limit=launch.shared_bytes,
            shared_stride=stride,
            cluster_blocks=cluster,
            piece_bytes=aligned(piece, 64) if checks.race or checks.init else 0,
            entries=entries,
            marks=marks,
            phases=phases,
            events=entries + records,
            most_events=most_events,
            local_bytes=self._program.local_size,
            stack_bytes=STACK_BYTES if self._uses_stack else 0,
            parameter_bytes=self._program.parameters_size,
            stores=self._ledger.stores.address,
            kernel=self._number,
            proxied=self._proxied,
            grain=self._grain,
            writes=0 if self._writes is None else ctypes.addressof(self._writes),
        )

    def explain(self, launch: Launch) -> str | None:
        """Return the description of a check's finding, or None if no check found the fault."""
        run = self._runs.get(ctypes.addressof(launch))
        return None if run is None else finding_of(launch, run, self._lines)

    def story_of(self, launch: Launch) -> Story | None:
        """Return a check's finding as the actions of two threads, or None if no check found the fault."""
        run = self._runs.get(ctypes.addressof(launch))
        return None if run is None else story_of(launch, run, self._lines)


_NUMBERS = itertools.count(1)


_KINDS = 4
"""Records of a byte: who wrote it, two who read it, and who wrote it by an atomic operation."""

_SHARED_UNIT = 1024
"""Bytes in which marks and records of shared memory are counted."""

_STRIP_BYTES = 32
"""Bytes of memory that may have one record of each kind, at least."""

_RECORDS_BYTES = 16
"""Bytes of the records of a strip."""

_BAND_BYTES = 128
"""Bytes of the rules of a band, which is of as many grains as a warp has lanes."""

_LEAST_EVENTS = 1 << 13
"""Events that there is room for, beside those that records may name."""


def room_for(launch: Launch, local_bytes: int) -> int:
    """Return the bytes of local memory for one thread of the pool, including the memory that the checks need."""
    watch = Watch.from_address(launch.checks)
    watch.local_total = local_bytes
    return local_bytes * 2 if watch.checks & checks_bits()["init"] else local_bytes
