"""Types of matrix elements, and how a register's bits become numbers to compute with.

Source: PTX ISA 9.1, "Matrix Data-types", "Alternate Floating-Point Data Formats".
"""

from __future__ import annotations

from dataclasses import dataclass

from cujit.devices.cpu.emit.builder import Builder, Value
from cujit.devices.cpu.shapes import WARP

__all__ = ["element_bits", "minifloat", "strips_in", "strips_of", "word_type", "work_type"]


@dataclass(frozen=True)
class _Minifloat:
    """A float of few bits, which begin at bit ``low`` of the byte that holds it; ``top`` is what its last codes are."""

    exponent: int
    fraction: int
    bias: int
    low: int = 0
    top: str = ""
    signed: bool = True


# Source: PTX ISA 9.1, "Alternate Floating-Point Data Formats"; in mma, "the matrix element of type .e2m1 resides in
# central 4 bits of the 8-bit container", those of 6 bits in the lower ones. ``fp4`` is e2m1 without a container.
_MINIFLOATS = {
    "e4m3": _Minifloat(4, 3, 7, top="nan"),
    "e5m2": _Minifloat(5, 2, 15, top="ieee"),
    "e3m2": _Minifloat(3, 2, 3),
    "e2m3": _Minifloat(2, 3, 1),
    "e2m1": _Minifloat(2, 1, 1, low=2),
    "fp4": _Minifloat(2, 1, 1),
    "ue4m3": _Minifloat(4, 3, 7, top="nan", signed=False),
}
_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "b1": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "fp4": 4}


def element_bits(type_: str) -> int:
    """Bits that an element takes in a register; single bits count as words of 32."""
    return _BITS.get(type_, 8)


def word_type(type_: str) -> str:
    """LLVM type of one register of a fragment."""
    return "double" if type_ == "f64" else "i32"


def work_type(type_: str) -> str:
    """LLVM type that elements are computed in."""
    return {"f64": "double", "b1": "i32"}.get(type_, "float")


def strips_in(type_: str) -> int:
    """Strips that one register holds."""
    return max(1, 32 // element_bits(type_))


def strips_of(b: Builder, words: Value, type_: str, *, by_bytes: bool = False) -> list[Value]:
    """Unpack one register of all lanes into strips; ``by_bytes``, strip q has byte q of every word."""
    if type_ in ("f64", "b1"):
        return [words]
    if type_ == "tf32":
        # The low 13 bits are no part of the number.
        return [b.bits_as(b.binary("and", words, b.integer(~0x1FFF, 32)), "float")]
    if type_ in ("f16", "bf16"):
        return [_halves(b, words, q, type_) for q in range(2)]
    if by_bytes:
        bytes_ = [b.binary("lshr", words, b.integer(8 * q, 32)) if q else words for q in range(4)]
        return [minifloat(b, code, type_) for code in bytes_]
    return [_bytes_or_nibbles(b, words, q, type_) for q in range(strips_in(type_))]


def _halves(b: Builder, words: Value, q: int, type_: str) -> Value:
    """Elements 4q to 4q + 3 of every row of eight 16-bit ones."""
    chosen = b.shuffle(b.reinterpret(words, "i64", 16), None, [2 * g + q for g in range(8)])
    if type_ == "f16":
        return b.cast("fpext", b.reinterpret(chosen, "half", WARP), "float")
    bits = b.reinterpret(chosen, "i16", WARP)
    return b.bits_as(b.binary("shl", b.resize(bits, 32, signed=False), b.integer(16, 32)), "float")


def _bytes_or_nibbles(b: Builder, words: Value, q: int, type_: str) -> Value:
    """Elements 4q to 4q + 3 of every row of 16 bytes or 32 nibbles."""
    bits = element_bits(type_)
    in_word = 32 // bits
    word = b.shuffle(words, None, [k // 4 * 4 + 4 * q // in_word for k in range(WARP)])
    places = [(4 * q + k % 4) % in_word * bits for k in range(WARP)]
    if type_[0] in "su":
        # To the top of the word, and down again with the sign.
        top = b.binary("shl", word, b.lanes([32 - bits - p for p in places], 32))
        down = b.binary("ashr" if type_[0] == "s" else "lshr", top, b.integer(32 - bits, 32))
        return b.cast("sitofp", down, "float")
    return minifloat(b, b.binary("lshr", word, b.lanes(places, 32)), type_)


def minifloat(b: Builder, code: Value, type_: str) -> Value:
    """Make f32 of a small float, or of the scale factor ``ue8m0``; only its own bits of ``code`` are looked at."""
    if type_ == "ue8m0":
        return _power(b, b.binary("and", code, b.integer(0xFF, 32)))
    form = _MINIFLOATS[type_]
    width = form.exponent + form.fraction
    size = b.binary("lshr", code, b.integer(form.low, 32)) if form.low else code
    size = b.binary("and", size, b.integer((1 << width) - 1, 32))
    # The code's exponent and fraction in their places make the number, but for the difference of the biases.
    bits = b.binary("shl", size, b.integer(23 - form.fraction, 32))
    scale = b.real((127 + 127 - form.bias) << 23, 32)
    value = b.bits_as(b.binary("fmul", b.bits_as(bits, "float"), scale), "i32")
    if form.top == "nan":
        last = b.compare("icmp eq", size, b.integer((1 << width) - 1, 32))
        value = b.select(last, b.integer(0x7FFFFFFF, 32), value)
    elif form.top == "ieee":
        beyond = b.compare("icmp uge", size, b.integer((1 << width) - (1 << form.fraction), 32))
        value = b.select(beyond, b.binary("or", bits, b.integer(0x7F800000, 32)), value)
    if form.signed:
        moved = b.binary("shl", code, b.integer(31 - width - form.low, 32))
        value = b.binary("or", value, b.binary("and", moved, b.integer(1 << 31, 32)))
    return b.bits_as(value, "float")


def _power(b: Builder, code: Value) -> Value:
    """``ue8m0``: 2 to the power of the code less 127; the last code is no number."""
    bits = b.binary("shl", code, b.integer(23, 32))
    bits = b.select(b.compare("icmp eq", code, b.integer(0, 32)), b.integer(1 << 22, 32), bits)
    last = b.compare("icmp eq", code, b.integer(255, 32))
    return b.bits_as(b.select(last, b.integer(0x7FFFFFFF, 32), bits), "float")
