"""Profiles: the cost of kernels on the CPU device, counted in the same way as by a GPU's counters."""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from cujit.devices.cpu.analysis.body import Body
from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Value
from cujit.devices.cpu.codegen.nodes import BLOCK, LAUNCH, STATE, WARP_NUMBER
from cujit.devices.cpu.instructions.textures import count_texels
from cujit.devices.cpu.ir.decoding import spelled
from cujit.devices.cpu.ir.program import CLEAR, IntConstant, Op, Reg, registers_in
from cujit.devices.cpu.native.checking import Space
from cujit.devices.cpu.native.counting import (
    ACCESSED_LOADS,
    ACCESSED_UPDATES,
    COUNTS,
    PICTURES,
    Count,
    Picture,
    Profiled,
    Tally,
)
from cujit.devices.cpu.native.library import address_of
from cujit.devices.cpu.native.structures import Block
from cujit.devices.cpu.observe.access_sites import MemoryAccess, may_touch_global, touches_of
from cujit.devices.cpu.observe.measures import (
    LINE_BYTES,
    ProfiledInstruction,
    ProfiledKernel,
    WarpAccess,
    access_of,
    added,
    in_order,
    measures_of,
    pipe_of,
    stride_of,
    width_of,
)
from cujit.devices.cpu.observe.watching import WatchedKernel
from cujit.devices.cpu.run.launch import SYSTEM_BYTES, Launch
from cujit.devices.cpu.run.source_map import Lines, SourceLine
from cujit.devices.shapes import HostExtent, LaunchShape
from cujit.devices.watch import Sources
from cujit.errors import ClosedError, CujitError
from cujit.forks import Lock
from cujit.formats.mangling import entity_name
from cujit.formats.ptx.isa.semantics import Effect
from cujit.values import replace

if TYPE_CHECKING:
    from cujit.devices.cpu.codegen.warp import WarpEmitter
    from cujit.devices.cpu.ir.cfg import BasicBlock as BasicBlock

_COUNTED = (Space.GENERIC, Space.SHARED, Space.LOCAL, Space.GLOBAL)
_STEADY = (Effect.PURE, Effect.READS, Effect.WRITES, Effect.UPDATES)


class Profile:
    """The cost of kernels, by instruction and line: ``cujit.cpu(profile=cujit.profile.Profile())``.

    A profile counts executions by warps and threads, divergence, memory sectors, bank conflicts, atomic contention, and
    arithmetic. It covers the modules that the device loads. The counts don't depend on the number of threads that run
    blocks. docs/profile.md lists the Nsight Compute counters with equal values.

    Example::

        profile = cujit.profile.Profile()
        profiled = cujit.cpu(profile=profile)
        cujit.jit(CODE, names=["axpy<float>"], device=profiled, name="axpy.cu")["axpy<float>"][1, 32](2.0, x, y, 32)
        print(profile.kernels[0].totals.sectors)
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._watched: list[_ProfiledKernel] = []
        self.sources = Sources()

    @property
    def kernels(self) -> tuple[ProfiledKernel, ...]:
        """Every kernel that was launched, in the order in which they were loaded."""
        with self._lock:
            watched = list(self._watched)
        return tuple(each.result() for each in watched if each.launches)

    def clear(self) -> None:
        """Discard all counts.

        Example::

            profile = cujit.profile.Profile()
            profile.clear()
            assert profile.kernels == ()
        """
        with self._lock:
            for each in self._watched:
                each.clear()

    def to_json(self) -> dict[str, Any]:
        """Return the profile as plain values. What Nsight Compute also counts is in ``metrics``, under its names.

        Example::

            assert cujit.profile.Profile().to_json() == {"schema": 1, "kernels": []}
        """
        return {"schema": 1, "kernels": [kernel.to_json() for kernel in self.kernels]}

    def __reduce__(self) -> str:
        raise ClosedError(
            "profiles can't be sent to another process", help="send profile.kernels or profile.to_json() instead"
        )

    # -- what the device calls ---------------------------------------------------------------------------

    options = ("lineinfo",)

    def watch(self, name: str, body: Body, lines: Lines) -> _ProfiledKernel:
        """Begin with a kernel."""
        made = _ProfiledKernel(name, body, lines, self.sources.copy())
        with self._lock:
            self._watched.append(made)
        return made


class _ProfiledKernel(WatchedKernel):
    """One kernel that is profiled; its launches are counted one after the other."""

    def __init__(self, name: str, body: Body, lines: Lines, sources: Sources) -> None:
        self._name = name
        self._lines = lines
        self._sources = sources
        self._table = _CounterTable(body)
        self._lock = Lock()
        self._places = _Places(self._table.ops, self._source_of)
        places = {
            name: values.ctypes.data for name, values in vars(self._places).items() if isinstance(values, np.ndarray)
        }
        sizes = {"count": COUNTS * len(self._table.ops), "row_count": len(self._places.lines)}
        self._state = Profiled(local_bytes=body.program.local_size, **sizes, **places)
        self._begin()

    def clear(self) -> None:
        """Discard the counts of all launches. A kernel without launches has no counts."""
        with self._lock:
            if self.launches:
                self._begin()

    def _begin(self) -> None:
        self.launches = self._blocks = self._warps = self._threads = 0
        self._totals = np.zeros((len(self._table.ops), COUNTS), np.uint64)
        self._pictures = (Picture * (len(self._table.ops) * PICTURES))()
        self._state.sectors = self._state.block_sectors = 0
        self._places.clear()

    def observer(self) -> _Profiler:
        """Return the observer that instruments the kernel."""
        return _Profiler(self._table, ctypes.addressof(self._state), int(self._state.local_bytes))

    @contextlib.contextmanager
    def running(self, launch: Launch, shape: LaunchShape, extents: Sequence[HostExtent] = ()) -> Iterator[None]:
        """Count a launch, even if the launch fails."""
        del launch, extents
        blocks, threads = shape.grid.volume, shape.block.volume
        with self._lock:
            try:
                yield
            finally:
                kept = self._totals.ctypes.data, ctypes.addressof(self._pictures)
                _END(address_of("cujit_profile_end"))(ctypes.addressof(self._state), *kept)
                self.launches += 1
                self._blocks += blocks
                self._warps += blocks * -(-threads // WARP)
                self._threads += blocks * threads
                lost, self._state.lost = self._state.lost, 0
            if lost:
                raise CujitError(
                    f"there was not enough memory for a complete profile of {self._name}",
                    help="launch fewer blocks",
                    code="out-of-memory",
                )

    def result(self) -> ProfiledKernel:
        """Return the counts so far."""
        with self._lock:
            counts = self._totals.tolist()
            launches, sectors, block_sectors = self.launches, self._state.sectors, self._state.block_sectors
            sizes = self._blocks, self._warps, self._threads
            distinct, by_line = self._places.counted()
            accesses = [_access_in(picture) for picture in self._pictures]
        rows: dict[tuple[int, str], list[ProfiledInstruction]] = {}
        for k, op in enumerate(self._table.ops):
            own = tuple(access for access in accesses[k * PICTURES : (k + 1) * PICTURES] if access is not None)
            row = self._row(op, counts[k], counts[self._table.leaders[k]], own)
            rows.setdefault((row.ptx_line, row.text), []).append(row)
        instructions = tuple(
            replace(_together(same), distinct_sectors=distinct.get(key, 0)) for key, same in sorted(rows.items())
        )
        title = entity_name(self._name) or self._name
        counted = int(sectors), int(block_sectors)
        return ProfiledKernel(title, launches, instructions, *counted, *sizes, self._name, by_line)

    def _source_of(self, op: Op) -> SourceLine | None:
        return next(iter(self._chain_of(op)), None)

    def _chain_of(self, op: Op) -> tuple[SourceLine, ...]:
        """List the line of an operation, if it is known, and the calls by which it was inlined."""
        chain = self._lines.chain_of(op.line)
        if not chain or not chain[0].line:
            return ()
        known = [self._sources.find(each.file) for each in chain]
        return tuple(
            SourceLine(each.file if text is None else text.shown, each.line)
            for each, text in zip(chain, known, strict=True)
        )

    def _row(
        self, op: Op, counts: list[int], lanes: list[int], accesses: tuple[WarpAccess, ...]
    ) -> ProfiledInstruction:
        return ProfiledInstruction(
            op.line,
            spelled(op),
            self._source_of(op),
            pipe_of(op),
            str(op.type) if op.types else "",
            access_of(op, is_read=not self._table.read.isdisjoint(op.written)),
            op.space if op.form.spaces or width_of(op) else "",
            width_of(op),
            stride_of(counts),
            measures_of(op, counts, lanes),
            accesses,
            inlined_at=self._chain_of(op)[1:],
        )


_END = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint64)


class _Places:
    """The rows of instructions that may access global memory, in order of their source lines.

    ``rows`` contains the row of each operation, and ``lines`` contains the line of each row. ``row_sectors`` and
    ``line_sectors`` are the numbers of distinct sectors, over all launches. Copies of an instruction share a row, as in
    the report.
    """

    def __init__(self, ops: Sequence[Op], source_of: Callable[[Op], SourceLine | None]) -> None:
        keys = {op: (op.line, spelled(op)) for op in ops if may_touch_global(op)}
        sources = {key: source_of(op) for op, key in keys.items()}
        order = sorted(sources, key=lambda key: (in_order(sources[key]), key))
        self._keys = {key: row for row, key in enumerate(order)}
        self._sources = [*dict.fromkeys(sources[key] for key in order)]
        numbers = {source: line for line, source in enumerate(self._sources)}
        self.rows = np.array([self._keys[keys[op]] if op in keys else _NO_ROW for op in ops], np.uint32)
        self.lines = np.array([numbers[sources[key]] for key in order], np.uint32)
        self.row_sectors = np.zeros(len(order), np.uint64)
        self.line_sectors = np.zeros(len(numbers), np.uint64)

    def clear(self) -> None:
        """Reset all sector counts to 0."""
        self.row_sectors[:] = self.line_sectors[:] = 0

    def counted(self) -> tuple[dict[tuple[int, str], int], tuple[tuple[SourceLine | None, int], ...]]:
        """Return the distinct sectors of rows, by PTX line and text, and of the lines that have any."""
        rows, lines = self.row_sectors.tolist(), self.line_sectors.tolist()
        by_line = tuple((source, count) for source, count in zip(self._sources, lines, strict=True) if count)
        return {key: rows[row] for key, row in self._keys.items()}, by_line


_NO_ROW = (1 << 32) - 1


def _together(rows: list[ProfiledInstruction]) -> ProfiledInstruction:
    """Return the combined cost of an instruction's copies, which result from a function that is inlined in several
    places.
    """
    if len(rows) == 1:
        return rows[0]
    strides = [row.stride_bytes for row in rows if row.stride_bytes is not None]
    stride = (min(least for least, _ in strides), max(most for _, most in strides)) if strides else None
    firsts: dict[str, WarpAccess] = {}
    for access in sorted((access for row in rows for access in row.accesses), key=lambda access: access.block):
        firsts.setdefault(access.space, access)
    measures = added(row.measures for row in rows)
    return replace(rows[0], measures=measures, stride_bytes=stride, accesses=tuple(firsts.values()))


_SPACE_NAMES = {Space.SHARED: "shared", Space.LOCAL: "local", Space.GLOBAL: "global"}


def _access_in(picture: Picture) -> WarpAccess | None:
    """Read a picture; of global memory from a line of the cache on, since addresses differ from process to process."""
    lanes = [lane for lane in range(WARP) if picture.lanes >> lane & 1]
    if not picture.block:
        return None
    is_global = picture.space == Space.GLOBAL
    begin = min(picture.at[lane] for lane in lanes) // LINE_BYTES * LINE_BYTES if is_global else 0
    places = tuple((lane, picture.at[lane] - begin, picture.size[lane]) for lane in lanes)
    return WarpAccess(_SPACE_NAMES[Space(picture.space)], picture.block - 1, places)


class _CounterTable:
    """The operations of a kernel by number, and for each operation the first operation that the same lanes reach.

    If the kernel is cut at its barriers, ``behind`` maps each region to the barrier that it follows. ``behind`` is None
    if two barriers begin the same region, or if a barrier begins no region.
    """

    def __init__(self, body: Body) -> None:
        self.ops: list[Op] = []
        self.leaders: list[int] = []
        for each in body.bodies:
            for block in each.graph.blocks:
                self._add(block)
        self.numbers = {op: k for k, op in enumerate(self.ops)}
        self.read = {reg for op in self.ops for operand in op.sources for reg in registers_in(operand)}
        self.read |= {op.guard for op in self.ops if op.guard is not None}
        self.alike = {_alike(op): op for op in self.ops}
        begins = {block.successors[0]: op for block in body.graph.blocks if (op := block.barrier) is not None}
        barriers = sum(block.barrier is not None for block in body.graph.blocks)
        is_clear = len(begins) == barriers and body.graph.exit not in begins
        self.behind = dict(enumerate(begins.values(), 1)) if is_clear else None

    def _add(self, block: BasicBlock) -> None:
        leader = -1
        for op in block.ops:
            if op.opcode in ("label", CLEAR):
                continue
            leader = leader if leader >= 0 else len(self.ops)
            self.leaders.append(leader)
            self.ops.append(op)
            if op.form.is_site or op.form.meaning.effect not in _STEADY or op.opcode.startswith("call"):
                leader = -1


def _alike(op: Op) -> tuple[object, ...]:
    """Return the properties of a store that don't change if a guard replaces the branch around the store."""
    return op.line, op.form, op.results, op.sources


class _Profiler:
    """Instrumentation that counts: it adds to the counters of the thread, and passes the addresses of accesses to
    native code.

    ``state`` is the address of the ``Profiled``. The code may contain this address, because watched code is not cached.
    """

    def __init__(self, table: _CounterTable, state: int, local_bytes: int) -> None:
        self._table = table
        self._leaders = frozenset(table.leaders)
        self._state = state
        self._tally, self._counts, self._local = (f"%profile.{name}.{state}" for name in ("tally", "counts", "local"))
        self._local_bytes = local_bytes
        self._remakes = False

    @property
    def begin_region(self) -> Callable[[WarpEmitter, int], None] | None:
        """The function that counts the barrier before a region, or None if the barrier of a region is not known."""
        return self._pass_barrier if self._table.behind is not None else None

    def _pass_barrier(self, e: WarpEmitter, number: int) -> None:
        self._remakes = number > 0
        if not number:
            return
        assert self._table.behind is not None
        self._begin(e)
        first = self._table.numbers[self._table.behind[number]] * COUNTS
        b, uneven = e.builder, e.block.volume % WARP
        self._add(e, first + Count.WARPS, b.integer(1, 64))
        if uneven:
            is_last = b.compare("icmp eq", WARP_NUMBER, b.integer(e.block.volume // WARP, 32))
            self._add(e, first + Count.MISSING, b.select(is_last, b.integer(WARP - uneven, 64), b.integer(0, 64)))

    def before(self, e: WarpEmitter, op: Op) -> None:
        """Emit code that counts the lanes that reach an operation, and the accesses of the operation."""
        number = self._table.numbers.get(op)
        if number is None:
            self._converted(e, op)
        elif not self._is_remade(e, op):
            self._count(e, op, number)

    def _is_remade(self, e: WarpEmitter, op: Op) -> bool:
        """Return whether an operation is repeated for a region, so that it was already counted at its
        original place.
        """
        return self._remakes and op not in e.graph.blocks[e.position].ops

    def _count(self, e: WarpEmitter, op: Op, number: int) -> None:
        self._begin(e)
        first = number * COUNTS
        if number in self._leaders:
            self._come(e, first)
        if op.guard is not None:
            self._predicate(e, op, first)
        if not _is_left_out(op):
            for touch in touches_of(e, op):
                if touch.space in _COUNTED:
                    assert may_touch_global(op) or touch.space not in (Space.GENERIC, Space.GLOBAL)
                    self._access(e, op, touch, first)

    def _converted(self, e: WarpEmitter, op: Op) -> None:
        """Emit code that counts a store with a guard as the original store and the branch that the guard replaces."""
        original = self._table.alike.get(_alike(op))
        if original is None:
            return
        number = self._table.numbers[original]
        branch = next((each for each in self._table.ops if each.form.is_jump and each.guard is op.guard), None)
        if branch is not None and number in self._leaders:
            self._begin(e)
            self._predicate(e, branch, self._table.numbers[branch] * COUNTS)
        self._count(e.within(mask=e.lanes(op)), original, number)

    def shadow_of(self, e: WarpEmitter, reg: Reg) -> None:
        """Return None, because profiles keep no data about registers."""
        del e, reg

    def after(self, e: WarpEmitter, op: Op) -> None:
        """Emit code that counts the texels that a texture lookup read, which are known only after the lookup."""
        number = self._table.numbers.get(op)
        if op.opcode in ("tex", "tld4") and number is not None and not self._is_remade(e, op):
            place = e.builder.integer(number * COUNTS + Count.TEXTURE_BYTES, 64)
            count_texels(e, op, e.builder.point("i64", self._counts, place))

    # -- lanes -------------------------------------------------------------------------------------------

    def _come(self, e: WarpEmitter, first: int) -> None:
        b = e.builder
        if e.mask.constant:
            self._add(e, first + Count.WARPS, b.integer(1, 64))
            return
        word = b.word(e.mask)
        some = b.cast("zext", b.compare("icmp ne", word, b.integer(0, 32)), "i64")
        self._add(e, first + Count.WARPS, some)
        all_of_them = b.binary("mul", some, b.integer(WARP, 64))
        self._add(e, first + Count.MISSING, b.binary("sub", all_of_them, _lanes_in(e, word)))

    def _predicate(self, e: WarpEmitter, op: Op, first: int) -> None:
        b = e.builder
        come, do = b.word(e.mask), b.word(e.lanes(op))
        self._add(e, first + Count.OFF, b.binary("sub", _lanes_in(e, come), _lanes_in(e, do)))
        if op.form.is_jump:
            none = b.integer(0, 32)
            divergent = b.binary("and", b.compare("icmp ne", do, none), b.compare("icmp ne", do, come))
            self._add(e, first + Count.DIVERGENT, b.cast("zext", divergent, "i64"))

    def _add(self, e: WarpEmitter, place: int, value: Value) -> None:
        """Emit an addition to a counter that no other thread changes."""
        b = e.builder
        at = b.point("i64", self._counts, b.integer(place, 64))
        b.store(b.binary("add", b.load("i64", at), value), at)

    # -- accesses ----------------------------------------------------------------------------------------

    def _access(self, e: WarpEmitter, op: Op, touch: MemoryAccess, first: int) -> None:
        lanes, site = touch.lanes_in(e, op), self._site(e, op, touch, first)
        touch.by_rows(e.builder, lambda: self._rows(e, touch, site, lanes), lambda: self._each(e, touch, site, lanes))

    def _rows(self, e: WarpEmitter, touch: MemoryAccess, site: Value, lanes: Value) -> None:
        """Hand the address of the first lane of every row over."""
        b, bases = e.builder, touch.where.bases
        addresses = b.reserve("%profile.addresses", f"[{WARP} x i64]")
        for k, base in enumerate(bases):
            b.store(base, b.offset(addresses, 8 * k) if k else addresses)
        self._call(e, site, lanes, addresses, b.integer(len(bases), 32), Value("null", "ptr"))

    def _each(self, e: WarpEmitter, touch: MemoryAccess, site: Value, lanes: Value) -> None:
        """Emit a call with the address of every lane, and with the size of every lane if the sizes differ."""
        b = e.builder
        addresses = b.in_memory("%profile.addresses", b.vector(touch.where.every_lane(b)))
        sizes = Value("null", "ptr")
        if isinstance(touch.size, Value):
            sizes = b.in_memory("%profile.sizes", b.vector(touch.size))
        self._call(e, site, lanes, addresses, b.integer(WARP, 32), sizes)

    def _site(self, e: WarpEmitter, op: Op, touch: MemoryAccess, first: int) -> Value:
        b = e.builder
        size = 0 if isinstance(touch.size, Value) else touch.size
        flags = ACCESSED_UPDATES if op.opcode in ("atom", "red") and not self._counts_lanes(op) else 0
        flags |= ACCESSED_LOADS if op.opcode in ("ld", "ldu") else 0
        local_bytes = e.program.local_size
        numbers = [(touch.where.stride, 64), (first, 64), (local_bytes, 64)]
        numbers += [(n, 32) for n in (size, int(touch.space), flags, 0)]
        name = ".".join(["profile.site", *(str(number) for number, _ in numbers)])
        return b.module.constant(name, [b.integer(*number) for number in numbers])

    def _counts_lanes(self, op: Op) -> bool:
        """Return whether an operation adds 1 to words of shared memory without using the result.

        The lanes at one word then execute the operation together. Source: measured on an H200, where ptxas generates
        ``ATOMS.POPC.INC`` for the operation.
        """
        adds = op.space == "shared" and "add" in op.modifiers and op.type == "u32"
        one = adds and isinstance(op.sources[1], IntConstant) and op.sources[1].value == 1
        return one and self._table.read.isdisjoint(op.written)

    def _call(self, e: WarpEmitter, *arguments: Value) -> None:
        local = Value("%local.int", "i64")
        kernel_local = Value(self._local, "i64") if e.is_function else local
        tally = Value(self._tally, "ptr")
        e.builder.call("cujit_profile_access", "void", tally, *arguments, BLOCK, local, kernel_local)

    def _begin(self, e: WarpEmitter) -> None:
        """Find once in a function where its thread counts."""
        b = e.builder
        if b.has_entry(self._tally):
            return
        with b.at_entry():
            state = b.cast("inttoptr", b.integer(self._state, 64), "ptr")
            shared = b.binary("add", Value("%shared.int", "i64"), b.integer(SYSTEM_BYTES, 64))
            found = b.call("cujit_profile_begin", "ptr", LAUNCH, state, shared)
            b.offset(found, 0, into=self._tally)
            b.load("ptr", b.offset(found, Tally.counts.offset), into=self._counts)
            if e.is_function:
                local = b.load("i64", b.offset(STATE, Block.local.offset))
                warp = b.cast("zext", WARP_NUMBER, "i64")
                far = b.binary("mul", warp, b.integer(self._local_bytes * WARP, 64))
                b.binary("add", local, far, into=self._local)


def _is_left_out(op: Op) -> bool:
    """Return whether an access bypasses the L1 cache, or isn't a memory access.

    Such accesses are constants, parameters of calls, and stores that signal.
    """
    signals = op.opcode in ("st", "red") and "async" in op.modifiers
    return signals or op.space == "const" or "param::func" in op.form.spaces


def _lanes_in(e: WarpEmitter, word: Value) -> Value:
    """Count the lanes of a mask."""
    b = e.builder
    return b.cast("zext", b.call("llvm.ctpop.i32", "i32", word), "i64")
