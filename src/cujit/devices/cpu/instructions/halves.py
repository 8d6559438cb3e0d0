"""Arithmetic and approximate functions of f16, bf16, and pairs of f16 or bf16.

PTX ISA 9.1: "Half Precision Floating-Point Instructions", "Mixed Precision Floating-Point Instructions". Both formats
are computed in f32 and rounded once more. f32 has at least twice their precision plus two bits, so sums, differences,
and products equal results that are rounded once (Figueroa, "When is Double Rounding Innocuous?", SIGNUM Newsletter 30
(1995)). Fused multiply-adds need more precision. Every NaN result is 0x7fff. Pairs of 32 lanes are computed as 64
numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.rounding import arithmetic, canonical, flush, negative, rounding_of, saturate, two_sum
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.floating import join_words, polynomial, power_of_two64, split_words
from cujit.devices.cpu.instructions.small_formats import FORMATS, HALF_NAN, half_bits, upper_bits, value_of
from cujit.devices.cpu.ir.program import Op

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
    rules.on("add|sub|fma .f32x2 .f16x2|bf16x2", _mixed_pairs)
    rules.on("abs|neg .HALF", _each_half(_sign_change))
    rules.on("min|max .HALF", _each_half(_extreme))
    rules.on("ex2 .HALF", _each_half(_power))
    rules.on("tanh .HALF", _each_half(_tangent))


# -- halves of a register ---------------------------------------------------------------------------------


def split_halves(b: Builder, pair: Value) -> list[Value]:
    """Split an i32 into two i16, the lower one first."""
    upper = b.binary("lshr", pair, b.integer(16, 32))
    return [b.resize(part, 16, signed=False) for part in (pair, upper)]


def join_halves(b: Builder, low: Value, high: Value) -> Value:
    """Make an i32 of two i16."""
    low, high = (b.resize(part, 32, signed=False) for part in (low, high))
    return b.binary("or", low, b.binary("shl", high, b.integer(16, 32)))


def _each_half(part: _Part) -> Callable[[WarpEmitter, Op], None]:
    """Return a handler that applies ``part`` to the i16 of every member. ``part`` receives the name of the member's
    format.
    """

    def handler(e: WarpEmitter, op: Op) -> None:
        (name,), b, count = op.types, e.builder, len(op.sources)
        if not name.endswith("x2"):
            e.put(op, part(b, op, name, [e.source(op, k, "i16") for k in range(count)]))
            return
        pairs = b.same_form(*[e.source(op, k, "i32") for k in range(count)])
        halves = [b.divided(pair, "i16") for pair in pairs]
        e.put(op, b.united(part(b, op, name.removesuffix("x2"), halves), "i32", pairs[0].lanes))

    return handler


def _flushed(b: Builder, bits: Value) -> Value:
    """Replace subnormal f16, given as bits, by zeros of the same sign."""
    none = b.compare("icmp eq", b.binary("and", bits, b.integer(0x7C00, 16)), b.integer(0, 16))
    return b.select(none, b.binary("and", bits, b.integer(0x8000, 16)), bits)


def values_of(b: Builder, op: Op, name: str, bits: Sequence[Value]) -> list[Value]:
    """Read members as f32. ``.ftz`` flushes f16 members."""
    if "ftz" in op.modifiers and name == "f16":
        bits = [_flushed(b, x) for x in bits]
    return [value_of(b, x, name) for x in bits]


# -- arithmetic -------------------------------------------------------------------------------------------


def _arithmetic(b: Builder, op: Op, name: str, bits: list[Value]) -> Value:
    values = values_of(b, op, name, bits)
    fused = _fused_f16 if name == "f16" else _fused_bf16
    result = fused(b, *values) if op.opcode == "fma" else b.binary(f"f{op.opcode}", *values)
    result = half_bits(b, _limited(b, op, result), name)
    if "oob" not in op.modifiers:
        return result
    sizes = [b.binary("and", x, b.integer(0x7FFF, 16)) for x in bits[:2]]
    beyond = [b.compare("icmp eq", size, b.integer(_OUT_OF_BOUNDS, 16)) for size in sizes]
    return b.select(b.binary("or", *beyond), b.integer(0, 16), result)


def _limited(b: Builder, op: Op, x: Value) -> Value:
    """Apply ``.ftz``, ``.sat``, and ``.relu`` to a result in f32. Rounding does not change their bounds."""
    zero = b.number(0.0, "float")
    if "ftz" in op.modifiers:
        small = b.compare("fcmp olt", b.magnitude(x), b.number(_SMALLEST_ROUNDED, "float"))
        x = b.select(small, b.signed(zero, x), x)
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


def _mixed_pairs(e: WarpEmitter, op: Op) -> None:
    """Compute both members in f32; the first source is a pair of halves, the others are pairs of f32."""
    b, name = e.builder, op.types[1].removesuffix("x2")
    halves = [value_of(b, part, name) for part in split_halves(b, e.source(op, 0, "i32"))]
    pairs = [split_words(b, e.source(op, k, "i64")) for k in range(1, len(op.sources))]
    mode = rounding_of(op)
    results = [arithmetic(b, op.opcode, [halves[k], *(pair[k] for pair in pairs)], mode) for k in range(2)]
    e.put(op, join_words(b, *(canonical(b, x) for x in results)))


def _is_nan(b: Builder, bits: Value, name: str) -> Value:
    size = b.binary("and", bits, b.integer(0x7FFF, 16))
    return b.compare("icmp uge", size, b.integer(FORMATS[name].first_nan or 0, 16))


def _sign_change(b: Builder, op: Op, name: str, bits: list[Value]) -> Value:
    x = bits[0]
    operation, mask = ("and", 0x7FFF) if op.opcode == "abs" else ("xor", 0x8000)
    result = b.binary(operation, x, b.integer(mask, 16))
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
    """Invert the magnitude bits of negative numbers. A second application restores the original bits."""
    below = b.binary("ashr", bits, b.integer(15, 16))
    return b.binary("xor", bits, b.binary("and", below, b.integer(0x7FFF, 16)))


# -- fused multiply-add -----------------------------------------------------------------------------------

# The result rounds to the half as the exact one would. Rounded to f32 first, the exact result may come to lie in the
# middle between two halves; what was lost then tells which way it has to go. The last bit of the f32 is changed to say
# so.


def _fused_f16(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """Round the sum to odd, which can be rounded again without harm.

    The product of two f16 is exact, and so is the error of the sum. Source: Boldo and Melquiond, "Emulation of FMA
    and Correctly Rounded Sums", IEEE Transactions on Computers 57 (2008).
    """
    total, error = two_sum(b, b.binary("fmul", x, y), z)
    last = b.binary("and", b.as_bits(total), b.integer(1, 32))
    return _moved(b, total, error, b.compare("icmp eq", last, b.integer(0, 32)))


def _fused_bf16(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """Return a fused multiply-add in f32, moved from a midpoint between two bf16 numbers toward the exact result.

    If the f32 result is a midpoint, it has 9 significant bits, the product has 16, and the addend has 8. The difference
    between the result and the larger of product and addend is exact in f32. After cancellation, no more bits remain
    than f32 has, and no relevant bit is below the smallest f32. Adding the smaller of the two then returns the
    remainder with the correct sign.
    """
    result = b.intrinsic("fma", x, y, z)
    product = b.magnitude(b.binary("fmul", x, y))
    product_rules = b.compare("fcmp oge", product, b.magnitude(z))
    less_addend = b.binary("fsub", z, result)
    first = b.select(product_rules, negative(b, result), less_addend)
    second = b.select(product_rules, z, b.number(0.0, "float"))
    rest = b.binary("fadd", b.intrinsic("fma", x, y, first), second)
    low = b.binary("and", b.as_bits(result), b.integer(0xFFFF, 32))
    return _moved(b, result, rest, b.compare("icmp eq", low, b.integer(0x8000, 32)))


def _moved(b: Builder, x: Value, rest: Value, where: Value) -> Value:
    """Move a number by one unit in the last place toward ``x + rest``.

    The number does not change if ``where`` is false, or if ``rest`` is 0 or NaN.
    """
    bits = b.as_bits(x)
    differs = b.binary("ashr", b.binary("xor", bits, b.as_bits(rest)), b.integer(31, 32))
    adjacent = b.binary("add", bits, b.binary("or", differs, b.integer(1, 32)))
    some = b.compare("fcmp one", rest, b.number(0.0, "float"))
    return b.bits_as(b.select(b.binary("and", where, some), adjacent, bits), "float")


# -- ex2 and tanh -----------------------------------------------------------------------------------------

# The first as an H200 has it, the second better than the manual asks for. Source of bounds and special values: PTX ISA
# 9.1, "Half Precision Floating-Point Instructions: tanh", "ex2".

_SERIES = [math.sqrt(2) * math.log(2) ** k / math.factorial(k) for k in range(7)]
"""Taylor's for 2^(t + 1/2); with t of at most 1/2, the first term left out is below 2^-22."""


def _input(b: Builder, op: Op, name: str, bits: list[Value]) -> Value:
    """Read the first source as f32. ``.ftz`` flushes the f32 value, which is the rule for bf16."""
    x = value_of(b, bits[0], name)
    return flush(b, x) if "ftz" in op.modifiers else x


def _power(b: Builder, op: Op, name: str, bits: list[Value]) -> Value:
    """Raise 2 to an f16 or bf16: to f32, and then cut toward zero, not rounded; the result is no subnormal bf16.

    Source: measured on an H200 with every input: 63,487 of 63,488 results of f16, and 99.7 percent of those of bf16.
    """
    x = b.cast("fpext", _input(b, op, name, bits), "double")
    power = b.cast("fptrunc", power_of_two64(b, x), "float")
    if name == "bf16":
        return upper_bits(b, flush(b, power), "rz")
    nearest = half_bits(b, power, name)
    above = b.compare("fcmp ogt", value_of(b, nearest, name), power)
    finite = b.compare("fcmp olt", power, b.number(65536.0, "float"))
    one = b.resize(b.binary("and", above, finite), 16, signed=False)
    return b.binary("sub", nearest, one)


def _tangent(b: Builder, op: Op, name: str, bits: list[Value]) -> Value:
    """Compute tanh as (4^y - 1) / (4^y + 1), y = x log2 e; of small numbers, by the first two terms of its series.

    Below 2^-4, the third term is less than 2^-18 of the result.
    """
    x = _input(b, op, name, bits)
    size, most, one = b.magnitude(x), b.number(20.0, "float"), b.number(1.0, "float")
    y = b.select(b.compare("fcmp olt", size, most), size, most)
    y = b.binary("fmul", y, b.number(2 / math.log(2), "float"))
    whole = b.intrinsic("floor", y)
    part = b.binary("fsub", b.binary("fsub", y, whole), b.number(0.5, "float"))
    exponent = b.binary("shl", b.cast("fptosi", whole, "i32"), b.integer(23, 32))
    power = b.bits_as(b.binary("add", b.as_bits(polynomial(b, part, _SERIES)), exponent), "float")
    large = b.binary("fdiv", b.binary("fsub", power, one), b.binary("fadd", power, one))
    cube = b.binary("fmul", b.binary("fmul", size, size), size)
    small = b.intrinsic("fma", cube, b.number(-1 / 3, "float"), size)
    result = b.select(b.compare("fcmp olt", size, b.number(2.0**-4, "float")), small, large)
    result = b.select(b.is_nan(x), x, b.signed(result, x))
    return half_bits(b, flush(b, result) if "ftz" in op.modifiers else result, name)
