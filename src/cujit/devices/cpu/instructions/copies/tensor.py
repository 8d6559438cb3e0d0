"""Copies between tensors in global memory and boxes in shared memory (TMA), by a tensor map. See ``pending`` for
timing.

``cujit.devices.cpu.run.tensormap`` defines the layout of the map. PTX ISA 9.1, 5.5 "Tensors"; 9.7.9.25.5 "Tensor copy";
9.7.9.28 "tensormap.replace"; 9.7.13.16 "tensormap.cp_fenceproxy".
"""

from __future__ import annotations

import ctypes
from collections.abc import Collection, Sequence

from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.memory import each_lane, for_each_bit
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions import blocks
from cujit.devices.cpu.instructions.atomics import Atomic, operation_of
from cujit.devices.cpu.instructions.copies.bulk import apply_function, fault_where, move
from cujit.devices.cpu.instructions.memory import address_in
from cujit.devices.cpu.instructions.pending import NOTHING, lane_queue
from cujit.devices.cpu.ir.program import IntConstant, MemoryOperand, Op, items_of
from cujit.devices.cpu.native.structures import FaultKind
from cujit.devices.cpu.run.tensormap import ELEMENT_BYTES, IM2COL_MARK, MARK, TensorMap, field_offset
from cujit.values import dataclass

_IM2COL, _NO_OFFSETS = "im2col", "im2col_no_offs"
# Types of elements that each reduction takes, with PTX's numbers of types; a GPU ends others with an illegal
# instruction. Source: PTX ISA 9.1, 9.7.9.25.5.3 "cp.reduce.async.bulk.tensor", table of valid combinations; that s64
# has no or: measured on an H200.
_REDUCTIONS = {
    "add": {2: "u32", 3: "s32", 4: "u64", 6: "f16", 7: "f32", 10: "bf16"},
    "min": {2: "u32", 3: "s32", 4: "u64", 5: "s64", 6: "f16", 10: "bf16"},
    "max": {2: "u32", 3: "s32", 4: "u64", 5: "s64", 6: "f16", 10: "bf16"},
    "inc": {2: "u32"},
    "dec": {2: "u32"},
    "and": {2: "b32", 3: "b32", 4: "b64"},
    "or": {2: "b32", 3: "b32", 4: "b64"},
    "xor": {2: "b32", 3: "b32", 4: "b64"},
}
_SHARED_ALIGN = 128
_COMPLETES = "mbarrier::complete_tx::bytes"


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    # Whose barrier ``.cta_group`` lets be told, that of the block or of its pair, its address says.
    rules.on("cp .bulk .tensor .mbarrier::complete_tx::bytes", _load)
    rules.on("cp .bulk .tensor .mbarrier::complete_tx::bytes .multicast::cluster", _load_to_several)
    rules.on("cp .bulk .tensor .bulk_group", _store)
    rules.on("cp .reduce .async .bulk .tensor", _reduce)
    rules.on("cp .bulk .tensor .prefetch", _prefetch)
    rules.on("tensormap .replace", _replace)
    rules.on("tensormap .cp_fenceproxy", _copy_map)


# -- instructions -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _TensorPlace:
    """Where a copy begins in a tensor."""

    rank: int
    map: Value
    coords: list[Value]
    """With the offsets of im2col mode behind them."""
    im2col: bool

    @property
    def form(self) -> str:
        """The number of axes and the mode, in names of functions."""
        return f"{self.rank}{'i' * self.im2col}"


@dataclass(frozen=True)
class _TensorCopy(_TensorPlace):
    """The operands of one copy, which are passed to the lane function."""

    shared: Value

    def operands(self) -> list[Value]:
        """Return the operands of the lane function: map, shared address, start of the cluster's shared memory, and
        coordinates.
        """
        return [self.map, self.shared, blocks.CLUSTER, *self.coords]

    def issue(
        self,
        f: Builder,
        queue: Sequence[Value],
        barrier: Value,
        values: Sequence[Value],
        *,
        inward: bool = False,
        reductions: Value = NOTHING,
    ) -> None:
        """Queue the copy of one lane's box, or its reduction. ``values`` are the values of ``operands`` in the lane
        function.
        """
        coords = f.reserve("%coords", f"[{len(self.coords)} x i32]")
        for k, coord in enumerate(values[3:]):
            f.store(coord, f.offset(coords, 4 * k))
        numbers = (f.integer(n, 32) for n in (self.rank, self.im2col, inward))
        map_ = f.cast("inttoptr", values[0], "ptr")
        f.call("cujit_pending_tensor", "void", *queue, barrier, map_, *values[1:3], coords, *numbers, reductions)


def _place_of(e: WarpEmitter, op: Op, tensor: MemoryOperand, types: Collection[int] = ()) -> _TensorPlace:
    """Read the operands, and end the launch if they are invalid. ``types`` are the PTX numbers of the
    accepted types.
    """
    items = items_of(tensor.coords[0])
    rank, coords = len(items), [e.read(item, "i32") for item in items]
    im2col = _IM2COL in op.modifiers or _NO_OFFSETS in op.modifiers
    if _IM2COL in op.modifiers:
        offsets = items_of(op.sources[len(_memories(op))])
        coords += [e.builder.cast("zext", e.read(item, "i16"), "i32") for item in offsets]
    elif im2col:
        coords += [e.builder.integer(0, 32)] * (rank - 2)
    map_ = address_in(e, MemoryOperand(tensor.base, tensor.offset), "generic")
    place = _TensorPlace(rank, map_, coords, im2col)
    _check_map(e, op, place, types)
    _check_start(e, op, place)
    return place


def _copy_of(
    e: WarpEmitter, op: Op, tensor: MemoryOperand, shared: MemoryOperand, space: str, types: Collection[int] = ()
) -> _TensorCopy:
    """The same for a copy from or to shared memory."""
    place = _place_of(e, op, tensor, types)
    copy = _TensorCopy(place.rank, place.map, place.coords, place.im2col, address_in(e, shared, space))
    _check_shared(e, op, copy)
    return copy


@dataclass(frozen=True)
class Box:
    """A box that an operation copies, for observers: the operands of the lane function, and the direction of the copy.

    ``barrier`` is the mbarrier that counts the copied bytes. ``mask`` are the blocks of the cluster that receive a
    copy. In that case, ``shared`` is an offset, and it determines the destination together with ``origin``.
    """

    place: _TensorCopy
    shared: Value
    inward: bool
    reduces: bool
    barrier: MemoryOperand | None = None
    mask: Value | None = None


def box_of(e: WarpEmitter, op: Op) -> Box:
    """Return the box of a copy between a tensor and shared memory, and end the launch if the copy is invalid."""
    memories, inward, several = _memories(op), _COMPLETES in op.modifiers, "multicast::cluster" in op.modifiers
    tensor, shared = memories[1::-1] if inward else memories[:2]
    reduces = "reduce" in op.modifiers
    types = _REDUCTIONS[operation_of(op)] if reduces else ()
    copy = _copy_of(e, op, tensor, shared, op.space if inward else "shared", types)
    if not inward:
        _check_outward(e, op, copy)
    mask = e.builder.cast("zext", e.read(op.sources[4 if copy.im2col else 3], "i16"), "i32") if several else None
    at = blocks.offset_of(e, copy.shared) if several else copy.shared
    return Box(copy, at, inward, reduces, memories[2] if inward else None, mask)


def map_of(op: Op) -> MemoryOperand:
    """Find the operand that is a tensor map."""
    tensor = next(m for m in _memories(op) if m.coords)
    return MemoryOperand(tensor.base, tensor.offset)


def _check_map(e: WarpEmitter, op: Op, copy: _TensorPlace, types: Collection[int]) -> None:
    """End the launch if the map was not created by cujit, or is not valid for the instruction."""

    bits = sum(1 << number for number in types) if types else 0xFFFFFFFF

    def is_wrong(f: Builder, v: Sequence[Value]) -> Value:
        numbers = (f.integer(IM2COL_MARK if copy.im2col else MARK, 64), f.integer(copy.rank, 32), f.integer(bits, 32))
        return f.call("cujit_tensor_is_wrong", "i32", v[0], *numbers)

    name = ".".join(["tensor.check", copy.form, *map(str, sorted(types))])
    wrong = each_lane(e, op, name, [copy.map], is_wrong, "i32")
    assert wrong is not None
    fault_where(e, op, FaultKind.TENSOR_MAP, wrong, copy.map)


def _check_start(e: WarpEmitter, op: Op, place: _TensorPlace) -> None:
    """End the launch if the start of the box is not a multiple of 16 bytes along the innermost axis."""

    def misplaced(f: Builder, v: Sequence[Value]) -> Value:
        return f.call("cujit_tensor_misplaced", "i64", *v)

    address = each_lane(e, op, "tensor.start", [place.map, place.coords[0]], misplaced, "i64")
    assert address is not None
    fault_where(e, op, FaultKind.BULK_ALIGN, address, address)


def _check_outward(e: WarpEmitter, op: Op, place: _TensorPlace) -> None:
    """End the launch where a store or reduction of a tile begins before the tensor along the innermost axis.

    Source: measured on an H200, which ends it with an illegal instruction; a load may begin there.
    """
    if place.im2col:
        return
    b, start = e.builder, place.coords[0]
    before = b.binary("and", start, b.integer(1 << 31, 32))
    fault_where(e, op, FaultKind.TENSOR_START, b.select(e.lanes(op), before, b.integer(0, 32)), place.map)


def _check_shared(e: WarpEmitter, op: Op, copy: _TensorCopy) -> None:
    """End the launch if the start of the box in shared memory is not a multiple of 128 bytes.

    Source: CUDA C++ Programming Guide, "Using TMA", table of alignment requirements.
    """
    b = e.builder
    low = b.binary("and", b.binary("sub", copy.shared, blocks.CLUSTER), b.integer(_SHARED_ALIGN - 1, 64))
    low = b.select(e.lanes(op), low, b.integer(0, 64))
    fault_where(e, op, FaultKind.BULK_ALIGN, low, copy.shared)


def _memories(op: Op) -> list[MemoryOperand]:
    return [s for s in op.sources if isinstance(s, MemoryOperand)]


def _load(e: WarpEmitter, op: Op) -> None:
    """Emit ``cp.async.bulk.tensor [dst], [map, {…}], [mbar]``. The barrier counts the bytes of the whole box."""
    shared, tensor, barrier = _memories(op)
    space = op.space
    copy = _copy_of(e, op, tensor, shared, space)

    owner = lane_queue(e, op)
    n = len(owner)

    def load(f: Builder, v: Sequence[Value]) -> None:
        copy.issue(f, v[:n], v[n], v[n + 1 :], inward=True)

    each_lane(e, op, f"tensor.load{copy.form}", [*owner, address_in(e, barrier, space), *copy.operands()], load)


def _load_to_several(e: WarpEmitter, op: Op) -> None:
    """Emit ``….multicast::cluster [dst], [map, {…}], [mbar], mask``: a copy to the same place in every block of the
    mask.
    """
    shared, tensor, barrier = _memories(op)
    copy = _copy_of(e, op, tensor, shared, "cluster")
    offset = blocks.offset_of(e, address_in(e, barrier, "cluster"))
    mask = e.read(op.sources[4 if copy.im2col else 3], "i16")

    owner = lane_queue(e, op)

    def load(f: Builder, v: Sequence[Value]) -> None:
        own, (mask, stride, barrier, map_, shared, origin, *coords) = v[: len(owner)], v[len(owner) :]

        def to_one(rank: Value) -> None:
            start = blocks.window_of(f, origin, rank, stride)
            values = [map_, f.binary("add", start, shared), origin, *coords]
            copy.issue(f, own, f.binary("add", start, barrier), values, inward=True)

        for_each_bit(f, f.cast("zext", mask, "i32"), to_one)

    map_, shared_at, *rest = copy.operands()
    operands = [*owner, mask, blocks.STRIDE, offset, map_, blocks.offset_of(e, shared_at), *rest]
    each_lane(e, op, f"tensor.multicast{copy.form}", operands, load)


def _store(e: WarpEmitter, op: Op) -> None:
    """Emit ``cp.async.bulk.tensor [map, {…}], [src]``. Elements outside of the tensor are not stored."""
    tensor, shared = _memories(op)
    copy = _copy_of(e, op, tensor, shared, "shared")
    _check_outward(e, op, copy)

    owner = lane_queue(e, op)

    def store(f: Builder, v: Sequence[Value]) -> None:
        copy.issue(f, v[: len(owner)], f.integer(0, 64), v[len(owner) :])

    each_lane(e, op, f"tensor.store{copy.form}", [*owner, *copy.operands()], store)


def _reduce(e: WarpEmitter, op: Op) -> None:
    """``cp.reduce.async.bulk.tensor [map, {…}], [src]``: the type of the elements is the map's."""
    tensor, shared = _memories(op)
    operation = operation_of(op)
    copy = _copy_of(e, op, tensor, shared, "shared", _REDUCTIONS[operation])
    _check_outward(e, op, copy)
    # Of f32, subnormal numbers are added as they are. Source: measured on an H200.
    forms = {number: Atomic(operation, type_, locked=True) for number, type_ in _REDUCTIONS[operation].items()}
    b = e.builder
    functions = [apply_function(b, forms[number]) if number in forms else NOTHING for number in ELEMENT_BYTES]
    table = b.module.constant(f"cujit.reductions.{operation}", functions)
    owner = lane_queue(e, op)

    def reduce(f: Builder, v: Sequence[Value]) -> None:
        copy.issue(f, v[: len(owner)], f.integer(0, 64), v[len(owner) :], reductions=table)

    each_lane(e, op, f"tensor.reduce.{operation}{copy.form}", [*owner, *copy.operands()], reduce)


def _prefetch(e: WarpEmitter, op: Op) -> None:
    """Check the operands of ``cp.async.bulk.prefetch.tensor [map, {…}]``, a hint without effect.

    Invalid operands end the launch.
    """
    (tensor,) = _memories(op)
    _place_of(e, op, tensor)


# -- maps -------------------------------------------------------------------------------------------------

_PLACES = {
    "global_address": "global_address", "rank": "last_dimension", "box_dim": "box", "global_dim": "sizes",
    "global_stride": "strides", "element_stride": "element_strides", "elemtype": "element", "fill_mode": "fill",
    "swizzle_mode": "swizzle",
}  # fmt: skip
_SMALL = ("elemtype", "swizzle_mode", "fill_mode")


def _replace(e: WarpEmitter, op: Op) -> None:
    """``tensormap.replace.tile.field [map], {ordinal,} value``."""
    field = next(m for m in op.modifiers if m in _PLACES)
    _, *ordinal, value = op.sources
    bits = 8 if field in _SMALL else op.type.bits
    index = ordinal[0].value if ordinal and isinstance(ordinal[0], IntConstant) else 0
    writes = [(field_offset(_PLACES[field]) + index * bits // 8, e.read(value, f"i{bits}"))]
    if field == "elemtype" and isinstance(value, IntConstant):
        size = ELEMENT_BYTES.get(value.value, 1)
        writes.append((field_offset("element_bytes"), e.builder.integer(size, 8)))

    def write(f: Builder, v: Sequence[Value]) -> None:
        for (offset, _), new in zip(writes, v[1:], strict=True):
            at = f.cast("inttoptr", f.binary("add", v[0], f.integer(offset, 64)), "ptr")
            f.store(new, at, align=1)

    name = f"tensormap.{field}.{index}"
    each_lane(e, op, name, [address_in(e, op.memory, op.space), *(v for _, v in writes)], write)


def _copy_map(e: WarpEmitter, op: Op) -> None:
    """``tensormap.cp_fenceproxy [dst], [src], 128``: copy a map from shared to global memory."""
    target, source = _memories(op)

    def copy(f: Builder, v: Sequence[Value]) -> None:
        move(f, v[0], v[1], f.integer(ctypes.sizeof(TensorMap), 64))

    each_lane(e, op, "tensormap.copy", [address_in(e, target, "global"), address_in(e, source, "shared")], copy)
