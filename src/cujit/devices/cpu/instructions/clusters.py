"""Addresses of the shared memory of a cluster's blocks, and the instructions that ask about them.

The blocks' shared memory lies side by side from ``%cluster.int`` on, ``%shared.stride`` bytes apart, in order of
their ranks. In the space ``shared::cluster`` an address below 2**24 is one of the own block, as in ``shared::cta``;
that of ``offset`` in the block of rank r is ``(r + 1) << 24 | offset``. (PTX ISA 9.1, 9.7.9.23 "mapa" leaves the form
of such addresses open, but for those of the own block.)
"""

from __future__ import annotations

from cujit.devices.cpu.codegen.builder import Value, int_type
from cujit.devices.cpu.codegen.nodes import LAUNCH
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.ir.program import Op
from cujit.devices.cpu.run.launch import field_offset

__all__ = [
    "CLUSTER", "OFFSET_BITS", "STRIDE", "address_of_rank", "cluster_bytes", "from_process", "offset_of", "rank_of",
    "register", "to_process",
]  # fmt: skip

OFFSET_BITS = 24
"""Low bits of a ``shared::cluster`` address that are the offset in a block's shared memory."""

CLUSTER = Value("%cluster.int", "i64")
STRIDE = Value("%shared.stride", "i64")
_OWN = Value("%shared.int", "i64")
_OWN_RANK = Value("%cluster.rank", "i32")


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("mapa", _map)
    rules.on("getctarank", _get_rank)


def _split(e: WarpEmitter, address: Value) -> tuple[Value, Value]:
    """Take a ``shared::cluster`` address (i64) apart: 0 for the own block or its rank + 1, and the offset."""
    b = e.builder
    low = b.binary("and", address, b.integer((1 << OFFSET_BITS) - 1, 64))
    return b.binary("ashr", address, b.integer(OFFSET_BITS, 64)), low


def _joined(e: WarpEmitter, rank: Value, offset: Value) -> Value:
    """Make a ``shared::cluster`` address (i64) of a rank and an offset."""
    b = e.builder
    number = b.binary("add", rank, b.integer(1, 64))
    return b.binary("or", b.binary("shl", number, b.integer(OFFSET_BITS, 64)), offset)


def to_process(e: WarpEmitter, address: Value) -> Value:
    """Turn a ``shared::cluster`` address (i64) into an address of this process."""
    b = e.builder
    number, offset = _split(e, address)
    rank = b.binary("sub", number, b.integer(1, 64))
    there = address_of_rank(e, rank, offset)
    # An address that is counted from before the window's start has a negative number and is the own block's.
    own = b.compare("icmp slt", number, b.integer(1, 64))
    return b.select(own, b.binary("add", _OWN, address), there)


def from_process(e: WarpEmitter, address: Value) -> Value:
    """Turn an address of this process, in the cluster's shared memory, into one of ``shared::cluster`` (i64)."""
    b = e.builder
    own = b.binary("sub", address, _OWN)
    there = _joined(e, rank_of(e, address), offset_of(e, address))
    return b.select(b.compare("icmp ult", own, _stride(e)), own, there)


def _stride(e: WarpEmitter) -> Value:
    """Bytes between the blocks' shared memory, and at least one: a block without any divides by it too."""
    return e.builder.intrinsic("umax", STRIDE, e.builder.integer(1, 64))


def rank_of(e: WarpEmitter, address: Value) -> Value:
    """Find the rank (i64) of the block whose shared memory an address of this process is in."""
    b = e.builder
    return b.binary("udiv", b.binary("sub", address, CLUSTER), _stride(e))


def offset_of(e: WarpEmitter, address: Value) -> Value:
    """Find the offset (i64) of an address of this process in the shared memory of its block."""
    b = e.builder
    return b.binary("urem", b.binary("sub", address, CLUSTER), _stride(e))


def address_of_rank(e: WarpEmitter, rank: Value, offset: Value) -> Value:
    """Give the address of this process of an offset (i64) in the shared memory of the block of a rank (i64)."""
    b = e.builder
    return b.binary("add", b.binary("add", CLUSTER, b.binary("mul", rank, STRIDE)), offset)


def cluster_bytes(e: WarpEmitter) -> Value:
    """Count the bytes (i64) of the shared memory of all blocks of the cluster."""
    b = e.builder
    sizes = []
    for axis in "xyz":
        size = b.load("i32", b.offset(LAUNCH, field_offset(f"cluster_{axis}")))
        sizes.append(b.cast("zext", b.intrinsic("umax", size, b.integer(1, 32)), "i64"))
    blocks = b.binary("mul", b.binary("mul", sizes[0], sizes[1]), sizes[2])
    return b.intrinsic("umax", b.binary("mul", blocks, STRIDE), Value("%shared.size", "i64"))


def _map(e: WarpEmitter, op: Op) -> None:
    """``mapa d, a, rank``: the address in the block of that rank that corresponds to ``a`` here.

    With ``.shared::cluster`` both are addresses of that space, else both are generic.
    """
    b = e.builder
    rank = b.resize(e.source(op, 1, "i32"), 64, signed=False)
    address = b.resize(e.source(op, 0, int_type(op.type.bits)), 64, signed=False)
    if op.space == "cluster":
        mapped = _joined(e, rank, _split(e, address)[1])
    else:
        mapped = address_of_rank(e, rank, offset_of(e, address))
    e.put(op, b.resize(mapped, op.type.bits, signed=False))


def _get_rank(e: WarpEmitter, op: Op) -> None:
    """``getctarank d, a``: the rank of the block whose shared memory the address is in."""
    b = e.builder
    address = b.resize(e.source(op, 0, int_type(op.type.bits)), 64, signed=False)
    if op.space == "cluster":
        number, _ = _split(e, address)
        own = b.compare("icmp eq", number, b.integer(0, 64))
        rank = b.resize(b.binary("sub", number, b.integer(1, 64)), 32, signed=False)
        e.put(op, b.select(own, _OWN_RANK, rank))
    else:
        e.put(op, b.resize(rank_of(e, address), 32, signed=False))
