"""``cp.async``: copies to shared memory, done at once; and where the other asynchronous families are registered.

What is done at issue may be done at any time before it is waited for, so that groups and waits need no work.
PTX ISA 9.1, "Data Movement and Conversion Instructions: Non-bulk copy".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.lanewise import each_lane
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions import mbarrier
from cujit.devices.cpu.instructions.copies import bulk
from cujit.devices.cpu.instructions.copies import tensor as tensorcopy
from cujit.devices.cpu.instructions.memory import address_in
from cujit.devices.cpu.ir.program import IntConstant, Memory, Negation, Op, Operand, Reg
from cujit.devices.cpu.ir.semantics import form_of

__all__ = ["register"]


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("cp .ca|cg", _copy)
    rules.on("cp .mbarrier .noinc", _arrive_after)
    mbarrier.register(rules)
    bulk.register(rules)
    tensorcopy.register(rules)


def _arrive_after(e: WarpEmitter, op: Op) -> None:
    """``cp.async.mbarrier.arrive.noinc``: the copies of this thread are done, so that it arrives now."""
    form = form_of("mbarrier", *(m for m in op.modifiers if m not in ("async", "mbarrier", "noinc")))
    arrival = replace(op, form=form, results=(None,))
    e.handler_of(arrival)(e, arrival)


def _copy(e: WarpEmitter, op: Op) -> None:
    """``cp.async dst, src, size {, source size | ignore} {, policy}``: what the source lacks is filled with zeros."""
    target, source, size = op.sources[:3]
    assert isinstance(target, Memory)
    assert isinstance(source, Memory)
    assert isinstance(size, IntConstant)
    more = op.sources[3 : len(op.sources) - ("L2::cache_hint" in op.modifiers)]
    b = e.builder
    addresses = [address_in(e, target, "shared"), address_in(e, source, "global")]
    kind = f"<{size.value // 4} x i32>"

    def whole(f: Builder, v: Sequence[Value]) -> None:
        to, from_ = (f.cast("inttoptr", x, "ptr") for x in v[:2])
        f.store(f.load(kind, from_, align=size.value), to, align=size.value)

    def part(f: Builder, v: Sequence[Value]) -> None:
        to, from_ = (f.cast("inttoptr", x, "ptr") for x in v[:2])
        f.store(Value("zeroinitializer", kind), to, align=size.value)
        f.call("llvm.memcpy.p0.p0.i32", "void", to, from_, v[2], f.integer(0, 1))

    if not more:
        each_lane(e, op, f"copy{size.value}", addresses, whole)
        return
    count = _source_size(e, more[0], size.value)
    each_lane(
        e, op, f"copy{size.value}.part", [*addresses, b.intrinsic("umin", count, b.integer(size.value, 32))], part
    )


def _source_size(e: WarpEmitter, operand: Operand, size: int) -> Value:
    """Bytes to copy: as said, or none where a predicate says to ignore the source."""
    item = operand.item if isinstance(operand, Negation) else operand
    if isinstance(item, Reg) and item.bits == 1:
        return e.builder.select(e.read(operand, "i1"), e.builder.integer(0, 32), e.builder.integer(size, 32))
    return e.read(operand, "i32")
