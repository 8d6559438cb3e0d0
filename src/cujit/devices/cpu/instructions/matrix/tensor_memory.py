"""``tcgen05``: tensor memory, and products in tensor memory. See ``runtime/tensor_memory.h``.

PTX ISA 9.1, 9.7.16 "TensorCore 5th Generation Family Instructions". No result was ever compared with hardware.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence

from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.memory import each_lane, for_each_bit
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions import blocks
from cujit.devices.cpu.instructions.matrix import frames
from cujit.devices.cpu.instructions.matrix.move import one_of, when_any_lane
from cujit.devices.cpu.instructions.memory import address_in
from cujit.devices.cpu.instructions.pending import lane_queue, own_queue, passing
from cujit.devices.cpu.ir.program import IntConstant, MemoryOperand, Op, Operand, OperandGroup, items_of
from cujit.devices.cpu.native.structures import TENSOR_COPIES, TENSOR_KINDS, TENSOR_SHAPES, TENSOR_UNPACKED

_MASK_WORDS = 8
"""Words of the lanes that a product leaves as they are: four of each block."""

_REGISTERS = {"16x128b": 2, "16x256b": 4}
"""Registers of one repetition of a shape; others have one."""


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("tcgen05 .alloc", _allocate)
    rules.on("tcgen05 .dealloc", _free)
    rules.on("tcgen05 .relinquish_alloc_permit", _relinquish)
    rules.on("tcgen05 .ld", _load)
    rules.on("tcgen05 .ld .red", _load_and_reduce)
    rules.on("tcgen05 .st", _store)
    # Loads and stores are done where they are issued.
    rules.on("tcgen05 .wait::ld", _wait_for_loads)
    rules.on("tcgen05.unwaited", _see_wait)
    rules.on("tcgen05 .wait::st", _wait_for_stores)
    rules.on("tcgen05 .fence::before_thread_sync|fence::after_thread_sync", _nothing)
    rules.on("tcgen05 .commit", _commit)
    rules.on("tcgen05 .commit .multicast::cluster", _commit_to_several)
    rules.on("tcgen05 .mma .kind::f16|kind::tf32|kind::f8f6f4|kind::i8", _multiply)
    rules.on("tcgen05 .mma .block_scale", _multiply)
    rules.on("tcgen05 .cp|shift", _copy)


def _nothing(_e: WarpEmitter, _op: Op) -> None:
    """Emit nothing for a wait, because the awaited work is already done."""


def _owner(e: WarpEmitter, op: Op) -> list[Value]:
    return [*own_queue(e), e.builder.integer(op.line, 32)]


def _is_of_pair(e: WarpEmitter, op: Op) -> Value:
    """Return whether both blocks of a pair do an instruction together."""
    return e.builder.integer("cta_group::2" in op.modifiers, 32)


def _address(e: WarpEmitter, operand: Operand) -> Value:
    """Return an address in tensor memory (i32), of brackets."""
    assert isinstance(operand, MemoryOperand)
    b, offset = e.builder, e.builder.integer(operand.offset, 32)
    return offset if operand.base is None else b.binary("add", e.read(operand.base, "i32"), offset)


# -- allocation -------------------------------------------------------------------------------------------


def _allocate(e: WarpEmitter, op: Op) -> None:
    """Emit ``alloc [dst], columns``, which stores the address of the allocation in shared memory."""
    b = e.builder
    with when_any_lane(e, op):
        count = one_of(e, op, e.source(op, 1, "i32"))
        found = b.call("cujit_tensor_alloc", "i32", *_owner(e, op), count, _is_of_pair(e, op), passing(e))
        b.store(found, b.cast("inttoptr", one_of(e, op, address_in(e, op.memory, op.space)), "ptr"), align=4)


def _free(e: WarpEmitter, op: Op) -> None:
    with when_any_lane(e, op):
        operands = [one_of(e, op, e.source(op, k, "i32")) for k in (0, 1)]
        e.builder.call("cujit_tensor_dealloc", "void", *_owner(e, op), *operands, _is_of_pair(e, op), passing(e))


def _relinquish(e: WarpEmitter, op: Op) -> None:
    with when_any_lane(e, op):
        e.builder.call("cujit_tensor_relinquish", "void", *own_queue(e)[:2])


# -- registers --------------------------------------------------------------------------------------------


def _load(e: WarpEmitter, op: Op) -> None:
    with when_any_lane(e, op):
        frames.put_all(e, op, _loaded(e, op))


def _loaded(e: WarpEmitter, op: Op) -> list[Value]:
    return frames.call_of(e.builder, "tensor_load", [], ["i32"] * _count(op), (), _moved(e, op), at=0)


def _load_and_reduce(e: WarpEmitter, op: Op) -> None:
    """Emit ``ld.red registers, result, [a]``. Each thread reduces the values that it loads."""
    with when_any_lane(e, op):
        values = _loaded(e, op)
        typed = [e.builder.bits_as(value, "float") for value in values] if op.type.kind == "f" else values
        frames.put_all(e, op, [*values, _reduced(e, op, typed)])


def _reduced(e: WarpEmitter, op: Op, values: Sequence[Value]) -> Value:
    """Return the smallest or largest value, as bits; a NaN loses, or with ``.NaN`` wins."""
    b, name = e.builder, "min" if "min" in op.modifiers else "max"
    if op.type.kind != "f":
        return functools.reduce(functools.partial(b.intrinsic, f"{op.type.kind}{name}"), values)
    if "abs" in op.modifiers:
        values = [b.magnitude(value) for value in values]
    number = "imum" if "NaN" in op.modifiers else "imumnum"
    result = functools.reduce(functools.partial(b.intrinsic, name + number), values)
    return b.as_bits(b.select(b.is_nan(result), b.real(0x7FFFFFFF, 32), result))


def _store(e: WarpEmitter, op: Op) -> None:
    with when_any_lane(e, op):
        words = frames.words_of(e, op, len(op.sources) - 1, _count(op))
        frames.call_of(e.builder, "tensor_store", words, [], (), _moved(e, op))


def _wait_for_stores(e: WarpEmitter, op: Op) -> None:
    with when_any_lane(e, op):
        e.builder.call("cujit_tensor_stored", "void", *own_queue(e))


def _wait_for_loads(e: WarpEmitter, op: Op) -> None:
    with when_any_lane(e, op):
        e.builder.call("cujit_tensor_loaded", "void", *own_queue(e))


def _see_wait(e: WarpEmitter, op: Op) -> None:
    """See whether the warp has waited for a load at a line; see ``analysis/loads.py``."""
    (line,) = op.sources
    assert isinstance(line, IntConstant)
    with when_any_lane(e, op):
        e.builder.call("cujit_tensor_unwaited", "void", *_owner(e, op), e.builder.integer(line.value, 32))


def _shape(op: Op) -> str:
    return next(word for word in op.modifiers if word in TENSOR_SHAPES)


def _count(op: Op) -> int:
    """Count the registers of a lane."""
    times = next(int(word[1:]) for word in op.modifiers if word[0] == "x" and word[1:].isdigit())
    return times * _REGISTERS.get(_shape(op), 1)


def _moved(e: WarpEmitter, op: Op) -> list[Value]:
    """List the arguments of a register transfer: the owner, the address in tensor memory, and the layout."""
    split = op.sources[1] if len(op.sources) > 1 else None
    packs = not {"pack::16b", "unpack::16b"}.isdisjoint(op.modifiers)
    columns = split.value if isinstance(split, IntConstant) else 0
    numbers = (TENSOR_SHAPES.index(_shape(op)), _count(op), packs, columns)
    address = one_of(e, op, _address(e, op.memory))
    return [*_owner(e, op), address, *(e.builder.integer(n, 32) for n in numbers)]


# -- products ---------------------------------------------------------------------------------------------


def _multiply(e: WarpEmitter, op: Op) -> None:
    """Queue ``mma [d], a, b, idesc {, lanes}, keeps {, scale}``. It is done before a later commit of the same thread.

    With ``.sp``, ``[metadata]`` precedes ``idesc``. With ``.block_scale``, ``[factors of A], [factors of B]`` precede
    ``keeps``. With ``.ws``, a mask of columns of B may be last.
    """
    b, words = e.builder, frozenset(op.modifiers)
    d, a, right, *rest = op.sources
    metadata = _address(e, rest.pop(0)) if "sp" in words else b.integer(0, 32)
    described = rest.pop(0)
    factors = [_address(e, rest.pop(0)) for _ in range(2)] if "block_scale" in words else [b.integer(0, 32)] * 2
    masked = items_of(rest.pop(0)) if isinstance(rest[0], OperandGroup) else ()
    masked += (IntConstant(0),) * (_MASK_WORDS - len(masked))
    keeps, *last = rest
    zeros = e.read(last.pop(), "i64") if "ws" in words and last else b.integer(0, 64)
    in_tensor = isinstance(a, MemoryOperand)
    kind = next(k for k, word in enumerate(TENSOR_KINDS) if f"kind::{word}" in words)
    of_a = b.cast("zext", _address(e, a), "i64") if in_tensor else e.read(a, "i64")
    power = last[0].value if last and isinstance(last[0], IntConstant) else 0
    operands = [
        _address(e, d), of_a, e.read(right, "i64"), e.read(described, "i32"),
        b.cast("zext", e.read(keeps, "i1"), "i32"), *(b.integer(n, 32) for n in (kind, in_tensor, power)),
        *(e.read(word, "i32") for word in masked), b.integer(_chunks(op), 32), *factors, b.integer("sp" in words, 32),
        metadata, b.integer("ws" in words, 32), zeros, b.integer(0, 32), _is_of_pair(e, op),
    ]  # fmt: skip
    _issue(e, op, operands, "cujit_tensor_product")


def _copy(e: WarpEmitter, op: Op) -> None:
    """Queue ``cp [d], source`` or ``shift.down [d]``. Copies, shifts, and products are done in the order of their
    issue.
    """
    b, moves = e.builder, "shift" in op.modifiers
    kind = next(k for k, word in enumerate(TENSOR_COPIES) if word in op.modifiers)
    unpacked = next((bits for word, bits in TENSOR_UNPACKED.items() if word in op.modifiers), 0)
    nothing, wide = b.integer(0, 32), b.integer(0, 64)
    source = wide if moves else e.source(op, 1, "i64")
    described = [_address(e, op.memory), wide, source, nothing, b.integer(moves, 32), b.integer(kind, 32)]
    more = [*[nothing] * (_MASK_WORDS + 8), wide, b.integer(unpacked, 32), _is_of_pair(e, op)]
    _issue(e, op, [*described, *more], "cujit_tensor_shift" if moves else "cujit_tensor_fill")


def _issue(e: WarpEmitter, op: Op, operands: Sequence[Value], name: str) -> None:
    """Queue an operation in tensor memory that a function of native code does."""
    e.builder.module.declared.setdefault(name, f"declare void @{name}(ptr, ptr)")

    def issue(f: Builder, v: Sequence[Value]) -> None:
        f.call("cujit_pending_product", "void", *v)

    each_lane(e, op, "tensor.product", [*lane_queue(e, op), *operands, Value(f"@{name}", "ptr")], issue)


def _chunks(op: Op) -> int:
    """Return the number of scale factors of a row, or 0 if a product has no scale factors."""
    words = frozenset(op.modifiers)
    if "block_scale" not in words:
        return 0
    if "kind::mxf8f6f4" in words:
        return 1
    return 4 if words & {"scale_vec::4X", "block16"} else 2


def _commit(e: WarpEmitter, op: Op) -> None:
    """Emit ``commit [mbar]``: an arrival once the earlier products of this thread are done."""

    def commit(f: Builder, v: Sequence[Value]) -> None:
        f.call("cujit_pending_product_commit", "void", *v)

    each_lane(e, op, "tensor.commit", [*lane_queue(e, op), address_in(e, op.memory, op.space)], commit)


def _commit_to_several(e: WarpEmitter, op: Op) -> None:
    """Emit ``….multicast::cluster [mbar], mask``: an arrival at the same place in every block of the mask."""
    owner = lane_queue(e, op)

    def commit(f: Builder, v: Sequence[Value]) -> None:
        own, (barrier, mask, cluster, stride) = v[: len(owner)], v[len(owner) :]

        def to_one(rank: Value) -> None:
            start = blocks.window_of(f, cluster, rank, stride)
            f.call("cujit_pending_product_commit", "void", *own, f.binary("add", start, barrier))

        for_each_bit(f, f.cast("zext", mask, "i32"), to_one)

    offset = blocks.offset_of(e, address_in(e, op.memory, op.space))
    values = [offset, e.source(op, 1, "i16"), blocks.CLUSTER, blocks.STRIDE]
    each_lane(e, op, "tensor.commit.multicast", [*owner, *values], commit)
