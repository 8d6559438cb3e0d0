"""Checks of memory that descriptors, tensor maps, and masks refer to, and that no operand specifies byte by byte."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.memory import each_lane
from cujit.devices.cpu.instructions import blocks
from cujit.devices.cpu.instructions.copies.tensor import box_of, map_of
from cujit.devices.cpu.instructions.matrix.frames import constant_of
from cujit.devices.cpu.instructions.matrix.mma import product_in_shared
from cujit.devices.cpu.instructions.memory import address_in, place_in
from cujit.devices.cpu.ir.program import IntConstant, MemoryOperand, Op
from cujit.devices.cpu.native.checking import Access, Space
from cujit.devices.cpu.observe.access_sites import UPDATE, MemoryAccess, signal

if TYPE_CHECKING:
    from cujit.devices.cpu.codegen.warp import WarpEmitter

_READ, _WRITE = Access.READ | Access.ASYNC, Access.WRITE | Access.ASYNC
_LINE = 16
_MAP_BYTES = 128
_AWAITED = "declare void @cujit_pending_touch(ptr, i32, i64, i32, i32)"


class Checking(Protocol):
    """A check of accesses. ``races`` is whether it checks for races.

    ``copies`` is whether there may be asynchronous copies that no thread has waited for.
    """

    copies: bool
    races: bool

    def call(self, e: WarpEmitter, name: str, *arguments: Value) -> object:
        """Call native code, which learns which warp of which block it is."""

    def place(self, e: WarpEmitter) -> Value:
        """Return the value that identifies the warp and its block to native code."""

    def touch(self, e: WarpEmitter, op: Op, touch: MemoryAccess) -> None:
        """Check an access that an operand describes."""


def look(check: Checking, e: WarpEmitter, op: Op) -> None:
    """Emit checks of the accesses of an operation that ``touches_of`` doesn't list."""
    words = frozenset(op.modifiers)
    if op.opcode == "wgmma" and "mma_async" in words:
        _product(check, e, op)
    elif op.opcode == "wgmma" and check.races and "fence" not in words:
        _group(check, e, op)
    elif op.opcode == "cp" and "tensor" in words and "prefetch" not in words:
        _tensor(check, e, op)
    elif op.opcode == "cp" and "bulk" in words and len(op.form.spaces) > 1:
        _bulk(check, e, op)
    elif "multicast::cluster::all" in words:
        _answer(check, e, op)
    elif op.opcode == "tcgen05" and "multicast::cluster" in words:
        _commit(check, e, op)


def orders_proxies(op: Op) -> bool:
    """Return whether an operation is a fence between the generic proxy and the asynchronous proxy."""
    return op.opcode == "fence" and "proxy" in op.modifiers and any(m.startswith("async") for m in op.modifiers)


def orders_mbarriers(op: Op) -> bool:
    """Return whether an operation is such a fence, if only for mbarriers that are made before it."""
    return orders_proxies(op) or (op.opcode == "fence" and "mbarrier_init" in op.modifiers)


def _flags(access: Access, space: Space, element: int, align: int) -> int:
    return int(access) | int(space) << 8 | element << 16 | (align.bit_length() - 1) << 24


def _for_lanes(check: Checking, e: WarpEmitter, op: Op, name: str, operands: Sequence[Value], *more: int) -> None:
    """Emit a call of native code for each active lane, with its number, its operands, and the common arguments."""
    b = e.builder
    common = [b.integer(number, 32) for number in more]
    numbers = b.lanes(list(range(WARP)), 32)

    def one(f: Builder, v: Sequence[Value]) -> None:
        f.call(f"cujit_check_{name}", "void", *v)

    each_lane(e, op, f"check.{name}", [check.place(e), numbers, *operands, *common, b.integer(op.line, 32)], one)


# -- matrices ---------------------------------------------------------------------------------------------


def _product(check: Checking, e: WarpEmitter, op: Op) -> None:
    b = e.builder
    product, places = product_in_shared(e, op)
    with b.when(b.any_lane(e.lanes_of(op)), "descriptors"):
        flags = b.integer(_flags(_READ, Space.SHARED, max(1, op.types[1].bits // 8), _LINE), 32)
        numbers = (flags, b.integer(op.line, 32))
        awaited = Value("null", "ptr")
        if check.copies:
            b.module.declared.setdefault("cujit_pending_touch", _AWAITED)
            awaited = Value("@cujit_pending_touch", "ptr")
        check.call(e, "cujit_check_descriptors", constant_of(b, product), *places, *numbers, awaited)


def _group(check: Checking, e: WarpEmitter, op: Op) -> None:
    """Emit checks for ``wgmma.commit_group`` and ``wait_group N``. Products may read memory until a thread waits for
    them.
    """
    b = e.builder
    with b.when(b.any_lane(e.lanes_of(op)), "products"):
        if "commit_group" in op.modifiers:
            check.call(e, "cujit_check_committed")
            return
        (groups,) = op.sources
        assert isinstance(groups, IntConstant)
        check.call(e, "cujit_check_waited", b.integer(groups.value, 32))


def look_at_products(check: Checking, e: WarpEmitter) -> None:
    """Emit checks of the shared memory that products in tensor memory, and copies to tensor memory, read."""
    b, name = e.builder, "cujit_check_piece"
    b.module.declared.setdefault(name, f"declare i32 @{name}(ptr, i32, i64, i64, i32, i32)")
    check.call(e, "cujit_pending_products", Value(f"@{name}", "ptr"))


def _commit(check: Checking, e: WarpEmitter, op: Op) -> None:
    """``tcgen05.commit`` to several blocks of the cluster."""
    offset = blocks.offset_of(e, address_in(e, op.memory, op.space))
    mask = e.builder.cast("zext", e.source(op, 1, "i16"), "i32")
    _for_lanes(check, e, op, "commit", [blocks.CLUSTER, offset, mask], _flags(UPDATE, Space.CLUSTER, 8, 8))


# -- copies -----------------------------------------------------------------------------------------------


def _tensor(check: Checking, e: WarpEmitter, op: Op) -> None:
    check.touch(e, op, MemoryAccess(place_in(e, map_of(op), "generic"), _MAP_BYTES, Access.READ, Space.GENERIC, 1, 1))
    box = box_of(e, op)
    b, count = e.builder, len(box.place.coords)
    into = _WRITE if box.inward else _READ
    there = Access.READ if box.inward else UPDATE & ~(Access.ACQUIRE | Access.RELEASE) if box.reduces else Access.WRITE
    numbers = [
        box.place.rank, box.place.im2col, box.inward, _flags(there | Access.ASYNC, Space.GLOBAL, 1, 1),
        _flags(into, Space.CLUSTER if box.inward else Space.SHARED, 1, 1), op.line,
    ]  # fmt: skip

    def one(f: Builder, v: Sequence[Value]) -> None:
        coords = f.reserve("%coords", f"[{count} x i32]")
        for k, coord in enumerate(v[7:]):
            f.store(coord, f.offset(coords, 4 * k))
        rank, im2col, inward, far, near, line = (f.integer(int(number), 32) for number in numbers)
        map_ = f.cast("inttoptr", v[4], "ptr")
        f.call("cujit_check_tensor", "void", v[0], v[1], map_, v[5], v[6], coords, rank, im2col, inward, far, near,
               v[2], v[3], line)  # fmt: skip

    mask = b.integer(0, 32) if box.mask is None else box.mask
    map_, _, origin, *coords = box.place.operands()
    barrier = b.integer(0, 64) if box.barrier is None else blocks.offset_of(e, address_in(e, box.barrier, op.space))
    operands = [check.place(e), b.lanes(list(range(WARP)), 32), mask, barrier, map_, box.shared, origin, *coords]
    each_lane(e, op, ".".join(["check.tensor", *map(str, map(int, numbers))]), operands, one)
    if box.barrier is not None:
        check.touch(e, op, signal(e, box.barrier, op.space))


def _bulk(check: Checking, e: WarpEmitter, op: Op) -> None:
    """Emit checks of a bulk copy that writes to several blocks or uses a byte mask."""
    b, to = e.builder, op.space
    size, words = b.resize(e.source(op, 2, "i32"), 64, signed=False), frozenset(op.modifiers)
    memories = [s for s in op.sources if isinstance(s, MemoryOperand)]
    if "multicast::cluster" in words:
        offset, barrier = (blocks.offset_of(e, address_in(e, memories[k], "cluster")) for k in (0, 2))
        mask = b.cast("zext", e.read(op.sources[4], "i16"), "i32")
        flags = _flags(_WRITE, Space.CLUSTER, 1, _LINE)
        _for_lanes(check, e, op, "multicast", [blocks.CLUSTER, offset, size, mask, barrier], flags)
        check.touch(e, op, signal(e, memories[2], to))
    elif "cp_mask" in words:
        mask = b.cast("zext", e.read(op.sources[-1], "i16"), "i32")
        places = (
            (memories[0], to, _flags(_WRITE, Space.GLOBAL, 1, 1)),
            (memories[1], "shared", _flags(_READ, Space.SHARED, 1, 1)),
        )
        for memory, space, flags in places:
            _for_lanes(check, e, op, "masked", [address_in(e, memory, space), size, mask], flags)


def _answer(check: Checking, e: WarpEmitter, op: Op) -> None:
    """The answer of ``clusterlaunchcontrol.try_cancel`` in the other blocks of the cluster."""
    b = e.builder
    (target, barrier), space = (s for s in op.sources if isinstance(s, MemoryOperand)), op.space
    offset, barrier_at = (blocks.offset_of(e, address_in(e, each, space)) for each in (target, barrier))
    everyone = b.binary("sub", b.binary("shl", b.integer(1, 32), blocks.cluster_blocks(e)), b.integer(1, 32))
    flags = _flags(_WRITE, Space.CLUSTER, 1, _LINE)
    _for_lanes(check, e, op, "multicast", [blocks.CLUSTER, offset, b.integer(_LINE, 64), everyone, barrier_at], flags)
    check.touch(e, op, signal(e, barrier, space))
