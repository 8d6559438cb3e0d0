"""The observer behind traces: before and after each operation, the traced thread leaves the values of its registers.

Only the traced thread's warp does more than ask whether it is that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from cujit.devices.cpu.codegen.builder import Value, int_type, type_width
from cujit.devices.cpu.codegen.names import LAUNCH
from cujit.devices.cpu.codegen.warp import storage_type
from cujit.devices.cpu.ir.program import Group, Memory, Negation, Op, Operand, Reg, Special
from cujit.devices.cpu.native.structures import TRACE_DONE, TraceState
from cujit.devices.cpu.run.launch import field_offset

if TYPE_CHECKING:
    from cujit.devices.cpu.codegen.warp import WarpEmitter

__all__ = ["Tracer", "read_by", "words_of"]

# Special registers whose value is another one at each look.
_TICKING = ("clock", "clock_hi", "clock64", "globaltimer", "globaltimer_lo", "globaltimer_hi")


def read_by(op: Op) -> tuple[Reg | Special, ...]:
    """List what an operation reads and is recorded, each once: registers, special registers, its predicate."""
    found: list[Reg | Special] = [] if op.guard is None else [op.guard]
    for source in op.sources:
        _collect(source, found)
    return tuple(dict.fromkeys(found))


def _collect(operand: Operand, found: list[Reg | Special]) -> None:
    if isinstance(operand, Reg) or (isinstance(operand, Special) and operand.name not in _TICKING):
        found.append(operand)
    elif isinstance(operand, Memory):
        if isinstance(operand.base, Reg):
            found.append(operand.base)
        for item in operand.coords:
            _collect(item, found)
    elif isinstance(operand, Group):
        for item in operand.items:
            _collect(item, found)
    elif isinstance(operand, Negation):
        _collect(operand.item, found)


def words_of(operand: Reg | Special) -> int:
    """Count the words of 8 bytes that a value takes."""
    return -(-operand.bits // 64) if isinstance(operand, Reg) else 1


class Tracer:
    """Emits the records of one kernel; ``numbers`` are those of its operations. For one compilation."""

    def __init__(self, numbers: Mapping[Op, int]) -> None:
        self._numbers = numbers
        self._begun: set[WarpEmitter] = set()
        recorded = [sum(map(words_of, items)) for op in numbers for items in (read_by(op), _written(op))]
        self._most_words = max([1, *recorded])

    def before(self, e: WarpEmitter, op: Op) -> None:
        """Have the thread say which operation comes, and what it reads."""
        number = self._numbers.get(op)
        if number is not None:
            self._record(e, number, read_by(op))

    def after(self, e: WarpEmitter, op: Op) -> None:
        """Have it say what the operation wrote."""
        number, written = self._numbers.get(op), _written(op)
        if number is not None and written:
            self._record(e, number | TRACE_DONE, written)

    def _record(self, e: WarpEmitter, number: int, operands: Sequence[Reg | Special]) -> None:
        b = e.builder
        self._begin(e)
        warp, thread, done = b.label("trace.warp"), b.label("trace.thread"), b.label("traced")
        in_block = b.compare("icmp eq", Value("%block", "i64"), Value("%trace.block", "i64"))
        in_warp = b.compare("icmp eq", Value("%warp", "i32"), Value("%trace.warp", "i32"))
        b.branch(b.binary("and", in_block, in_warp), warp, done)
        b.start(warp)
        lane = Value("%trace.lane", "i32")
        comes = b.cast("trunc", b.binary("lshr", b.word(e.mask), lane), "i1")
        b.branch(comes, thread, done)
        b.start(thread)
        words = [word for operand in operands for word in _words(e, operand, lane)]
        for k, word in enumerate(words):
            at = b.point("i64", "%trace.values", b.integer(k, 64))
            b.store(word, at)
        count, values = b.integer(len(words), 32), Value("%trace.values", "ptr")
        b.call("cujit_trace", "void", LAUNCH, b.integer(number, 32), count, values)
        b.jump(done)
        b.start(done)

    def _begin(self, e: WarpEmitter) -> None:
        """Read once in a function who is traced."""
        if e in self._begun:
            return
        self._begun.add(e)
        e.builder.reserve("%trace.values", f"[{self._most_words} x i64]")
        b = e.builder
        with b.at_entry():
            at = b.offset(LAUNCH, field_offset("trace"), into="%trace.state.at")
            state = b.load("ptr", at, into="%trace.state")
            for name, type_ in (("block", "i64"), ("warp", "i32"), ("lane", "i32")):
                at = b.offset(state, getattr(TraceState, name).offset, into=f"%trace.{name}.at")
                b.load(type_, at, into=f"%trace.{name}")


def _written(op: Op) -> tuple[Reg, ...]:
    return tuple(reg for reg in op.results if reg is not None)


def _words(e: WarpEmitter, operand: Reg | Special, lane: Value) -> list[Value]:
    """Read an operand in one lane, as words of 64 bits, the lowest first."""
    b = e.builder
    value = e.read(operand, storage_type(operand) if isinstance(operand, Reg) else "i64")
    one = b.extract(value, lane) if value.is_vector else value
    width = type_width(one.type)
    bits = b.bits_as(one, int_type(width))
    if width <= 64:
        return [b.resize(bits, 64, signed=False)]
    shifted = [bits, *(b.binary("lshr", bits, b.integer(64 * k, width)) for k in range(1, words_of(operand)))]
    return [b.resize(part, 64, signed=False) for part in shifted]
