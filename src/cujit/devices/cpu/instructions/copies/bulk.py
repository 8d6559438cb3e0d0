"""Asynchronous and bulk copies and reductions, and stores that signal an ``mbarrier``. See ``pending`` for their
timing.

PTX ISA 9.1, "Data Movement and Conversion Instructions: Bulk copy", "st.async", "st.bulk"; "red.async".
"""

from __future__ import annotations

from collections.abc import Sequence

from cujit.devices.cpu.codegen.builder import Builder, Value, type_width
from cujit.devices.cpu.codegen.memory import each_lane, for_each_bit
from cujit.devices.cpu.codegen.nodes import LAUNCH
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions import blocks
from cujit.devices.cpu.instructions.atomics import Atomic, operation_of
from cujit.devices.cpu.instructions.mbarrier import complete_bytes
from cujit.devices.cpu.instructions.memory import address_in
from cujit.devices.cpu.instructions.pending import NOTHING, commit, lane_queue, own_queue, wait
from cujit.devices.cpu.ir.program import IntConstant, MemoryOperand, Negation, Op, Operand, Reg, items_of
from cujit.devices.cpu.native.structures import FaultKind, Small

_PIECE = 16
"""Bytes that addresses and sizes of bulk copies are multiples of. Source: PTX ISA 9.1, 9.7.9.25.4 "Bulk copy"."""


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("cp .ca|cg", _copy_small)
    rules.on("cp .mbarrier", _arrive_after)
    rules.on("cp .commit_group", commit)
    rules.on("cp .wait_group|wait_all", wait)
    rules.on("cp .bulk .mbarrier::complete_tx::bytes", _copy)
    rules.on("cp .bulk .mbarrier::complete_tx::bytes .multicast::cluster", _copy_to_several)
    rules.on("cp .bulk .mbarrier::complete_tx::bytes .ignore_oob", _copy_inside)
    rules.on("cp .bulk .bulk_group", _copy)
    rules.on("cp .reduce .async .bulk", _reduce)
    rules.on("red .async .mbarrier::complete_tx::bytes|release", _reduce_one)
    rules.on("st .async .mbarrier::complete_tx::bytes|release", _store)
    rules.on("st .bulk", _clear)
    rules.on("clusterlaunchcontrol .try_cancel", _take_over)
    rules.on("clusterlaunchcontrol .query_cancel", _query)


def _take_over(e: WarpEmitter, op: Op) -> None:
    """Emit ``clusterlaunchcontrol.try_cancel [a], [mbar]``. The response arrives as an asynchronous store of 16 bytes.

    With ``.multicast::cluster::all``, the response is stored at the same places in every block of the cluster.
    """
    b, owner, space = e.builder, lane_queue(e, op), op.space
    target, barrier = _addresses(e, op, (space, space))
    to_all = "multicast::cluster::all" in op.modifiers
    if to_all:
        target, barrier = (blocks.offset_of(e, v) for v in (target, barrier))
    everyone = b.binary("sub", b.binary("shl", b.integer(1, 32), blocks.cluster_blocks(e)), b.integer(1, 32))

    def ask(f: Builder, v: Sequence[Value]) -> None:
        own, (to, barrier_at, launch, mask, cluster, stride) = v[: len(owner)], v[len(owner) :]
        answer = f.reserve("%answer", f"[{_PIECE} x i8]")
        f.call("cujit_try_cancel", "void", launch, answer)

        def tell(start: Value) -> None:
            there, barrier_there = (f.binary("add", start, at) for at in (to, barrier_at))
            f.call("cujit_pending_value", "void", *own, there, answer, f.integer(_PIECE, 32), barrier_there, NOTHING)

        def tell_one(rank: Value) -> None:
            tell(blocks.window_of(f, cluster, rank, stride))

        if to_all:
            for_each_bit(f, mask, tell_one)
        else:
            tell(f.integer(0, 64))

    values = [target, barrier, LAUNCH, everyone, blocks.CLUSTER, blocks.STRIDE]
    each_lane(e, op, "try.cancel" + ".all" * to_all, [*owner, *values], ask)


_NO_AXIS = -1
"""The fourth number of ``get_first_ctaid.v4``, which may be any. Source: PTX ISA 9.1, "query_cancel"."""


def _query(e: WarpEmitter, op: Op) -> None:
    """Emit ``clusterlaunchcontrol.query_cancel``: whether a cluster was taken over, or the position of
    its first block.
    """
    b, answer = e.builder, e.source(op, 0, "i128")
    if "is_canceled" in op.modifiers:
        e.put(op, b.compare("icmp ne", b.resize(answer, 32, signed=False), b.integer(0, 32)))
        return
    axes = [k for k, axis in enumerate("xyz") if f"get_first_ctaid::{axis}" in op.modifiers] or [0, 1, 2, _NO_AXIS]
    for k, (reg, axis) in enumerate(zip(op.results, axes, strict=True)):
        if reg is not None:
            e.put(op, b.resize(b.binary("lshr", answer, b.integer(32 * (axis + 1), 128)), 32, signed=False), k)


def _addresses(e: WarpEmitter, op: Op, spaces: Sequence[str]) -> list[Value]:
    """Addresses of the operands in brackets, in order, as addresses of this process."""
    operands = [s for s in op.sources if isinstance(s, MemoryOperand)]
    return [address_in(e, m, space) for m, space in zip(operands, spaces, strict=False)]


def move(f: Builder, to: Value, from_: Value, size: Value) -> None:
    """Emit a copy of ``size`` bytes (i64) between two addresses of this process."""
    pointers = [f.cast("inttoptr", v, "ptr") for v in (to, from_)]
    f.call("llvm.memmove.p0.p0.i64", "void", *pointers, size, f.integer(0, 1))


def _size(f: Builder, value: Value) -> Value:
    return f.cast("zext", value, "i64")


def _check(e: WarpEmitter, op: Op, to: Value, from_: Value, size: Value) -> None:
    """End the launch if an address or the size is not a multiple of 16 bytes, which is undefined behavior on a GPU.

    A copy of 0 bytes is allowed at any address, because ``BlockLoadToShared`` of CUB uses unaligned addresses in that
    case.
    """
    b, bytes_ = e.builder, _size(e.builder, size)
    together = b.binary("or", b.binary("or", to, from_), bytes_)
    some = b.compare("icmp ne", bytes_, b.integer(0, 64))
    low = b.select(some, b.binary("and", together, b.integer(_PIECE - 1, 64)), b.integer(0, 64))
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
    """Emit ``cp.async.bulk [dst], [src], size {, [mbar]} {, mask}``. The barrier is in the same space as the
    destination.

    With ``.cp_mask``, copy only the bytes of every 16 that have their bit set in the mask.
    """
    to, from_ = op.form.spaces
    target, source, *barrier = _addresses(e, op, (to, from_, to))
    size = e.source(op, 2, "i32")
    _check(e, op, target, source, size)
    b, mask = e.builder, e.builder.integer(0, 32)
    if "cp_mask" in op.modifiers:
        mask = b.binary("or", b.cast("zext", e.read(op.sources[-1], "i16"), "i32"), b.integer(_MASKED, 32))
    _issue(e, op, [target, source, size, *(barrier or [b.integer(0, 64)]), mask])


def inside_of(e: WarpEmitter, op: Op) -> tuple[Value, Value]:
    """Return the first byte (i64) and how many (i32) of a copy with ``.ignore_oob`` are in bounds."""
    b = e.builder
    size, left, right = (e.source(op, k, "i32") for k in (2, 3, 4))
    return b.cast("zext", left, "i64"), b.binary("sub", size, b.intrinsic("umin", size, b.binary("add", left, right)))


def _copy_inside(e: WarpEmitter, op: Op) -> None:
    """Emit ``….ignore_oob [dst], [src], size, left, right, [mbar]``.

    The first ``left`` and last ``right`` bytes have undefined values afterwards. The barrier counts these bytes
    immediately, so its phase ends when the other bytes are copied. Source: PTX ISA 9.2, "cp.async.bulk".
    """
    to, from_ = op.form.spaces
    target, source, barrier = _addresses(e, op, (to, from_, to))
    b, size = e.builder, e.source(op, 2, "i32")
    _check(e, op, target, source, size)
    beyond = b.binary("and", b.binary("or", e.source(op, 3, "i32"), e.source(op, 4, "i32")), b.integer(-_PIECE, 32))
    fault_where(e, op, FaultKind.BULK_ALIGN, b.select(e.lanes(op), beyond, b.integer(0, 32)), target)
    first, count = inside_of(e, op)
    _issue(e, op, [b.binary("add", target, first), b.binary("add", source, first), count, barrier, b.integer(0, 32)])
    ignored = b.cast("zext", b.binary("sub", size, count), "i64")
    each_lane(e, op, "bulk.ignored", [barrier, ignored], lambda f, v: complete_bytes(f, *v))


_MASKED = 1 << 16
"""The bit of a mask of bytes that tells that there is one."""


def _issue(e: WarpEmitter, op: Op, operands: Sequence[Value], step: int = 0, apply: Value = NOTHING) -> None:
    """Queue a bulk operation: target, source, size, barrier (0 for one in a bulk group) and mask of bytes."""

    def issue(f: Builder, v: Sequence[Value]) -> None:
        f.call("cujit_pending_bulk", "void", *v)

    each_lane(e, op, "bulk.issue", [*lane_queue(e, op), *operands, e.builder.integer(step, 32), apply], issue)


def _copy_to_several(e: WarpEmitter, op: Op) -> None:
    """Emit ``….multicast::cluster [dst], [src], size, [mbar], mask``: a copy to the same place in every block of the
    mask.
    """
    target, source, barrier = _addresses(e, op, ("cluster", "global", "cluster"))
    size = e.source(op, 2, "i32")
    _check(e, op, target, source, size)
    offsets = [blocks.offset_of(e, v) for v in (target, barrier)]
    owner = lane_queue(e, op)

    def copy(f: Builder, v: Sequence[Value]) -> None:
        own, (to, from_, bytes_, barrier, mask, cluster, stride) = v[: len(owner)], v[len(owner) :]
        nothing = f.integer(0, 32)

        def to_one(rank: Value) -> None:
            start = blocks.window_of(f, cluster, rank, stride)
            there, barrier_address = (f.binary("add", start, offset) for offset in (to, barrier))
            f.call("cujit_pending_bulk", "void", *own, there, from_, bytes_, barrier_address, nothing, nothing, NOTHING)

        for_each_bit(f, f.cast("zext", mask, "i32"), to_one)

    values = [offsets[0], source, size, offsets[1], e.source(op, 4, "i16")]
    each_lane(e, op, "bulk.multicast", [*owner, *values, blocks.CLUSTER, blocks.STRIDE], copy)


# -- reductions -------------------------------------------------------------------------------------------


def _reduce(e: WarpEmitter, op: Op) -> None:
    """``cp.reduce.async.bulk [dst], [src], size {, [mbar]}``: element by element."""
    to = op.space
    by_cache = not ("noftz" in op.modifiers and op.type == "f32")
    form = Atomic(operation_of(op), op.type, locked=to == "global", by_cache=by_cache)
    target, source, *barrier = _addresses(e, op, (to, "shared", to))
    size = e.source(op, 2, "i32")
    _check(e, op, target, source, size)
    b = e.builder
    operands = [target, source, size, *(barrier or [b.integer(0, 64)]), b.integer(0, 32)]
    _issue(e, op, operands, form.bits // 8, apply_function(b, form))


def apply_function(b: Builder, form: Atomic) -> Value:
    """Point to a function ``(i64 there, i64 here)`` that reduces an element into another, for native code to call."""

    def write(f: Builder) -> None:
        there, here = (f.cast("inttoptr", Value(name, "i64"), "ptr") for name in ("%there", "%here"))
        form.apply(f, there, [f.load(form.word, here, align=form.bits // 8)])

    return Value(f"@{b.define(f'cujit.apply.{form.name}', 'i64 %there, i64 %here', write)}", "ptr")


def _reduce_one(e: WarpEmitter, op: Op) -> None:
    """Emit ``red.async [a], b, [mbar]``. With ``.release``, there is no barrier, and the reduction is
    done immediately.
    """
    form = Atomic(operation_of(op), op.type, locked="release" in op.modifiers)
    target, *barrier = _addresses(e, op, (op.space, op.space))
    if barrier:
        _issue_value(e, op, target, [e.source(op, 1, form.word)], barrier[0], apply_function(e.builder, form))
        return

    def reduce(f: Builder, v: Sequence[Value]) -> None:
        form.apply(f, f.cast("inttoptr", v[0], "ptr"), [v[1]])

    each_lane(e, op, f"red.async.{form.name}", [target, e.source(op, 1, form.word)], reduce)


def _issue_value(
    e: WarpEmitter, op: Op, target: Value, values: Sequence[Value], barrier: Value, apply: Value = NOTHING
) -> None:
    """Queue a store of values of one type, or a reduction by one value with ``apply``. A barrier counts the bytes when
    done.
    """
    owner, step = lane_queue(e, op), type_width(values[0].type) // 8

    def issue(f: Builder, v: Sequence[Value]) -> None:
        own, (to, barrier_address, reduces, *items) = v[: len(owner)], v[len(owner) :]
        place = f.reserve("%value", f"[{step * len(values)} x i8]")
        for k, item in enumerate(items):
            f.store(item, f.offset(place, k * step), align=step)
        f.call(
            "cujit_pending_value", "void", *own, to, place, f.integer(step * len(values), 32), barrier_address, reduces
        )

    each_lane(e, op, f"value.issue.{len(values)}x{step}", [*owner, target, barrier, apply, *values], issue)


# -- stores -----------------------------------------------------------------------------------------------


def _store(e: WarpEmitter, op: Op) -> None:
    """Emit ``st.async [a], b, [mbar]``: a store after which the barrier counts the bytes. With ``.release``, there is
    no barrier.
    """
    target, *barrier = _addresses(e, op, (op.space, op.space))
    bits, values = op.type.bits, []
    for item in items_of(op.sources[1]):
        kind = {"f32": "float", "f64": "double"}.get(op.type, f"i{bits}")
        values.append(e.builder.bits_as(e.read(item, kind), f"i{bits}"))

    if barrier:
        _issue_value(e, op, target, values, barrier[0])
        return

    def store(f: Builder, v: Sequence[Value]) -> None:
        for k, value in enumerate(v[1:]):
            at = f.cast("inttoptr", f.binary("add", v[0], f.integer(k * bits // 8, 64)), "ptr")
            f.store(value, at, order="release", align=bits // 8)

    each_lane(e, op, f"st.released.{len(values)}x{bits}", [target, *values], store)


def _clear(e: WarpEmitter, op: Op) -> None:
    """``st.bulk [a], size, 0``: fill with zeros."""

    def clear(f: Builder, v: Sequence[Value]) -> None:
        pointer = f.cast("inttoptr", v[0], "ptr")
        f.call("llvm.memset.p0.i64", "void", pointer, f.integer(0, 8), v[1], f.integer(0, 1))

    each_lane(e, op, "st.bulk", [*_addresses(e, op, (op.space,)), e.source(op, 1, "i64")], clear)


# -- copies without a bulk ---------------------------------------------------------------------------------

# PTX ISA 9.1, "Data Movement and Conversion Instructions: Non-bulk copy".


def _arrive_after(e: WarpEmitter, op: Op) -> None:
    """Emit ``cp.async.mbarrier.arrive{.noinc}``: an arrival once the earlier copies of this thread are done.

    Without ``.noinc``, the barrier immediately expects one more arrival. Source: PTX ISA 9.1,
    "cp.async.mbarrier.arrive".
    """
    b, address = e.builder, address_in(e, op.memory, op.space)
    counts, name = b.integer("noinc" not in op.modifiers, 32), "cujit_pending_arrive"
    lanes, line = b.word(e.lanes(op)), b.integer(op.line, 32)
    if address.lanes:

        def arrive(f: Builder, v: Sequence[Value]) -> None:
            f.call(name, "void", *v)

        each_lane(e, op, "arrive.after", [*lane_queue(e, op), address, counts], arrive)
        return
    with b.when(b.compare("icmp ne", lanes, b.integer(0, 32)), "arrive"):
        b.call(name, "void", *own_queue(e), lanes, line, address, counts)


def _copy_small(e: WarpEmitter, op: Op) -> None:
    """Emit ``cp.async dst, src, size {, source size | ignore} {, policy}``. Bytes past the source size are filled with
    zeros.
    """
    target, source, size = op.sources[:3]
    assert isinstance(target, MemoryOperand)
    assert isinstance(source, MemoryOperand)
    assert isinstance(size, IntConstant)
    more = op.sources[3 : len(op.sources) - ("L2::cache_hint" in op.modifiers)]
    b, lanes = e.builder, e.builder.word(e.lanes(op))
    fields = [(Small.to, address_in(e, target, "shared")), (Small.source, address_in(e, source, "global"))]
    if more:
        count = b.intrinsic("umin", _source_size(e, more[0], size.value), b.integer(size.value, 32))
        fields.append((Small.count, count))
    with b.when(b.compare("icmp ne", lanes, b.integer(0, 32)), "copies"):
        numbers = (b.integer(n, 32) for n in (size.value, bool(more), op.line))
        copy = b.call("cujit_pending_small", "ptr", *own_queue(e), lanes, *numbers)
        for field, value in fields:
            b.store(b.vector(value), b.offset(copy, field.offset), align=type_width(value.type) // 8)


def _source_size(e: WarpEmitter, operand: Operand, size: int) -> Value:
    """Return the number of bytes to copy: the specified size, or 0 if a predicate makes the copy ignore the source."""
    item = operand.item if isinstance(operand, Negation) else operand
    if isinstance(item, Reg) and item.bits == 1:
        return e.builder.select(e.read(operand, "i1"), e.builder.integer(0, 32), e.builder.integer(size, 32))
    return e.read(operand, "i32")
