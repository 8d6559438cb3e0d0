"""``ex2`` and ``tanh`` for f16 and bf16: the first as an H200 has it, the second better than the manual asks for.

Source of bounds and special values: PTX ISA 9.1, "Half Precision Floating-Point Instructions: tanh", "ex2".
"""

from __future__ import annotations

import math

from cujit.devices.cpu.emit.approximate import power_of_two64
from cujit.devices.cpu.emit.builder import Builder, Value
from cujit.devices.cpu.emit.rounding import as_bits, flush, is_nan, magnitude, number, signed
from cujit.devices.cpu.emit.small_formats import HALF_NAN, half_bits, value_of, without_low_bits

__all__ = ["power_of_two", "tangent"]

_SERIES = [math.sqrt(2) * math.log(2) ** k / math.factorial(k) for k in range(7)]
"""Taylor's for 2^(t + 1/2); with t of at most 1/2, the first term left out is below 2^-22."""


def _real(b: Builder, value: float) -> Value:
    return number(b, value, "float")


def _between(b: Builder, x: Value, low: float, high: float) -> Value:
    x = b.select(b.compare("fcmp ogt", x, _real(b, low)), x, _real(b, low))
    return b.select(b.compare("fcmp olt", x, _real(b, high)), x, _real(b, high))


def _normal_power(b: Builder, x: Value) -> Value:
    """Raise 2 to a power of -126 to less than 128."""
    whole = b.intrinsic("floor", x)
    part = b.binary("fsub", b.binary("fsub", x, whole), _real(b, 0.5))
    power = _real(b, _SERIES[-1])
    for c in reversed(_SERIES[:-1]):
        power = b.intrinsic("fma", power, part, _real(b, c))
    exponent = b.binary("shl", b.cast("fptosi", whole, "i32"), b.integer(23, 32))
    return b.bits_as(b.binary("add", as_bits(b, power), exponent), "float")


def power_of_two(b: Builder, x: Value, name: str) -> Value:
    """Raise 2 to an f16 or bf16: to f32, and then cut toward zero, not rounded; the result is i16, no subnormal bf16.

    Source: measured on an H200 with every input: 63,487 of 63,488 results of f16, and 99.7 percent of those of bf16.
    """
    power = b.cast("fptrunc", power_of_two64(b, b.cast("fpext", x, "double")), "float")
    if name == "bf16":
        kept = without_low_bits(b, flush(b, power), 16, "rz", HALF_NAN << 16)
        return b.resize(b.binary("lshr", kept, b.integer(16, 32)), 16, signed=False)
    nearest = half_bits(b, power, name)
    above = b.compare("fcmp ogt", value_of(b, nearest, name), power)
    finite = b.compare("fcmp olt", power, _real(b, 65536.0))
    one = b.resize(b.binary("and", above, finite), 16, signed=False)
    return b.binary("sub", nearest, one)


def tangent(b: Builder, x: Value) -> Value:
    """Compute tanh as (4^y - 1) / (4^y + 1), y = x log2 e; of small numbers, by the first two terms of its series.

    Below 2^-4, the third term is less than 2^-18 of the result.
    """
    size = magnitude(b, x)
    power = _normal_power(b, b.binary("fmul", _between(b, size, 0.0, 20.0), _real(b, 2 / math.log(2))))
    one = _real(b, 1.0)
    large = b.binary("fdiv", b.binary("fsub", power, one), b.binary("fadd", power, one))
    cube = b.binary("fmul", b.binary("fmul", size, size), size)
    small = b.intrinsic("fma", cube, _real(b, -1 / 3), size)
    result = b.select(b.compare("fcmp olt", size, _real(b, 2.0**-4)), small, large)
    return b.select(is_nan(b, x), x, signed(b, result, x))
