"""Sparse A: the elements that are stored go to their places by the metadata, zeros to the others.

PTX ISA 9.1, "Sparse matrix storage" and "Matrix fragments for multiply-accumulate operation with sparse matrix A".
"""

from __future__ import annotations

from dataclasses import dataclass

from cujit.devices.cpu.emit.builder import Builder, Value
from cujit.devices.cpu.emit.matrix_frame import at, scratch
from cujit.devices.cpu.emit.matrix_product import Define, definer, spread
from cujit.devices.cpu.emit.matrix_sums import Alignment
from cujit.devices.cpu.emit.matrix_tiles import strip_bytes
from cujit.devices.cpu.emit.matrix_types import element_bits
from cujit.devices.cpu.emit.rounding import number
from cujit.devices.cpu.program import IntConstant, Op
from cujit.devices.cpu.shapes import WARP
from cujit.errors import FormatError

__all__ = ["expand", "selector_of"]

_IN_QUAD = [k % 4 for k in range(WARP)]


def selector_of(op: Op) -> int:
    """Read which lanes of a quad have the metadata that count.

    Raises:
        FormatError: the operand is no constant.
    """
    chosen = op.sources[4]
    if not isinstance(chosen, IntConstant):
        raise FormatError(f"line {op.line}: the sparsity selector of {op.name} is no constant", help="write 0x0 or 0x1")
    return chosen.value


def expand(
    b: Builder, type_: str, stored: Value, strips: int, metadata: Value, selector: int, alignment: Alignment | None
) -> Value:
    """Make ``strips`` full strips for each of the two halves of the stored ones, as ``alignment`` has them."""
    bits_of_strip = {"tf32": 16, "fp4": 4, "s4": 4, "u4": 4}.get(type_, 8)
    name = _function(definer(b), bits_of_strip, -0.0 if alignment else 0.0)
    full = scratch(b, "a", 2 * strips * strip_bytes(type_))
    size = strip_bytes(type_)
    for half in range(2):
        for k in range(strips // 2):
            place = _Place(half, k * bits_of_strip, strips // 2 * bits_of_strip)
            word = _metadata(b, metadata, selector, type_, place)
            first, gap = (k, strips // 2) if alignment and alignment.layout == "chunks" else (2 * k, 1)
            to, source = at(b, full, (half * strips + first) * size), at(b, stored, (half * strips // 2 + k) * size)
            b.invoke(f"@{name}", "void", to, source, word, b.integer(gap * size, 64))
    return full


@dataclass(frozen=True)
class _Place:
    """Where metadata are: of rows 8 * half on, from a bit on, of so many that a row has."""

    half: int
    position: int
    row_bits: int


def _metadata(b: Builder, word: Value, selector: int, type_: str, place: _Place) -> Value:
    """Bring the metadata of every row, from a bit on, to all lanes of the row's quad.

    Types of 16 bits and more have those of row g in the lower half of a register, and of row g + 8 in the upper one;
    smaller types have a register for each. The selector says which lanes of the quad count.
    """
    position = place.position
    if element_bits(type_) >= 16:
        lane = selector + position // 16 if place.row_bits == 16 else 2 * selector + position // 16
        shift = 16 * place.half + position % 16
    else:
        lane = 2 * (selector if place.row_bits == 32 else position // 32) + place.half
        shift = position % 32
    own = spread(b, word, lane % 4)
    return b.binary("lshr", own, b.integer(shift, 32)) if shift else own


def _function(define: Define, bits: int, absent: float) -> str:
    """Define ``(ptr to, ptr stored, bits, i64 gap)``: makes two strips of a stored one, ``gap`` bytes apart.

    Elements that are not stored are ``absent``, a zero; those that are stored are never -0.
    """

    def body(b: Builder) -> None:
        stored = b.load("float", "%stored", vector=True)
        stored = b.binary("fadd", stored, number(b, 0.0, "float"))
        for k in range(2):
            strip = {4: _pairs_of_four, 8: _two_of_four, 16: _one_of_two}[bits](
                b, stored, k, b.vector(number(b, absent, "float"))
            )
            to = b.point("i8", "%to", Value("%gap", "i64")) if k else "%to"
            b.store(strip, to)

    return define(
        f"matrix.expand.{bits}.{'minus' if absent.hex().startswith('-') else 'plus'}",
        f"ptr %to, ptr %stored, <{WARP} x i32> %bits, i64 %gap",
        body,
    )


def _index(b: Builder, position: int | list[int], mask: int) -> Value:
    places = b.integer(position, 32) if isinstance(position, int) else b.lanes(position, 32)
    return b.binary("and", b.binary("lshr", Value("%bits", "i32", True), places), b.integer(mask, 32))


def _placed(b: Builder, where: Value, index: int, values: list[Value], result: Value) -> Value:
    """Choose, of two stored values, the one whose index is this lane's place; else ``result``."""
    for k in (1, 0):
        own = b.compare("icmp eq", _index(b, index + 2 * k, 3), where)
        result = b.select(own, values[k], result)
    return result


def _two_of_four(b: Builder, stored: Value, k: int, absent: Value) -> Value:
    """Two of four elements are there; two bits each tell which."""
    values = [spread(b, stored, 2 * k), spread(b, stored, 2 * k + 1)]
    return _placed(b, b.lanes(_IN_QUAD, 32), 4 * k, values, absent)


def _pairs_of_four(b: Builder, stored: Value, k: int, absent: Value) -> Value:
    """Two of four pairs of elements are there, over two strips."""
    places = [[lane // 4 * 4 + 2 * pair + lane % 2 for lane in range(WARP)] for pair in range(2)]
    pairs = [b.shuffle(stored, None, picks) for picks in places]
    return _placed(b, b.lanes([2 * k + j // 2 for j in _IN_QUAD], 32), 0, pairs, absent)


def _one_of_two(b: Builder, stored: Value, k: int, absent: Value) -> Value:
    """One of two elements is there; the highest of four bits tells which (``0b0100`` the first, ``0b1110`` not)."""
    value = b.shuffle(stored, None, [lane // 4 * 4 + 2 * k + lane % 4 // 2 for lane in range(WARP)])
    upper = _index(b, [4 * (2 * k + j // 2) + 3 for j in _IN_QUAD], 1)
    own = b.compare("icmp eq", upper, b.lanes([j % 2 for j in _IN_QUAD], 32))
    return b.select(own, value, absent)
