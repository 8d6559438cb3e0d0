"""Launches with a schedule. A seed determines the order of warps and blocks, the completion of copies, and contraction.

    ld.global.u32 x, [p];    ->    call void @cujit_yield(…)        the schedule may run other warps here
                                   x is loaded

Every warp has a separate stack, and one thread runs all blocks. Thus the same seed reproduces the same order.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from cujit.devices.cpu.analysis.dataflow import awaited
from cujit.devices.cpu.codegen.builder import Value
from cujit.devices.cpu.codegen.nodes import STATE, WARP_NUMBER
from cujit.devices.cpu.native.checking import Access, Space
from cujit.devices.cpu.native.structures import AT_ANY, WRITES, Writes
from cujit.devices.cpu.observe.access_sites import touches_of
from cujit.devices.cpu.observe.watching import WatchedKernel
from cujit.devices.watch import Sources
from cujit.errors import OptionError, spell
from cujit.formats.ptx.isa.semantics import Effect
from cujit.values import NamedTuple

if TYPE_CHECKING:
    from cujit.devices.cpu.analysis.body import Body
    from cujit.devices.cpu.codegen.warp import WarpEmitter
    from cujit.devices.cpu.ir.program import Op, Reg
    from cujit.devices.cpu.run.launch import Launch
    from cujit.devices.cpu.run.source_map import Lines
    from cujit.devices.shapes import HostExtent, LaunchShape

ORDERS = ("ascending", "any")
"""The orders in which blocks may start."""

_MASK = (1 << 64) - 1
_NEVER = 0xFFFFFFFF
"""A mask that no random number passes: copies land at their waits."""

_MOST_NEARBY = 4
"""Blocks (or clusters) that a schedule runs side by side."""

_MOST_SHARED = 4 << 20
"""Bytes of shared memory that they have together."""


def numbers_of(seed: int) -> Iterator[int]:
    """Yield 64-bit numbers without end. Source: G. Steele and others, "Fast splittable pseudorandom number
    generators", 2014: SplitMix64."""
    state = seed & _MASK
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ mixed >> 27) * 0x94D049BB133111EB) & _MASK
        yield mixed ^ mixed >> 31


class WrittenRange(NamedTuple):
    """One write to the watched bytes: its block, its thread, and its PTX line.

    ``atomic`` is set for an atomic operation or a reduction.
    """

    block: tuple[int, ...]
    thread: tuple[int, ...]
    line: int
    text: str
    atomic: bool


class Schedule:
    """The execution order of launches on a separate device, determined by ``seed``, which may change between launches.

    Blocks start in ascending order unless ``start_order`` is ``any``. With ``notes_writes``, ``writes`` contains the
    last writes to the ``watched`` bytes (an address and a size). ``write_count`` is the total number of these writes.

    Raises:
        OptionError: the seed is not an int from 0 to 2**64 - 1, or the start order is unknown.
    """

    options = ()

    def __init__(self, seed: int = 0, start_order: str = "ascending", *, notes_writes: bool = False) -> None:
        if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed <= _MASK:
            raise OptionError(f"the schedule must be an int, its seed, not {spell(seed)}", help="cujit.cpu(schedule=7)")
        if start_order not in ORDERS:
            raise OptionError(f"unknown start order {spell(start_order)}", help='start_order="any"')
        self.seed = seed
        self.start_order = start_order
        self.notes_writes = notes_writes
        self.watched = (0, 0)
        self.writes: list[WrittenRange] = []
        self.write_count = 0
        self.sources = Sources()

    @property
    def contracts(self) -> bool:
        """Whether sums are contracted in code that is loaded with this seed. The order uses separate random numbers."""
        return bool(next(numbers_of(~self.seed)) & 1)

    def watch(self, name: str, body: Body, lines: Lines) -> _ScheduledKernel:
        """Begin with a kernel."""
        del name, body
        return _ScheduledKernel(self, lines)


class _ScheduledKernel(WatchedKernel):
    """One kernel that runs by schedules."""

    needs_stacks = True

    def __init__(self, schedule: Schedule, lines: Lines) -> None:
        self._schedule = schedule
        self._lines = lines

    def observer(self) -> _Yields:
        """Return the observer that instruments the kernel."""
        return _Yields(notes_writes=self._schedule.notes_writes)

    @contextlib.contextmanager
    def running(self, launch: Launch, shape: LaunchShape, extents: Sequence[HostExtent] = ()) -> Iterator[None]:
        """Set the schedule by which a launch runs, and read the writes that the launch recorded."""
        del extents
        schedule = self._schedule
        numbers = numbers_of(schedule.seed)
        launch.schedule = next(numbers) | 1
        launch.yields = (1 << next(numbers) % 7) - 1
        launch.lands = (_NEVER, 0, 1, 15)[next(numbers) % 4]
        launch.picks = next(numbers) % 3
        cluster = max(launch.cluster_x * launch.cluster_y * launch.cluster_z, 1)
        clusters = max(shape.grid.volume // cluster, 1)
        if schedule.start_order == "any":
            launch.order_step, launch.order_first = _shuffled(clusters, next(numbers), next(numbers))
        if launch.together == cluster:  # not a cooperative grid, whose blocks all run side by side
            most = max(_MOST_SHARED // max(launch.shared_bytes * cluster, 1), 1)
            launch.together *= min(1 + next(numbers) % _MOST_NEARBY, most, clusters)
        begin, size = schedule.watched
        writes = Writes(begin=begin, end=begin + size)
        if size:
            launch.writes = ctypes.addressof(writes)
        try:
            yield
        finally:
            launch.writes = 0
            schedule.write_count = writes.count
            schedule.writes = list(self._final_writes(launch, shape, writes))

    def _final_writes(self, launch: Launch, shape: LaunchShape, writes: Writes) -> Iterator[WrittenRange]:
        """Yield the writes that were kept, the first write first."""
        for k in range(max(writes.count - WRITES, 0), writes.count):
            found = writes.each[k % WRITES]
            place, thread = launch.place(found.block), shape.block.place(found.thread)
            atomic = bool(found.flags & Access.STRONG and found.flags & Access.READ)
            text = self._lines.text_of(found.line).strip()
            source = self._lines.origin_of(found.line)
            where = f"PTX line {found.line}: {text}" + (f" ({source})" if source else "")
            yield WrittenRange(tuple(place), tuple(thread), found.line, where, atomic)


def _shuffled(count: int, first: int, second: int) -> tuple[int, int]:
    """Choose a step that visits each of ``count`` numbers once, and where to begin."""
    step = first % count or 1
    while math.gcd(step, count) != 1:
        step += 1
    return step, second % count


_SEEN = (Effect.READS, Effect.WRITES, Effect.UPDATES, Effect.ORDERS, Effect.SYNCHRONISES, Effect.ARRIVES)


class _Yields:
    """Instrumentation of one kernel that lets other warps run before each operation that interacts
    with other threads.
    """

    begin_region = None

    def __init__(self, *, notes_writes: bool) -> None:
        self._notes_writes = notes_writes

    def before(self, e: WarpEmitter, op: Op) -> None:
        """Emit code that lets other warps run, and then records the write of an operation."""
        effect = op.form.meaning.effect
        if effect not in _SEEN or op.space in ("param", "const", "local"):
            return
        loop = e.graph.blocks[e.position].loop
        if op.form.is_poll and (op.opcode == "mbarrier" or (loop and awaited(e.graph, loop) != AT_ANY)):
            return  # the loop around it lets others run; a warp that yields here would not count as one that waits
        e.builder.call("cujit_yield", "void", STATE, WARP_NUMBER)
        if self._notes_writes and effect in (Effect.WRITES, Effect.UPDATES):
            self._note(e, op)

    def after(self, e: WarpEmitter, op: Op) -> None:
        """Do nothing, because warps yield only before an operation."""

    def shadow_of(self, e: WarpEmitter, reg: Reg) -> None:
        """Return None, because schedules keep no data about registers."""
        del e, reg

    def _note(self, e: WarpEmitter, op: Op) -> None:
        b = e.builder
        for touch in touches_of(e, op):
            if not touch.access & Access.WRITE or touch.space not in (Space.GLOBAL, Space.GENERIC):
                continue
            size = touch.size if isinstance(touch.size, Value) else b.integer(touch.size, 64)
            if size.lanes:
                size = b.call("llvm.vector.reduce.umax.v32i64", "i64", size)
            place = b.in_memory("%note.addresses", touch.where.every_lane(b))
            numbers = [b.integer(touch.flags, 32), b.integer(op.line, 32)]
            b.call("cujit_note_writes", "void", STATE, WARP_NUMBER, place, touch.lanes_in(e, op), size, *numbers)
