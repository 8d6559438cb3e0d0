"""``mma``: every shape and type, sparse A, block scaling. PTX ISA 9.1, "mma", "mma.sp", "Block Scaling"."""

from __future__ import annotations

from dataclasses import replace

from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.matrix.elements import strips_in, word_type
from cujit.devices.cpu.instructions.matrix.product import in_function
from cujit.devices.cpu.instructions.matrix.strips import Scale, expand, selector_of
from cujit.devices.cpu.instructions.matrix.sums import mma_alignment
from cujit.devices.cpu.instructions.matrix.tiles import (
    Kinds,
    c_type,
    columns,
    d_words,
    put_all,
    rows,
    shape_of,
    tile,
    words_of,
)
from cujit.devices.cpu.ir.program import Op, items_of

__all__ = ["kinds_of", "register"]

_SPARSE = "sp sp::ordered_metadata"


def register(rules: Rules) -> None:
    """Add the rules of ``mma``."""
    rules.on("mma", _mma)


def kinds_of(op: Op, a: str, b: str) -> Kinds:
    """Read the types of D and C, and what is done with sums, off the modifiers."""
    d, c = op.type, op.types[-1]
    combine = next((m for m in ("xor", "and") if m in op.modifiers), "")
    rounding = next((m for m in ("rz", "rm", "rp") if m in op.modifiers), "rn")
    return Kinds(a, b, c, d, saturate="satfinite" in op.modifiers, combine=combine, rounding=rounding)


def _element_types(op: Op) -> tuple[str, str]:
    _, a, b, _ = op.types
    if "kind::mxf4" in op.modifiers or "kind::mxf4nvf4" in op.modifiers:
        return "fp4", "fp4"
    return a, b


def _mma(e: WarpEmitter, op: Op) -> None:
    (m, _, k), (a, b) = shape_of(op), _element_types(op)
    halves = m // 8
    sparse = any(word in op.modifiers for word in _SPARSE.split())
    kinds = kinds_of(op, a, b)
    if not any(word.startswith("kind::") for word in op.modifiers):
        kinds = replace(kinds, alignment=mma_alignment((a, b, kinds.c, kinds.d), sparse=sparse))
    steps = k // 32 if a == "b1" else k
    b_count = steps // (4 * strips_in(a))
    a_count = halves * b_count // (2 if sparse else 1)
    left, right = words_of(e, op, 0, a_count, word_type(a)), words_of(e, op, 1, b_count, word_type(b))
    c = words_of(e, op, 2, d_words(kinds.c, halves), c_type(kinds.c))
    more = [e.builder.vector(e.source(op, 3, "i32"))] if sparse else []
    selector = selector_of(op) if sparse else 0
    first = 5 if sparse else 3
    scale = Scale.of(op, first) if "block_scale" in op.modifiers else None
    if scale:
        more += [e.builder.vector(e.read(items_of(op.sources[at])[0], "i32")) for at in (first, first + 2)]

    def body(b_: Builder, values: list[Value]) -> list[Value]:
        given = iter(values)
        own_left, own_right, own_c = ([next(given) for _ in group] for group in (left, right, c))
        strips = steps // 4
        right_at = columns(b_, b, own_right, layout=kinds.layout)
        if sparse:
            stored = rows(b_, a, own_left, halves, "stored")
            left_at = expand(b_, a, stored, strips, next(given), selector, kinds.alignment)
        else:
            left_at = rows(b_, a, own_left, halves, layout=kinds.layout)
        if scale:
            scale.apply(b_, left_at, right_at, strips, list(given))
        return tile(b_, kinds, left_at, right_at, strips, own_c)

    title = f"{op.name}.{selector}{f'.{scale.selector_a}{scale.selector_b}' if scale else ''}"
    made = [c_type(kinds.d)] * d_words(kinds.d, halves)
    put_all(e, op, in_function(e.builder, title, [*left, *right, *c, *more], made, body))
