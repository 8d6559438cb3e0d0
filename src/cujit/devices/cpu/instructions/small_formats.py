"""Numbers of 16, 8, 6, and 4 bits: conversion of their bits to f32, and of f32 to their bits.

f32 represents every such number, so conversion to f32 is exact. Conversion from f32 rounds once.

Source: PTX ISA 9.1, "Alternate Floating-Point Data Formats" (layouts), "cvt" (NaN and overflow with ``.satfinite``,
``.rs``). IEEE 754-2019, 3.4: in every format, the codes of increasing magnitudes are consecutive integers.
"""

from __future__ import annotations

from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.values import dataclass

HALF_NAN = 0x7FFF
"""The NaN that GPUs return as f16 and as bf16. Source: PTX ISA 9.1, "Half Precision Floating-Point Instructions"."""


@dataclass(frozen=True)
class Format:
    """A format: the bits of its fields, its largest number, and the code that replaces NaN with ``.satfinite``.

    ``first_nan`` is the smallest magnitude code that is NaN, or None if the format has no NaN. ``random_bits`` is the
    number of bits that ``.rs`` adds below the last kept bit.
    """

    name: str
    exponent_bits: int
    fraction_bits: int
    largest: float
    from_nan: int
    first_nan: int | None
    random_bits: int = 16
    is_signed: bool = True

    @property
    def bits(self) -> int:
        """All bits of a number."""
        return self.is_signed + self.exponent_bits + self.fraction_bits

    @property
    def bias(self) -> int:
        """The exponent bias of the format."""
        return (1 << (self.exponent_bits - 1)) - 1

    @property
    def field(self) -> int:
        """The bits from one number of a packed group to the next. Numbers of 6 bits take 8."""
        return 8 if self.bits == 6 else self.bits


F16 = Format("f16", 5, 10, 65504.0, HALF_NAN, 0x7C01, 13)
BF16 = Format("bf16", 8, 7, float.fromhex("0x1.FEp127"), HALF_NAN, 0x7F81)
_SMALL = (
    Format("e4m3", 4, 3, 448.0, 0x7F, 0x7F),
    Format("e5m2", 5, 2, 57344.0, 0x7F, 0x7D),
    Format("e2m3", 2, 3, 7.5, 0x1F, None),
    Format("e3m2", 3, 2, 28.0, 0x1F, None),
    Format("e2m1", 2, 1, 6.0, 0x7, None),
    Format("ue5m3", 5, 3, 114688.0, 0xFF, 0xFF, is_signed=False),
)
FORMATS = {f.name: f for f in (F16, BF16, *_SMALL)}


# -- from bits --------------------------------------------------------------------------------------------


def value_of(b: Builder, bits: Value, name: str) -> Value:
    """Convert 16-bit integers, read as f16 or bf16, to f32. NaNs keep their payload, or become quiet."""
    if name == "f16":
        return b.cast("fpext", b.bits_as(bits, "half"), "float")
    wide = b.resize(bits, 32, signed=False)
    return b.bits_as(b.binary("shl", wide, b.integer(16, 32)), "float")


def value_of_code(b: Builder, code: Value, f: Format) -> Value:
    """Convert a code of at most 8 bits, in the low bits of an i32, to f32. Codes of NaN become NaN.

    The fields are first moved to the fields of f32. The number is then too small by a factor of 2 to the difference of
    the biases, and subnormal if the code was subnormal.
    """
    top = 1 << (f.exponent_bits + f.fraction_bits)
    size = b.binary("and", code, b.integer(top - 1, 32))
    moved = b.bits_as(b.binary("shl", size, b.integer(23 - f.fraction_bits, 32)), "float")
    value = b.as_bits(b.binary("fmul", moved, b.number(2.0 ** (127 - f.bias), "float")))
    if f.first_nan is not None:
        if f.name == "e5m2":
            infinite = b.compare("icmp eq", size, b.integer(f.first_nan - 1, 32))
            value = b.select(infinite, b.integer(0x7F800000, 32), value)
        nan = b.compare("icmp uge", size, b.integer(f.first_nan, 32))
        value = b.select(nan, b.integer(0x7FFFFFFF, 32), value)
    if not f.is_signed:
        return b.bits_as(value, "float")
    sign = b.binary("shl", b.binary("and", code, b.integer(top, 32)), b.integer(32 - f.bits, 32))
    return b.bits_as(b.binary("or", value, sign), "float")


def value_of_exponent(b: Builder, code: Value) -> Value:
    """Read an i32 below 256 as ``ue8m0``: 2 to the power of the code less 127; the last code is no number."""
    bits = b.binary("shl", code, b.integer(23, 32))
    bits = b.select(b.compare("icmp eq", code, b.integer(0, 32)), b.integer(1 << 22, 32), bits)
    last = b.compare("icmp eq", code, b.integer(0xFF, 32))
    return b.bits_as(b.select(last, b.integer(0x7FFFFFFF, 32), bits), "float")


# -- to 16 bits -------------------------------------------------------------------------------------------


def half_bits(b: Builder, x: Value, name: str) -> Value:
    """Round an f32 to nearest as f16 or bf16; the result is i16, every NaN ``HALF_NAN``."""
    if name == "f16":
        # 0x7fffffff, too, becomes 0x7fff.
        nan = b.select(b.is_nan(x), b.integer(0x7FFFFFFF, 32), b.as_bits(x))
        return b.as_bits(b.cast("fptrunc", b.bits_as(nan, "float"), "half"))
    return upper_bits(b, x, "rn")


def upper_bits(b: Builder, x: Value, mode: str, nan: int | None = HALF_NAN << 16) -> Value:
    """Round an f32 as bf16; the result is i16. NaNs become ``nan``, or are cut."""
    bits = without_low_bits(b, x, 16, mode, nan)
    return b.resize(b.binary("lshr", bits, b.integer(16, 32)), 16, signed=False)


def without_low_bits(b: Builder, x: Value, count: int, mode: str, nan: int | None) -> Value:
    """Round an f32 to fewer fraction bits, as an i32; a carry out of the fraction rightly raises the exponent.

    NaNs become ``nan``, or are cut.
    """
    exact = bits = b.as_bits(x)
    low, unit = (1 << count) - 1, b.integer(1, 32)
    if mode == "rn":
        last = b.binary("and", b.binary("lshr", bits, b.integer(count, 32)), unit)
        bits = b.binary("add", bits, b.binary("add", last, b.integer(low >> 1, 32)))
    elif mode in ("rm", "rp"):
        outward = b.compare("icmp slt" if mode == "rm" else "icmp sge", bits, b.integer(0, 32))
        bits = b.binary("add", bits, b.select(outward, b.integer(low, 32), b.integer(0, 32)))
    bits = b.select(b.is_nan(x), exact if nan is None else b.integer(nan, 32), bits)
    return b.binary("and", bits, b.integer(~low, 32))


# -- to codes ---------------------------------------------------------------------------------------------


def _scaled(b: Builder, size: Value, f: Format, extra: int) -> tuple[Value, Value]:
    """Scale an f32 so that its last kept bit becomes 2^extra. Also return the code to which the scaled units are added.

    Codes are consecutive, with 2^fraction_bits codes for each exponent. No exponent is below that of the smallest
    normal number.
    """
    least = b.integer((128 - f.bias) << 23, 32)
    exponent = b.intrinsic("umax", b.binary("and", b.as_bits(size), b.integer(0x7F800000, 32)), least)
    largest = b.integer((127 + 127 + f.fraction_bits + extra) << 23, 32)
    scaled = b.binary("fmul", size, b.bits_as(b.binary("sub", largest, exponent), "float"))
    return scaled, b.binary("lshr", b.binary("sub", exponent, least), b.integer(23 - f.fraction_bits, 32))


def _signed_code(b: Builder, code: Value, x: Value, f: Format) -> Value:
    if not f.is_signed:
        return b.select(b.is_nan(x), b.integer(f.from_nan, 32), code)
    top = b.binary("lshr", b.as_bits(x), b.integer(31, 32))
    code = b.binary("or", code, b.binary("shl", top, b.integer(f.bits - 1, 32)))
    return b.select(b.is_nan(x), b.integer(f.from_nan, 32), code)


_TO_WHOLE = {"rn": "roundeven", "rz": "trunc", "rp": "ceil"}
"""Roundings of a magnitude, and the LLVM intrinsics that do them."""


def rounded_code(b: Builder, x: Value, f: Format, mode: str = "rn") -> Value:
    """Round an f32 within ±largest, and return the code as an i32. ``rp`` is only for formats without a sign."""
    scaled, code = _scaled(b, b.magnitude(x), f, 0)
    # Of NaN, this is nothing at all; it is replaced at the end.
    count = b.cast("fptosi", b.intrinsic(_TO_WHOLE[mode], scaled), "i32")
    return _signed_code(b, b.binary("add", count, code), x, f)


def stochastic_code(b: Builder, x: Value, f: Format, random: Value) -> Value:
    """Round an f32 away from zero where the cut bits and ``random``, an i32, carry; the result is the code as an i32.

    Source: PTX ISA 9.1, "cvt", rounding modifier ``.rs``.
    """
    size = b.magnitude(x)
    if f is BF16:
        summed = b.binary("add", b.as_bits(size), random)
        return _signed_code(b, b.binary("lshr", summed, b.integer(16, 32)), x, f)
    # What overflows is cut to the number after the largest one, which an f16 writes as infinity.
    size = b.select(b.compare("fcmp ogt", size, b.number(65536.0, "float")), b.number(65536.0, "float"), size)
    scaled, code = _scaled(b, size, f, f.random_bits)
    units = b.binary("add", b.cast("fptosi", scaled, "i32"), random)
    count = b.binary("lshr", units, b.integer(f.random_bits, 32))
    return _signed_code(b, b.binary("add", count, code), x, f)
