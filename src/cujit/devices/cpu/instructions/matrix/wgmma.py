"""``wgmma``: done at issue, by each of the four warps for its own 16 rows.

PTX ISA 9.1, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions". The registers of A, C and D are
those of ``mma``, eight columns after eight columns; what lies in shared memory is told by a descriptor.
"""

from __future__ import annotations

from cujit.devices.cpu.codegen.builder import Value
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.matrix import frames
from cujit.devices.cpu.instructions.matrix.move import one_of, when_any_lane
from cujit.devices.cpu.ir.program import Group, IntConstant, Op, items_of
from cujit.errors import FormatError

__all__ = ["register"]

# What an operand xored with this is negated.
_SIGNS = {"f16": 0x80008000, "bf16": 0x80008000, "tf32": 0x80000000, "e4m3": 0x80808080, "e5m2": 0x80808080}


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("wgmma .mma_async", _multiply)


def _multiply(e: WarpEmitter, op: Op) -> None:
    b, (_, n, k), (d, a_type, b_type) = e.builder, frames.shape_of(op), op.types
    sparse = any(m.startswith("sp") for m in op.modifiers)
    scale_d = 5 if sparse else 3
    product = frames.product_of(op, (a_type, b_type, d, d), 16, n, k, sparse=sparse)
    product.from_shared = not isinstance(op.sources[1], Group)
    negative, product.turned_a, product.turned_b = _immediates(op, scale_d, bool(product.from_shared))
    product.signs = _SIGNS[a_type] if negative else 0
    items, wanted = items_of(op.sources[0]), frames.sum_words(d, 2) * product.columns
    if len(items) != wanted:
        raise FormatError(f"line {op.line}: D of {op.name} has {len(items)} registers, and not {wanted}")
    with when_any_lane(e, op):
        left = [] if product.from_shared else frames.words_of(e, op, 1, 4)
        more = [b.vector(e.source(op, 3, "i32"))] if sparse else []
        keeps, zero = e.read(op.sources[scale_d], "i1"), Value("zeroinitializer", frames.word_type(d), True)
        sums = [b.select(keeps, b.vector(e.read(item, frames.word_type(d))), zero) for item in items]
        places = [one_of(e, op, e.source(op, 1, "i64")) if product.from_shared else b.integer(0, 64)]
        places += [one_of(e, op, e.source(op, 2, "i64")), Value("%shared.int", "i64"), Value("%warp", "i32")]
        for k, value in enumerate(frames.multiply(b, product, [left, [], sums], more, *places)):
            e.put(op, value, k)


def _immediates(op: Op, first: int, a_in_shared: bool) -> tuple[bool, bool, bool]:
    """Whether the product is negated; whether A and B lie transposed in shared memory."""
    values = []
    for operand in op.sources[first + 1 :]:
        if not isinstance(operand, IntConstant):
            raise FormatError(f"line {op.line}: a scale or transposition of {op.name} is no constant")
        values.append(operand.value)
    scales, turns = values[:2], values[2:]
    negative = len(scales) == 2 and scales[0] * scales[1] < 0
    return negative, a_in_shared and bool(turns) and bool(turns[0]), bool(turns) and bool(turns[-1])
