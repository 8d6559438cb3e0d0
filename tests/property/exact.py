"""Floating-point formats by exact fractions: what the oracles compute with, apart from NumPy and from the CPU device.

A value is a ``Fraction`` other than zero, or a float: a zero with its sign, an infinity, or NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

__all__ = [
    "FORMATS",
    "Format",
    "Number",
    "add",
    "divide",
    "fma",
    "is_nan",
    "multiply",
    "read",
    "smaller",
    "square_root",
]

Number = Fraction | float
_HUGE = 1 << 400


class Format(NamedTuple):
    """A binary format: bits of the exponent and of the fraction, and its NaN."""

    exponent: int
    fraction: int
    nan: int

    @property
    def infinity(self) -> int:
        """The bits of positive infinity."""
        return ((1 << self.exponent) - 1) << self.fraction

    @property
    def sign(self) -> int:
        """The bit of the sign."""
        return 1 << (self.exponent + self.fraction)

    @property
    def least(self) -> int:
        """The power of two of the smallest normal number."""
        return 2 - (1 << (self.exponent - 1))

    def flushed(self, bits: int) -> int:
        """Give a zero of its sign for a subnormal number."""
        return bits & self.sign if bits & ~self.sign < 1 << self.fraction else bits

    def write(self, value: Number, mode: str = "rn", *, flush: bool = False) -> int:
        """Round a value: ``rn``, ``rz``, ``rm`` or ``rp``; flush what would be subnormal with any exponent."""
        if isinstance(value, float):
            if math.isnan(value):
                return self.nan
            return (self.sign if math.copysign(1, value) < 0 else 0) | (self.infinity if value else 0)
        negative, size = value < 0, abs(value)
        power = _floor_log2(size)
        power = power if flush else max(power, self.least)
        whole, rest = divmod(size * Fraction(2) ** (self.fraction - power), 1)
        up = {
            "rn": rest > Fraction(1, 2) or (rest == Fraction(1, 2) and whole % 2 == 1),
            "rz": False,
            "rm": negative and rest > 0,
            "rp": not negative and rest > 0,
        }[mode]
        bits = ((power - self.least) << self.fraction) + int(whole) + up
        if flush and bits < 1 << self.fraction:
            bits = 0
        if bits >= self.infinity:
            away = mode == "rn" or mode == ("rm" if negative else "rp")
            bits = self.infinity if away else self.infinity - 1
        return bits | (self.sign if negative else 0)


FORMATS = {
    "f16": Format(5, 10, 0x7FFF),
    "bf16": Format(8, 7, 0x7FFF),
    "f32": Format(8, 23, 0x7FFFFFFF),
    "f64": Format(11, 52, 0x7FF8 << 48),
}


def _floor_log2(x: Fraction) -> int:
    guess = x.numerator.bit_length() - x.denominator.bit_length()
    return guess if Fraction(2) ** guess <= x else guess - 1


def read(bits: int, form: Format) -> Number:
    """Give the value of bits."""
    sign, size = (-1 if bits & form.sign else 1), bits & (form.sign - 1)
    if size >= form.infinity:
        return sign * math.inf if size == form.infinity else math.nan
    if size == 0:
        return sign * 0.0
    power, fraction = size >> form.fraction, size & ((1 << form.fraction) - 1)
    if power:
        fraction, power = fraction | 1 << form.fraction, power - 1
    return sign * fraction * Fraction(2) ** (power + form.least - form.fraction)


def is_nan(x: Number) -> bool:
    """Whether it is NaN."""
    return isinstance(x, float) and math.isnan(x)


def _near(x: Number) -> float:
    """Give a float that behaves as the value does beside a zero, an infinity or NaN."""
    return x if isinstance(x, float) else 1.0 if x > 0 else -1.0


def add(x: Number, y: Number, mode: str = "rn") -> Number:
    """Add two values exactly; the mode decides the sign of a zero."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x + y or (-0.0 if mode == "rm" else 0.0)
    if isinstance(x, Fraction) and y == 0:
        return x
    if isinstance(y, Fraction) and x == 0:
        return y
    if x == 0 and y == 0 and math.copysign(1, x) != math.copysign(1, y):
        return -0.0 if mode == "rm" else 0.0
    return _near(x) + _near(y)


def multiply(x: Number, y: Number) -> Number:
    """Multiply two values exactly."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x * y
    return _near(x) * _near(y)


def fma(x: Number, y: Number, z: Number, mode: str = "rn") -> Number:
    """Multiply and add exactly."""
    return add(multiply(x, y), z, mode)


def divide(x: Number, y: Number) -> Number:
    """Divide one value by another exactly."""
    if isinstance(x, Fraction) and isinstance(y, Fraction):
        return x / y
    if y == 0:
        sign = math.copysign(1, _near(x)) * math.copysign(1, y)
        return math.nan if x == 0 or is_nan(x) else sign * math.inf
    return _near(x) / _near(y)


def square_root(x: Number) -> Number:
    """Take the root, of more digits than any format has, and made odd where it is not exact."""
    if isinstance(x, float):
        return math.nan if x < 0 else x if x == 0 else math.sqrt(x)
    if x < 0:
        return math.nan
    scaled = x * _HUGE * _HUGE * (_HUGE * _HUGE)
    root = math.isqrt(math.floor(scaled))
    return Fraction(root + (0 if root * root == scaled else Fraction(1, 2))) / (_HUGE * _HUGE)


def smaller(x: Number, y: Number, choose: Callable[..., Any]) -> Any:
    """Give the ``min`` or the ``max`` of two values: -0 is less than +0, and a number is chosen before NaN."""
    if is_nan(x) or is_nan(y):
        return y if is_nan(x) else x
    if x == 0 and y == 0:
        return choose(x, y, key=lambda zero: math.copysign(1, zero))
    return choose(x, y)
