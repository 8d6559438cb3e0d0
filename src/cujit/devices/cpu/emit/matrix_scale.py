"""Block scaling: rows of A and columns of B times their scale factors. PTX ISA 9.1, "Block Scaling for mma.sync"."""

from __future__ import annotations

from dataclasses import dataclass

from cujit.devices.cpu.emit.builder import Builder, Value
from cujit.devices.cpu.emit.matrix_frame import at
from cujit.devices.cpu.emit.matrix_product import Define, definer, spread, turned
from cujit.devices.cpu.emit.matrix_tiles import items_of, strip_bytes
from cujit.devices.cpu.emit.matrix_types import minifloat
from cujit.devices.cpu.program import IntConstant, Op
from cujit.devices.cpu.shapes import WARP
from cujit.errors import FormatError

__all__ = ["Scale"]


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
        define = definer(b)
        byte, thread = self.selector_a
        for half in range(2):
            for chunk in range(self.chunks):
                factor = self._factor(b, words[0], 2 * thread + half, byte + chunk)
                _scale(b, define, at(b, left, half * strips * strip_bytes("f32") + chunk * size), factor, WARP, each)
        byte, thread = self.selector_b
        for chunk in range(self.chunks):
            factor = self._factor(b, words[1], thread, byte + chunk)
            _scale(b, define, at(b, right, chunk * size), turned(b, factor)[0], 8, 4 * each)

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


def _scale(b: Builder, define: Define, place: Value, factor: Value, lanes: int, count: int) -> None:
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

    name = define(f"matrix.scale.{lanes}", f"ptr %at, {full} %factor, i32 %count", body)
    b.invoke(f"@{name}", "void", place, factor, b.integer(count, 32))
