"""Work that is done lane after lane: a function of the module with a loop over the lanes that run.

    cp.async.ca.shared.global [s], [g], 4;    ->    call void @cujit.copy.vv(i32 %lanes, <32 x i64> %s, <32 x i64> %g)
                                                    lanes: %k = cttz %left; load i32 of %g.k; store to %s.k; next lane

What is written is the work of one lane, on scalars. The operands that are the same in all lanes stay scalars, so
that there is one function for each form of a call and not one for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.ir.program import Op

__all__ = ["Body", "each_lane", "for_each_bit", "lane_item"]

Body = Callable[[Builder, Sequence[Value]], Value | None]
"""Emits the work of one lane from its operands, and gives its result, if it has one."""


def each_lane(
    e: WarpEmitter, op: Op, name: str, operands: Sequence[Value], body: Body, result: str | None = None
) -> Value | None:
    """Do ``body`` for every lane that runs ``op``, in order of their numbers.

    ``name`` says what the body does: calls with the same name and the same forms of operands share a function.
    ``result`` is the LLVM type that a body gives for its lane; other lanes have zero.
    """
    b = e.builder
    # A predicate becomes a byte: bits have no places of their own in memory.
    operands = [b.cast("zext", v, "i8") if v.type == "i1" else v for v in operands]
    full = ".".join(["cujit", name, "".join("v" if v.is_vector else "s" for v in operands)])
    forms = [Value(f"%a{k}", v.type, v.is_vector) for k, v in enumerate(operands)]
    returned = "void" if result is None else f"<{WARP} x {result}>"
    b.define(full, [Value("%lanes", "i32"), *forms], lambda f: _over_lanes(f, forms, body, result), returned)
    lanes = b.word(e.lanes(op))
    found = b.invoke(f"@{full}", result or "void", lanes, *operands, vector=result is not None)
    return found if result is not None else None


def _over_lanes(f: Builder, operands: Sequence[Value], body: Body, result: str | None) -> Value | None:
    places = [f"%p{k}" if v.is_vector else None for k, v in enumerate(operands)]
    for place, v in zip(places, operands, strict=True):
        if place is not None:
            f.store(v, f.allocate(f.type_of(v), into=place))
    if result is not None:
        f.store(Value("zeroinitializer", result, True), f.allocate(f"<{WARP} x {result}>", into="%out"))

    def step(lane: Value) -> None:
        values = [lane_item(f, p, v.type, lane) if p else v for p, v in zip(places, operands, strict=True)]
        done = body(f, values)
        if result is not None and done is not None:
            f.store(done, f.point(result, "%out", lane))

    for_each_bit(f, Value("%lanes", "i32"), step)
    return None if result is None else f.load(result, "%out", vector=True)


def lane_item(f: Builder, place: str, type_: str, lane: Value) -> Value:
    """Load one lane's item of a vector that lies in memory."""
    return f.load(type_, f.point(type_, place, lane))


def for_each_bit(f: Builder, bits: Value, step: Callable[[Value], None]) -> None:
    """Emit a loop over the bits that are set in an i32, from the lowest up; ``step`` gets the number of the bit."""
    start, head, turn, done = (f.label(x) for x in ("start", "lanes", "turn", "done"))
    left, less = Value(f.name(), "i32"), f.name()
    f.start(start)
    f.start(head)
    f.phi(bits, (bits, start), (less, turn), into=left.text)
    f.only_if(f.compare("icmp ne", left, f.integer(0, 32)), done, "lane")
    step(f.lowest_bit(left))
    f.start(turn)
    f.binary("and", left, f.binary("sub", left, f.integer(1, 32)), into=less)
    f.jump(head)
    f.start(done)
