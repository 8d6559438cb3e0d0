"""Fused multiply-add of f16 and bf16, in f32: a result that rounds to the half as the exact one would.

Rounded to f32 first, the exact result may come to lie in the middle between two halves; what was lost then tells
which way it has to go. The last bit of the f32 is changed to say so.
"""

from __future__ import annotations

from cujit.devices.cpu.emit.builder import Builder, Value
from cujit.devices.cpu.emit.rounding import as_bits, magnitude, negative, number, two_sum

__all__ = ["fused"]


def fused(b: Builder, name: str, x: Value, y: Value, z: Value) -> Value:
    """Compute x y + z of f16 or bf16 values held as f32; the result is to be rounded to nearest."""
    return _fused_f16(b, x, y, z) if name == "f16" else _fused_bf16(b, x, y, z)


def _fused_f16(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """Round the sum to odd, which can be rounded again without harm.

    The product of two f16 is exact, and so is the error of the sum. Source: Boldo and Melquiond, "Emulation of FMA
    and Correctly Rounded Sums", IEEE Transactions on Computers 57 (2008).
    """
    total, error = two_sum(b, b.binary("fmul", x, y), z)
    last = b.binary("and", as_bits(b, total), b.integer(1, 32))
    return _moved(b, total, error, b.compare("icmp eq", last, b.integer(0, 32)))


def _fused_bf16(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """Move the result off the middle between two bf16, toward the exact one.

    Where the result lies in the middle, it has 9 bits, the product 16 and the addend 8. Less the larger of product
    and addend, it is exact in f32: what cancels leaves no more bits than f32 has, and nothing that counts is below
    its smallest number. Adding the smaller one then gives the rest with the right sign.
    """
    result = b.intrinsic("fma", x, y, z)
    product = magnitude(b, b.binary("fmul", x, y))
    product_rules = b.compare("fcmp oge", product, magnitude(b, z))
    less_addend = b.binary("fsub", z, result)
    first = b.select(product_rules, negative(b, result), less_addend)
    second = b.select(product_rules, z, number(b, 0.0, "float"))
    rest = b.binary("fadd", b.intrinsic("fma", x, y, first), second)
    low = b.binary("and", as_bits(b, result), b.integer(0xFFFF, 32))
    return _moved(b, result, rest, b.compare("icmp eq", low, b.integer(0x8000, 32)))


def _moved(b: Builder, x: Value, rest: Value, where: Value) -> Value:
    """Move a number by one unit in the last place toward ``x + rest``, where asked and ``rest`` is not 0 or NaN."""
    bits = as_bits(b, x)
    differs = b.binary("ashr", b.binary("xor", bits, as_bits(b, rest)), b.integer(31, 32))
    beside = b.binary("add", bits, b.binary("or", differs, b.integer(1, 32)))
    some = b.compare("fcmp one", rest, number(b, 0.0, "float"))
    return b.bits_as(b.select(b.binary("and", where, some), beside, bits), "float")
