"""Floating-point arithmetic and tests of f32 and f64.

PTX ISA 9.1: "Floating-Point Instructions". Results are exact in every rounding mode. ``.ftz`` applies to each
instruction. f32 results have one NaN, see ``nans``, and f64 results keep NaN payloads. If several operands of a sum,
product, or fused multiply-add to nearest are NaNs, the processor determines which NaN is the result. Selecting the NaN
would make a loop of these operations take 2.7 times as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from cujit.devices.cpu.codegen.builder import Builder, Value, float_type, type_width
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.rounding import (
    arithmetic,
    canonical,
    flush,
    flush_result,
    negative,
    quiet_if_nan,
    rounding_of,
    saturate,
    with_payload,
)
from cujit.devices.cpu.codegen.warp import Handler, WarpEmitter
from cujit.devices.cpu.ir.program import Op
from cujit.formats.ptx.isa.semantics import form_of
from cujit.values import replace

_TURN = float.fromhex("0x1.45F306p-3")
"""1 / (2 pi) in f32."""
_ROUNDER = 1.5 * 2.0**52
"""Added to a smaller number, it leaves the nearest integer in the last bits."""
_NAN64 = 0x7FFFFFFF00000000
"""NaN of rcp and rsqrt.approx.ftz.f64. Source: PTX ISA 9.1, "rcp.approx.ftz.f64"."""


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("add|sub|mul|fma .f32|f64", _arithmetic)
    rules.on("mad|div|rcp|sqrt .RND .f32", _arithmetic)
    # Without a rounding, of PTX 1.0 to 1.3: to nearest, f32 flushed. Source: PTX ISA 9.1, their notes; ptxas 13.5 for
    # ``.version 1.3``.
    rules.on("mad|div|rcp|sqrt .f64", _arithmetic)
    rules.on("mad .f32", _as_of_old(_arithmetic, "ftz"))
    rules.on("add|sub|mul|fma .f32x2", _packed)
    rules.on("abs|neg .f32|f64", _sign_change)
    rules.on("min|max .f32|f64", _extreme)
    rules.on("copysign", _copy_sign)
    rules.on("testp", _test)
    rules.on("div .approx|full .f32", _divide)
    rules.on("div .f32", _as_of_old(_divide))
    rules.on("rcp|sqrt .f32", _as_of_old(_by_processor))
    rules.on("rcp|sqrt .approx .f32", _by_processor)
    rules.on("rcp|rsqrt .approx .ftz .f64", _upper_half)
    rules.on("rsqrt .f64", _reciprocal_root)
    rules.on("rsqrt .f32", _as_of_old(_reciprocal_root))
    rules.on("rsqrt .approx .f32", _reciprocal_root)
    functions: dict[str, Callable[[Builder, Value], Value]] = {
        "sin": lambda b, x: _sine(b, _turns_of(b, x)), "cos": lambda b, x: _cosine(b, _turns_of(b, x)),
        "lg2": _binary_logarithm, "ex2": power_of_two64,
    }  # fmt: skip
    for name, function in functions.items():
        rules.on(f"{name} .approx .f32", _through_f64(function))
        rules.on(f"{name} .f32", _as_of_old(_through_f64(function)))
    rules.on("sin .approx .2pi .f32", _through_f64(_sine))
    rules.on("cos .approx .2pi .f32", _through_f64(_cosine))
    rules.on("tanh .approx .f32", _through_f64(_tangent))


def _sources(e: WarpEmitter, op: Op) -> list[Value]:
    """Read all sources as the operation's last type. ``.ftz`` flushes the sources."""
    type_ = float_type(op.types[-1].bits)
    values = [e.source(op, k, type_) for k in range(len(op.sources))]
    return [flush(e.builder, v) for v in values] if "ftz" in op.modifiers else values


# -- arithmetic -------------------------------------------------------------------------------------------


def _result(b: Builder, op: Op, values: Sequence[Value]) -> Value:
    """Compute a result from flushed sources. Flush and saturate the result if the operation specifies it."""
    opcode = "fma" if op.opcode == "mad" else op.opcode
    mode = rounding_of(op)
    result = arithmetic(b, opcode, values, mode)
    if "ftz" in op.modifiers:
        result = flush_result(b, opcode, values, mode, result)
    if result.type == "double" and mode != "rn":
        result = with_payload(b, opcode, values, result)
    return saturate(b, result) if "sat" in op.modifiers else result


def _arithmetic(e: WarpEmitter, op: Op) -> None:
    e.put(op, _result(e.builder, op, _sources(e, op)))


def split_words(b: Builder, pair: Value) -> list[Value]:
    """Split an i64 into two f32, the lower one first."""
    words = [b.binary("lshr", pair, b.integer(shift, 64)) for shift in (0, 32)]
    return [b.bits_as(b.resize(word, 32, signed=False), "float") for word in words]


def join_words(b: Builder, low: Value, high: Value) -> Value:
    """Make an i64 of two f32."""
    low, high = (b.resize(b.as_bits(part), 64, signed=False) for part in (low, high))
    return b.binary("or", low, b.binary("shl", high, b.integer(32, 64)))


def _packed(e: WarpEmitter, op: Op) -> None:
    """Work on the two halves of 64-bit registers."""
    b = e.builder
    pairs = [split_words(b, e.source(op, k, "i64")) for k in range(len(op.sources))]
    halves = []
    for values in zip(*pairs, strict=True):
        flushed = [flush(b, v) for v in values] if "ftz" in op.modifiers else values
        halves.append(canonical(b, _result(b, op, flushed)))
    e.put(op, join_words(b, *halves))


def _sign_change(e: WarpEmitter, op: Op) -> None:
    """Change or clear the sign; a NaN of f64 keeps it, and becomes quiet, as in any arithmetic."""
    b = e.builder
    (x,) = _sources(e, op)
    changed = b.magnitude(x) if op.opcode == "abs" else negative(b, x)
    e.put(op, quiet_if_nan(b, x, changed) if x.type == "double" else changed)


def _copy_sign(e: WarpEmitter, op: Op) -> None:
    sign, size = _sources(e, op)
    e.put(op, e.builder.signed(size, sign))


def _extreme(e: WarpEmitter, op: Op) -> None:
    """Find the smaller or larger of two or three numbers, -0 below +0; a NaN loses, or with ``.NaN`` wins."""
    b = e.builder
    values = _sources(e, op)
    signs = [b.sign_of(v) for v in values]
    if "abs" in op.modifiers:
        values = [b.magnitude(v) for v in values]
    propagates = "NaN" in op.modifiers
    name = f"{op.opcode}imum" if propagates else f"{op.opcode}imumnum"
    result = values[0]
    for value in values[1:]:
        extreme = b.intrinsic(name, result, value)
        if value.type == "double":
            # Of two NaNs the second goes on.
            extreme = b.select(b.is_nan(result), quiet_if_nan(b, value, value), extreme)
        result = extreme
    if "xorsign" in op.modifiers:
        # The magnitude of two numbers has a clear sign; a NaN takes no sign.
        bits = b.binary("or", b.as_bits(result), b.binary("xor", signs[0], signs[1]))
        result = b.select(b.is_nan(result), result, b.bits_as(bits, result.type))
    e.put(op, result)


# -- tests ----------------------------------------------------------------------------------------------

_CLASSES = {
    "finite": 0x1F8, "infinite": 0x204, "number": 0x3FC, "notanumber": 0x003, "normal": 0x168, "subnormal": 0x090,
}  # fmt: skip
"""Kinds of numbers as LLVM numbers them; zeros count as normal. Source: LLVM Language Reference, "llvm.is.fpclass"."""


def _test(e: WarpEmitter, op: Op) -> None:
    """Test the class of a number. The code from ptxas ignores a predicate on this test. Source: an H200."""
    b, (x,) = e.builder, _sources(e, op)
    op = replace(op, guard=None)
    name = f"llvm.is.fpclass.{f'v{x.lanes}' if x.lanes else ''}f{type_width(x.type)}"
    e.put(op, b.call(name, "i1", x, b.integer(_CLASSES[op.form.words[0]], 32), lanes=x.lanes))


# -- approximations ---------------------------------------------------------------------------------------

# Within the bounds of the manual, and better where that costs nothing.
#
# PTX ISA 9.1, "Floating-Point Instructions": div, rcp, sqrt, rsqrt, sin, cos, lg2, ex2, tanh, each with its bound
# and its table of special values. f32 functions are computed in f64 by Taylor series of the functions themselves
# (their coefficients are reciprocals of factorials and of odd numbers) after a range reduction; their error in f64
# is below 2^-34, so that the rounding to f32 is all that is left of it. NaN results are 0x7fffffff, but those of sqrt
# are the processor's.


def _as_of_old(handler: Handler, *words: str) -> Handler:
    """Return a handler for an f32 instruction without modifiers, as in PTX 1.0 to 1.3.

    Source: PTX ISA 9.1, the notes of ``div``, ``rcp``, ``sqrt``, …: the default is ``.approx.ftz.f32``. ptxas 13.5
    generates the same code for ``.version 1.3``. ``words`` replace this default.
    """

    def old(e: WarpEmitter, op: Op) -> None:
        handler(e, replace(op, form=form_of(op.opcode, *(words or ("approx", "ftz")), *op.modifiers)))

    return old


def _input(e: WarpEmitter, op: Op, index: int = 0) -> Value:
    x = e.source(op, index, float_type(op.type.bits))
    return flush(e.builder, x) if "ftz" in op.modifiers else x


def _put(e: WarpEmitter, op: Op, result: Value) -> None:
    b = e.builder
    e.put(op, flush(b, result) if "ftz" in op.modifiers else result)


# -- quotients and roots ----------------------------------------------------------------------------------


def _divide(e: WarpEmitter, op: Op) -> None:
    """Emit a division. With ``approx``, a divisor above 2^126 counts as infinite, because its reciprocal is flushed."""
    b = e.builder
    x, y = _input(e, op), _input(e, op, 1)
    quotient = b.binary("fdiv", x, y)
    if "approx" in op.modifiers:
        size = b.magnitude(y)
        large = b.compare("fcmp ogt", size, b.number(2.0**126, "float"))
        finite = b.compare("fcmp olt", size, b.number(math.inf, "float"))
        nothing = b.binary("fmul", x, b.signed(b.number(0.0, "float"), y))
        quotient = b.select(b.binary("and", large, finite), nothing, quotient)
    _put(e, op, quotient)


def _by_processor(e: WarpEmitter, op: Op) -> None:
    """Emit a reciprocal or square root rounded to nearest, which is as fast as an approximation."""
    _put(e, op, arithmetic(e.builder, op.opcode, [_input(e, op)], "rn"))


def _upper_half(e: WarpEmitter, op: Op) -> None:
    """Compute the upper 32 bits of the result from the upper 32 bits of the source. The lower 32 bits are 0."""
    b = e.builder
    upper = b.integer(0xFFFFFFFF00000000, 64)
    bits = b.binary("and", e.source(op, 0, "i64"), upper)
    short = flush(b, b.bits_as(bits, "double"))
    root = b.intrinsic("sqrt", short) if op.opcode == "rsqrt" else short
    result = flush(b, b.binary("fdiv", b.number(1.0), root))
    cut = b.bits_as(b.binary("and", b.as_bits(result), upper), "double")
    e.put(op, b.select(b.is_nan(result), b.real(_NAN64, 64), cut))


def _reciprocal_root(e: WarpEmitter, op: Op) -> None:
    """Two roundings in f32 are within the bound of 2^-22.9. Source: PTX ISA 9.1, "rsqrt"."""
    b, x = e.builder, _input(e, op)
    _put(e, op, b.binary("fdiv", b.number(1.0, x.type), b.intrinsic("sqrt", x)))


# -- functions in f64 -------------------------------------------------------------------------------------


def _through_f64(function: Callable[[Builder, Value], Value]) -> Callable[[WarpEmitter, Op], None]:
    def handler(e: WarpEmitter, op: Op) -> None:
        b = e.builder
        wide = b.cast("fpext", _input(e, op), "double")
        _put(e, op, b.cast("fptrunc", function(b, wide), "float"))

    return handler


def polynomial(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """Evaluate by Horner's rule, from the constant term up."""
    result = b.number(coefficients[-1], x.type)
    for c in reversed(coefficients[:-1]):
        result = b.intrinsic("fma", result, x, b.number(c, x.type))
    return result


def _clamped(b: Builder, x: Value, bound: float) -> Value:
    """Clamp to -bound…bound; NaN stays."""
    low, high = b.number(-bound), b.number(bound)
    x = b.select(b.compare("fcmp olt", x, low), low, x)
    return b.select(b.compare("fcmp ogt", x, high), high, x)


def _exp2(b: Builder, x: Value) -> Value:
    """Return 2 to a power between -900 and 900. The integer part of the exponent is exact.

    For the remaining ±1/2, a series computes e^(f ln 2). The first omitted term of the series is (ln 2 / 2)^10 / 10!,
    below 2^-37.
    """
    shifted = b.binary("fadd", x, b.number(_ROUNDER))
    fraction = b.binary("fsub", x, b.binary("fsub", shifted, b.number(_ROUNDER)))
    series = [math.log(2) ** k / math.factorial(k) for k in range(10)]
    part = polynomial(b, fraction, series)
    exponent = b.binary("shl", b.as_bits(shifted), b.integer(52, 64))
    return b.bits_as(b.binary("add", b.as_bits(part), exponent), "double")


def power_of_two64(b: Builder, x: Value) -> Value:
    """Return 2 to the power of an f64, accurate to 2^-36.

    The exponent is clamped. A result outside the range of f32 is still outside this range after clamping.
    """
    result = _exp2(b, _clamped(b, x, 200.0))
    return b.select(b.is_nan(x), x, result)


def _tangent(b: Builder, x: Value) -> Value:
    """Compute (e^2x - 1) / (e^2x + 1); below 2^-12, where that cancels, tanh x is x to 2^-25."""
    power = _exp2(b, b.binary("fmul", _clamped(b, x, 20.0), b.number(2.0 / math.log(2))))
    one = b.number(1.0)
    ratio = b.binary("fdiv", b.binary("fsub", power, one), b.binary("fadd", power, one))
    large = b.compare("fcmp ogt", b.magnitude(x), b.number(2.0**-12))
    return b.select(large, ratio, x)


def _binary_logarithm(b: Builder, x: Value) -> Value:
    """Return the binary logarithm of a number, split into 2^e m with m between the roots of 1/2 and 2.

    The logarithm of m is 2 artanh((m - 1) / (m + 1)). The first omitted term of the series is t^14 / 15 with t at most
    0.1716, below 2^-39 of the result.
    """
    root = int.from_bytes(bytes.fromhex("3FE6A09E667F3BCD"), "big")  # of 1/2, as bits
    bits = b.as_bits(x)
    exponent = b.binary("ashr", b.binary("sub", bits, b.integer(root, 64)), b.integer(52, 64))
    part = b.bits_as(b.binary("sub", bits, b.binary("shl", exponent, b.integer(52, 64))), "double")
    one = b.number(1.0)
    t = b.binary("fdiv", b.binary("fsub", part, one), b.binary("fadd", part, one))
    series = [2.0 / math.log(2) / (2 * k + 1) for k in range(7)]
    logarithm = b.binary("fmul", t, polynomial(b, b.binary("fmul", t, t), series))
    whole = b.cast("sitofp", b.resize(exponent, 32, signed=True), "double")
    result = b.binary("fadd", whole, logarithm)
    zero, infinity = b.number(0.0), b.number(math.inf)
    # Infinity and NaN are their own logarithms; below 0 there is none.
    result = b.select(b.compare("fcmp ult", x, infinity), result, x)
    result = b.select(b.compare("fcmp ult", x, zero), b.number(math.nan), result)
    return b.select(b.compare("fcmp oeq", x, zero), b.number(-math.inf), result)


def _turns_of(b: Builder, x: Value) -> Value:
    """Divide an angle by 2 pi, and cut the result to f32.

    Source: ptxas 13.0 multiplies by 0x3e22f983 with ``mul.rz``, and 13.5 has no multiplication before ``MUFU.SIN`` for
    ``.2pi``, whose angles are turns.
    """
    product = b.binary("fmul", x, b.number(_TURN))
    return b.bits_as(b.binary("and", b.as_bits(product), b.integer(~0x1FFFFFFF, 64)), "double")


def _sine(b: Builder, turns: Value) -> Value:
    wave = b.as_bits(_wave(b, turns, 0))
    return b.bits_as(b.binary("xor", wave, b.sign_of(turns)), "double")


def _cosine(b: Builder, turns: Value) -> Value:
    return _wave(b, turns, 1)


def _wave(b: Builder, x: Value, quarters: int) -> Value:
    """Return the sine of |x| turns plus ``quarters`` quarter turns. Two series cover ±pi/4 around each quarter turn.

    Turns are truncated to multiples of 2^-25, and turns of at least 2^24 count as whole turns. So the sine and cosine
    of a large number equal the results of a GPU, which are far from the true values. The sine of a small number is 0.
    The first omitted terms are (pi/4)^13 / 13! and (pi/4)^14 / 14!, both below 2^-36. Source: measured on an H200.
    """
    turns = b.magnitude(x)
    units = b.intrinsic("trunc", b.binary("fmul", turns, b.number(2.0**25)))
    units = b.select(b.compare("fcmp olt", turns, b.number(2.0**24)), units, b.number(0.0))
    shifted = b.binary("fadd", b.binary("fmul", units, b.number(2.0**-23)), b.number(_ROUNDER))
    whole = b.binary("fmul", b.binary("fsub", shifted, b.number(_ROUNDER)), b.number(2.0**23))
    rest = b.binary("fmul", b.binary("fsub", units, whole), b.number(math.pi / 2 * 2.0**-23))
    square = b.binary("fmul", rest, rest)
    sines = [(-1) ** k / math.factorial(2 * k + 1) for k in range(6)]
    cosines = [(-1) ** k / math.factorial(2 * k) for k in range(7)]
    sine = b.binary("fmul", rest, polynomial(b, square, sines))
    cosine = polynomial(b, square, cosines)
    quadrant = b.binary("add", b.as_bits(shifted), b.integer(quarters, 64))
    odd = b.compare("icmp ne", b.binary("and", quadrant, b.integer(1, 64)), b.integer(0, 64))
    half_turn = b.binary("and", quadrant, b.integer(2, 64))
    sign = b.binary("shl", half_turn, b.integer(62, 64))
    value = b.select(odd, cosine, sine)
    result = b.bits_as(b.binary("xor", b.as_bits(value), sign), "double")
    none = b.compare("fcmp ueq", b.magnitude(x), b.number(math.inf))
    return b.select(none, b.number(math.nan), result)
