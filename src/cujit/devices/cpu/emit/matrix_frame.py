"""A matrix instruction as a call: one function for each form, which kernels with hundreds of them share.

What it is given and what it makes lie in memory, the *frame*. So little is left at each place of use that LLVM, whose
time grows with the square of a block's length, is four times as fast over 400 products.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from cujit.devices.cpu.emit.builder import Builder, Value, type_width
from cujit.devices.cpu.emit.matrix_product import definer
from cujit.devices.cpu.shapes import WARP

__all__ = ["at", "in_function", "scratch"]

Body = Callable[[Builder, list[Value]], list[Value]]


def scratch(b: Builder, role: str, size: int) -> Value:
    """Find memory of ``size`` bytes in the function; operations that ask for the same share it."""
    name = f"%matrix.{role}.{size}"
    b.reserve(name, f"[{size} x i8]")
    return Value(name, "ptr")


def at(b: Builder, pointer: Value, offset: int) -> Value:
    """Find the place ``offset`` bytes on."""
    return b.offset(pointer, offset) if offset else pointer


def in_function(
    b: Builder, title: str, given: Sequence[Value], made: Sequence[str], body: Body, scalars: Sequence[Value] = ()
) -> list[Value]:
    """Call the function ``title`` with vectors, and give back those that it makes, of the types ``made``.

    ``body`` writes it, where it is not there yet, from its vectors to its results; ``scalars`` are its parameters
    ``%s0``, ``%s1``, ….
    """
    frame = scratch(b, "frame", max(_size(v.type for v in given), _size(made)))

    def write(inner: Builder) -> None:
        own = Value("%frame", "ptr")
        _store(inner, own, body(inner, _load(inner, own, [v.type for v in given])))

    parameters = ", ".join(["ptr %frame", *(f"{s.type} %s{k}" for k, s in enumerate(scalars))])
    name = definer(b)("matrix." + re.sub(r"[^\w.]+", "-", title), parameters, write)
    _store(b, frame, given)
    b.invoke(f"@{name}", "void", frame, *scalars)
    return _load(b, frame, made)


def _bytes(type_: str) -> int:
    return WARP * type_width(type_) // 8


def _size(types: Iterable[str]) -> int:
    return sum(map(_bytes, types))


def _store(b: Builder, frame: Value, values: Sequence[Value]) -> None:
    offset = 0
    for value in values:
        b.store(value, at(b, frame, offset), align=_bytes("i32"))
        offset += _bytes(value.type)


def _load(b: Builder, frame: Value, types: Sequence[str]) -> list[Value]:
    found, offset = [], 0
    for type_ in types:
        found.append(b.load(type_, at(b, frame, offset), vector=True, align=_bytes("i32")))
        offset += _bytes(type_)
    return found
