"""Loads and stores of every space, width and vector form; addresses; moves between registers.

PTX ISA 9.1: "Data Movement and Conversion Instructions".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass

from cujit.devices.cpu.emit import clusters
from cujit.devices.cpu.emit.builder import Value, float_type, int_type, type_width
from cujit.devices.cpu.emit.names import STATE
from cujit.devices.cpu.emit.order import in_order
from cujit.devices.cpu.emit.past import past_cache
from cujit.devices.cpu.emit.registry import Rules
from cujit.devices.cpu.emit.scattered import gather, load_apart, scatter
from cujit.devices.cpu.emit.warp import WarpEmitter, storage_type
from cujit.devices.cpu.emit.wide import load_wide, store_wide
from cujit.devices.cpu.native.state import STACK_BYTES, Block, Warp
from cujit.devices.cpu.program import Group, Memory, Op, Operand, Reg, SymbolAddress
from cujit.devices.cpu.semantics import Type
from cujit.devices.cpu.shapes import WARP

__all__ = ["address_in", "element_type", "register"]


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    # How data is cached is a hint that the CPU's own caches need not be told. Source: PTX ISA 9.1, "Cache Operators",
    # "Cache Eviction Priority Hints".
    rules.on("ld|ldu", _load)
    rules.on("st", _store)
    rules.on("mov", _move)
    rules.on("cvta", _convert_address)
    rules.on("param.put", _put_parameter)
    rules.on("param.get", _get_parameter)
    rules.on("isspacep", _is_space)
    rules.on("isspacep .shared::cluster", _is_cluster)
    clusters.register(rules)


def element_type(type_: Type) -> str:
    """LLVM type that a PTX type has in memory."""
    return float_type(type_.bits) if type_.kind == "f" and type_.bits >= 32 else int_type(type_.bits)


# -- addresses --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Address:
    """Where the lanes access memory: ``base`` (scalar i64) plus ``stride`` a lane, or one i64 a lane.

    ``rows`` are the bases of rows of lanes, where these have some; ``stride`` is that within a row then.
    ``holds``, where there is one, tells at run time whether the short form is right; ``lanes`` is right always.
    """

    base: Value | None
    stride: int
    lanes: Value | None
    holds: Value | None = None
    rows: tuple[Value, ...] = ()


def _address(e: WarpEmitter, op: Op, memory: Memory) -> _Address:
    b, space = e.builder, op.space
    shape = e.operand_shape(memory.base)
    # Neighbouring addresses of a cluster need not lie in one block.
    stride = None if space == "cluster" and not shape.is_uniform else shape.stride
    if space == "local" and shape.row != WARP:
        stride = None
    holds = None
    base = lanes = None
    rows: tuple[Value, ...] = ()
    if stride is not None:
        rows = tuple(
            _in_space(e, space, _register_address(e, space, memory), first_lane=True) for _ in e.each_row(shape)
        )
        base = rows[0] if len(rows) == 1 else None
        if shape.guarded:
            assert isinstance(memory.base, Reg)
            holds = e.base_holds(memory.base)
        if space == "local":
            stride += e.program.local_size
    if base is None or shape.guarded:
        lanes = b.vector(_in_space(e, space, _register_address(e, space, memory), first_lane=False))
    return _Address(base, stride or 0, lanes, holds, rows if len(rows) > 1 else ())


def _register_address(e: WarpEmitter, space: str, memory: Memory) -> Value:
    """The address as PTX has it, in its space, as i64."""
    b = e.builder
    if memory.base is None:
        return b.integer(memory.offset, 64)
    if isinstance(memory.base, SymbolAddress):
        return e.symbol(SymbolAddress(memory.base.slot, memory.base.offset + memory.offset))
    raw = e.read(memory.base, storage_type(memory.base))
    # A shared address of 32 bits may be counted from before the window's start: it is signed.
    value = b.resize(b.bits_as(raw, int_type(memory.base.bits)), 64, signed=space in ("shared", "cluster"))
    return b.binary("add", value, b.integer(memory.offset, 64)) if memory.offset else value


def _in_space(e: WarpEmitter, space: str, address: Value, *, first_lane: bool) -> Value:
    """Turn an address of a space into an address of this process."""
    b = e.builder
    if space == "shared":
        return b.binary("add", address, Value("%shared.int", "i64"))
    if space == "cluster":
        return clusters.to_process(e, address)
    if space == "local":
        return b.binary("add", address, local_base(e, first_lane=first_lane))
    return address


def address_in(e: WarpEmitter, memory: Memory, space: str) -> Value:
    """Give the address of an operand in brackets as an address of this process: i64, a scalar where it is uniform.

    ``space`` is the state space as a ``Form`` has it.
    """
    return _in_space(e, space, _register_address(e, space, memory), first_lane=False)


def local_base(e: WarpEmitter, *, first_lane: bool) -> Value:
    """Where local memory begins: the first lane's, or each lane's."""
    base = Value("%local.int", "i64")
    if first_lane:
        far = e.lane * e.program.local_size
        return e.builder.binary("add", base, e.builder.integer(far, 64)) if far else base
    return e.builder.binary("add", base, e.builder.lanes([k * e.program.local_size for k in range(WARP)], 64))


# -- loads ------------------------------------------------------------------------------------------------


def _load(e: WarpEmitter, op: Op) -> None:
    memory = op.sources[0]
    type_ = op.type
    assert isinstance(memory, Memory)
    if isinstance(memory.base, SymbolAddress) and memory.base.slot.space == "param":
        values = _load_parameters(e, op, memory, element_type(type_))
    elif type_ == "b128":
        values = [load_wide(e, op, address_in(e, memory, op.space))]
    else:
        with in_order(e, op):
            values = _load_values(e, op, _address(e, op, memory), element_type(type_), len(op.results))
            if op.form.is_strong:
                _keep(e, values)
    for k, value in enumerate(values):
        e.put(op, _extended(e, value, type_, op.results[k]), k)


def _keep(e: WarpEmitter, values: list[Value]) -> None:
    """Keep loads whose values nobody reads, so that they fault where there is no memory."""
    b = e.builder
    for value in values:
        if value.is_vector:
            bits = b.bits_as(value, int_type(type_width(value.type)))
            first = b.extract(bits, b.integer(0, 32))
            b.invoke('asm sideeffect "", "r"', "void", b.resize(first, 64, signed=False))


def _load_parameters(e: WarpEmitter, op: Op, memory: Memory, element: str) -> list[Value]:
    assert isinstance(memory.base, SymbolAddress)
    slot = memory.base.slot
    first = (slot.offset or 0) + memory.base.offset + memory.offset
    size = type_width(element) // 8
    return [e.parameter(first + k * size, element) for k in range(len(op.results))]


def _extended(e: WarpEmitter, value: Value, type_: Type, reg: Reg | None) -> Value:
    """Widen a loaded value to its register, by its sign if the type has one."""
    if reg is None or reg.bits <= type_width(value.type) or value.type in ("float", "double"):
        return value
    return e.builder.resize(value, reg.bits, signed=type_.is_signed)


def _load_values(e: WarpEmitter, op: Op, at: _Address, element: str, count: int) -> list[Value]:
    if at.base is not None and at.stride == 0:
        return _load_uniform(e, op, at.base, element, count)
    mask = e.lanes(op)
    quick = _quick_load(e, at, element, count, mask)
    if quick is None:
        return _gather_values(e, _lane_addresses(e, at), element, count, mask)
    if at.holds is None:
        return quick()
    b = e.builder
    fast, slow, done = b.label("contiguous"), b.label("scattered"), b.label("loaded")
    b.branch(at.holds, fast, slow)
    b.start(fast)
    found = quick()
    b.jump(done)
    b.start(slow)
    careful = _gather_values(e, _lane_addresses(e, at), element, count, mask)
    end = b.label("scattered.end")
    b.jump(end)
    b.start(end)
    b.jump(done)
    b.start(done)
    return [b.phi(q, (q, fast), (c, end)) for q, c in zip(found, careful, strict=True)]


def _quick_load(
    e: WarpEmitter, at: _Address, element: str, count: int, mask: Value
) -> Callable[[], list[Value]] | None:
    """Choose how to load without gathering; None where that cannot be."""
    if at.stride == type_width(element) // 8 * count and (at.base is not None or at.rows):
        return lambda: _load_contiguous(e, at.rows or (at.base or mask,), element, count, mask)
    if at.rows and at.stride == 0 and mask.constant:
        return lambda: _load_for_rows(e, at.rows, element, count)
    if at.base is not None and at.stride and mask.constant and count == 1:
        base = at.base
        return lambda: [load_apart(e, base, at.stride, element)]
    return None


def _load_for_rows(e: WarpEmitter, rows: tuple[Value, ...], element: str, count: int) -> list[Value]:
    """Load what each row has in common; all lanes are there."""
    b = e.builder
    pointers = [b.cast("inttoptr", base, "ptr") for base in rows]
    size = type_width(element) // 8
    return [b.rows([_load_scalar(e, pointer, element, k * size) for pointer in pointers]) for k in range(count)]


def _load_uniform(e: WarpEmitter, op: Op, base: Value, element: str, count: int) -> list[Value]:
    b = e.builder
    size = type_width(element) // 8
    pointer = b.cast("inttoptr", base, "ptr")
    stays = op.form.is_strong  # though nobody reads its value
    if op.guard is None:
        return [_load_scalar(e, pointer, element, k * size, volatile=stays) for k in range(count)]
    some = e.guard(op)
    if some.is_vector:
        some = b.any_lane(e.lanes(op))
    go, done, skip = b.label("load"), b.label("loaded"), b.label("skip")
    b.branch(some, go, skip)
    b.start(go)
    values = [_load_scalar(e, pointer, element, k * size, volatile=stays) for k in range(count)]
    b.jump(done)
    b.start(skip)
    b.jump(done)
    b.start(done)
    return [b.phi(v, (v, go), ("zeroinitializer", skip)) for v in values]


def _load_scalar(e: WarpEmitter, pointer: Value, element: str, offset: int, *, volatile: bool = False) -> Value:
    b = e.builder
    at = b.offset(pointer, offset) if offset else pointer
    return b.load(element, at, align=type_width(element) // 8, volatile=volatile)


def _load_contiguous(e: WarpEmitter, rows: tuple[Value, ...], element: str, count: int, mask: Value) -> list[Value]:
    """Load ``count`` neighbouring elements a lane as one vector a row, and deal them out."""
    b = e.builder
    n = WARP // len(rows) * count
    wide = f"<{n} x {element}>"
    parts = []
    for k, base in enumerate(rows):
        pointer, align = b.cast("inttoptr", base, "ptr"), b.integer(type_width(element) // 8, 32)
        lanes = _repeated(e, mask, count, k, len(rows))
        name = f"llvm.masked.load.v{n}{_short(element)}.p0"
        parts.append(b.call(name, wide, pointer, align, lanes, Value("zeroinitializer", wide)))
    whole = _joined(e, parts, n)
    if count == 1:
        return [Value(whole.text, element, True)]
    return [b.shuffle(whole, None, [lane * count + k for lane in range(WARP)]) for k in range(count)]


def _joined(e: WarpEmitter, parts: list[Value], width: int) -> Value:
    """One vector of several, each of ``width`` elements, one behind the other."""
    while len(parts) > 1:
        pairs = zip(parts[::2], parts[1::2], strict=True)
        parts = [e.builder.shuffle(first, second, range(2 * width)) for first, second in pairs]
        width *= 2
    return parts[0]


def _gather_values(e: WarpEmitter, lanes: Value, element: str, count: int, mask: Value) -> list[Value]:
    b = e.builder
    size = type_width(element) // 8
    return [
        gather(e, b.binary("add", lanes, b.integer(k * size, 64)) if k else lanes, element, mask) for k in range(count)
    ]


def _lane_addresses(e: WarpEmitter, at: _Address) -> Value:
    if at.lanes is not None:
        return at.lanes
    assert at.base is not None
    b = e.builder
    return b.binary("add", at.base, b.lanes([k * at.stride for k in range(WARP)], 64))


def _repeated(e: WarpEmitter, mask: Value, count: int, row: int = 0, rows: int = 1) -> Value:
    """The part of a mask that is for one of ``rows`` rows, with every lane's bit ``count`` times in a row."""
    width = WARP // rows
    if mask.constant or (count == 1 and rows == 1):
        return Value(mask.text, f"<{width * count} x i1>", constant=mask.constant)
    return e.builder.shuffle(mask, None, [row * width + k // count for k in range(width * count)])


def _short(element: str) -> str:
    return {"float": "f32", "double": "f64"}.get(element, element)


# -- stores -----------------------------------------------------------------------------------------------


def _store(e: WarpEmitter, op: Op) -> None:
    memory, data = op.sources[:2]  # a third is a cache policy
    assert isinstance(memory, Memory)
    if op.type == "b128":
        store_wide(e, op, address_in(e, memory, op.space), e.read(data, "i128"))
        return
    with in_order(e, op):
        _store_values(e, op, memory, data.items if isinstance(data, Group) else (data,))


def _store_values(e: WarpEmitter, op: Op, memory: Memory, items: tuple[Operand, ...]) -> None:
    element = element_type(op.type)
    values = [e.read(item, element) for item in items]
    at = _address(e, op, memory)
    mask = e.lanes(op)
    if at.base is not None and at.stride == 0:
        _store_uniform(e, at.base, element, values, mask, op)
    elif at.stride != type_width(element) // 8 * len(values) or not (at.base is not None or at.rows):
        _scatter_values(e, _lane_addresses(e, at), element, values, mask)
    elif at.holds is None:
        _store_contiguous(e, op, at.rows or (at.base or mask,), element, values, mask)
    else:
        b = e.builder
        fast, slow, done = b.label("contiguous"), b.label("scattered"), b.label("stored")
        b.branch(at.holds, fast, slow)
        b.start(fast)
        _store_contiguous(e, op, at.rows or (at.base or mask,), element, values, mask)
        b.jump(done)
        b.start(slow)
        _scatter_values(e, _lane_addresses(e, at), element, values, mask)
        b.jump(done)
        b.start(done)


def _store_uniform(e: WarpEmitter, base: Value, element: str, values: list[Value], mask: Value, op: Op) -> None:
    """Store to one address: of lanes that store different values, the last one's stays."""
    b = e.builder
    done = b.label("stored")
    if op.guard is not None:
        go = b.label("store")
        b.branch(b.any_lane(mask), go, done)
        b.start(go)
    pointer = b.cast("inttoptr", base, "ptr")
    zeros = b.call("llvm.ctlz.i32", "i32", b.word(mask), b.integer(0, 1))
    last = b.binary("and", b.binary("sub", b.integer(WARP - 1, 32), zeros), b.integer(WARP - 1, 32))
    size = type_width(element) // 8
    for k, value in enumerate(values):
        one = b.extract(value, last) if value.is_vector else value
        at = b.offset(pointer, k * size)
        b.store(one, at, align=size)
    if op.guard is not None:
        b.jump(done)
        b.start(done)


_MOST_BLENDED = 8
"""Bytes a lane that may be read and written back where the lane does not run: they lie within what surrounds the
shared memory of a block, at most 31 times as far away as this from where a lane that runs may store."""


def _store_contiguous(
    e: WarpEmitter, op: Op, rows: tuple[Value, ...], element: str, values: list[Value], mask: Value
) -> None:
    """Store neighbouring elements as one vector a row.

    Nobody but this thread writes to the shared memory of its block: what lanes that do not run would store to is
    read and written back, which most processors do faster than a store with a mask. Where no lane runs, the address
    may be any.
    """
    b = e.builder
    count = len(values)
    size = type_width(element) // 8 * count
    blends = op.space == "shared" and not mask.constant and size <= _MOST_BLENDED and not e.watched
    some = blends and op.guard is not None
    if some:
        go, done = b.label("store"), b.label("stored")
        b.branch(b.any_lane(mask), go, done)
        b.start(go)
    whole = _dealt(e, [b.vector(v) for v in values])
    n = WARP // len(rows) * count
    wide = f"<{n} x {element}>"
    for k, base in enumerate(rows):
        part = whole
        if len(rows) > 1:
            part = b.shuffle(whole, None, range(k * n, k * n + n))
        part = Value(part.text, wide)
        pointer, align = b.cast("inttoptr", base, "ptr"), type_width(element) // 8
        lanes = _repeated(e, mask, count, k, len(rows))
        if blends:
            old = b.load(wide, pointer, align=align)
            b.store(b.select(Value(lanes.text, f"<{n} x i1>"), part, old), pointer, align=align)
            continue
        with past_cache(e, op, mask, base, size * n // count, (part, pointer)):
            name = f"llvm.masked.store.v{n}{_short(element)}.p0"
            b.call(name, "void", part, pointer, b.integer(align, 32), lanes)
    if some:
        b.jump(done)
        b.start(done)


def _dealt(e: WarpEmitter, values: list[Value]) -> Value:
    """One vector with the lanes' elements in memory order."""
    whole, count = _joined(e, values, WARP), len(values)
    if count == 1:
        return whole
    return e.builder.shuffle(whole, None, [(k % count) * WARP + k // count for k in range(WARP * count)])


def _scatter_values(e: WarpEmitter, lanes: Value, element: str, values: list[Value], mask: Value) -> None:
    b = e.builder
    size = type_width(element) // 8
    for k, value in enumerate(values):
        at = b.binary("add", lanes, b.integer(k * size, 64)) if k else lanes
        scatter(e, at, element, b.vector(value), mask)


# -- moves ------------------------------------------------------------------------------------------------


def _move(e: WarpEmitter, op: Op) -> None:
    source = op.sources[0]
    if isinstance(source, Group):
        e.put(op, _packed(e, source, op))
    elif len(op.results) > 1:
        _unpack(e, op)
    else:
        reg = op.results[0]
        bits = op.type.bits
        wanted = storage_type(reg) if reg is not None and reg.bits == bits else int_type(bits)
        e.put(op, e.read(source, wanted))


def _packed(e: WarpEmitter, group: Group, op: Op) -> Value:
    """``mov.b64 d, {a, b}``: the first element is the lowest part."""
    b = e.builder
    total = op.type.bits
    part = total // len(group.items)
    whole = b.integer(0, total)
    for k, item in enumerate(group.items):
        piece = b.resize(e.read(item, int_type(part)), total, signed=False)
        if k:
            piece = b.binary("shl", piece, b.integer(k * part, total))
        whole = b.binary("or", whole, piece)
    return whole


def _unpack(e: WarpEmitter, op: Op) -> None:
    b = e.builder
    total = op.type.bits
    part = total // len(op.results)
    whole = e.source(op, 0, int_type(total))
    for k in range(len(op.results)):
        piece = b.binary("lshr", whole, b.integer(k * part, total)) if k else whole
        e.put(op, b.resize(piece, part, signed=False), k)


def _put_parameter(e: WarpEmitter, op: Op) -> None:
    """Store to a call's parameter that became registers."""
    element = int_type(op.type.bits)
    data = op.sources[0]
    for k, item in enumerate(data.items if isinstance(data, Group) else (data,)):
        e.put(op, e.read(item, element), k)


def _get_parameter(e: WarpEmitter, op: Op) -> None:
    """Load from a call's parameter that became registers."""
    type_ = op.type
    data = op.sources[0]
    assert isinstance(data, Group)
    for k, item in enumerate(data.items):
        value = e.read(item, int_type(type_.bits))
        e.put(op, _extended(e, value, type_, op.results[k]), k)


def _convert_address(e: WarpEmitter, op: Op) -> None:
    """``cvta``: between an address of a space and a generic one, which is an address of this process."""
    b, space = e.builder, op.space
    bits = op.type.bits
    value = b.resize(e.source(op, 0, int_type(bits)), 64, signed=False)
    if space in ("shared", "local"):
        base = Value("%shared.int", "i64") if space == "shared" else local_base(e, first_lane=e.base_form)
        value = b.binary("sub" if "to" in op.modifiers else "add", value, base)
    elif space == "cluster":
        value = clusters.from_process(e, value) if "to" in op.modifiers else clusters.to_process(e, value)
    e.put(op, b.resize(value, bits, signed=False))


def _is_space(e: WarpEmitter, op: Op) -> None:
    """``isspacep``: whether a generic address lies in the window of a space."""
    b, space = e.builder, op.space
    address = e.source(op, 0, "i64")

    def inside(base: Value, size: Value) -> Value:
        return b.compare("icmp ult", b.binary("sub", address, base), size)

    shared = inside(Value("%shared.int", "i64"), Value("%shared.size", "i64"))
    local = inside(Value("%local.int", "i64"), b.integer(max(e.program.local_size, 1) * WARP, 64))
    if e.flow.suspends:
        # Memory of alloca, and the variables of functions that are called, lie on the warp's stack.
        local = b.binary("or", local, inside(stack_start(e), b.integer(STACK_BYTES, 64)))
    params = inside(Value("%params.int", "i64"), b.integer(e.program.parameters_size, 64))
    consts = inside(Value("%module.int", "i64"), Value("%module.size", "i64"))
    if space == "global":
        # Constant variables lie beside global ones here, so that both answer yes for them; the window of parameters
        # is a part of the global one. Source: PTX ISA 9.1, "isspacep".
        e.put(op, b.binary("xor", b.binary("or", shared, local), b.integer(1, 1)))
    else:
        e.put(op, {"shared": shared, "local": local, "param": params, "const": consts}[space])


def stack_start(e: WarpEmitter) -> Value:
    """Find the lowest address (i64) of the warp's stack."""
    b = e.builder
    index = b.cast("zext", Value("%warp", "i32"), "i64")
    offset = b.binary("mul", index, b.integer(ctypes.sizeof(Warp), 64))
    at = b.binary("add", offset, b.integer(Block.warp.offset + Warp.stack_end.offset, 64))
    place = b.point("i8", STATE, at)
    return b.binary("sub", b.load("i64", place), b.integer(STACK_BYTES, 64))


def _is_cluster(e: WarpEmitter, op: Op) -> None:
    """``isspacep.shared::cluster``: whether a generic address lies in the shared memory of a block of the cluster."""
    b = e.builder
    e.put(
        op, b.compare("icmp ult", b.binary("sub", e.source(op, 0, "i64"), clusters.CLUSTER), clusters.cluster_bytes(e))
    )
