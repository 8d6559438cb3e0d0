"""Types of matrix elements, and how a register's bits become numbers to compute with.

Source: PTX ISA 9.1, "Matrix Data-types", "Alternate Floating-Point Data Formats".
"""

from __future__ import annotations

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.instructions.small_formats import FORMATS, value_of, value_of_code, value_of_exponent

__all__ = ["element_bits", "minifloat", "strips_in", "strips_of", "word_type", "work_type"]


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
    return value_of(b, b.reinterpret(chosen, "i16", WARP), type_)


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
    """Make f32 of a small float, or of a scale factor; only its own bits of ``code`` are looked at.

    ``fp4`` is e2m1 without a container. Source: PTX ISA 9.1, "mma": "the matrix element of type .e2m1 resides in
    central 4 bits of the 8-bit container", those of 6 bits in the lower ones.
    """
    if type_ == "ue8m0":
        return value_of_exponent(b, b.binary("and", code, b.integer(0xFF, 32)))
    if type_ == "e2m1":
        code = b.binary("lshr", code, b.integer(2, 32))
    if type_ == "ue4m3":
        code = b.binary("and", code, b.integer(0x7F, 32))
    return value_of_code(b, code, FORMATS[{"fp4": "e2m1", "ue4m3": "e4m3"}.get(type_, type_)])
