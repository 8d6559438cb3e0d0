"""Loads and stores of every space, width and vector form; addresses; moves between registers; advice.

PTX ISA 9.1: "Data Movement and Conversion Instructions", of which "createpolicy, applypriority, discard" only advise;
"griddepcontrol", "Miscellaneous Instructions".
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from cujit.devices.cpu.analysis.patterns import VectorAccess
from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value, int_type, type_width
from cujit.devices.cpu.codegen.memory import (
    Gather,
    LaneAddresses,
    Scatter,
    element_type,
    load,
    may_be_nontemporal,
    store,
)
from cujit.devices.cpu.codegen.nodes import STATE
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter, storage_type
from cujit.devices.cpu.instructions import blocks
from cujit.devices.cpu.ir.program import MemoryOperand, Op, Reg, SymbolAddress, items_of
from cujit.devices.cpu.native.structures import Block, Warp
from cujit.devices.cpu.run.launch import WINDOW_BITS
from cujit.formats.ptx.isa.semantics import Order, Type

_COMPILER = 'syncscope("singlethread") seq_cst'


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    # How data is cached is a hint that the CPU's own caches need not be told. Source: PTX ISA 9.1, "Cache Operators",
    # "Cache Eviction Priority Hints".
    rules.on("ld|ldu", _load)
    rules.on("st", _store)
    rules.on("mov", _move)
    rules.on("mov.join", _join)
    rules.on("mov.split", _split)
    rules.on("cvta", _convert_address)
    rules.on("param.put", _put_parameter)
    rules.on("param.get", _get_parameter)
    rules.on("fence|membar", _fence)
    rules.on("access.begin", lambda e, op: e.builder.fence("release" if op.order is Order.RELEASE else _COMPILER))
    rules.on("access.end", lambda e, op: e.builder.fence("acquire" if op.order is Order.ACQUIRE else _COMPILER))
    rules.on("isspacep", _is_space)
    rules.on("isspacep .shared::cluster", _is_cluster)
    # A processor has no use for advice, and waits for nothing that is done.
    rules.on("createpolicy", _policy)
    rules.on("createpolicy .cvt", _policy_of_property)
    rules.on("applypriority|discard|prefetch|prefetchu|griddepcontrol|setmaxnreg|pmevent|nanosleep", _nothing)
    rules.on("cp .bulk .prefetch", _nothing)
    rules.on("wgmma .fence|commit_group|wait_group", _nothing)
    rules.on("mbarrier .inval", _nothing)


# -- addresses --------------------------------------------------------------------------------------------


def _place(e: WarpEmitter, op: Op, memory: MemoryOperand, *, is_wide: bool) -> LaneAddresses:
    vectors = e.vectors.get(op)
    if vectors is not None:
        return LaneAddresses((_first_vector(e, memory, vectors),), vectors=vectors)
    return place_in(e, memory, op.space, is_wide=is_wide)


def place_in(e: WarpEmitter, memory: MemoryOperand, space: str, *, is_wide: bool = False) -> LaneAddresses:
    """Find where lanes access an operand in brackets, in a state space as a ``Form`` has it."""
    b = e.builder
    shape = e.operand_shape(memory.base)
    stride = shape.stride
    # Neighbouring addresses of a cluster need not lie in one block; 16 bytes are accessed lane by lane.
    if not shape.is_uniform and (space == "cluster" or is_wide):
        stride = None
    # Local memory of lanes does not lie in rows.
    if space == "local" and shape.row != WARP:
        stride = None
    bases: tuple[Value, ...] = ()
    holds = lanes = None
    if stride is not None:
        if shape.guarded:
            assert isinstance(memory.base, Reg)
            holds = e.base_holds(memory.base)
        bases = tuple(
            _in_space(row, space, _register_address(row, space, memory), first_lane=True) for row in e.each_row(shape)
        )
        if space == "local":
            stride += e.program.local_size
    if len(bases) != 1 or holds is not None:
        lanes = b.vector(_in_space(e, space, _register_address(e, space, memory), first_lane=False))
    return LaneAddresses(bases, stride or 0, lanes, holds)


def _first_vector(e: WarpEmitter, memory: MemoryOperand, vectors: VectorAccess) -> Value:
    """Find where in shared memory the vectors begin, from the base register of the first lane."""
    b = e.builder
    assert isinstance(memory.base, Reg)
    shape = e.shape(memory.base)
    if shape.stride is None:
        first = b.extract(e.read(memory.base, "i32"), b.integer(0, 32))
    else:
        first = e.each_row(shape)[0].read(memory.base, "i32")
    start = b.binary("add", b.resize(first, 64, signed=True), b.integer(vectors.start, 64))
    return blocks.to_process(e, start)


def _register_address(e: WarpEmitter, space: str, memory: MemoryOperand) -> Value:
    """The address as PTX has it, in its space, as i64."""
    b = e.builder
    if memory.base is None:
        return b.integer(memory.offset, 64)
    if isinstance(memory.base, SymbolAddress):
        return e.symbol(SymbolAddress(memory.base.slot, memory.base.offset + memory.offset))
    raw = e.read(memory.base, storage_type(memory.base))
    value = b.bits_as(raw, int_type(memory.base.bits))
    # A shared address has 32 bits, whatever stands above them; measured on an H200 (``test_narrowing.py``).
    if space == "shared":
        value = b.resize(value, 32, signed=True)
    # One of 32 bits may be counted from before the start of the space: it is signed.
    value = b.resize(value, 64, signed=space in ("shared", "cluster"))
    return b.binary("add", value, b.integer(memory.offset, 64)) if memory.offset else value


def _in_space(e: WarpEmitter, space: str, address: Value, *, first_lane: bool) -> Value:
    """Turn an address of a space into an address of this process."""
    b = e.builder
    if space in ("shared", "cluster"):
        return blocks.to_process(e, address)
    if space == "local":
        return b.binary("add", address, local_base(e, first_lane=first_lane))
    return address


def address_in(e: WarpEmitter, memory: MemoryOperand, space: str) -> Value:
    """Return the address of an operand in brackets as an address of this process: i64, a scalar if it is uniform.

    ``space`` is the state space as a ``Form`` has it.
    """
    return _in_space(e, space, _register_address(e, space, memory), first_lane=False)


def local_base(e: WarpEmitter, *, first_lane: bool) -> Value:
    """Return the start of local memory: of the first lane, or of each lane. Without local memory, all lanes share one
    address.
    """
    base = Value("%local.int", "i64")
    if first_lane or not e.program.local_size:
        far = (e.lane or 0) * e.program.local_size
        return e.builder.binary("add", base, e.builder.integer(far, 64)) if far else base
    return e.builder.binary("add", base, e.builder.lanes([k * e.program.local_size for k in range(WARP)], 64))


# -- loads and stores -------------------------------------------------------------------------------------


def _load(e: WarpEmitter, op: Op) -> None:
    memory, type_, count = op.memory, op.type, len(op.results)
    element = element_type(type_)
    if isinstance(memory.base, SymbolAddress) and memory.base.slot.space == "param":
        first = memory.base.slot.offset + memory.base.offset + memory.offset
        size = type_width(element) // 8
        values: Sequence[Value] = [e.parameter(first + k * size, element) for k in range(count)]
    else:
        word = _word(op, count)
        place = _place(e, op, memory, is_wide=word == "i128")
        values = load(e, Gather(op, place, word or element, 1 if word else count, _lanes(e, op, place)))
        if word:
            values = _parted(e.builder, values[0], element, count)
    for k, value in enumerate(values):
        e.put(op, _extended(e, value, type_, op.results[k]), k)


def _word(op: Op, count: int) -> str:
    """Return the type of an access that other threads observe as a whole. Return an empty string for an access per
    element.

    An access is whole for an element of 16 bytes, a strong vector of 8 bytes or less, and a strong pair. Libraries that
    scan a grid pass a flag and a value in one access, though PTX does not guarantee this (chapter 8, "Vector
    Data-types"). Measured on an H200: of 10 million reads, no v2.b64 was torn between two writes, and one in a hundred
    v4.b32 was.
    """
    bits = op.type.bits * count
    is_word = bits == op.type.bits == 128 or (op.form.is_strong and count > 1 and (count == 2 or bits <= 64))
    return int_type(bits) if is_word else ""


def _parted(b: Builder, word: Value, element: str, count: int) -> list[Value]:
    """Split a word into elements. The first element is in the lowest bits."""
    bits, part = type_width(word.type), type_width(word.type) // count
    pieces = [b.binary("lshr", word, b.integer(k * part, bits)) if k else word for k in range(count)]
    return [b.bits_as(b.resize(piece, part, signed=False), element) for piece in pieces]


def _put_together(b: Builder, values: Sequence[Value], word: str) -> Value:
    """Make a word of elements, the first of which is the lowest."""
    bits = type_width(word)
    whole, part = b.integer(0, bits), bits // len(values)
    for k, value in enumerate(values):
        piece = b.resize(b.bits_as(value, int_type(part)), bits, signed=False)
        whole = b.binary("or", whole, b.binary("shl", piece, b.integer(k * part, bits)) if k else piece)
    return whole


def _lanes(e: WarpEmitter, op: Op, place: LaneAddresses) -> Value:
    """Return the lanes that load. If the address and the predicate are uniform, return the predicate."""
    any_lane = e.guard(op) if place.is_uniform else None
    return e.lanes(op) if any_lane is None or any_lane.lanes else any_lane


def _extended(e: WarpEmitter, value: Value, type_: Type, reg: Reg | None) -> Value:
    """Widen a loaded value to its register, by its sign if the type has one."""
    if reg is None or reg.bits <= type_width(value.type) or value.type in ("float", "double"):
        return value
    return e.builder.resize(value, reg.bits, signed=type_.is_signed)


def _store(e: WarpEmitter, op: Op) -> None:
    element = element_type(op.type)
    # Nobody but this thread writes to the shared memory of its block.
    blends = op.space == "shared" and not e.watched
    values = tuple(e.read(item, element) for item in items_of(op.sources[1]))  # a third is a cache policy
    word = _word(op, len(values))
    place, mask = _place(e, op, op.memory, is_wide=word == "i128"), e.lanes(op)
    if word:
        element, values = word, (_put_together(e.builder, values, word),)
    store(e, Scatter(op, place, element, len(values), mask, values, may_be_nontemporal(e, op), blends))


def _fence(e: WarpEmitter, op: Op) -> None:
    """Order all accesses before and after, with the strongest fence of the processor unless the form allows a weaker
    fence.

    Memory has only one proxy here, so all proxies see each other's writes.
    """
    words = frozenset(op.modifiers)
    weak = bool(words & {"acq_rel", "acquire", "release", "proxy", "mbarrier_init"}) or "cta" in words
    e.builder.fence("acq_rel" if weak else "seq_cst")


# -- moves ------------------------------------------------------------------------------------------------


def _move(e: WarpEmitter, op: Op) -> None:
    reg, bits = op.result, op.type.bits
    wanted = storage_type(reg) if reg is not None and reg.bits == bits else int_type(bits)
    e.put(op, e.source(op, 0, wanted))


def _join(e: WarpEmitter, op: Op) -> None:
    """Join parts, the first of which is the lowest: ``mov.b64 d, {a, b}``."""
    items, bits = items_of(op.sources[0]), op.type.bits
    part = int_type(bits // len(items))
    e.put(op, _put_together(e.builder, [e.read(item, part) for item in items], int_type(bits)))


def _split(e: WarpEmitter, op: Op) -> None:
    """Split a value into parts, the first of which is the lowest: ``mov.b64 {a, b}, s``."""
    bits, count = op.type.bits, len(op.results)
    parts = _parted(e.builder, e.source(op, 0, int_type(bits)), int_type(bits // count), count)
    for k, each in enumerate(parts):
        e.put(op, each, k)


def _put_parameter(e: WarpEmitter, op: Op) -> None:
    """Store to a call's parameter that became registers."""
    for k, item in enumerate(items_of(op.sources[0])):
        e.put(op, e.read(item, int_type(op.type.bits)), k)


def _get_parameter(e: WarpEmitter, op: Op) -> None:
    """Load from a call's parameter that became registers."""
    for k, item in enumerate(items_of(op.sources[0])):
        e.put(op, _extended(e, e.read(item, int_type(op.type.bits)), op.type, op.results[k]), k)


def _convert_address(e: WarpEmitter, op: Op) -> None:
    """``cvta``: between an address of a space and a generic one, which is an address of this process."""
    b, space, bits = e.builder, op.space, op.type.bits
    value = b.resize(e.source(op, 0, int_type(bits)), 64, signed=False)
    if space == "local":
        base = local_base(e, first_lane=e.lane is not None)
        value = b.binary("sub" if "to" in op.modifiers else "add", value, base)
    elif space in ("shared", "cluster"):
        value = blocks.from_process(e, value) if "to" in op.modifiers else blocks.to_process(e, value)
    e.put(op, b.resize(value, bits, signed=False))


def _is_space(e: WarpEmitter, op: Op) -> None:
    """Emit ``isspacep``: whether a generic address is in the window of a state space."""
    b, space = e.builder, op.space
    address = e.source(op, 0, "i64")

    def inside(base: Value, size: Value) -> Value:
        return b.compare("icmp ult", b.binary("sub", address, base), size)

    shared = inside(Value("%shared.int", "i64"), b.integer(1 << WINDOW_BITS, 64))
    local = inside(Value("%local.int", "i64"), b.integer(max(e.program.local_size, 1) * WARP, 64))
    if e.suspends:
        # Memory of alloca, and the variables of functions that are called, lie on the warp's stack.
        start = stack_bound(e, Warp.stack_begin.offset)
        size = b.binary("sub", stack_bound(e, Warp.stack_end.offset), start)
        local = b.binary("or", local, inside(start, size))
    params = inside(Value("%params.int", "i64"), b.integer(e.program.parameters_size, 64))
    consts = inside(Value("%module.int", "i64"), Value("%module.size", "i64"))
    if space == "global":
        # Constant variables lie beside global ones here, so that both answer yes for them; the window of parameters
        # is a part of the global one. Source: PTX ISA 9.1, "isspacep".
        e.put(op, b.binary("xor", b.binary("or", blocks.is_in_cluster(e, address), local), b.integer(1, 1)))
    else:
        e.put(op, {"shared": shared, "local": local, "param": params, "const": consts}[space])


def stack_bound(e: WarpEmitter, field: int) -> Value:
    """Load where the warp's stack begins or ends (i64), by the offset of the field of ``Warp``."""
    b = e.builder
    index = b.cast("zext", Value("%warp", "i32"), "i64")
    offset = b.binary("mul", index, b.integer(ctypes.sizeof(Warp), 64))
    return b.load("i64", b.point("i8", STATE, b.binary("add", offset, b.integer(Block.warp.offset + field, 64))))


def _is_cluster(e: WarpEmitter, op: Op) -> None:
    """Emit ``isspacep.shared::cluster``: whether a generic address is in the shared memory of a block
    of the cluster.
    """
    e.put(op, blocks.is_in_cluster(e, e.source(op, 0, "i64")))


# -- what only advises, or waits for what is done ---------------------------------------------------------------


def _nothing(e: WarpEmitter, op: Op) -> None:
    """Emit nothing for an instruction that needs no code.

    Launches run one after another. ``discard`` leaves the contents of memory undefined, and ``mbarrier.inval`` leaves
    later use of the object undefined. ``wgmma`` is done at issue, so its waits need no code.
    """


def _policy(e: WarpEmitter, op: Op) -> None:
    """Emit the only cache policy that there is. It is opaque, and the instructions that use it ignore it."""
    e.put(op, e.builder.integer(0, 64))


def _policy_of_property(e: WarpEmitter, op: Op) -> None:
    """Emit the access property itself as the cache policy, which is opaque as well."""
    e.put(op, e.source(op, 0, "i64"))
