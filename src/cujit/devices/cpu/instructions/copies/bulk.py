"""Asynchronous and bulk copies and reductions, and stores that signal an ``mbarrier``: all done at once, at issue.

PTX ISA 9.1, "Data Movement and Conversion Instructions: Bulk copy", "st.async", "st.bulk"; "red.async".
"""

from __future__ import annotations

from collections.abc import Sequence

from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.memory import each_lane, for_each_bit
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions import blocks
from cujit.devices.cpu.instructions.atomics import Atomic, operation_of
from cujit.devices.cpu.instructions.mbarrier import complete_bytes
from cujit.devices.cpu.instructions.memory import address_in
from cujit.devices.cpu.ir.program import IntConstant, Memory, Negation, Op, Operand, Reg, items_of
from cujit.devices.cpu.native.structures import FaultKind
from cujit.formats.ptx.isa.semantics import form_of
from cujit.values import replace

_PIECE = 16
"""Bytes that addresses and sizes of bulk copies are multiples of. Source: PTX ISA 9.1, 9.7.9.25.4 "Bulk copy"."""


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("cp .ca|cg", _copy_small)
    rules.on("cp .mbarrier .noinc", _arrive_after)
    rules.on("cp .bulk .mbarrier::complete_tx::bytes", _copy)
    rules.on("cp .bulk .mbarrier::complete_tx::bytes .multicast::cluster", _copy_to_several)
    rules.on("cp .bulk .bulk_group", _copy)
    rules.on("cp .reduce .async .bulk", _reduce)
    rules.on("red .async .mbarrier::complete_tx::bytes|release", _reduce_one)
    rules.on("st .async .mbarrier::complete_tx::bytes|release", _store)
    rules.on("st .bulk", _clear)
    rules.on("clusterlaunchcontrol .try_cancel", _decline)
    rules.on("clusterlaunchcontrol .query_cancel", _nothing_canceled)


def _decline(e: WarpEmitter, op: Op) -> None:
    """``clusterlaunchcontrol.try_cancel [a], [mbar]``: answer that no block is left to take over.

    That answer may always come: blocks are handed out as soon as a core is free, and each does its own work.
    """
    space = op.space
    target, barrier = _addresses(e, op, (space, space))

    def decline(f: Builder, v: Sequence[Value]) -> None:
        f.store(f.integer(0, 128), f.cast("inttoptr", v[0], "ptr"), align=16)
        complete_bytes(f, v[1], f.integer(16, 64))

    each_lane(e, op, "try.cancel", [target, barrier], decline)


def _nothing_canceled(e: WarpEmitter, op: Op) -> None:
    """``clusterlaunchcontrol.query_cancel``: no; and the block that was not taken over has no number."""
    for k, reg in enumerate(op.results):
        e.put(op, e.builder.integer(0, reg.bits if reg is not None else 32), k)


def _addresses(e: WarpEmitter, op: Op, spaces: Sequence[str]) -> list[Value]:
    """Addresses of the operands in brackets, in order, as addresses of this process."""
    operands = [s for s in op.sources if isinstance(s, Memory)]
    return [address_in(e, m, space) for m, space in zip(operands, spaces, strict=False)]


def move(f: Builder, to: Value, from_: Value, size: Value) -> None:
    """Copy so many bytes (i64) from an address of this process to another."""
    pointers = [f.cast("inttoptr", v, "ptr") for v in (to, from_)]
    f.call("llvm.memmove.p0.p0.i64", "void", *pointers, size, f.integer(0, 1))


def _size(f: Builder, value: Value) -> Value:
    return f.cast("zext", value, "i64")


def _check(e: WarpEmitter, op: Op, to: Value, from_: Value, size: Value) -> None:
    """End the launch where an address or the size is no multiple of 16 bytes, which is undefined on a GPU."""
    b = e.builder
    together = b.binary("or", b.binary("or", to, from_), _size(b, size))
    low = b.binary("and", together, b.integer(_PIECE - 1, 64))
    fault_where(e, op, FaultKind.BULK_ALIGN, b.select(e.lanes(op), low, b.integer(0, 64)), to)


def fault_where(e: WarpEmitter, op: Op, kind: FaultKind, wrong: Value, address: Value) -> None:
    """End the launch if a lane's number in ``wrong`` is not 0."""
    b = e.builder
    bits = int(wrong.type[1:])
    lanes = b.vector(b.compare("icmp ne", wrong, b.integer(0, bits)))
    with b.when(b.any_lane(lanes), "wrong"):
        lane = b.first_lane(lanes)
        e.fault(kind, b.integer(op.line, 32), b.extract(b.vector(address), lane), lane)


# -- copies -----------------------------------------------------------------------------------------------


def _copy(e: WarpEmitter, op: Op) -> None:
    """``cp.async.bulk [dst], [src], size {, [mbar]} {, mask}``: the barrier is where the target is.

    With ``.cp_mask``, of every 16 bytes, those whose bit is set.
    """
    to, from_ = op.form.spaces
    target, source, *barrier = _addresses(e, op, (to, from_, to))
    size = e.source(op, 2, "i32")
    _check(e, op, target, source, size)
    mask = [e.read(op.sources[-1], "i16")] if "cp_mask" in op.modifiers else []

    def copy(f: Builder, v: Sequence[Value]) -> None:
        if mask:
            f.call("cujit_bulk_bytes", "void", *v[:3], f.cast("zext", v[3], "i32"))
        else:
            move(f, v[0], v[1], _size(f, v[2]))
        if barrier:
            complete_bytes(f, v[3], _size(f, v[2]))

    name = f"bulk.copy{'.mask' * bool(mask)}{'.signal' * bool(barrier)}"
    each_lane(e, op, name, [target, source, size, *barrier, *mask], copy)


def _copy_to_several(e: WarpEmitter, op: Op) -> None:
    """``….multicast::cluster [dst], [src], size, [mbar], mask``: to the same place of every block that the mask has."""
    target, source, barrier = _addresses(e, op, ("cluster", "global", "cluster"))
    size = e.source(op, 2, "i32")
    _check(e, op, target, source, size)
    offsets = [blocks.offset_of(e, v) for v in (target, barrier)]

    def copy(f: Builder, v: Sequence[Value]) -> None:
        def to_one(rank: Value) -> None:
            start = f.binary("add", v[5], f.binary("mul", f.cast("zext", rank, "i64"), v[6]))
            move(f, f.binary("add", start, v[0]), v[1], _size(f, v[2]))
            complete_bytes(f, f.binary("add", start, v[3]), _size(f, v[2]))

        for_each_bit(f, f.cast("zext", v[4], "i32"), to_one)

    values = [offsets[0], source, size, offsets[1], e.source(op, 4, "i16")]
    each_lane(e, op, "bulk.multicast", [*values, blocks.CLUSTER, blocks.STRIDE], copy)


# -- reductions -------------------------------------------------------------------------------------------


def _reduce(e: WarpEmitter, op: Op) -> None:
    """``cp.reduce.async.bulk [dst], [src], size {, [mbar]}``: element by element."""
    to = op.space
    form = Atomic(operation_of(op), op.type, locked=to == "global", by_cache=True)
    target, source, *barrier = _addresses(e, op, (to, "shared", to))
    size = e.source(op, 2, "i32")
    _check(e, op, target, source, size)
    apply = apply_function(e.builder, form)

    def reduce(f: Builder, v: Sequence[Value]) -> None:
        f.call("cujit_bulk_reduce", "void", *v[:3], f.integer(form.bits // 8, 32), apply)
        if barrier:
            complete_bytes(f, v[3], _size(f, v[2]))

    name = f"bulk.reduce.{form.name}{'.signal' * bool(barrier)}"
    each_lane(e, op, name, [target, source, size, *barrier], reduce)


def apply_function(b: Builder, form: Atomic) -> Value:
    """Point to a function ``(i64 there, i64 here)`` that reduces an element into another, for native code to call."""

    def write(f: Builder) -> None:
        there, here = (f.cast("inttoptr", Value(name, "i64"), "ptr") for name in ("%there", "%here"))
        form.apply(f, there, [f.load(form.word, here, align=form.bits // 8)])

    return Value(f"@{b.define(f'cujit.apply.{form.name}', 'i64 %there, i64 %here', write)}", "ptr")


def _reduce_one(e: WarpEmitter, op: Op) -> None:
    """``red.async [a], b, [mbar]``; with ``.release`` no barrier is told, and what came before was done at once."""
    form = Atomic(operation_of(op), op.type, locked="release" in op.modifiers)
    target, *barrier = _addresses(e, op, (op.space, op.space))

    def reduce(f: Builder, v: Sequence[Value]) -> None:
        form.apply(f, f.cast("inttoptr", v[0], "ptr"), [v[1]])
        if barrier:
            complete_bytes(f, v[2], f.integer(form.bits // 8, 64))

    each_lane(e, op, f"red.async.{form.name}", [target, e.source(op, 1, form.word), *barrier], reduce)


# -- stores -----------------------------------------------------------------------------------------------


def _store(e: WarpEmitter, op: Op) -> None:
    """``st.async [a], b, [mbar]``: store, then tell the barrier the bytes; with ``.release`` there is none."""
    target, *barrier = _addresses(e, op, (op.space, op.space))
    bits, values = op.type.bits, []
    for item in items_of(op.sources[1]):
        kind = {"f32": "float", "f64": "double"}.get(op.type, f"i{bits}")
        values.append(e.builder.bits_as(e.read(item, kind), f"i{bits}"))

    def store(f: Builder, v: Sequence[Value]) -> None:
        for k, value in enumerate(v[1 : 1 + len(values)]):
            at = f.cast("inttoptr", f.binary("add", v[0], f.integer(k * bits // 8, 64)), "ptr")
            f.store(value, at, order="" if barrier else "release", align=bits // 8)
        if barrier:
            complete_bytes(f, v[-1], f.integer(len(values) * bits // 8, 64))

    name = f"st.{'async' if barrier else 'released'}.{len(values)}x{bits}"
    each_lane(e, op, name, [target, *values, *barrier], store)


def _clear(e: WarpEmitter, op: Op) -> None:
    """``st.bulk [a], size, 0``: fill with zeros."""

    def clear(f: Builder, v: Sequence[Value]) -> None:
        pointer = f.cast("inttoptr", v[0], "ptr")
        f.call("llvm.memset.p0.i64", "void", pointer, f.integer(0, 8), v[1], f.integer(0, 1))

    each_lane(e, op, "st.bulk", [*_addresses(e, op, (op.space,)), e.source(op, 1, "i64")], clear)


# -- copies without a bulk ---------------------------------------------------------------------------------

# PTX ISA 9.1, "Data Movement and Conversion Instructions: Non-bulk copy". What is done at issue may be done at any time
# before it is waited for, so that groups and waits need no work.


def _arrive_after(e: WarpEmitter, op: Op) -> None:
    """``cp.async.mbarrier.arrive.noinc``: the copies of this thread are done, so that it arrives now."""
    form = form_of("mbarrier", *(m for m in op.modifiers if m not in ("async", "mbarrier", "noinc")))
    arrival = replace(op, form=form, results=(None,))
    e.handler_of(arrival)(e, arrival)


def _copy_small(e: WarpEmitter, op: Op) -> None:
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
