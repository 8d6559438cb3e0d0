"""Block scaling: rows of A and columns of B times their scale factors. PTX ISA 9.1, "Block Scaling for mma.sync"."""

from __future__ import annotations

from cujit.devices.cpu.emit.builder import Builder, Value
from cujit.devices.cpu.emit.matrix_product import Define, definer, spread, turned
from cujit.devices.cpu.emit.matrix_tiles import at, items_of, strip_bytes
from cujit.devices.cpu.emit.matrix_types import minifloat
from cujit.devices.cpu.emit.warp import WarpEmitter
from cujit.devices.cpu.program import IntConstant, Op
from cujit.devices.cpu.shapes import WARP
from cujit.errors import FormatError

__all__ = ["scale_tiles"]


def scale_tiles(e: WarpEmitter, op: Op, a: str, b: str, strips: int, *, first: int) -> None:
    """Scale the strips at ``a`` (two halves) and the columns at ``b``; ``first`` is the operand scale-a-data.

    Of the quad of a row, lane ``2 * thread-id-a`` has the factors of row g and the next lane those of row g + 8;
    of the quad of a column, lane ``thread-id-b``. Byte ``byte-id + j`` is for chunk j of k.
    """
    chunks = _chunks(op)
    type_ = "ue4m3" if "ue4m3" in op.modifiers else "ue8m0"
    size = strip_bytes("f32") * (strips // chunks)
    define = definer(e.builder)
    byte, thread = _selector(op, first + 1)
    for half in range(2):
        for chunk in range(chunks):
            factor = _factor(e, op, first, 2 * thread + half, byte + chunk, type_)
            place = at(e, a, half * strips * strip_bytes("f32") + chunk * size)
            _scale(e, define, place, factor.text, WARP, strips // chunks)
    byte, thread = _selector(op, first + 3)
    for chunk in range(chunks):
        factor = _factor(e, op, first + 2, thread, byte + chunk, type_)
        _scale(e, define, at(e, b, chunk * size), turned(e.builder, factor)[0], 8, 4 * (strips // chunks))


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


def _factor(e: WarpEmitter, op: Op, index: int, lane: int, byte: int, type_: str) -> Value:
    b = e.builder
    word = spread(b, b.vector(e.read(items_of(op.sources[index])[0], "i32")), lane % 4)
    code = b.binary("lshr", word, b.integer(8 * (byte % 4), 32))
    return minifloat(b, code, type_)


def _scale(e: WarpEmitter, define: Define, place: str, factor: str, lanes: int, count: int) -> None:
    full = f"<{lanes} x float>"

    def body(b: Builder) -> None:
        b.line("br label %loop")
        b.start("loop")
        b.line("%k = phi i32 [ 0, %entry ], [ %next, %loop ]")
        here = b.assign(f"getelementptr {full}, ptr %at, i32 %k")
        product = b.assign(f"fmul {full} {b.assign(f'load {full}, ptr {here}')}, %factor")
        b.line(f"store {full} {product}, ptr {here}")
        b.line("%next = add i32 %k, 1")
        b.line("%more = icmp ult i32 %next, %count")
        b.line("br i1 %more, label %loop, label %done")
        b.start("done")

    name = define(f"matrix.scale.{lanes}", f"ptr %at, {full} %factor, i32 %count", body)
    e.builder.line(f"call void @{name}(ptr {place}, {full} {factor}, i32 {count})")
