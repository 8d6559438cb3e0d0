"""Tiles of a product: registers to strips, strips times columns, sums to registers.

A tile is 8 or 16 rows by 8 columns of D. Its registers, for every shape and type of mma: of A, register ``s * h + r``
has rows ``8 * r`` on and step s of k, where h is 1 or 2 (``halves``); of B, register s has step s of k; of C and D,
``2 * r + p`` has rows ``8 * r`` on, of every two columns the one of parity p (f16: one register has both).
Source: PTX ISA 9.1, "Matrix Fragments for mma…".
"""

from __future__ import annotations

from dataclasses import dataclass

from cujit.devices.cpu.emit.builder import Builder, Value, type_width
from cujit.devices.cpu.emit.matrix_product import (
    columns_function,
    definer,
    product_function,
    rows_function,
)
from cujit.devices.cpu.emit.matrix_types import strips_in, word_type, work_type
from cujit.devices.cpu.emit.warp import WarpEmitter
from cujit.devices.cpu.program import Group, Op, Operand
from cujit.devices.cpu.shapes import WARP
from cujit.errors import FormatError

__all__ = [
    "Kinds",
    "at",
    "columns",
    "d_words",
    "items_of",
    "put_all",
    "rows",
    "scratch",
    "strip_bytes",
    "tile",
    "tile_by_pairs",
    "words_of",
]


@dataclass(frozen=True)
class Kinds:
    """Types of the four matrices, and what is done with sums and bits."""

    a: str
    b: str
    c: str
    d: str
    saturate: bool = False
    combine: str = ""


# -- operands ---------------------------------------------------------------------------------------------


def items_of(operand: Operand) -> tuple[Operand, ...]:
    """List what stands in braces; one operand stands for itself."""
    return operand.items if isinstance(operand, Group) else (operand,)


def words_of(e: WarpEmitter, op: Op, index: int, count: int, type_: str = "i32") -> list[Value]:
    """Read the registers of a fragment as vectors.

    Raises:
        FormatError: there are not ``count`` of them.
    """
    items = items_of(op.sources[index])
    _require(op, f"operand {index + 2}", len(items), count)
    return [e.builder.vector(e.read(item, type_)) for item in items]


def put_all(e: WarpEmitter, op: Op, values: list[Value]) -> None:
    """Write all results.

    Raises:
        FormatError: the instruction has another number of them.
    """
    _require(op, "the result", len(op.results), len(values))
    for k, value in enumerate(values):
        e.put(op, value, k)


def _require(op: Op, what: str, have: int, wanted: int) -> None:
    if have != wanted:
        raise FormatError(
            f"line {op.line}: {what} of {op.name} has {have} registers, and not the {wanted} that it takes",
            help="an assembler (ptxas) refuses this PTX too",
        )


# -- memory for strips ------------------------------------------------------------------------------------


def scratch(e: WarpEmitter, role: str, size: int) -> str:
    """Find memory of ``size`` bytes for strips; operations that ask for the same share it."""
    name = f"%matrix.{role}.{size}"
    e.builder.reserve(name, f"[{size} x i8]", 64)
    return name


def at(e: WarpEmitter, pointer: str, offset: int) -> str:
    """Find the place ``offset`` bytes on."""
    return e.builder.assign(f"getelementptr i8, ptr {pointer}, i64 {offset}") if offset else pointer


def strip_bytes(type_: str) -> int:
    """Bytes of a strip, and of four steps of columns."""
    return WARP * type_width(work_type(type_)) // 8


# -- products ---------------------------------------------------------------------------------------------


def rows(e: WarpEmitter, type_: str, words: list[Value], halves: int, place: str = "a") -> str:
    """Unpack registers of A: for each half, its strips in the order of k."""
    size, each = strip_bytes(type_), strips_in(type_)
    steps = len(words) // halves
    to = scratch(e, place, len(words) * each * size)
    name = rows_function(definer(e.builder), type_)
    for k, word in enumerate(words):
        _unpack(e, name, at(e, to, (k % halves * steps + k // halves) * each * size), word, type_)
    return to


def columns(e: WarpEmitter, type_: str, words: list[Value], place: str = "b") -> str:
    """Unpack registers of B: its columns in the order of k."""
    each = strips_in(type_) * strip_bytes(type_)
    to = scratch(e, place, len(words) * each)
    name = columns_function(definer(e.builder), type_)
    for k, word in enumerate(words):
        _unpack(e, name, at(e, to, k * each), word, type_)
    return to


def _unpack(e: WarpEmitter, name: str, to: str, word: Value, type_: str) -> None:
    e.builder.line(f"call void @{name}(ptr {to}, <{WARP} x {word_type(type_)}> {word.text})")


def tile(e: WarpEmitter, kinds: Kinds, a: str, b: str, strips: int, c: list[Value]) -> list[Value]:
    """Multiply and add one tile: A's strips at ``a``, B's columns at ``b``, the registers of C; those of D."""
    return _registers(e, kinds, _added(e, kinds, a, b, strips, _sums(e, kinds, c)), c)


def tile_by_pairs(e: WarpEmitter, kinds: Kinds, a: str, b: str, strips: int, c: list[Value]) -> list[Value]:
    """Multiply and add one tile of 8-bit floats as sm_90 does: the lower two of every four steps of k, then the others,
    and C at last; each time rounded to the type of D.

    Source: the machine code of ptxas 13.0, which makes f16 of them; the results of an H200 agree.
    """
    builder = e.builder
    sums = _sums(e, kinds, c)
    total = [builder.vector(builder.real(0, 32)) for _ in sums]
    for steps in ((0, 1), (2, 3)):
        total = _rounded(builder, kinds, _added(e, kinds, a, b, strips, total, steps))
    return _registers(e, kinds, [builder.binary("fadd", x, y) for x, y in zip(total, sums, strict=True)], c)


def _rounded(b: Builder, kinds: Kinds, values: list[Value]) -> list[Value]:
    if kinds.d != "f16":
        return values
    return [b.cast("fpext", b.cast("fptrunc", value, "half"), "float") for value in values]


def _added(
    e: WarpEmitter,
    kinds: Kinds,
    a: str,
    b: str,
    strips: int,
    sums: list[Value],
    steps: tuple[int, ...] = (0, 1, 2, 3),
) -> list[Value]:
    """Add the products of some steps of every four to sums."""
    work = work_type(kinds.a)
    full = f"<{WARP} x {work}>"
    size = strip_bytes(kinds.a)
    place = scratch(e, "d", len(sums) * size)
    name = product_function(definer(e.builder), kinds.a, kinds.combine, steps)
    for k, value in enumerate(sums):
        e.builder.line(f"store {full} {value.text}, ptr {at(e, place, k * size)}")
    for half in range(len(sums) // 2):
        own, left = at(e, place, 2 * half * size), at(e, a, half * strips * size)
        e.builder.line(f"call void @{name}(ptr {own}, ptr {left}, ptr {b}, i32 {strips})")
    return [Value(e.builder.assign(f"load {full}, ptr {at(e, place, k * size)}"), work, True) for k in range(len(sums))]


def d_words(kind: str, halves: int) -> int:
    """Registers that a tile of C or D takes."""
    return halves if kind == "f16" else 2 * halves


def c_type(kind: str) -> str:
    """LLVM type of a register of C or D."""
    return {"f32": "float", "f64": "double"}.get(kind, "i32")


def _sums(e: WarpEmitter, kinds: Kinds, c: list[Value]) -> list[Value]:
    """What the sums begin with."""
    b = e.builder
    if kinds.c == "f16":
        return [half for word in c for half in unpacked(b, word)]
    if kinds.c == "s32" and not kinds.combine:
        # Products are summed as floats, exactly, and C is added at the end.
        return [b.vector(b.real(0, 32)) for _ in c]
    return c


def unpacked(b: Builder, word: Value) -> list[Value]:
    """The two halves of a word as f32."""
    shorts = [b.resize(x, 16, signed=False) for x in (word, b.binary("lshr", word, b.integer(16, 32)))]
    return [b.cast("fpext", b.bits_as(short, "half"), "float") for short in shorts]


def _registers(e: WarpEmitter, kinds: Kinds, sums: list[Value], c: list[Value]) -> list[Value]:
    b = e.builder
    if kinds.d == "f16":
        return [packed(b, low, high) for low, high in zip(sums[::2], sums[1::2], strict=True)]
    if kinds.d == "s32" and not kinds.combine:
        whole = [b.cast("fptosi", value, "i32") for value in sums]
        if kinds.saturate:
            return [b.intrinsic("sadd.sat", x, y) for x, y in zip(whole, c, strict=True)]
        return [b.binary("add", x, y) for x, y in zip(whole, c, strict=True)]
    return sums


def packed(b: Builder, low: Value, high: Value) -> Value:
    """A word of two f32, rounded to f16."""
    bits = [b.bits_as(b.cast("fptrunc", x, "half"), "i16") for x in (low, high)]
    wide = [b.resize(x, 32, signed=False) for x in bits]
    return b.binary("or", wide[0], b.binary("shl", wide[1], b.integer(16, 32)))
