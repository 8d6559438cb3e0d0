"""What ``check=`` adds to a kernel: before operations, calls of native code that looks at them.

A function has a ``Place`` in its frame that says where the warp runs; addresses and values of the lanes are put into
it, so that a check costs a few instructions here and one call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Value, type_width
from cujit.devices.cpu.codegen.names import BLOCK, LAUNCH, STATE, WARP_NUMBER
from cujit.devices.cpu.instructions import barriers, warpwide
from cujit.devices.cpu.ir.program import CLEAR, Op, SymbolAddress
from cujit.devices.cpu.ir.semantics import Effect, Lanes
from cujit.devices.cpu.native.structures import CLUSTER_BARRIER, Place, Space
from cujit.devices.cpu.observe.accesses import Touch, fills_shared, orders_by_itself, touches_of

if TYPE_CHECKING:
    from cujit.devices.cpu.codegen.warp import WarpEmitter
    from cujit.devices.cpu.observe.kinds import Checks

__all__ = ["Checker"]

_PLACE = "%check.place"
_NOBODY = (1 << 64) - 1


class Checker:
    """Instruments one kernel and the functions that it calls; for one compilation.

    ``fenced`` tells that there are fences in it, so that relaxed operations may order others.
    """

    def __init__(self, checks: Checks, *, fenced: bool = False) -> None:
        self._checks = checks
        self._fenced = fenced
        self._begun: set[WarpEmitter] = set()

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

    def after(self, e: WarpEmitter, op: Op) -> None:
        """Note what an operation has done."""
        checks = self._checks
        if op.opcode == "call.extern" and "malloc" in op.modifiers and checks.memory and op.results:
            assert op.results[0] is not None
            self._hand_over(e, "addresses", e.read(op.results[0], "i64"))
            self._hand_over(e, "values", e.builder.load("i64", "%extern.0", vector=True))
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
        orders = self._fenced or orders_by_itself(op)
        for touch in touches_of(e, op):
            self._touch(e, op, touch if orders else touch.loosely())
        if self._checks.init and fills_shared(op):
            self._call(e, "cujit_check_filled")

    def _cleared(self, e: WarpEmitter, op: Op) -> None:
        """A shared variable that the device sets to zeros counts as written."""
        variable = op.sources[0]
        assert isinstance(variable, SymbolAddress)
        at = e.builder.binary("add", Value("%shared.int", "i64"), e.symbol(variable))
        self._call(e, "cujit_check_cleared", at, e.builder.integer(variable.slot.size, 64))

    def _touch(self, e: WarpEmitter, op: Op, touch: Touch) -> None:
        b = e.builder
        lanes = b.word(e.lanes(op))
        if touch.lanes != -1:
            # Lanes of a matrix: the operation is all the warp's, or nobody's.
            some = b.compare("icmp ne", lanes, b.integer(0, 32))
            lanes = b.select(some, b.integer(touch.lanes, 32), b.integer(0, 32))
        self._hand_over(e, "addresses", touch.address)
        size = touch.size
        if isinstance(size, Value):
            self._hand_over(e, "values", size)
            size = 0
        told = bool(self._checks.race and touch.values) and touch.space in (Space.SHARED, Space.GENERIC)
        if told:
            self._store_data(e, touch.values)
        where = [b.integer(touch.flags, 32), b.integer(op.line, 32)]
        self._call(e, "cujit_check_access", lanes, b.integer(size, 64), *where)
        if told:
            self._call(e, "cujit_check_same", lanes, b.integer(len(touch.values), 64), *where)

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
        lanes, live = _lanes(e, op), e.builder.word(e.flow.live())
        members = e.read(op.sources[-1], "i32")
        self._hand_over(e, "values", e.builder.resize(members, 64, signed=False))
        self._call(e, "cujit_check_members", lanes, live, e.builder.integer(op.line, 32))
        if op.opcode == "shfl":
            self._hand_over(e, "addresses", e.builder.resize(warpwide.origins(e, op), 64, signed=True))
            self._call(e, "cujit_check_origins", lanes, live, e.builder.integer(op.line, 32))

    def _arrive(self, e: WarpEmitter, op: Op) -> None:
        b, checks = e.builder, self._checks
        number, threads = self._barrier(e, op)
        # Lanes that are loose may come in parts: what counts is whether all of them go on from here (``_pass``).
        together = _is_aligned(op) and e.flow.reconverges(e.flow.position)
        if checks.sync and op.scope != "cluster":
            self._check_barrier(e, op, number, threads, aligned=together)
        if checks.race and not (op.scope == "cluster" and op.form.is_barrier):
            self._when_some(e, op, "cujit_check_arrive", b.integer(CLUSTER_BARRIER, 32) if number is None else number)

    def _pass(self, e: WarpEmitter, op: Op) -> None:
        b, checks = e.builder, self._checks
        number, _ = self._barrier(e, op)
        loose = not e.flow.reconverges(e.flow.position)
        if checks.sync and loose and _is_aligned(op) and op.scope != "cluster":
            self._check_barrier(e, op, number, None, aligned=True)
        if checks.race:
            self._when_some(e, op, "cujit_check_pass", b.integer(CLUSTER_BARRIER, 32) if number is None else number)

    def _barrier(self, e: WarpEmitter, op: Op) -> tuple[Value | None, Value | None]:
        """Number and count of threads; the cluster's barrier has neither."""
        return (None, None) if op.scope == "cluster" else barriers.named(e, op, e.flow.lanes_of(op))

    def _check_barrier(
        self, e: WarpEmitter, op: Op, number: Value | None, threads: Value | None, *, aligned: bool
    ) -> None:
        b = e.builder
        lanes, live, none = _lanes(e, op), b.word(e.flow.live()), b.integer(0, 32)
        barrier = (number or none, threads or none)
        self._call(e, "cujit_check_barrier", lanes, live, *barrier, b.integer(aligned, 32), b.integer(op.line, 32))

    def _when_some(self, e: WarpEmitter, op: Op, name: str, number: Value) -> None:
        """Call for a barrier if a lane comes to it."""
        b = e.builder
        go, done = b.label("clocked"), b.label("unclocked")
        b.branch(b.any_lane(e.flow.lanes_of(op)), go, done)
        b.start(go)
        self._call(e, name, number)
        b.jump(done)
        b.start(done)

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
        if e in self._begun:
            return
        self._begun.add(e)
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
            "state": STATE if e.flow.suspends else nothing,
            "shared": Value("%shared.int", "i64"),
            "cluster": Value("%cluster.int", "i64"),
            "local": Value("%local.int", "i64"),
            "local_bytes": b.integer(e.program.local_size, 64),
            "called": b.integer(e.is_function, 32),
            "data": nothing,
            "seen_block": b.integer(_NOBODY, 64),
            "seen_warp": b.integer(-1, 32),
        }


def _lanes(e: WarpEmitter, op: Op) -> Value:
    return e.builder.word(e.lanes(op))


def _is_aligned(op: Op) -> bool:
    """Whether all lanes of a warp have to come together. Source: PTX ISA 9.1, "bar": the same as with ``.aligned``."""
    return op.form.is_barrier and op.form.is_aligned
