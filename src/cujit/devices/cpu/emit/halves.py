"""Arithmetic, comparison and approximate functions of f16, bf16 and their pairs.

PTX ISA 9.1: "Half Precision Floating-Point Instructions", "Half Precision Comparison Instructions", "Mixed Precision
Floating-Point Instructions". Both formats are computed in f32 and rounded once more: f32 has at least twice their
precision and two bits, so that sums, differences and products come out as if rounded once (Figueroa, "When is Double
Rounding Innocuous?", SIGNUM Newsletter 30 (1995)); fused multiply-adds need more, see ``halves_fma``. Every NaN
result is 0x7fff. The members of a pair are done one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from cujit.devices.cpu.emit.builder import Builder, Value, int_type
from cujit.devices.cpu.emit.halves_approximate import power_of_two, tangent
from cujit.devices.cpu.emit.halves_fma import fused
from cujit.devices.cpu.emit.integer import combine, put_predicates
from cujit.devices.cpu.emit.registry import Rules
from cujit.devices.cpu.emit.rounding import (
    arithmetic,
    flush,
    magnitude,
    number,
    rounding_of,
    saturate,
    signed,
)
from cujit.devices.cpu.emit.small_formats import FORMATS, HALF_NAN, half_bits, value_of
from cujit.devices.cpu.emit.warp import WarpEmitter
from cujit.devices.cpu.program import Op

__all__ = ["join_halves", "register", "split_halves"]

_JOINS = "and or xor"
_OUT_OF_BOUNDS = 0x7FF7
"""The NaN that tensor copies write beyond a tensor, as f16 and as bf16: "OOB NaN" in the manual, which gives no bits.

Source: measured on an H200, where ``fma.oob`` takes it with either sign.
"""
_SMALLEST_ROUNDED = 2.0**-14 - 2.0**-26
"""What is below it, is below the smallest normal f16 when rounded to 11 bits, and is flushed by ``.ftz``."""

_Part = Callable[[Builder, Op, str, list[Value]], Value]


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("add|sub|mul|fma .HALF", _each_half(_arithmetic))
    rules.on("add|sub|fma .f32 .f16|bf16", _mixed)
    rules.on("abs|neg .HALF", _each_half(_sign_change))
    rules.on("min|max .HALF", _each_half(_extreme))
    rules.on("ex2 .HALF", _each_half(_power))
    rules.on("tanh .HALF", _each_half(partial(_function, tangent)))
    rules.on("setp .HALF", _set_predicates)
    rules.on("set .TYPE .HALF", _set)
    rules.on("set .HALF", _set)


# -- halves of a register ---------------------------------------------------------------------------------


def split_halves(b: Builder, pair: Value) -> list[Value]:
    """Split an i32 into two i16, the lower one first."""
    upper = b.binary("lshr", pair, b.integer(16, 32))
    return [b.resize(part, 16, signed=False) for part in (pair, upper)]


def join_halves(b: Builder, low: Value, high: Value) -> Value:
    """Make an i32 of two i16."""
    low, high = (b.resize(part, 32, signed=False) for part in (low, high))
    return b.binary("or", low, b.binary("shl", high, b.integer(16, 32)))


def _sources(e: WarpEmitter, op: Op, name: str, count: int) -> list[list[Value]]:
    """Read the first sources as i16; one list of sources, or for a pair two, that of the lower members first."""
    if not name.endswith("x2"):
        return [[e.source(op, k, "i16") for k in range(count)]]
    split = [split_halves(e.builder, e.source(op, k, "i32")) for k in range(count)]
    return [list(parts) for parts in zip(*split, strict=True)]


def _put(e: WarpEmitter, op: Op, parts: Sequence[Value]) -> None:
    e.put(op, parts[0] if len(parts) == 1 else join_halves(e.builder, *parts))


def _each_half(part: _Part) -> Callable[[WarpEmitter, Op], None]:
    """Make a handler that does ``part`` on i16 for every member; it gets the name of the member's format."""

    def handler(e: WarpEmitter, op: Op) -> None:
        (name,) = op.types
        member = name.removesuffix("x2")
        _put(e, op, [part(e.builder, op, member, s) for s in _sources(e, op, name, len(op.sources))])

    return handler


def _flushed(b: Builder, bits: Value) -> Value:
    """Make subnormal f16, as bits, zeros of their sign."""
    none = b.compare("icmp eq", b.binary("and", bits, b.integer(0x7C00, 16)), b.integer(0, 16))
    return b.select(none, b.binary("and", bits, b.integer(0x8000, 16)), bits)


def _values(b: Builder, op: Op, name: str, bits: Sequence[Value]) -> list[Value]:
    """Read members as f32, flushed where the operation says so."""
    if "ftz" in op.modifiers and name == "f16":
        bits = [_flushed(b, x) for x in bits]
    return [value_of(b, x, name) for x in bits]


# -- arithmetic -------------------------------------------------------------------------------------------


def _arithmetic(b: Builder, op: Op, name: str, bits: list[Value]) -> Value:
    values = _values(b, op, name, bits)
    result = fused(b, name, *values) if op.opcode == "fma" else b.binary(f"f{op.opcode}", *values)
    result = half_bits(b, _limited(b, op, result), name)
    if "oob" not in op.modifiers:
        return result
    beyond = [_is_beyond(b, x) for x in bits[:2]]
    return b.select(b.binary("or", *beyond), b.integer(0, 16), result)


def _is_beyond(b: Builder, bits: Value) -> Value:
    return b.compare("icmp eq", b.binary("and", bits, b.integer(0x7FFF, 16)), b.integer(_OUT_OF_BOUNDS, 16))


def _limited(b: Builder, op: Op, x: Value) -> Value:
    """Apply ``.ftz``, ``.sat`` and ``.relu`` to a result in f32: their bounds stay where they are in rounding."""
    zero = number(b, 0.0, "float")
    if "ftz" in op.modifiers:
        small = b.compare("fcmp olt", magnitude(b, x), number(b, _SMALLEST_ROUNDED, "float"))
        x = b.select(small, signed(b, zero, x), x)
    if "sat" in op.modifiers:
        return saturate(b, x)
    return b.select(b.compare("fcmp ole", x, zero), zero, x) if "relu" in op.modifiers else x


def _mixed(e: WarpEmitter, op: Op) -> None:
    """Compute in f32; all sources but the last are halves."""
    b, name = e.builder, op.types[1]
    last = len(op.sources) - 1
    values = [value_of(b, e.source(op, k, "i16"), name) for k in range(last)]
    result = arithmetic(b, op.opcode, [*values, e.source(op, last, "float")], rounding_of(op))
    e.put(op, saturate(b, result) if "sat" in op.modifiers else result)


def _is_nan(b: Builder, bits: Value, name: str) -> Value:
    size = b.binary("and", bits, b.integer(0x7FFF, 16))
    return b.compare("icmp uge", size, b.integer(FORMATS[name].first_nan or 0, 16))


def _sign_change(b: Builder, op: Op, name: str, bits: list[Value]) -> Value:
    x = bits[0]
    result = (
        b.binary("and", x, b.integer(0x7FFF, 16)) if op.opcode == "abs" else b.binary("xor", x, b.integer(0x8000, 16))
    )
    if "ftz" in op.modifiers:
        result = _flushed(b, result)
    # GPUs add -0 to the result, which makes NaNs canonical.
    return b.select(_is_nan(b, x, name), b.integer(HALF_NAN, 16), result)


def _extreme(b: Builder, op: Op, name: str, bits: list[Value]) -> Value:
    """Find the smaller or larger number, -0 below +0; a NaN loses, or with ``.NaN`` wins.

    With the magnitude of negative numbers inverted, the bits are integers in the order of the numbers.
    """
    if "ftz" in op.modifiers:
        bits = [_flushed(b, x) for x in bits]
    sizes = [b.binary("and", x, b.integer(0x7FFF, 16)) for x in bits] if "abs" in op.modifiers else bits
    nan_wins = "NaN" in op.modifiers
    of_nan = b.integer(0x7FFF if (op.opcode == "max") == nan_wins else 0x8000, 16)
    keys = [b.select(_is_nan(b, x, name), of_nan, _ordered(b, x)) for x in sizes]
    key = b.intrinsic(f"s{op.opcode}", *keys)
    result = _ordered(b, key)
    if "xorsign" in op.modifiers:
        sign = b.binary("and", b.binary("xor", *bits), b.integer(0x8000, 16))
        result = b.binary("or", result, sign)
    return b.select(b.compare("icmp eq", key, of_nan), b.integer(HALF_NAN, 16), result)


def _ordered(b: Builder, bits: Value) -> Value:
    """Invert the magnitude of negative numbers; done twice, it does nothing."""
    below = b.binary("ashr", bits, b.integer(15, 16))
    return b.binary("xor", bits, b.binary("and", below, b.integer(0x7FFF, 16)))


def _function(function: Callable[[Builder, Value], Value], b: Builder, op: Op, name: str, bits: list[Value]) -> Value:
    """Compute an approximate function in f32; ``.ftz`` is that of bf16."""
    x = value_of(b, bits[0], name)
    ftz = "ftz" in op.modifiers
    result = function(b, flush(b, x) if ftz else x)
    return half_bits(b, flush(b, result) if ftz else result, name)


def _power(b: Builder, op: Op, name: str, bits: list[Value]) -> Value:
    """Raise 2 to a power; ``.ftz`` is that of bf16."""
    x = value_of(b, bits[0], name)
    return power_of_two(b, flush(b, x) if "ftz" in op.modifiers else x, name)


# -- comparison -------------------------------------------------------------------------------------------


def _compared(e: WarpEmitter, op: Op) -> list[Value]:
    """Compare the first two sources; for a pair there are two results, that of the lower members first."""
    b, name = e.builder, op.types[-1]
    compare = next(m for m in op.form.words if m not in (*_JOINS.split(), "ftz"))
    if name.startswith(("f16", "bf16")):
        member = name.removesuffix("x2")
        found = [_values(b, op, member, bits) for bits in _sources(e, op, name, 2)]
    else:
        type_ = {"f32": "float", "f64": "double"}.get(name) or int_type(name.bits)
        found = [[e.source(op, k, type_) for k in range(2)]]
        if name == "f32" and "ftz" in op.modifiers:
            found = [[flush(b, x) for x in found[0]]]
    kind = _float_comparison(compare) if "f" in name else _integer_comparison(compare, name.is_signed)
    return [b.compare(kind, *values) for values in found]


def _float_comparison(name: str) -> str:
    """Name LLVM's comparison: ``ltu`` is true for NaN, ``lt`` is not."""
    if name in ("num", "nan"):
        return "fcmp ord" if name == "num" else "fcmp uno"
    return f"fcmp u{name[:2]}" if len(name) == 3 else f"fcmp o{name}"


def _integer_comparison(name: str, is_signed: bool) -> str:
    name = {"lo": "lt", "ls": "le", "hi": "gt", "hs": "ge"}.get(name, name)
    return f"icmp {name}" if name in ("eq", "ne") else f"icmp {'s' if is_signed else 'u'}{name}"


def _set_predicates(e: WarpEmitter, op: Op) -> None:
    """Write one predicate, or for a pair one for the lower members and one for the upper ones."""
    compared = _compared(e, op)
    if len(compared) == 1:
        put_predicates(e, op, compared[0])
        return
    for k in range(len(op.results)):
        e.put(op, combine(e, op, compared[k]), k)


def _set(e: WarpEmitter, op: Op) -> None:
    """Write all ones or 1.0 where it holds, and 0 elsewhere; into each half for a pair."""
    b, (to, name) = e.builder, op.types
    width = 16 if name.endswith("x2") or to in ("f16", "bf16") else to.bits
    true = {"f16": 0x3C00, "f16x2": 0x3C00, "bf16": 0x3F80, "bf16x2": 0x3F80}.get(to, -1)
    holds = [combine(e, op, h) for h in _compared(e, op)]
    _put(e, op, [b.select(h, b.integer(true, width), b.integer(0, width)) for h in holds])
