"""Tiles of a product: registers to strips, strips times columns, sums to registers.

A tile is 8 or 16 rows by 8 columns of D. Its registers, for every shape and type of mma: of A, register ``s * h + r``
has rows ``8 * r`` on and step s of k, where h is 1 or 2 (``halves``); of B, register s has step s of k; of C and D,
``2 * r + p`` has rows ``8 * r`` on, of every two columns the one of parity p (f16: one register has both).
Source: PTX ISA 9.1, "Matrix Fragments for mma…".
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value, type_width
from cujit.devices.cpu.codegen.rounding import as_bits
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.halves import join_halves, split_halves
from cujit.devices.cpu.instructions.matrix.elements import strips_in, work_type
from cujit.devices.cpu.instructions.matrix.product import (
    at,
    columns_function,
    groups_of,
    product_function,
    rows_function,
    scratch,
)  # fmt: skip
from cujit.devices.cpu.instructions.matrix.sums import Alignment, Layout, aligned
from cujit.devices.cpu.instructions.small_formats import value_of
from cujit.devices.cpu.ir.program import Op, items_of
from cujit.errors import FormatError

__all__ = [
    "Kinds", "c_type", "columns", "d_words", "packed", "put_all", "rows", "shape_of", "strip_bytes", "tile",
    "unpacked", "words_of",
]  # fmt: skip


@dataclass(frozen=True)
class Kinds:
    """Types of the four matrices, what is done with sums and bits, and how a tensor core aligns them if it is known."""

    a: str
    b: str
    c: str
    d: str
    saturate: bool = False
    combine: str = ""
    rounding: str = "rn"
    alignment: Alignment | None = None

    @property
    def layout(self) -> Layout:
        """Where the strips of A and B go."""
        return self.alignment.layout if self.alignment else "order"


# -- operands ---------------------------------------------------------------------------------------------


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


def shape_of(op: Op) -> tuple[int, int, int]:
    """Read the numbers of rows and columns of D, and of steps of k, off a word such as ``m16n8k16``."""
    found = next(m for m in (re.fullmatch(r"m(\d+)n(\d+)k(\d+)", word) for word in op.modifiers) if m)
    return int(found[1]), int(found[2]), int(found[3])


# -- products ---------------------------------------------------------------------------------------------


def strip_bytes(type_: str) -> int:
    """Bytes of a strip, and of four steps of columns."""
    return WARP * type_width(work_type(type_)) // 8


def rows(b: Builder, type_: str, words: list[Value], halves: int, place: str = "a", layout: Layout = "order") -> Value:
    """Unpack registers of A: for each half, its strips in the order of k, or as ``layout`` has them."""
    size, each = strip_bytes(type_), strips_in(type_)
    steps = len(words) // halves
    to = scratch(b, place, len(words) * each * size)
    name = rows_function(b, type_, layout)
    for k, word in enumerate(words):
        first = k % halves * steps * each * size
        _unpack(b, name, at(b, to, first + k // halves * each // groups_of(layout) * size), word, type_, steps)
    return to


def columns(b: Builder, type_: str, words: list[Value], place: str = "b", layout: Layout = "order") -> Value:
    """Unpack registers of B: its columns in the order of k, or as ``layout`` has them."""
    each = strips_in(type_) * strip_bytes(type_)
    to = scratch(b, place, len(words) * each)
    name = columns_function(b, type_, layout)
    for k, word in enumerate(words):
        _unpack(b, name, at(b, to, k * each // groups_of(layout)), word, type_, len(words))
    return to


def _unpack(b: Builder, name: str, to: Value, word: Value, type_: str, steps: int) -> None:
    gap = steps * strips_in(type_) * strip_bytes(type_) // 2
    b.invoke(f"@{name}", "void", to, word, b.integer(gap, 64))


def tile(b: Builder, kinds: Kinds, left: Value, right: Value, strips: int, c: list[Value]) -> list[Value]:
    """Multiply and add one tile: A's strips at ``left``, B's columns at ``right``, the registers of C; those of D."""
    sums = _sums(b, kinds, c)
    if kinds.alignment:
        return _registers(b, kinds, aligned(b, kinds.alignment, left, right, strips, sums), c)
    return _registers(b, kinds, _added(b, kinds, left, right, strips, sums), c)


def _added(b: Builder, kinds: Kinds, left: Value, right: Value, strips: int, sums: list[Value]) -> list[Value]:
    """Add the products to sums in the order of k."""
    work = work_type(kinds.a)
    size = strip_bytes(kinds.a)
    place = scratch(b, "d", len(sums) * size)
    name = product_function(b, kinds.a, kinds.combine, kinds.rounding)
    for k, value in enumerate(sums):
        b.store(value, at(b, place, k * size))
    for half in range(len(sums) // 2):
        own, rows_at = at(b, place, 2 * half * size), at(b, left, half * strips * size)
        b.invoke(f"@{name}", "void", own, rows_at, right, b.integer(strips, 32))
    return [b.load(work, at(b, place, k * size), vector=True) for k in range(len(sums))]


def d_words(kind: str, halves: int) -> int:
    """Registers that a tile of C or D takes."""
    return halves if kind == "f16" else 2 * halves


def c_type(kind: str) -> str:
    """LLVM type of a register of C or D."""
    return {"f32": "float", "f64": "double"}.get(kind, "i32")


def _sums(b: Builder, kinds: Kinds, c: list[Value]) -> list[Value]:
    """What the sums begin with."""
    if kinds.c == "f16":
        return [half for word in c for half in unpacked(b, word)]
    if kinds.c == "s32" and not kinds.combine:
        # Products are summed as floats, exactly, and C is added at the end.
        return [b.vector(b.real(0, 32)) for _ in c]
    return c


def unpacked(b: Builder, word: Value) -> list[Value]:
    """The two halves of a word as f32."""
    return [value_of(b, half, "f16") for half in split_halves(b, word)]


def _registers(b: Builder, kinds: Kinds, sums: list[Value], c: list[Value]) -> list[Value]:
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
    return join_halves(b, *(as_bits(b, b.cast("fptrunc", x, "half")) for x in (low, high)))
