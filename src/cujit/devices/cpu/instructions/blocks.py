"""Operations between the blocks of a cluster and between the warps of a block: barriers and shared-memory addresses.

PTX ISA 9.1: "Parallel Synchronization and Communication Instructions: bar, barrier", "barrier.cluster", "mapa",
"getctarank". Native code implements the barriers (``runtime/blocks.c``). ``flow`` decides whether the warp waits as a
whole or lane by lane.

The windows of the blocks are adjacent in memory from ``%cluster.int`` on, in order of the blocks' ranks. A shared
address contains the rank of a block above the offset in its window, so it equals the low 32 bits of the generic
address. The address of a variable in the current block contains the rank of this block. Source: an H200,
``tests/goldens/windows.json``.
"""

from __future__ import annotations

import contextlib

from cujit.devices.cpu.codegen.builder import Builder, Value, int_type
from cujit.devices.cpu.codegen.nodes import LAUNCH, STATE, WARP_NUMBER
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.ir.program import Op, Operand
from cujit.devices.cpu.run.launch import WINDOW_BITS, field_offset

CLUSTER = Value("%cluster.int", "i64")
STRIDE = Value(str(1 << WINDOW_BITS), "i64", constant=True)
"""Bytes from the window of a block to that of the next."""
_MOST_RANKS = 255
"""Bits of a shared address, above the offset, that are the block's rank in its cluster."""


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("bar|barrier", _barrier)
    rules.on("warpgroup.meet", _meet)
    rules.on("mapa", _map)
    rules.on("getctarank", _get_rank)


# -- barriers ---------------------------------------------------------------------------------------------


def _barrier(e: WarpEmitter, op: Op) -> None:
    """Wait, or arrive, with all the lanes that are here."""
    b, lanes = e.builder, e.lanes_of(op)
    with contextlib.nullcontext() if op.guard is None else b.when(b.any_lane(lanes), "barrier"):
        if op.form.is_barrier:
            synchronise(e, op, lanes)
        else:
            arrive(e, op, lanes)


def _meet(e: WarpEmitter, op: Op) -> None:
    """Wait for the other warps of the warpgroup with all the lanes that are here."""
    b, lanes = e.builder, e.lanes_of(op)
    with contextlib.nullcontext() if op.guard is None else b.when(b.any_lane(lanes), "meeting"):
        form, line = e.read(op.sources[0], "i32"), b.integer(op.line, 32)
        b.call("cujit_warpgroup_meet", "void", STATE, WARP_NUMBER, form, line, b.word(lanes))


def synchronise(e: WarpEmitter, op: Op, lanes: Value) -> None:
    """Arrive with these lanes, which are all that the warp has, and wait until the barrier opens."""
    b = e.builder
    number, generation = arrive(e, op, lanes)
    here = b.word(lanes)
    line = b.integer(op.line, 32)
    if op.scope == "cluster":
        b.call("cujit_cluster_wait", "void", STATE, WARP_NUMBER, generation, line, here)
        return
    b.call("cujit_barrier_wait", "void", STATE, WARP_NUMBER, number, generation, line, here)
    put_result(e, op, number)


def arrive(e: WarpEmitter, op: Op, lanes: Value, waiting: Value | None = None) -> tuple[Value, Value]:
    """Make lanes arrive. The returned barrier number and generation determine when the barrier opens.

    ``waiting`` are the lanes that will wait here, including lanes that arrived earlier.
    """
    b = e.builder
    if op.scope == "cluster":
        name = "cujit_cluster_arrival" if op.form.is_barrier else "cujit_cluster_arrive"
        word = b.word(lanes if waiting is None else waiting)
        return b.integer(0, 32), b.call(name, "i32", STATE, WARP_NUMBER, word)
    number, threads = named(e, op, lanes)
    holding = b.integer(0, 32)
    word = counted = b.word(lanes)
    if len(_numbers(op)) > 1:
        # A warp counts as 32 threads at a barrier with a count, whatever lanes it has left. Source: PTX ISA 9.1, "bar":
        # "the arrival count is incremented by the warp size (not the number of active threads in the warp)".
        missing = b.any_lane(b.binary("and", e.live(), b.invert(lanes)))
        counted = b.select(missing, word, b.integer(-1, 32))
    if "red" in op.modifiers:
        # Lanes that count and are not there change nothing.
        holding = b.binary("and", b.word(b.vector(e.read(op.sources[-1], "i1"))), word)
        if "and" in op.modifiers:
            holding = b.binary("or", holding, b.binary("xor", word, b.integer(-1, 32)))
    return number, b.call("cujit_barrier_arrive", "i32", STATE, number, threads, counted, holding)


def named(e: WarpEmitter, op: Op, lanes: Value) -> tuple[Value, Value]:
    """Read the number of a block's barrier and the count of threads that it is for (0: all), as scalars."""
    numbers = _numbers(op)
    threads = _scalar(e, numbers[1], lanes) if len(numbers) > 1 else e.builder.integer(0, 32)
    return _scalar(e, numbers[0], lanes), threads


def _numbers(op: Op) -> tuple[Operand, ...]:
    return op.sources[:-1] if "red" in op.modifiers else op.sources


def has_opened(e: WarpEmitter, op: Op, number: Value, generation: Value) -> Value:
    """Return whether a barrier has opened since lanes arrived in that generation."""
    b = e.builder
    name, which = ("cluster", ()) if op.scope == "cluster" else ("barrier", (number,))
    return b.compare("icmp ne", b.call(f"cujit_{name}_generation", "i32", STATE, *which), generation)


_RESULTS = {"popc": "cujit_barrier_count", "or": "cujit_barrier_any", "and": "cujit_barrier_missing"}


def put_result(e: WarpEmitter, op: Op, number: Value) -> None:
    """Write the result of a reducing barrier."""
    if "red" not in op.modifiers:
        return
    b = e.builder
    kind = next(m for m in op.modifiers if m in _RESULTS)
    found = b.call(_RESULTS[kind], "i32", STATE, number)
    if kind != "popc":
        found = b.compare("icmp eq" if kind == "and" else "icmp ne", found, b.integer(0, 32))
    e.put(op, b.vector(found))


def _scalar(e: WarpEmitter, operand: Operand, lanes: Value) -> Value:
    """Read an operand that is the same in all these lanes."""
    value = e.read(operand, "i32")
    return e.builder.extract(value, e.builder.first_lane(lanes)) if value.lanes else value


# -- addresses --------------------------------------------------------------------------------------------


def _joined(e: WarpEmitter, rank: Value, address: Value) -> Value:
    """Make the ``shared::cluster`` address (i64) in the block of a rank that is at the same offset as another."""
    b = e.builder
    return b.binary("or", b.binary("shl", rank, b.integer(WINDOW_BITS, 64)), offset_of(e, address))


def to_process(e: WarpEmitter, address: Value) -> Value:
    """Turn an address (i64) of ``shared``, or of ``shared::cluster``, into an address of this process."""
    return e.builder.binary("add", CLUSTER, address)


def from_process(e: WarpEmitter, address: Value) -> Value:
    """Turn an address of this process, in the cluster's shared memory, into one of ``shared::cluster`` (i64)."""
    return e.builder.binary("sub", address, CLUSTER)


def _rank_of(e: WarpEmitter, address: Value) -> Value:
    """Return the rank (i64) of the block with the shared memory that contains an address of this process."""
    b = e.builder
    return b.binary("lshr", b.binary("sub", address, CLUSTER), b.integer(WINDOW_BITS, 64))


def offset_of(e: WarpEmitter, address: Value) -> Value:
    """Find the offset (i64) of an address of this process in the shared memory of its block."""
    return e.builder.binary("and", address, e.builder.integer((1 << WINDOW_BITS) - 1, 64))


def window_of(f: Builder, cluster: Value, rank: Value, stride: Value) -> Value:
    """Return the start of the shared memory of the block with rank ``rank`` (i32).

    The emitted function must have ``CLUSTER`` and ``STRIDE`` as parameters.
    """
    return f.binary("add", cluster, f.binary("mul", f.cast("zext", rank, "i64"), stride))


def _address_of_rank(e: WarpEmitter, rank: Value, offset: Value) -> Value:
    """Return the address, in this process, of an offset (i64) in the shared memory of the block of a rank (i64)."""
    b = e.builder
    return b.binary("add", b.binary("add", CLUSTER, b.binary("shl", rank, b.integer(WINDOW_BITS, 64))), offset)


def cluster_bytes(e: WarpEmitter) -> Value:
    """Count the bytes (i64) of the windows of all blocks of the cluster."""
    b = e.builder
    blocks = b.cast("zext", cluster_blocks(e), "i64")
    return b.binary("shl", blocks, b.integer(WINDOW_BITS, 64))


def is_in_cluster(e: WarpEmitter, address: Value) -> Value:
    """Return whether a generic address is in the shared memory of a block of the cluster."""
    return e.builder.compare("icmp ult", e.builder.binary("sub", address, CLUSTER), cluster_bytes(e))


def cluster_blocks(e: WarpEmitter) -> Value:
    """Count the blocks (i32) of the cluster: 1 of a launch without clusters."""
    b = e.builder
    count = b.integer(1, 32)
    for axis in "xyz":
        size = b.load("i32", b.offset(LAUNCH, field_offset(f"cluster_{axis}")))
        count = b.binary("mul", count, b.intrinsic("umax", size, b.integer(1, 32)))
    return count


def _map(e: WarpEmitter, op: Op) -> None:
    """Emit ``mapa d, a, rank``: the address in the block of rank ``rank`` that corresponds to ``a`` in this block.

    With ``.shared::cluster``, both addresses are in that space. Otherwise, both addresses are generic.
    """
    b = e.builder
    rank = b.resize(e.source(op, 1, "i32"), 64, signed=False)
    address = b.resize(e.source(op, 0, int_type(op.type.bits)), 64, signed=False)
    mapped = _joined(e, rank, address) if op.space == "cluster" else _address_of_rank(e, rank, offset_of(e, address))
    e.put(op, b.resize(mapped, op.type.bits, signed=False))


def _get_rank(e: WarpEmitter, op: Op) -> None:
    """Emit ``getctarank d, a``: the rank of the block with the shared memory that contains the address."""
    b = e.builder
    address = b.resize(e.source(op, 0, int_type(op.type.bits)), 64, signed=False)
    if op.space == "cluster":
        rank = b.binary("and", b.binary("lshr", address, b.integer(WINDOW_BITS, 64)), b.integer(_MOST_RANKS, 64))
        e.put(op, b.resize(rank, 32, signed=False))
    else:
        e.put(op, b.resize(_rank_of(e, address), 32, signed=False))
