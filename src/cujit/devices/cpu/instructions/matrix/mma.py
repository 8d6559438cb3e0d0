"""Products: ``mma`` of every shape and type, sparse and scaled, ``wmma.mma``, ``wgmma``.

PTX ISA 9.1, "mma", "mma.sp", "Block Scaling".
"""

from __future__ import annotations

from cujit.devices.cpu.codegen.builder import Value
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.matrix import frames
from cujit.devices.cpu.instructions.matrix.move import fragment_words, one_of, when_any_lane
from cujit.devices.cpu.ir.program import WARP, IntConstant, Op, OperandGroup, items_of
from cujit.devices.cpu.native.structures import ELEMENTS, Product
from cujit.errors import FormatError

# What an operand xored with this is negated.
_SIGNS = {"f16": 0x80008000, "bf16": 0x80008000, "tf32": 0x80000000, "e4m3": 0x80808080, "e5m2": 0x80808080}


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("mma", _mma)
    rules.on("mma .m8n8k4 .f16|f32", _volta)
    rules.on("wmma .mma", _fragments)
    rules.on("wgmma .mma_async", _from_shared)


def _mma(e: WarpEmitter, op: Op) -> None:
    b, (m, n, k), (d_type, *ab, c_type) = e.builder, frames.shape_of(op), op.types
    kind = next((word for word in op.modifiers if word.startswith("kind::")), "")
    a, b_type = ("fp4", "fp4") if kind in ("kind::mxf4", "kind::mxf4nvf4") else ab
    sparse = any(word in ("sp", "sp::ordered_metadata") for word in op.modifiers)
    product = frames.product_of(op, (a, b_type, c_type, d_type), m, n, k, sparse=sparse, kind=kind)
    left = frames.words_of(e, op, 0, frames.words_in(product, a, of_a=True), frames.word_type(a))
    right = frames.words_of(e, op, 1, frames.words_in(product, b_type, of_a=False), frames.word_type(b_type))
    c = frames.words_of(e, op, 2, frames.sum_words(c_type, product.halves), frames.word_type(c_type))
    more = [b.vector(e.source(op, 3, "i32"))] if sparse else []
    chosen: dict[str, Value] = {}
    if "block_scale" in op.modifiers:
        first = 5 if sparse else 3
        product.scale, product.chunks = ELEMENTS.index("ue4m3" if "ue4m3" in op.modifiers else "ue8m0"), _chunks(op)
        chosen = _selectors(e, op, first)
        more += [b.vector(e.read(items_of(op.sources[at])[0], "i32")) for at in (first, first + 2)]
    frames.put_all(e, op, frames.multiply(b, product, [left, right, c], more, chosen=chosen))


def _chunks(op: Op) -> int:
    """Count the scale factors of a row."""
    factor = next((count for count in (1, 2, 4) if f"scale_vec::{count}X" in op.modifiers), 0)
    return factor or (1 if "kind::mxf8f6f4" in op.modifiers else 2)


def _selectors(e: WarpEmitter, op: Op, first: int) -> dict[str, Value]:
    """Return the byte and the lane of a quad that contain the scale factors, by field name of the product.

    If the selectors are in registers, the values of the first lane apply. Source: ptxas 13.5, which accepts registers
    for the selectors.
    """
    b, found = e.builder, {}
    for side, index in (("a", first + 1), ("b", first + 3)):
        for what, operand in zip(("byte", "thread"), items_of(op.sources[index]), strict=True):
            chosen = one_of(e, op, b.resize(e.read(operand, "i16"), 32, signed=False))
            found[f"{what}_{side}"] = b.binary("and", chosen, b.integer(3, 32))
    return found


def _volta(e: WarpEmitter, op: Op) -> None:
    """Emit ``mma.m8n8k4`` of f16, which computes four products together.

    PTX ISA 9.1, "Matrix Fragments for mma.m8n8k4 with .f16 …".
    """
    b, d, c = e.builder, op.type, op.types[-1]
    given = [word for index in (0, 1) for word in frames.words_of(e, op, index, 2)]
    given += frames.words_of(e, op, 2, 4 if c == "f16" else 8, frames.word_type(c))
    rows = [word == "row" for word in op.modifiers if word in ("row", "col")]
    flags = [b.integer(flag, 32) for flag in (*rows, c == "f16", d == "f16")]
    frames.put_all(
        e, op, frames.call_of(b, "volta", given, [frames.word_type(d)] * (4 if d == "f16" else 8), (), flags)
    )


def _fragments(e: WarpEmitter, op: Op) -> None:
    """``wmma.mma``. PTX ISA 9.1, "Matrix multiply-accumulate operation using wmma"."""
    _, *ab, c = op.types
    a, b = ab or ("f16", "f16")
    product = product_of_fragments(op)
    matrices = [frames.words_of(e, op, k, fragment_words(op, matrix, type_), frames.word_type(type_))
                for k, (matrix, type_) in enumerate((("a", a), ("b", b), ("c", c)))]  # fmt: skip
    frames.put_all(e, op, frames.multiply(e.builder, product, matrices, []))


def product_of_fragments(op: Op) -> Product:
    """Describe the product of ``wmma.mma``."""
    d, *ab, c = op.types
    return frames.product_of(op, (*(ab or ("f16", "f16")), c, d), *frames.shape_of(op))


def _from_shared(e: WarpEmitter, op: Op) -> None:
    """Emit ``wgmma``, which is done at issue. Each of the four warps computes its 16 rows.

    The registers of A, C, and D have the order of ``mma``, one group of eight columns after another. A descriptor
    specifies a matrix in shared memory. PTX ISA 9.1, "Asynchronous Warpgroup Level Matrix Multiply-Accumulate
    Instructions".
    """
    b, d = e.builder, op.type
    product, places = product_in_shared(e, op)
    sparse, scale_d = bool(product.sparse), 5 if product.sparse else 3
    items, wanted = items_of(op.sources[0]), frames.sum_words(d, 2) * product.columns
    if len(items) != wanted:
        raise FormatError(f"line {op.line}: D of {op.name} consists of {len(items)} registers, expected {wanted}")
    with when_any_lane(e, op):
        left = [] if product.from_shared else frames.words_of(e, op, 1, 4)
        more = [b.vector(e.source(op, 3, "i32"))] if sparse else []
        keeps, zero = e.read(op.sources[scale_d], "i1"), Value("zeroinitializer", frames.word_type(d), WARP)
        sums = [b.select(keeps, b.vector(e.read(item, frames.word_type(d))), zero) for item in items]
        places = [*places, Value("%warp", "i32")]
        for k, value in enumerate(frames.multiply(b, product, [left, [], sums], more, *places)):
            e.put(op, value, k)


def product_in_shared(e: WarpEmitter, op: Op) -> tuple[Product, list[Value]]:
    """Return the description of the product of ``wgmma``, with the descriptors of A and B (i64) and the start of shared
    memory.
    """
    b, (_, n, k), (d, a_type, b_type) = e.builder, frames.shape_of(op), op.types
    sparse = any(m.startswith("sp") for m in op.modifiers)
    product = frames.product_of(op, (a_type, b_type, d, d), 16, n, k, sparse=sparse)
    product.from_shared = not isinstance(op.sources[1], OperandGroup)
    negative, product.turned_a, product.turned_b = _immediates(op, 5 if sparse else 3, bool(product.from_shared))
    product.signs = _SIGNS[a_type] if negative else 0
    of_a = one_of(e, op, e.source(op, 1, "i64")) if product.from_shared else b.integer(0, 64)
    return product, [of_a, one_of(e, op, e.source(op, 2, "i64")), Value("%shared.int", "i64")]


def _immediates(op: Op, first: int, a_in_shared: bool) -> tuple[bool, bool, bool]:
    """Return whether the product is negated, and whether A and B are transposed in shared memory."""
    values = []
    for operand in op.sources[first + 1 :]:
        if not isinstance(operand, IntConstant):
            raise FormatError(f"line {op.line}: a scale or transpose operand of {op.name} is not a constant")
        values.append(operand.value)
    scales, turns = values[:2], values[2:]
    negative = len(scales) == 2 and scales[0] * scales[1] < 0
    return negative, a_in_shared and bool(turns) and bool(turns[0]), bool(turns) and bool(turns[-1])
