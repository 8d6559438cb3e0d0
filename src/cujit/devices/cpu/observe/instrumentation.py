"""What ``check=`` adds to a kernel: before operations, calls of native code that looks at them.

A function has a ``Place`` in its frame that says where the warp runs; addresses and values of the lanes are put into
it, so that a check costs a few instructions here and one call.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import TYPE_CHECKING

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Value, type_width
from cujit.devices.cpu.codegen.memory import Place as Where
from cujit.devices.cpu.codegen.nodes import BLOCK, LAUNCH, STATE, WARP_NUMBER
from cujit.devices.cpu.instructions import blocks, warpwide
from cujit.devices.cpu.instructions.matrix.move import memory_lines
from cujit.devices.cpu.instructions.memory import place_in
from cujit.devices.cpu.ir.program import CLEAR, IntConstant, Memory, Negation, Op, Operand, Reg, SymbolAddress, items_of
from cujit.devices.cpu.native.structures import CLUSTER_BARRIER, Access, Place, Space
from cujit.formats.ptx.isa.semantics import Effect, Lanes, Order
from cujit.values import dataclass, replace

if TYPE_CHECKING:
    from cujit.devices.cpu.codegen.warp import WarpEmitter
    from cujit.devices.cpu.observe.watching import Checks

_PLACE = "%check.place"
_NOBODY = (1 << 64) - 1


class Checker:
    """Instruments one kernel and the functions that it calls; for one compilation.

    ``fenced`` tells that there are fences in it, so that relaxed operations may order others.
    """

    def __init__(self, checks: Checks, *, fenced: bool = False) -> None:
        self._checks = checks
        self._fenced = fenced
        self._in_regions = False

    def before(self, e: WarpEmitter, op: Op) -> None:
        """Look at what an operation is about to do."""
        checks = self._checks
        if checks.accesses:
            self._accesses(e, op)
        if op.form.is_site and not op.form.is_whole_warp:
            if op.form.meaning.lanes is Lanes.BLOCK:
                self._arrive(e, op)
            elif checks.sync and "sync" in op.modifiers:
                self._members(e, op)
        if op.opcode == "call.extern" and "free" in op.modifiers and checks.memory:
            self._hand_over(e, "addresses", e.source(op, 0, "i64"))
            self._call(e, "cujit_check_free", _lanes(e, op))

    def begin_region(self, e: WarpEmitter, number: int) -> None:
        """Note that a warp goes on behind a barrier to which all have come, or that it begins."""
        checks = self._checks
        self._in_regions = True
        if number:
            self._begin(e)
            with e.builder.at_entry():
                e.builder.store(e.builder.integer(1, 32), e.builder.offset(_PLACE, Place.goes_on.offset))
        if checks.race and number:
            self._call(e, "cujit_check_turn")
        elif checks.init and not number and e.program.local_size:
            self._call(e, "cujit_check_begin")

    def after(self, e: WarpEmitter, op: Op) -> None:
        """Note what an operation has done."""
        checks = self._checks
        if op.opcode == "call.extern" and "malloc" in op.modifiers and checks.memory and op.results:
            assert op.results[0] is not None
            self._hand_over(e, "addresses", e.read(op.results[0], "i64"))
            self._hand_over(e, "values", e.builder.load("i64", "%extern.0", lanes=WARP))
            self._call(e, "cujit_check_malloc", _lanes(e, op))
        if op.opcode == CLEAR and checks.init:
            self._cleared(e, op)
        if not op.form.is_site:
            return
        if op.form.is_barrier:
            self._pass(e, op)
        elif checks.race and op.form.meaning.effect is not Effect.ARRIVES:
            self._call(e, "cujit_check_synced")

    # -- accesses ----------------------------------------------------------------------------------------

    def _accesses(self, e: WarpEmitter, op: Op) -> None:
        # Without order for others, unless the operation or its fence has it.
        kept = ~Access(0) if self._fenced or orders_by_itself(op) else ~(Access.ACQUIRE | Access.RELEASE)
        for touch in touches_of(e, op):
            self._touch(e, op, replace(touch, access=touch.access & kept))
        if self._checks.init and fills_shared(op):
            self._call(e, "cujit_check_filled")

    def _cleared(self, e: WarpEmitter, op: Op) -> None:
        """A shared variable that the device sets to zeros counts as written."""
        variable = op.sources[0]
        assert isinstance(variable, SymbolAddress)
        at = e.builder.binary("add", Value("%shared.int", "i64"), e.symbol(variable))
        self._call(e, "cujit_check_cleared", at, e.builder.integer(variable.slot.size, 64))

    def _touch(self, e: WarpEmitter, op: Op, touch: Touch) -> None:
        b, checks = e.builder, self._checks
        orders = touch.access & (Access.ACQUIRE | Access.RELEASE)
        if not (checks.memory or checks.init or orders or touch.space in _MAYBE_SHARED):
            return
        lanes = b.word(e.lanes(op))
        if touch.lanes != -1:
            # Lanes of a matrix: the operation is all the warp's, or nobody's.
            some = b.compare("icmp ne", lanes, b.integer(0, 32))
            lanes = b.select(some, b.integer(touch.lanes, 32), b.integer(0, 32))
        told = bool(checks.race and touch.values) and touch.space in _MAYBE_SHARED
        if told:
            self._store_data(e, touch.values)
        holds, size = touch.where.holds, touch.size
        if not touch.where.bases or isinstance(size, Value):
            self._each(e, op, touch, lanes, told=told)
        elif holds is None:
            self._rows(e, op, touch, lanes, size, told=told)
        else:
            b.either(
                holds,
                lambda: self._rows(e, op, touch, lanes, size, told=told),
                lambda: self._each(e, op, touch, lanes, told=told),
                "row",
            )

    def _each(self, e: WarpEmitter, op: Op, touch: Touch, lanes: Value, *, told: bool) -> None:
        """Have an access looked at whose lanes have addresses of their own."""
        b, size = e.builder, touch.size
        self._hand_over(e, "addresses", touch.where.every_lane(b))
        if isinstance(size, Value):
            self._hand_over(e, "values", size)
            size = 0
        where = [b.integer(touch.flags, 32), b.integer(op.line, 32)]
        self._call(e, "cujit_check_access", lanes, b.integer(size, 64), *where)
        if told:
            self._call(e, "cujit_check_same", lanes, b.integer(len(touch.values), 64), *where)

    def _rows(self, e: WarpEmitter, op: Op, touch: Touch, lanes: Value, size: int, *, told: bool) -> None:
        """Have an access looked at whose lanes lie in rows."""
        b, bases, stride = e.builder, touch.where.bases, touch.where.stride
        row, flags = WARP // len(bases), touch.flags
        for k, base in enumerate(bases):
            own = b.integer(((1 << row) - 1) << k * row, 32)
            mine = lanes if len(bases) == 1 else b.binary("and", lanes, own)
            first = b.binary("sub", base, b.integer(k * row * stride, 64)) if k and stride else base
            more = (b.integer(stride, 64), b.integer(size, 32), b.integer(flags, 32), b.integer(op.line, 32))
            self._call(e, "cujit_check_row", mine, first, *more)
            flags |= Access.AGAIN
        if not told:
            return
        apart = _are_apart(e, touch, size)
        where = [b.integer(touch.flags, 32), b.integer(op.line, 32)]
        with b.when(apart, "same", holds=False) if apart is not None else contextlib.nullcontext():
            self._hand_over(e, "addresses", touch.where.every_lane(b))
            self._call(e, "cujit_check_same", lanes, b.integer(len(touch.values), 64), *where)
        if apart is not None:
            b.store(Value("null", "ptr"), "%check.data")

    def _store_data(self, e: WarpEmitter, values: tuple[Value, ...]) -> None:
        """Put what a store writes where native code finds it, part by part."""
        b = e.builder
        width = type_width(values[0].type) // 8
        self._begin(e)
        data = f"%check.data.{width}.{len(values)}"
        b.reserve(data, f"[{WARP * width * len(values)} x i8]")
        for k, value in enumerate(values):
            at = b.offset(data, k * width * WARP) if k else data
            vector = b.vector(value)
            b.store(vector, at, align=8)
        b.store(Value(data, "ptr"), "%check.data")
        b.store(b.integer(width, 64), "%check.part_bytes")

    # -- synchronisation ---------------------------------------------------------------------------------

    def _members(self, e: WarpEmitter, op: Op) -> None:
        """``.sync`` operations: who is named, and whose values are taken."""
        lanes, live = _lanes(e, op), e.builder.word(e.live())
        members = e.read(op.sources[-1], "i32")
        self._hand_over(e, "values", e.builder.resize(members, 64, signed=False))
        self._call(e, "cujit_check_members", lanes, live, e.builder.integer(op.line, 32))
        if op.opcode == "shfl":
            self._hand_over(e, "addresses", e.builder.resize(warpwide.origins(e, op), 64, signed=True))
            self._call(e, "cujit_check_origins", lanes, live, e.builder.integer(op.line, 32))

    def _arrive(self, e: WarpEmitter, op: Op) -> None:
        checks = self._checks
        number, threads = self._barrier(e, op)
        # Lanes that are loose may come in parts: what counts is whether all of them go on from here (``_pass``).
        together = _is_aligned(op) and e.reconverges
        if checks.sync and op.scope != "cluster":
            self._check_barrier(e, op, number, threads, aligned=together)
        if checks.race and not (op.scope == "cluster" and op.form.is_barrier):
            waits = op.form.meaning.effect is not Effect.ARRIVES and op.scope != "cluster"
            self._when_some(e, op, "cujit_check_arrive", number, e.builder.integer(waits, 32))

    def _pass(self, e: WarpEmitter, op: Op) -> None:
        checks = self._checks
        number, _ = self._barrier(e, op)
        loose = not e.reconverges
        if checks.sync and loose and _is_aligned(op) and op.scope != "cluster":
            self._check_barrier(e, op, number, None, aligned=True)
        if checks.race:
            self._when_some(e, op, "cujit_check_pass", number)

    def _barrier(self, e: WarpEmitter, op: Op) -> tuple[Value | None, Value | None]:
        """Number and count of threads; the cluster's barrier has neither."""
        return (None, None) if op.scope == "cluster" else blocks.named(e, op, e.lanes_of(op))

    def _check_barrier(
        self, e: WarpEmitter, op: Op, number: Value | None, threads: Value | None, *, aligned: bool
    ) -> None:
        b = e.builder
        lanes, live, none = _lanes(e, op), b.word(e.live()), b.integer(0, 32)
        barrier = (number or none, threads or none)
        self._call(e, "cujit_check_barrier", lanes, live, *barrier, b.integer(aligned, 32), b.integer(op.line, 32))

    def _when_some(self, e: WarpEmitter, op: Op, name: str, number: Value | None, *more: Value) -> None:
        """Call for a barrier if a lane comes to it."""
        b = e.builder
        with b.when(b.any_lane(e.lanes_of(op)), "clocked"):
            self._call(e, name, number or b.integer(CLUSTER_BARRIER, 32), *more)

    # -- the place ---------------------------------------------------------------------------------------

    def _hand_over(self, e: WarpEmitter, field: str, value: Value) -> None:
        """Put a value (i64) of each lane where native code finds it."""
        self._begin(e)
        vector = e.builder.vector(value)
        e.builder.store(vector, f"%check.{field}", align=8)

    def _call(self, e: WarpEmitter, name: str, *arguments: Value) -> None:
        """Call native code, which learns which warp of which block it is."""
        self._begin(e)
        b = e.builder
        b.store(BLOCK, "%check.block")
        b.store(WARP_NUMBER, "%check.warp")
        b.call(name, "void", Value(_PLACE, "ptr"), *arguments)

    def _begin(self, e: WarpEmitter) -> None:
        """Fill in, once in a function, what stays."""
        if e.builder.has_entry(_PLACE):
            return
        b = e.builder
        b.reserve(_PLACE, f"[{Place.values.offset + Place.values.size} x i8]")
        with b.at_entry():
            for field in ("addresses", "values", "block", "warp", "data", "part_bytes"):
                b.offset(_PLACE, getattr(Place, field).offset, into=f"%check.{field}")
            for name, value in self._steady(e).items():
                b.store(value, b.offset(_PLACE, getattr(Place, name).offset, into=f"%check.own.{name}"))

    def _steady(self, e: WarpEmitter) -> dict[str, Value]:
        """List the fields of the place that stay, each with its value."""
        b, nothing = e.builder, Value("null", "ptr")
        return {
            "launch": LAUNCH,
            "state": STATE if e.suspends else nothing,
            "shared": Value("%shared.int", "i64"),
            "cluster": Value("%cluster.int", "i64"),
            "local_first": Value("%local.first" if self._in_regions else "%local.int", "i64"),
            "local_step": b.integer(e.program.local_size * WARP if self._in_regions else 0, 64),
            "local_bytes": b.integer(e.program.local_size, 64),
            "called": b.integer(e.is_function, 32),
            "goes_on": b.integer(0, 32),
            "data": nothing,
            "span": nothing,
            "seen_block": b.integer(_NOBODY, 64),
            "seen_warp": b.integer(-1, 32),
        }


def _are_apart(e: WarpEmitter, touch: Touch, size: int) -> Value | None:
    """Whether no two lanes of rows write different values to one place, as an i1; None where that is not known."""
    b, (first, *others), stride = e.builder, touch.where.bases, touch.where.stride
    if not others and not stride and not any(value.lanes for value in touch.values):
        return b.integer(1, 1)
    if abs(stride) < size:
        return None
    reach, apart = (WARP // (1 + len(others)) - 1) * abs(stride) + size, b.integer(1, 1)
    for before, base in zip((first, *others), others, strict=False):
        one = b.compare("icmp sge", b.binary("sub", base, before), b.integer(reach, 64))
        apart = b.binary("and", apart, one)
    return apart


def _lanes(e: WarpEmitter, op: Op) -> Value:
    return e.builder.word(e.lanes(op))


def _is_aligned(op: Op) -> bool:
    """Whether all lanes of a warp have to come together. Source: PTX ISA 9.1, "bar": the same as with ``.aligned``."""
    return op.form.is_barrier and op.form.is_aligned


# -- which memory each operation reads and writes ---------------------------------------------------------
#
# Not told are textures and surfaces, whose instructions mind their bounds, and what descriptors and tensor maps
# lead to.

_SPACES = {
    "shared": Space.SHARED, "cluster": Space.CLUSTER, "local": Space.LOCAL, "global": Space.GLOBAL,
    "const": Space.GLOBAL, "param": Space.PARAM, "param::func": Space.GENERIC, "generic": Space.GENERIC,
}  # fmt: skip
_MAYBE_SHARED = (Space.SHARED, Space.CLUSTER, Space.GENERIC)
_ORDERED = (Order.ACQUIRE, Order.RELEASE, Order.ACQ_REL)
_UPDATE = Access.READ | Access.WRITE | Access.STRONG | Access.ACQUIRE | Access.RELEASE
_ROWS = {"x1": 8, "x2": 16, "x4": 32}
_MBARRIER_BYTES = 8


@dataclass(frozen=True)
class Touch:
    """One access of every lane that runs: ``size`` bytes (an i64, or one a lane) at ``where`` in this process.

    ``element`` and ``align`` are in bytes (0: of no matter); ``lanes`` narrows the lanes that run. ``values`` are what
    a store writes, part by part.
    """

    where: Where
    size: int | Value
    access: Access
    space: Space
    element: int
    align: int
    lanes: int = -1
    values: tuple[Value, ...] = ()

    @property
    def flags(self) -> int:
        """All that goes into one word: see ``Access``."""
        log = max(self.align.bit_length() - 1, 0)
        return int(self.access) | int(self.space) << 8 | self.element << 16 | log << 24


def fills_shared(op: Op) -> bool:
    """Tell whether an operation writes shared memory at places that are not told."""
    return op.opcode == "cp" and "tensor" in op.modifiers and "mbarrier::complete_tx::bytes" in op.modifiers


def orders_by_itself(op: Op) -> bool:
    """Tell whether an operation orders accesses without a fence beside it; a relaxed one does not.

    Source: PTX ISA 9.1, "Memory Consistency Model: Synchronizes".
    """
    return op.opcode not in ("ld", "st", "atom", "red") or "async" in op.modifiers or op.order in _ORDERED


def touches_of(e: WarpEmitter, op: Op) -> list[Touch]:
    """List what an operation accesses, in the order in which it does."""
    if op.opcode == "cp":
        return _copies(e, op)
    if op.opcode == "wmma":
        return _wmma(e, op) if "load" in op.modifiers or "store" in op.modifiers else []
    find = _BY_OPCODE.get(op.opcode)
    return find(e, op) if find is not None else []


def _where(e: WarpEmitter, operand: Operand, space: str) -> tuple[Where, Space]:
    assert isinstance(operand, Memory)
    return place_in(e, operand, space), _SPACES[space]


def _element(op: Op) -> int:
    """Bytes of an element in memory: a pair of halves is one."""
    return op.type.bits // 8


def _order(op: Op, orders: Access) -> Access:
    """What a load or store is beside that: strong ones order others, by any object that they are about."""
    return Access.STRONG | orders if op.form.is_strong else Access(0)


# -- loads, stores, atomic operations ---------------------------------------------------------------------


def _load(e: WarpEmitter, op: Op) -> list[Touch]:
    base = op.memory.base
    if isinstance(base, SymbolAddress) and base.slot.space == "param":
        return []
    address, space = _where(e, op.memory, op.space)
    size = _element(op) * len(op.results)
    return [Touch(address, size, Access.READ | _order(op, Access.ACQUIRE), space, _element(op), size)]


def _store(e: WarpEmitter, op: Op) -> list[Touch]:
    if "async" in op.modifiers:
        return _store_and_signal(e, op)
    address, space = _where(e, op.sources[0], op.space)
    if "bulk" in op.modifiers:
        return [Touch(address, e.source(op, 1, "i64"), Access.WRITE, space, 1, 8)]
    items, element = items_of(op.sources[1]), _element(op)
    size, order = element * len(items), _order(op, Access.RELEASE)
    values = tuple(e.read(item, f"i{8 * element}") for item in items) if not order else ()
    return [Touch(address, size, Access.WRITE | order, space, element, size, values=values)]


def _atomic(e: WarpEmitter, op: Op) -> list[Touch]:
    if "async" in op.modifiers:
        return _store_and_signal(e, op)
    address, space = _where(e, op.sources[0], op.space)
    size = _element(op) * op.form.vector
    return [Touch(address, size, _UPDATE, space, _element(op), size)]


def _store_and_signal(e: WarpEmitter, op: Op) -> list[Touch]:
    """``st.async``, ``red.async``: to shared memory of the cluster, and an mbarrier there."""
    address, kind = _where(e, op.sources[0], op.space)
    size = _element(op) * len(items_of(op.sources[1]))
    access = Access.WRITE if op.opcode == "st" else _UPDATE
    target = Touch(address, size, access, kind, _element(op), _element(op))
    return [target, _signal(e, op.sources[2], op.space)]


def _signal(e: WarpEmitter, operand: Operand, space: str) -> Touch:
    """An mbarrier that something is counted at."""
    address, kind = _where(e, operand, space)
    return Touch(address, _MBARRIER_BYTES, _UPDATE, kind, _MBARRIER_BYTES, _MBARRIER_BYTES)


def _mbarrier(e: WarpEmitter, op: Op) -> list[Touch]:
    if "pending_count" in op.modifiers:
        return []
    signal = _signal(e, op.sources[0], op.space)
    return [replace(signal, access=Access.WRITE) if "init" in op.modifiers else signal]


# -- matrices ---------------------------------------------------------------------------------------------


def _rows(e: WarpEmitter, op: Op) -> list[Touch]:
    """``ldmatrix``, ``stmatrix``: each of the first lanes has the address of a row of sixteen bytes."""
    address, space = _where(e, op.sources[0], op.space)
    count = next(_ROWS[m] for m in op.modifiers if m in _ROWS)
    if "m16n16" in op.modifiers:
        count *= 2
    access = Access.READ if op.opcode == "ldmatrix" else Access.WRITE
    return [Touch(address, 16, access, space, 2, 16, (1 << count) - 1)]


def _wmma(e: WarpEmitter, op: Op) -> list[Touch]:
    """Each line of the matrix is a lane's access."""
    found = memory_lines(e, op)
    b = e.builder
    base, stride = b.vector(found.base), b.vector(found.stride)
    address = b.binary("add", base, b.binary("mul", stride, b.lanes(list(range(WARP)), 64)))
    access = Access.READ if "load" in op.modifiers else Access.WRITE
    lanes = (1 << found.lines) - 1
    return [Touch(Where(lanes=address), found.line_bytes, access, _SPACES[op.space], found.element_bytes, 0, lanes)]


# -- copies -----------------------------------------------------------------------------------------------


def _copies(e: WarpEmitter, op: Op) -> list[Touch]:
    words = frozenset(op.modifiers)
    if not words.isdisjoint({"commit_group", "wait_group", "wait_all", "prefetch", "tensor", "multicast::cluster"}):
        return []
    if "mbarrier" in words:
        return [_signal(e, op.sources[0], op.space)]
    return _bulk(e, op) if "bulk" in words else _small_copy(e, op)


def _small_copy(e: WarpEmitter, op: Op) -> list[Touch]:
    """``cp.async dst, src, size {, source size | ignore}``."""
    size = op.sources[2]
    assert isinstance(size, IntConstant)
    more = op.sources[3 : len(op.sources) - ("L2::cache_hint" in op.modifiers)]
    target, to = _where(e, op.sources[0], "shared")
    source, from_ = _where(e, op.sources[1], "global")
    taken: int | Value = size.value
    if more:
        b = e.builder
        taken = b.resize(
            b.intrinsic("umin", _said(e, more[0], size.value), b.integer(size.value, 32)), 64, signed=False
        )
    return [
        Touch(source, taken, Access.READ, from_, 4, size.value if isinstance(taken, int) else 4),
        Touch(target, size.value, Access.WRITE, to, 4, size.value),
    ]


def _said(e: WarpEmitter, operand: Operand, size: int) -> Value:
    item = operand.item if isinstance(operand, Negation) else operand
    if isinstance(item, Reg) and item.bits == 1:
        return e.builder.select(e.read(operand, "i1"), e.builder.integer(0, 32), e.builder.integer(size, 32))
    return e.read(operand, "i32")


def _bulk(e: WarpEmitter, op: Op) -> list[Touch]:
    """``cp.async.bulk`` and ``cp.reduce.async.bulk``: ``[dst], [src], size {, [mbarrier]}``."""
    to, from_ = op.form.spaces
    target, target_space = _where(e, op.sources[0], to)
    source, source_space = _where(e, op.sources[1], from_)
    size = e.builder.resize(e.source(op, 2, "i32"), 64, signed=False)
    writes = _UPDATE if "reduce" in op.modifiers else Access.WRITE
    found = [Touch(source, size, Access.READ, source_space, 1, 16)]
    if "cp_mask" not in op.modifiers:
        found.append(Touch(target, size, writes & ~(Access.ACQUIRE | Access.RELEASE), target_space, 1, 16))
    if len(op.sources) > 3 and isinstance(op.sources[3], Memory):
        found.append(_signal(e, op.sources[3], to))
    return found


_BY_OPCODE: dict[str, Callable[[WarpEmitter, Op], list[Touch]]] = {
    "ld": _load,
    "ldu": _load,
    "st": _store,
    "atom": _atomic,
    "red": _atomic,
    "mbarrier": _mbarrier,
    "ldmatrix": _rows,
    "stmatrix": _rows,
}
