"""What is done to strips before the product: a sparse A is filled up, and block scaling multiplies by factors.

PTX ISA 9.1, "Sparse matrix storage" and "Matrix fragments for multiply-accumulate operation with sparse matrix A";
"Block Scaling for mma.sync".
"""

from __future__ import annotations

from dataclasses import dataclass

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.rounding import number
from cujit.devices.cpu.instructions.matrix.elements import element_bits, minifloat
from cujit.devices.cpu.instructions.matrix.product import at, scratch, spread, turned
from cujit.devices.cpu.instructions.matrix.sums import Alignment
from cujit.devices.cpu.instructions.matrix.tiles import strip_bytes
from cujit.devices.cpu.ir.program import IntConstant, Op, items_of
from cujit.errors import FormatError

__all__ = ["Scale", "expand", "selector_of"]

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
    name = _function(b, bits_of_strip, -0.0 if alignment else 0.0)
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


def _function(b: Builder, bits: int, absent: float) -> str:
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

    return b.define(
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


# -- block scaling ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scale:
    """How one instruction is scaled: its type of factors, how many a row has, and which byte and lane has the first.

    Of the quad of a row, lane ``2 * thread-id-a`` has the factors of row g and the next lane those of row g + 8;
    of the quad of a column, lane ``thread-id-b``. Byte ``byte-id + j`` is for chunk j of k.
    """

    type_: str
    chunks: int
    selector_a: tuple[int, int]
    selector_b: tuple[int, int]

    @classmethod
    def of(cls, op: Op, first: int) -> Scale:
        """Read it off the instruction, whose operand ``first`` is scale-a-data.

        Raises:
            FormatError: a selector is no constant.
        """
        type_ = "ue4m3" if "ue4m3" in op.modifiers else "ue8m0"
        return cls(type_, _chunks(op), _selector(op, first + 1), _selector(op, first + 3))

    def apply(self, b: Builder, left: Value, right: Value, strips: int, words: list[Value]) -> None:
        """Scale the strips at ``left`` (two halves) and the columns at ``right`` by the factors in ``words``."""
        each = strips // self.chunks
        size = strip_bytes("f32") * each
        byte, thread = self.selector_a
        for half in range(2):
            for chunk in range(self.chunks):
                factor = self._factor(b, words[0], 2 * thread + half, byte + chunk)
                _scale(b, at(b, left, half * strips * strip_bytes("f32") + chunk * size), factor, WARP, each)
        byte, thread = self.selector_b
        for chunk in range(self.chunks):
            factor = self._factor(b, words[1], thread, byte + chunk)
            _scale(b, at(b, right, chunk * size), turned(b, factor)[0], 8, 4 * each)

    def _factor(self, b: Builder, word: Value, lane: int, byte: int) -> Value:
        code = b.binary("lshr", spread(b, word, lane % 4), b.integer(8 * (byte % 4), 32))
        return minifloat(b, code, self.type_)


def _chunks(op: Op) -> int:
    for count in (1, 2, 4):
        if f"scale_vec::{count}X" in op.modifiers:
            return count
    return 1 if "kind::mxf8f6f4" in op.modifiers else 2


def _selector(op: Op, index: int) -> tuple[int, int]:
    byte, thread = items_of(op.sources[index])
    if not isinstance(byte, IntConstant) or not isinstance(thread, IntConstant):
        raise FormatError(
            f"line {op.line}: operand {index + 2} of {op.name} is not two constants",
            help="the CPU device takes the selectors of scale factors as constants",
        )
    return byte.value & 3, thread.value & 3


def _scale(b: Builder, place: Value, factor: Value, lanes: int, count: int) -> None:
    full = f"<{lanes} x float>"

    def body(inner: Builder) -> None:
        inner.jump("loop")
        inner.start("loop")
        count = Value("%count", "i32")
        k = inner.phi(count, ("0", "entry"), ("%next", "loop"), into="%k")
        here = inner.point(full, "%at", k)
        product = inner.binary("fmul", inner.load(full, here), Value("%factor", full))
        inner.store(product, here)
        following = inner.binary("add", k, inner.integer(1, 32), into="%next")
        more = inner.compare("icmp ult", following, count, into="%more")
        inner.branch(more, "loop", "done")
        inner.start("done")

    name = b.define(f"matrix.scale.{lanes}", f"ptr %at, {full} %factor, i32 %count", body)
    b.invoke(f"@{name}", "void", place, factor, b.integer(count, 32))
