"""The common part of all matrix instructions: registers are passed to native code in a *frame*, with a ``Product``.

The ``Product`` describes the operation. Float sums match a tensor core bit for bit if a tensor core was measured. For
every target, the sums follow sm_90: see ``runtime/sums.h`` for its rule.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value, type_width
from cujit.devices.cpu.codegen.rounding import rounding_of
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.ir.program import IntConstant, Op, items_of
from cujit.devices.cpu.native.structures import (
    ELEMENTS,
    LAYOUTS,
    NO_NUMBER,
    PRODUCTS,
    ROUNDINGS,
    Product,
    exponent_floor,
)
from cujit.errors import FormatError

_BITS = {"f16": 16, "bf16": 16, "tf32": 32, "f64": 64, "b1": 32, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "fp4": 4}
_MINUS_ZERO = 1 << 31


# -- operands ---------------------------------------------------------------------------------------------


def element_bits(type_: str) -> int:
    """Return the number of bits of an element of A or B in a register. Single bits are counted as words of 32 bits."""
    return _BITS.get(type_, 8)


def word_type(type_: str) -> str:
    """LLVM type of a register of a fragment."""
    return {"f32": "float", "f64": "double"}.get(type_, "i32")


def sum_words(type_: str, halves: int) -> int:
    """Return the number of registers of a tile of C or D with ``halves`` times eight rows."""
    return halves if type_ == "f16" else 2 * halves


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
            f"line {op.line}: {what} of {op.name} consists of {have} registers, expected {wanted}",
            help="ptxas rejects this PTX too",
        )


def shape_of(op: Op) -> tuple[int, int, int]:
    """Read the numbers of rows and columns of D, and of steps of k, off a word such as ``m16n8k16``."""
    found = next(m for m in (re.fullmatch(r"m(\d+)n(\d+)k(\d+)", word) for word in op.modifiers) if m)
    return int(found[1]), int(found[2]), int(found[3])


def _selector(op: Op) -> int:
    """Read which lanes of a quad have the metadata that count.

    Raises:
        FormatError: the operand is no constant.
    """
    chosen = op.sources[4]
    if not isinstance(chosen, IntConstant):
        raise FormatError(
            f"line {op.line}: the sparsity selector of {op.name} is not a constant", help="write 0x0 or 0x1"
        )
    return chosen.value


# -- products ---------------------------------------------------------------------------------------------


def product_of(
    op: Op, types: Sequence[str], lines: int, columns: int, steps: int, *, sparse: bool = False, kind: str = ""
) -> Product:
    """Return the description of a product of A, B, C, and D with these types.

    ``lines`` are the rows of D, ``columns`` the columns of D, and ``steps`` the size of k.
    """
    halves = min(2, lines // 8)
    product = Product(
        *map(ELEMENTS.index, types), lines // (8 * halves), columns // 8, halves,
        (steps // 32 if types[0] == "b1" else steps) // 4,
        operation=next((PRODUCTS.index(m) for m in op.modifiers if m in PRODUCTS), 0),
        rounding=ROUNDINGS.index(rounding_of(op)), saturate="satfinite" in op.modifiers,
        sparse={"tf32": 16, "fp4": 4, "s4": 4, "u4": 4}.get(types[0], 8) if sparse else 0,
        selector=_selector(op) if sparse else 0,
    )  # fmt: skip
    for name, value in (_alignment_of_kind(kind, types, sparse) or _alignment(op.opcode, types, sparse)).items():
        setattr(product, name, value)
    return product


def _alignment(opcode: str, types: Sequence[str], sparse: bool) -> dict[str, Any]:
    """Return how a tensor core sums products of these types (A, B, C, D). Return an empty dict if no GPU was measured.

    8-bit floats of ``mma`` are converted to f16, in two groups that begin at 0. tf32 of ``wmma`` are summed in two
    steps of four. Only elements of a sparse A that are not stored are -0. The elements of B that they multiply are
    ignored, even if infinite. Source of both: the machine code of ptxas 13.0 for sm_90.
    """
    a, b, c, d = types
    more: dict[str, Any] = {}
    if a in ("e4m3", "e5m2") and b in ("e4m3", "e5m2"):
        if opcode == "mma":
            a, b, c = "f16", "f16", d
            more = {"groups": 2, "apart": 1, "layout": LAYOUTS.index("chunks" if sparse else "bytes")}
        else:
            more = {"width": 13, "mask": 0xFFFFFFFF if d == "f16" else 0xFFFFFC00, "zero_c": 0}
        halves = d == "f16"
    elif a in ("f16", "bf16", "tf32"):
        halves = c == d == "f16"
        c = "f16" if halves else "f32"
        more = {"groups": 2} if opcode == "wmma" and a == "tf32" else {}
    else:
        return {}
    return _aligned(a, b, c, halves, sparse) | more


def _alignment_of_kind(kind: str, types: Sequence[str], sparse: bool) -> dict[str, Any]:
    """Return how products with ``.kind`` are summed. Return an empty dict without such a modifier.

    All of k is aligned together. Scaled products have a separate rule (``runtime/sums.h``). Source: microsoft/MMA-Sim
    at 735c9b7 (arXiv 2511.10909), of RTX Blackwell.
    """
    if not kind:
        return {}
    found = _aligned(types[0], types[1], types[2], types[3] == "f16", sparse)
    scaled = {"groups": 0, "width": 35 if types[0] == "fp4" else 25}
    return found if kind == "kind::f8f6f4" else found | scaled


def _aligned(a: str, b: str, c: str, halves: bool, sparse: bool) -> dict[str, Any]:
    floors = [exponent_floor(type_) for type_ in (a, b, c)]
    return {
        "groups": 1, "floors": tuple(floors), "zero_c": floors[2], "width": 25, "mask": 0xFFFFFFFF,
        "halves_sum": halves, "absent": _MINUS_ZERO if sparse else NO_NUMBER, "filler": _MINUS_ZERO if sparse else 0,
    }  # fmt: skip


def words_in(product: Product, type_: str, *, of_a: bool) -> int:
    """Count the registers of all of A, or of a tile of B."""
    own: int = product.strips if type_ == "f64" else product.strips * element_bits(type_) // 32
    return own * product.halves // (2 if product.sparse else 1) if of_a else own


def multiply(
    b: Builder, product: Product, matrices: Sequence[list[Value]], more: Sequence[Value], *scalars: Value,
    chosen: Mapping[str, Value] | None = None,
) -> list[Value]:  # fmt: skip
    """Multiply the registers of A, B, and C, with metadata and scale factors in ``more``. Return the registers of D.

    ``scalars`` are the locations of A or B in shared memory. ``chosen`` contains fields of the product that are set at
    run time.
    """
    given = [*matrices[0], *matrices[1], *matrices[2], *more]
    ends = [sum(map(len, matrices[:k])) for k in (1, 2, 3)]
    type_ = ELEMENTS[product.d]
    made = product.blocks * product.columns * sum_words(type_, product.halves)
    product.at_b, product.at_c, product.at_more = ends
    # D lies where C does if it is as large.
    product.at_d = product.at_c if made == len(matrices[2]) else len(given)
    name = f"multiply{'_shared' * bool(scalars)}"
    described = constant_of(b, product)
    if chosen:
        constant, described = described, b.reserve_bytes("%matrix.product", ctypes.sizeof(Product))
        size = b.integer(ctypes.sizeof(Product), 64)
        b.call("llvm.memcpy.p0.p0.i64", "void", described, constant, size, b.integer(0, 1))
        for field, value in chosen.items():
            b.store(value, b.offset(described, getattr(Product, field).offset))
    return call_of(b, name, given, [word_type(type_)] * made, [described], scalars, at=product.at_d)


# -- native code ------------------------------------------------------------------------------------------


def constant_of(b: Builder, structure: ctypes.Structure) -> Value:
    """Point to a structure of words that native code reads."""
    words = (ctypes.c_uint32 * (ctypes.sizeof(structure) // 4)).from_buffer_copy(structure)
    return b.module.constant("matrix." + ".".join(map(str, words)), [b.integer(word, 32) for word in words])


def frame_of(b: Builder, count: int, type_: str = "i32") -> Value:
    """Return memory for ``count`` registers in the function. All operations share this memory."""
    return b.reserve_bytes("%matrix.frame", count * WARP * type_width(type_) // 8)


def call_of(
    b: Builder, name: str, given: Sequence[Value], made: Sequence[str], first: Iterable[Value],
    scalars: Iterable[Value], *, at: int | None = None,
) -> list[Value]:  # fmt: skip
    """Call ``cujit_matrix_…`` with registers in a frame, between the scalars ``first`` and ``scalars``.

    Return the resulting registers, which have the types ``made``. In the frame, the results follow the given registers,
    or start at register ``at``.
    """
    wide, at = "double" in made, len(given) if at is None else at
    frame = frame_of(b, max(len(given), at + len(made)), "i64" if wide else "i32")
    size = WARP * (8 if wide else 4)
    for k, value in enumerate(given):
        b.store(value, b.offset(frame, k * size), align=size)
    b.call(f"cujit_matrix_{name}", "void", *first, frame, *scalars)
    return [b.load(type_, b.offset(frame, (at + k) * size), lanes=WARP, align=size) for k, type_ in enumerate(made)]
