"""``mma``: every shape and type, sparse A, block scaling. PTX ISA 9.1, "mma", "mma.sp", "Block Scaling"."""

from __future__ import annotations

from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.matrix import frames, move, wgmma, wmma
from cujit.devices.cpu.ir.program import IntConstant, Op, items_of
from cujit.devices.cpu.native.structures import ELEMENTS
from cujit.errors import FormatError

__all__ = ["register"]


def register(rules: Rules) -> None:
    """Add the rules of all matrix instructions."""
    rules.on("mma", _mma)
    rules.on("mma .m8n8k4 .f16|f32", _volta)
    for family in (move, wmma, wgmma):
        family.register(rules)


def _mma(e: WarpEmitter, op: Op) -> None:
    b, (m, n, k), (d_type, *ab, c_type) = e.builder, frames.shape_of(op), op.types
    kind = next((word for word in op.modifiers if word.startswith("kind::")), "")
    a, b_type = ("fp4", "fp4") if kind in ("kind::mxf4", "kind::mxf4nvf4") else ab
    sparse = any(word in ("sp", "sp::ordered_metadata") for word in op.modifiers)
    product = frames.product_of(op, (a, b_type, c_type, d_type), m, n, k, sparse=sparse, aligned=not kind)
    left = frames.words_of(e, op, 0, frames.words_in(product, a, of_a=True), frames.word_type(a))
    right = frames.words_of(e, op, 1, frames.words_in(product, b_type, of_a=False), frames.word_type(b_type))
    c = frames.words_of(e, op, 2, frames.sum_words(c_type, product.halves), frames.word_type(c_type))
    more = [b.vector(e.source(op, 3, "i32"))] if sparse else []
    if "block_scale" in op.modifiers:
        first = 5 if sparse else 3
        product.scale, product.chunks = ELEMENTS.index("ue4m3" if "ue4m3" in op.modifiers else "ue8m0"), _chunks(op)
        product.byte_a, product.thread_a = _selector(op, first + 1)
        product.byte_b, product.thread_b = _selector(op, first + 3)
        more += [b.vector(e.read(items_of(op.sources[at])[0], "i32")) for at in (first, first + 2)]
    frames.put_all(e, op, frames.multiply(b, product, [left, right, c], more))


def _chunks(op: Op) -> int:
    """Count the scale factors of a row."""
    said = next((count for count in (1, 2, 4) if f"scale_vec::{count}X" in op.modifiers), 0)
    return said or (1 if "kind::mxf8f6f4" in op.modifiers else 2)


def _selector(op: Op, index: int) -> tuple[int, int]:
    byte, thread = items_of(op.sources[index])
    if not isinstance(byte, IntConstant) or not isinstance(thread, IntConstant):
        raise FormatError(
            f"line {op.line}: operand {index + 2} of {op.name} is not two constants",
            help="the CPU device takes the selectors of scale factors as constants",
        )
    return byte.value & 3, thread.value & 3


def _volta(e: WarpEmitter, op: Op) -> None:
    """``mma.m8n8k4`` of f16: four products at once. PTX ISA 9.1, "Matrix Fragments for mma.m8n8k4 with .f16 …"."""
    b, d, c = e.builder, op.type, op.types[-1]
    given = [word for index in (0, 1) for word in frames.words_of(e, op, index, 2)]
    given += frames.words_of(e, op, 2, 4 if c == "f16" else 8, frames.word_type(c))
    rows = [word == "row" for word in op.modifiers if word in ("row", "col")]
    flags = [b.integer(flag, 32) for flag in (*rows, c == "f16", d == "f16")]
    frames.put_all(
        e, op, frames.call_of(b, "volta", given, [frames.word_type(d)] * (4 if d == "f16" else 8), (), flags)
    )
