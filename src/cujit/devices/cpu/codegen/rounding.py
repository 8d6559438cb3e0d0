"""Exact directed rounding, and the small rules that all floating-point families share.

A directed result is the nearest one, moved by one unit in the last place where it lies on the wrong side. Each
operation therefore gives its nearest result and a *residual*: a value with the sign of what is left, the exact
result minus the nearest one. A residual that is NaN (of infinities and NaNs) moves nothing.

Sources: IEEE 754-2019, 4.3.2 (directed roundings), 6.3 (sign of a zero sum), 7.4 (overflow); Knuth, The Art of
Computer Programming 2, 4.2.2 (the error of a sum).
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from cujit.devices.cpu.codegen.builder import Builder, Value, type_width
from cujit.devices.cpu.codegen.nodes import type_of
from cujit.devices.cpu.ir.program import WARP, Op
from cujit.devices.cpu.native.structures import DIRECTED, ROUNDINGS
from cujit.devices.jit import processor

_EXPONENT_BITS = {"half": 0x7C00, "float": 0x7F800000, "double": 0x7FF0000000000000}
_NAN = {"half": 0x7FFF, "float": 0x7FFFFFFF}
"""NaNs that GPUs return (f64 keeps payloads). Source: PTX ISA 9.1, "Half Precision Floating-Point Instructions"; for
f32 the manual leaves them open, and this is what sm_90 was seen to give."""


# -- values -----------------------------------------------------------------------------------------------


def flush(b: Builder, x: Value) -> Value:
    """Make subnormal numbers zero, their sign kept."""
    width = type_width(x.type)
    exponent = b.binary("and", b.as_bits(x), b.integer(_EXPONENT_BITS[x.type], width))
    zero = b.bits_as(b.sign_of(x), x.type)
    return b.select(b.compare("icmp eq", exponent, b.integer(0, width)), zero, x)


SCALE = 2.0**64
"""What operands are multiplied with to tell whether an f32 result is flushed: see ``flush_by``."""


def flush_by(b: Builder, scaled: Value, result: Value) -> Value:
    """Make an f32 result zero that is too small for a normal number, told by the same result ``SCALE`` times as large.

    That is rounded to 24 bits as hardware has it; ``result`` may have been rounded up to the smallest normal number
    among subnormal ones. Where the larger one leaves the range, the result is far from there.

    Source: measured on an H200, in every rounding; the manual does not say when a result is subnormal.
    """
    small = b.compare("fcmp olt", b.magnitude(scaled), b.number(2.0**-126 * SCALE, "float"))
    return b.select(small, b.bits_as(b.sign_of(result), "float"), result)


def flush_result(b: Builder, opcode: str, values: Sequence[Value], mode: str, result: Value) -> Value:
    """Flush the f32 result of an operation on flushed operands."""
    if opcode not in ("mul", "fma", "div", "rcp"):
        return flush(b, result)  # sums near the smallest normal number are exact
    scale = b.number(SCALE, "float")
    if opcode == "rcp":
        opcode, values = "div", (b.number(1.0, "float"), *values)
    x, y, *z = values
    scaled = [b.binary("fmul", x, scale), y, *(b.binary("fmul", v, scale) for v in z)]
    return flush_by(b, arithmetic(b, opcode, scaled, mode), result)


def canonical(b: Builder, x: Value) -> Value:
    """Make every NaN of 16 or 32 bits the one that GPUs return; 64-bit NaNs keep their payload."""
    if x.type not in _NAN:
        return x
    width = type_width(x.type)
    if x.type == "float" and x.lanes == WARP and _fixes_up():
        return _fixed_up(b, x)
    # To the optimiser, arithmetic gives any NaN: it must neither see where the value comes from, nor choose between
    # floats.
    x = b.intrinsic("arithmetic.fence", x)
    chosen = b.select(b.is_nan(x), b.integer(_NAN[x.type], width), b.as_bits(x))
    return b.bits_as(chosen, x.type)


@functools.cache
def _fixes_up() -> bool:
    """Return whether the processor has an instruction that replaces values by their class."""
    return "+avx512f" in processor().features.split(",")


def _fixed_up(b: Builder, x: Value) -> Value:
    """Make every NaN the one that GPUs return in one instruction for 16 lanes, where two take 12 % more in a tree sum.

    It looks up the kind of each element of ``x`` in ``kinds``: 0 gives the element of ``nan``, 1 that of ``x``. Quiet
    and signalling NaNs are the two lowest of eight kinds. Source: Intel 64 and IA-32 Architectures Software Developer's
    Manual, VFIXUPIMMPS.
    """
    nan = Value(f"splat (float {b.real(_NAN['float'], 32).text})", "<16 x float>", constant=True)
    kinds = Value(f"splat (i32 {0x11111100})", "<16 x i32>", constant=True)
    plain = (b.integer(0, 32), b.integer(-1, 16), b.integer(4, 32))  # no fault is told, every lane, no other rounding

    def of(lanes: range) -> Value:
        part = b.shuffle(x, None, lanes)
        return b.call("llvm.x86.avx512.mask.fixupimm.ps.512", nan.type, nan, part, kinds, *plain)

    return b.shuffle(of(range(16)), of(range(16, 32)), range(WARP))


def quiet_if_nan(b: Builder, x: Value, other: Value) -> Value:
    """Return a NaN of f64 made quiet, or another value for a number."""
    quiet = b.binary("or", b.as_bits(x), b.integer(1 << 51, 64))
    return b.bits_as(b.select(b.is_nan(x), quiet, b.as_bits(other)), x.type)


def with_payload(b: Builder, opcode: str, values: Sequence[Value], result: Value) -> Value:
    """Of several NaNs that go into an operation of f64, let the one go on that GPUs choose: a later one, but a factor.

    Source: measured on an H200: the second factor before the addend before the first.
    """
    if opcode in ("add", "sub", "mul", "fma"):
        for value in (*values[2:], values[1]):
            result = quiet_if_nan(b, value, result)
    return result


def saturate(b: Builder, x: Value) -> Value:
    """Clamp to 0…1; NaN and -0 become +0."""
    zero, one = b.number(0.0, x.type), b.number(1.0, x.type)
    x = b.select(b.compare("fcmp ogt", x, zero), x, zero)
    return b.select(b.compare("fcmp olt", x, one), x, one)


def rounding_of(op: Op) -> str:
    """Name the rounding of an operation: to nearest where it has none."""
    return next((m for m in op.form.words if m in ROUNDINGS), "rn")


# -- one step ---------------------------------------------------------------------------------------------


def step(b: Builder, nearest: Value, residual: Value, mode: str) -> Value:
    """Move a result by one unit in the last place if ``mode`` asks for the other neighbour of the exact value."""
    width = type_width(nearest.type)
    bits, zero = b.as_bits(nearest), b.number(0.0, residual.type)
    less, more = b.binary("sub", bits, b.integer(1, width)), b.binary("add", bits, b.integer(1, width))
    if mode == "rn":
        return nearest
    negative = b.compare("icmp slt", bits, b.integer(0, width))
    if mode == "rz":
        inward = b.select(negative, b.compare("fcmp ogt", residual, zero), b.compare("fcmp olt", residual, zero))
        return b.select(inward, b.bits_as(less, nearest.type), nearest)
    if mode == "rm":
        wrong = b.compare("fcmp olt", residual, zero)
        neighbour, smallest = b.select(negative, more, less), b.integer(1 | 1 << (width - 1), width)
    else:
        wrong = b.compare("fcmp ogt", residual, zero)
        neighbour, smallest = b.select(negative, less, more), b.integer(1, width)
    at_zero = b.compare("fcmp oeq", nearest, b.number(0.0, nearest.type))
    moved = b.bits_as(b.select(at_zero, smallest, neighbour), nearest.type)
    return b.select(wrong, moved, nearest)


def narrow(b: Builder, wide: Value, residual: Value | None, mode: str, to: str = "float") -> Value:
    """Round an f64 (or an f32, to f16) to a narrower type; ``residual`` is what an exact ``wide`` would add.

    ``residual`` must be less than a unit in the last place of ``wide``; None stands for 0. The mode ``odd`` is
    rounding toward zero with the last bit set where that is not exact: it can be rounded again without harm.
    """
    near = b.cast("fptrunc", wide, to)
    if mode == "rn":
        return near
    rest = b.binary("fsub", wide, b.cast("fpext", near, wide.type))
    if residual is not None:
        some = b.compare("fcmp une", rest, b.number(0.0, rest.type))
        rest = b.select(some, rest, residual)
    if mode != "odd":
        return step(b, near, rest, mode)
    width = type_width(to)
    inexact = b.compare("fcmp one", rest, b.number(0.0, rest.type))
    inward = b.as_bits(step(b, near, rest, "rz"))
    odd = b.bits_as(b.binary("or", inward, b.integer(1, width)), to)
    return b.select(inexact, odd, near)


def two_sum(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """Add; give the nearest sum and its error (Knuth's sum of six operations)."""
    total = b.binary("fadd", x, y)
    of_y = b.binary("fsub", total, x)
    of_x = b.binary("fsub", total, of_y)
    return total, b.binary("fadd", b.binary("fsub", x, of_x), b.binary("fsub", y, of_y))


def integer_as_float(b: Builder, x: Value, is_signed: bool, mode: str, to: str) -> Value:
    """Round an integer of up to 64 bits to ``float`` or ``double``; ``odd`` is a mode, too."""
    bits = type_width(x.type)
    convert = "sitofp" if is_signed else "uitofp"
    if mode == "rn":
        return b.cast(convert, x, to)
    if bits <= 32:
        wide = b.cast(convert, x, "double")
        return wide if to == "double" else narrow(b, wide, None, mode, to)
    half = b.integer(32, 64)
    upper = b.binary("ashr" if is_signed else "lshr", x, half)
    high = b.binary("fmul", b.cast(convert, upper, "double"), b.number(2.0**32))
    low = b.cast("uitofp", b.resize(x, 32, signed=False), "double")
    total, error = two_sum(b, high, low)
    return step(b, total, error, mode) if to == "double" else narrow(b, total, error, mode, to)


# -- arithmetic -------------------------------------------------------------------------------------------


def arithmetic(b: Builder, opcode: str, values: Sequence[Value], mode: str) -> Value:
    """Compute ``add``, ``sub``, ``mul``, ``fma``, ``div``, ``rcp`` or ``sqrt`` with a rounding, exactly."""
    if opcode == "rcp":
        opcode, values = "div", (b.number(1.0, values[0].type), *values)
    if mode == "rn":
        return _nearest(b, opcode, values)
    if opcode == "sub":
        negated = b.bits_as(b.binary("xor", b.as_bits(values[1]), _sign_mask(b, values[1].type)), values[1].type)
        opcode, values = "add", (values[0], negated)
    if values[0].type == "float":
        return _directed_single(b, opcode, [b.cast("fpext", v, "double") for v in values], mode)
    return _directed_double(b, opcode, list(values), mode)


def _nearest(b: Builder, opcode: str, values: Sequence[Value]) -> Value:
    if values[0].type == "double" and all(v.constant for v in values):  # of these LLVM would make a NaN without a sign
        values = b.bits_as(b.invoke('asm "", "=r,0"', "i64", b.as_bits(values[0])), "double"), *values[1:]
    if opcode in ("fma", "sqrt"):
        return b.intrinsic(opcode, *values)
    return b.binary(f"f{opcode}", *values)


def _sign_mask(b: Builder, type_: str) -> Value:
    width = type_width(type_)
    return b.integer(1 << (width - 1), width)


def negative(b: Builder, x: Value) -> Value:
    """Change the sign."""
    return b.bits_as(b.binary("xor", b.as_bits(x), _sign_mask(b, x.type)), x.type)


def _zero_sum(b: Builder, result: Value, is_zero: Value, x: Value, y: Value, mode: str) -> Value:
    """Correct the sign of an exact zero sum: rounding down, it is minus unless both terms are plus."""
    if mode != "rm":
        return result
    signs = b.binary("or", b.as_bits(x), b.as_bits(y))
    minus = b.compare("icmp slt", signs, b.integer(0, type_width(x.type)))
    zero = b.select(minus, b.number(-0.0, result.type), b.number(0.0, result.type))
    return b.select(is_zero, zero, result)


def _directed_single(b: Builder, opcode: str, wide: list[Value], mode: str) -> Value:
    """Work in f64, where products of f32 are exact and nothing over- or underflows."""
    if opcode == "mul":
        return narrow(b, b.binary("fmul", *wide), None, mode)
    if opcode in ("add", "fma"):
        x, y = (b.binary("fmul", wide[0], wide[1]), wide[2]) if opcode == "fma" else wide
        total, error = two_sum(b, x, y)
        is_zero = b.compare("fcmp oeq", total, b.number(0.0))
        return _zero_sum(b, narrow(b, total, error, mode), is_zero, x, y, mode)
    if opcode == "div":
        quotient = b.binary("fdiv", *wide)
        rest = b.intrinsic("fma", negative(b, quotient), wide[1], wide[0])
        rest = b.bits_as(b.binary("xor", b.as_bits(rest), b.sign_of(wide[1])), rest.type)
        return narrow(b, quotient, rest, mode)
    root = b.intrinsic("sqrt", wide[0])
    return narrow(b, root, b.intrinsic("fma", negative(b, root), root, wide[0]), mode)


def _directed_double(b: Builder, opcode: str, values: Sequence[Value], mode: str) -> Value:
    """Call native code for the operation, one lane after the other. See ``runtime/directed.h``."""
    values = b.same_form(*values)
    lanes = values[0].lanes
    count = lanes or 1
    places = [b.in_memory(f"%directed.{k}.{count}", value) for k, value in enumerate(values)]
    result = b.reserve(f"%directed.{count}", type_of(values[0]))
    numbers = (count, DIRECTED.index(opcode), ROUNDINGS.index(mode))
    operands = [*places, *places[:1] * (3 - len(places))]
    b.call("cujit_directed", "void", result, *operands, *(b.integer(n, 32) for n in numbers))
    return b.load("double", result, lanes=lanes)
