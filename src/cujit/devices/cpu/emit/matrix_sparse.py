"""Sparse A: the elements that are stored go to their places by the metadata, zeros to the others.

PTX ISA 9.1, "Sparse matrix storage" and "Matrix fragments for multiply-accumulate operation with sparse matrix A".
"""

from __future__ import annotations

from cujit.devices.cpu.emit.builder import Builder, Value
from cujit.devices.cpu.emit.matrix_product import Define, definer, spread
from cujit.devices.cpu.emit.matrix_tiles import at, scratch, strip_bytes
from cujit.devices.cpu.emit.matrix_types import element_bits
from cujit.devices.cpu.emit.warp import WarpEmitter
from cujit.devices.cpu.program import IntConstant, Op
from cujit.devices.cpu.shapes import WARP
from cujit.errors import FormatError

__all__ = ["expand"]

_IN_QUAD = [k % 4 for k in range(WARP)]


def expand(e: WarpEmitter, op: Op, type_: str, stored: str, strips: int) -> str:
    """Make ``strips`` full strips for each of the two halves of the stored ones; the metadata are operand ``e``."""
    bits_of_strip = {"tf32": 16, "fp4": 4, "s4": 4, "u4": 4}.get(type_, 8)
    name = _function(definer(e.builder), bits_of_strip)
    full = scratch(e, "a", 2 * strips * strip_bytes(type_))
    size = strip_bytes(type_)
    for half in range(2):
        for k in range(strips // 2):
            position = k * bits_of_strip
            word = _metadata(e, op, type_, half, position, strips // 2 * bits_of_strip)
            to, source = at(e, full, (half * strips + 2 * k) * size), at(e, stored, (half * strips // 2 + k) * size)
            e.builder.line(f"call void @{name}(ptr {to}, ptr {source}, <{WARP} x i32> {word.text})")
    return full


def _metadata(e: WarpEmitter, op: Op, type_: str, half: int, position: int, row_bits: int) -> Value:
    """The metadata of every row of a half, from bit ``position`` on, in all lanes of the row's quad.

    Types of 16 bits and more have those of row g in the lower half of a register, and of row g + 8 in the upper one;
    smaller types have a register for each. The selector says which lanes of the quad count.
    """
    b = e.builder
    chosen = op.sources[4]
    if not isinstance(chosen, IntConstant):
        raise FormatError(f"line {op.line}: the sparsity selector of {op.name} is no constant", help="write 0x0 or 0x1")
    if element_bits(type_) >= 16:
        lane = chosen.value + position // 16 if row_bits == 16 else 2 * chosen.value + position // 16
        shift = 16 * half + position % 16
    else:
        lane = 2 * (chosen.value if row_bits == 32 else position // 32) + half
        shift = position % 32
    word = spread(b, b.vector(e.source(op, 3, "i32")), lane % 4)
    return b.binary("lshr", word, b.integer(shift, 32)) if shift else word


def _function(define: Define, bits: int) -> str:
    """Define ``(ptr to, ptr stored, bits)``: makes two strips of a stored one."""

    def body(b: Builder) -> None:
        full = f"<{WARP} x float>"
        stored = Value(b.assign(f"load {full}, ptr %stored"), "float", True)
        for k in range(2):
            strip = {4: _pairs_of_four, 8: _two_of_four, 16: _one_of_two}[bits](b, stored, k)
            to = b.assign(f"getelementptr i8, ptr %to, i64 {k * WARP * 4}")
            b.line(f"store {full} {strip.text}, ptr {to}")

    return define(f"matrix.expand.{bits}", f"ptr %to, ptr %stored, <{WARP} x i32> %bits", body)


def _index(b: Builder, position: int | list[int], mask: int) -> Value:
    places = b.integer(position, 32) if isinstance(position, int) else b.lanes(position, 32)
    return b.binary("and", b.binary("lshr", Value("%bits", "i32", True), places), b.integer(mask, 32))


def _placed(b: Builder, where: Value, index: int, values: list[Value]) -> Value:
    """Choose, of two stored values, the one whose index is this lane's place; else zero."""
    result = b.vector(b.real(0, 32))
    for k in (1, 0):
        own = b.compare("icmp eq", _index(b, index + 2 * k, 3), where)
        result = b.select(own, values[k], result)
    return result


def _two_of_four(b: Builder, stored: Value, k: int) -> Value:
    """Two of four elements are there; two bits each tell which."""
    values = [spread(b, stored, 2 * k), spread(b, stored, 2 * k + 1)]
    return _placed(b, b.lanes(_IN_QUAD, 32), 4 * k, values)


def _pairs_of_four(b: Builder, stored: Value, k: int) -> Value:
    """Two of four pairs of elements are there, over two strips."""
    full = b.type_of(stored)
    pairs = []
    for pair in range(2):
        picks = ", ".join(f"i32 {lane // 4 * 4 + 2 * pair + lane % 2}" for lane in range(WARP))
        text = f"shufflevector {full} {stored.text}, {full} poison, <{WARP} x i32> <{picks}>"
        pairs.append(Value(b.assign(text), "float", True))
    return _placed(b, b.lanes([2 * k + j // 2 for j in _IN_QUAD], 32), 0, pairs)


def _one_of_two(b: Builder, stored: Value, k: int) -> Value:
    """One of two elements is there; the highest of four bits tells which (``0b0100`` the first, ``0b1110`` not)."""
    full = b.type_of(stored)
    picks = ", ".join(f"i32 {lane // 4 * 4 + 2 * k + lane % 4 // 2}" for lane in range(WARP))
    value = Value(
        b.assign(f"shufflevector {full} {stored.text}, {full} poison, <{WARP} x i32> <{picks}>"), "float", True
    )
    upper = _index(b, [4 * (2 * k + j // 2) + 3 for j in _IN_QUAD], 1)
    own = b.compare("icmp eq", upper, b.lanes([j % 2 for j in _IN_QUAD], 32))
    return b.select(own, value, b.vector(b.real(0, 32)))
