"""Work that is done lane after lane: a function of the module with a loop over the lanes that run.

What is written is the work of one lane, on scalars. The operands that are the same in all lanes stay scalars, so
that there is one function for each form of a call and not one for each call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from cujit.devices.cpu.emit.builder import Builder, Value
from cujit.devices.cpu.emit.warp import WarpEmitter
from cujit.devices.cpu.program import Op
from cujit.devices.cpu.shapes import WARP

__all__ = ["Body", "add_function", "bits_of_lanes", "each_lane", "for_each_bit", "lane_item"]

Body = Callable[[Builder, Sequence[Value]], Value | None]
"""Emits the work of one lane from its operands, and gives its result, if it has one."""


def add_function(b: Builder, name: str, text: str) -> None:
    """Add a function to the module, once."""
    b.functions.setdefault(name, text)


def bits_of_lanes(e: WarpEmitter, op: Op) -> Value:
    """Give the lanes that run an operation as the bits of an i32."""
    return Value(e.builder.assign(f"bitcast <{WARP} x i1> {e.lanes(op).text} to i{WARP}"), f"i{WARP}")


def each_lane(
    e: WarpEmitter, op: Op, name: str, operands: Sequence[Value], body: Body, result: str | None = None
) -> Value | None:
    """Do ``body`` for every lane that runs ``op``, in order of their numbers.

    ``name`` says what the body does: calls with the same name and the same forms of operands share a function.
    ``result`` is the LLVM type that a body gives for its lane; other lanes have zero.
    """
    b = e.builder
    operands = [_passable(b, v) for v in operands]
    full = ".".join(["cujit", name, "".join("v" if v.is_vector else "s" for v in operands)])
    if full not in b.functions:
        add_function(b, full, _lane_function(b, full, operands, body, result))
    arguments = [f"i32 {bits_of_lanes(e, op).text}", *(f"{b.type_of(v)} {v.text}" for v in operands)]
    returned = "void" if result is None else f"<{WARP} x {result}>"
    text = f"call {returned} @{full}({', '.join(arguments)})"
    if result is None:
        b.line(text)
        return None
    return Value(b.assign(text), result, True)


def _passable(b: Builder, value: Value) -> Value:
    """Make a predicate a byte: bits have no places of their own in memory."""
    return b.cast("zext", value, "i8") if value.type == "i1" else value


def _lane_function(b: Builder, name: str, operands: Sequence[Value], body: Body, result: str | None) -> str:
    f = Builder()
    parameters = [f"{b.type_of(v)} %a{k}" for k, v in enumerate(operands)]
    places = [f"%p{k}" if v.is_vector else None for k, v in enumerate(operands)]
    for place, v, parameter in zip(places, operands, parameters, strict=True):
        if place is not None:
            f.line(f"{place} = alloca {b.type_of(v)}")
            f.line(f"store {parameter}, ptr {place}")
    if result is not None:
        f.line(f"%out = alloca <{WARP} x {result}>")
        f.line(f"store <{WARP} x {result}> zeroinitializer, ptr %out")

    def step(lane: Value) -> None:
        values = [lane_item(f, p, v.type, lane) if p else Value(f"%a{k}", v.type)
                  for k, (p, v) in enumerate(zip(places, operands, strict=True))]  # fmt: skip
        done = body(f, values)
        if result is not None and done is not None:
            at = f.assign(f"getelementptr {result}, ptr %out, i32 {lane.text}")
            f.line(f"store {result} {done.text}, ptr {at}")

    for_each_bit(f, Value("%lanes", "i32"), step)
    if result is None:
        f.line("ret void")
    else:
        f.line(f"ret <{WARP} x {result}> {f.assign(f'load <{WARP} x {result}>, ptr %out')}")
    for declared, text in f.declared.items():
        b.declared.setdefault(declared, text)
    returned = "void" if result is None else f"<{WARP} x {result}>"
    head = f"define internal {returned} @{name}({', '.join(['i32 %lanes', *parameters])}) noinline {{"
    return "\n".join([head, "entry:", *f.body, "}"])


def lane_item(f: Builder, place: str, type_: str, lane: Value) -> Value:
    """Load one lane's item of a vector that lies in memory."""
    at = f.assign(f"getelementptr {type_}, ptr {place}, i32 {lane.text}")
    return Value(f.assign(f"load {type_}, ptr {at}"), type_)


def for_each_bit(f: Builder, bits: Value, step: Callable[[Value], None]) -> None:
    """Emit a loop over the bits that are set in an i32, from the lowest up; ``step`` gets the number of the bit."""
    start, head, work, turn, done = (f.label(x) for x in ("start", "lanes", "lane", "turn", "done"))
    left, less = f.name(), f.name()
    f.line(f"br label %{start}")
    f.start(start)
    f.line(f"br label %{head}")
    f.start(head)
    f.line(f"{left} = phi i32 [ {bits.text}, %{start} ], [ {less}, %{turn} ]")
    some = f.compare("icmp ne", Value(left, "i32"), f.integer(0, 32))
    f.line(f"br i1 {some.text}, label %{work}, label %{done}")
    f.start(work)
    step(Value(f.call("llvm.cttz.i32", "i32", [f"i32 {left}", "i1 false"], ["i32", "i1"]), "i32"))
    f.line(f"br label %{turn}")
    f.start(turn)
    one_less = f.binary("sub", Value(left, "i32"), f.integer(1, 32))
    f.line(f"{less} = and i32 {left}, {one_less.text}")
    f.line(f"br label %{head}")
    f.start(done)
