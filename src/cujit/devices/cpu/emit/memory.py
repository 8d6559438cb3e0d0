"""Loads and stores of every space, width and vector form; addresses; moves between registers.

PTX ISA 9.1: "Data Movement and Conversion Instructions".
"""

from __future__ import annotations

from dataclasses import dataclass

from cujit.devices.cpu.emit.builder import Value, float_type, int_type, type_width
from cujit.devices.cpu.emit.registry import Rules, types_of
from cujit.devices.cpu.emit.warp import MASK, WarpEmitter, storage_type
from cujit.devices.cpu.program import Group, Memory, Op, Reg, SymbolAddress
from cujit.devices.cpu.shapes import WARP

__all__ = ["register"]

_SPACES = ("global", "shared", "shared::cta", "local", "const", "param", "param::entry")
# How data is cached is a hint that the CPU's own caches need not be told. Source: PTX ISA 9.1, "Cache Operators",
# "Cache Eviction Priority Hints".
_HINTS = (
    "ca cg cs lu cv wb wt nc volatile weak v2 v4 v8 L1::evict_normal L1::evict_unchanged L1::evict_first "
    "L1::evict_last L1::no_allocate L2::evict_normal L2::evict_first L2::evict_last L2::64B L2::128B L2::256B unified"
)
_WORDS = "b8 b16 b32 b64 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64"


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    spaces = " ".join(_SPACES)
    rules.on("ld ldu", _WORDS, modifiers=f"{spaces} {_HINTS}", memory=True)(_load)
    rules.on("st", _WORDS, modifiers=f"{spaces} {_HINTS}", memory=True)(_store)
    rules.on("mov", "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64 pred", modifiers="")(_move)
    rules.on("cvta", "u32 u64", modifiers=f"to {spaces}")(_convert_address)
    rules.on("param.put", _WORDS)(_put_parameter)
    rules.on("param.get", _WORDS)(_get_parameter)
    hints = f"{spaces} L1 L2 L2::evict_last L2::evict_normal tensormap"
    rules.on("prefetch prefetchu", modifiers=hints, memory=True)(_nothing)
    rules.on("isspacep", modifiers=spaces)(_is_space)


def _nothing(e: WarpEmitter, op: Op) -> None:
    """A hint that asks for no effect."""


def element_type(type_: str) -> str:
    """LLVM type that a PTX type has in memory."""
    bits = int(type_[1:])
    return float_type(bits) if type_[0] == "f" and bits >= 32 else int_type(bits)


def space_of(op: Op) -> str:
    """State space of a memory operation; generic when none is named."""
    named = [m.partition("::")[0] for m in op.modifiers if m in _SPACES]
    return named[0] if named else "generic"


# -- addresses --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Address:
    """Where the lanes access memory: ``base`` (scalar i64) plus ``stride`` a lane, or one i64 a lane.

    ``holds``, where there is one, tells at run time whether the short form is right; ``lanes`` is right always.
    """

    base: Value | None
    stride: int
    lanes: Value | None
    holds: Value | None = None


def _address(e: WarpEmitter, op: Op, memory: Memory) -> _Address:
    b, space = e.builder, space_of(op)
    shape = e.operand_shape(memory.base)
    stride = shape.stride
    holds = None
    base = lanes = None
    if stride is not None:
        e.base_form = True
        base = _in_space(e, space, _register_address(e, space, memory), first_lane=True)
        e.base_form = False
        if shape.guarded:
            assert isinstance(memory.base, Reg)
            holds = Value(b.assign(f"load i1, ptr %r{memory.base.index}.g"), "i1")
        if space == "local":
            stride += e.program.local_size
    if stride is None or shape.guarded:
        lanes = b.vector(_in_space(e, space, _register_address(e, space, memory), first_lane=False))
    return _Address(base, stride or 0, lanes, holds)


def _register_address(e: WarpEmitter, space: str, memory: Memory) -> Value:
    """The address as PTX has it, in its space, as i64."""
    b = e.builder
    if memory.base is None:
        return b.integer(memory.offset, 64)
    if isinstance(memory.base, SymbolAddress):
        return e.symbol(SymbolAddress(memory.base.slot, memory.base.offset + memory.offset))
    raw = e.read(memory.base, storage_type(memory.base))
    # A shared address of 32 bits may be counted from before the window's start: it is signed.
    value = b.resize(b.bits_as(raw, int_type(memory.base.bits)), 64, signed=space == "shared")
    return b.binary("add", value, b.integer(memory.offset, 64)) if memory.offset else value


def _in_space(e: WarpEmitter, space: str, address: Value, *, first_lane: bool) -> Value:
    """Turn an address of a space into an address of this process."""
    b = e.builder
    if space == "shared":
        return b.binary("add", address, Value("%shared.int", "i64"))
    if space == "local":
        return b.binary("add", address, local_base(e, first_lane=first_lane))
    return address


def local_base(e: WarpEmitter, *, first_lane: bool) -> Value:
    """Where local memory begins: the first lane's, or each lane's."""
    base = Value("%local.int", "i64")
    if first_lane:
        return base
    return e.builder.binary("add", base, e.builder.lanes([k * e.program.local_size for k in range(WARP)], 64))


# -- loads ------------------------------------------------------------------------------------------------


def _load(e: WarpEmitter, op: Op) -> None:
    memory = op.sources[0]
    type_ = types_of(op)[0]
    assert isinstance(memory, Memory)
    if isinstance(memory.base, SymbolAddress) and memory.base.slot.space == "param":
        values = _load_parameters(e, op, memory, element_type(type_))
    else:
        values = _load_values(e, op, _address(e, op, memory), element_type(type_), len(op.results))
    for k, value in enumerate(values):
        e.put(op, _extended(e, value, type_, op.results[k]), k)


def _load_parameters(e: WarpEmitter, op: Op, memory: Memory, element: str) -> list[Value]:
    assert isinstance(memory.base, SymbolAddress)
    slot = memory.base.slot
    first = (slot.offset or 0) + memory.base.offset + memory.offset
    size = type_width(element) // 8
    return [e.parameter(first + k * size, element) for k in range(len(op.results))]


def _extended(e: WarpEmitter, value: Value, type_: str, reg: Reg | None) -> Value:
    """Widen a loaded value to its register, by its sign if the type has one."""
    if reg is None or reg.bits <= type_width(value.type) or value.type in ("float", "double"):
        return value
    return e.builder.resize(value, reg.bits, signed=type_[0] == "s")


def _load_values(e: WarpEmitter, op: Op, at: _Address, element: str, count: int) -> list[Value]:
    size = type_width(element) // 8
    if at.base is not None and at.stride == 0:
        return _load_uniform(e, op, at.base, element, count)
    mask = e.lanes(op)
    if at.base is None or at.stride != size * count:
        return _gather_values(e, _lane_addresses(e, at), element, count, mask)
    if at.holds is None:
        return _load_contiguous(e, at.base, element, count, mask)
    b = e.builder
    fast, slow, done = b.label("contiguous"), b.label("scattered"), b.label("loaded")
    b.line(f"br i1 {at.holds.text}, label %{fast}, label %{slow}")
    b.start(fast)
    quick = _load_contiguous(e, at.base, element, count, mask)
    b.line(f"br label %{done}")
    b.start(slow)
    careful = _gather_values(e, _lane_addresses(e, at), element, count, mask)
    end = b.label("scattered.end")
    b.line(f"br label %{end}")
    b.start(end)
    b.line(f"br label %{done}")
    b.start(done)
    merged = []
    for q, c in zip(quick, careful, strict=True):
        merged.append(Value(b.assign(f"phi {b.type_of(q)} [ {q.text}, %{fast} ], [ {c.text}, %{end} ]"), element, True))
    return merged


def _load_uniform(e: WarpEmitter, op: Op, base: Value, element: str, count: int) -> list[Value]:
    b = e.builder
    size = type_width(element) // 8
    pointer = b.cast("inttoptr", base, "ptr")
    if op.guard is None:
        return [_load_scalar(e, pointer, element, k * size) for k in range(count)]
    some = e.guard(op)
    if some.is_vector:
        some = b.any_lane(e.lanes(op))
    go, done, skip = b.label("load"), b.label("loaded"), b.label("skip")
    b.line(f"br i1 {some.text}, label %{go}, label %{skip}")
    b.start(go)
    values = [_load_scalar(e, pointer, element, k * size) for k in range(count)]
    b.line(f"br label %{done}")
    b.start(skip)
    b.line(f"br label %{done}")
    b.start(done)
    zero = "zeroinitializer"
    return [Value(b.assign(f"phi {element} [ {v.text}, %{go} ], [ {zero}, %{skip} ]"), element) for v in values]


def _load_scalar(e: WarpEmitter, pointer: Value, element: str, offset: int) -> Value:
    b = e.builder
    at = b.assign(f"getelementptr i8, ptr {pointer.text}, i64 {offset}") if offset else pointer.text
    return Value(b.assign(f"load {element}, ptr {at}, align {type_width(element) // 8}"), element)


def _load_contiguous(e: WarpEmitter, base: Value, element: str, count: int, mask: Value) -> list[Value]:
    """Load ``count`` neighbouring elements a lane as one vector, and deal them out."""
    b = e.builder
    n = WARP * count
    wide, wide_mask = f"<{n} x {element}>", _repeated(e, mask, count)
    name = f"llvm.masked.load.v{n}{_short(element)}.p0"
    pointer = b.cast("inttoptr", base, "ptr")
    arguments = [
        f"ptr {pointer.text}",
        f"i32 {type_width(element) // 8}",
        f"<{n} x i1> {wide_mask}",
        f"{wide} zeroinitializer",
    ]
    whole = b.call(name, wide, arguments, ["ptr", "i32", f"<{n} x i1>", wide])
    if count == 1:
        return [Value(whole, element, True)]
    parts = []
    for k in range(count):
        picks = ", ".join(f"i32 {lane * count + k}" for lane in range(WARP))
        parts.append(
            Value(
                b.assign(f"shufflevector {wide} {whole}, {wide} poison, <{WARP} x i32> <{picks}>"),
                element,
                True,
            )
        )
    return parts


def _gather_values(e: WarpEmitter, lanes: Value, element: str, count: int, mask: Value) -> list[Value]:
    b = e.builder
    size = type_width(element) // 8
    return [
        _gather(e, b.binary("add", lanes, b.integer(k * size, 64)) if k else lanes, element, mask) for k in range(count)
    ]


def _gather(e: WarpEmitter, lanes: Value, element: str, mask: Value) -> Value:
    b = e.builder
    if size_is_native(element):
        pointers = b.cast("inttoptr", lanes, "ptr")
        name = f"llvm.masked.gather.v{WARP}{_short(element)}.v{WARP}p0"
        full = f"<{WARP} x {element}>"
        types = [f"<{WARP} x ptr>", "i32", MASK, full]
        values = [pointers.text, str(type_width(element) // 8), mask.text, "zeroinitializer"]
        arguments = [f"{t} {v}" for t, v in zip(types, values, strict=True)]
        return Value(b.call(name, full, arguments, types), element, True)
    pointers = _safe_pointers(e, lanes, mask)
    gathered = Value("zeroinitializer", element, True)
    for lane in range(WARP):
        at = b.extract(pointers, b.integer(lane, 32))
        one = b.assign(f"load {element}, ptr {at.text}, align {type_width(element) // 8}")
        text = f"insertelement {b.type_of(gathered)} {gathered.text}, {element} {one}, i32 {lane}"
        gathered = Value(b.assign(text), element, True)
    return gathered


def size_is_native(element: str) -> bool:
    """Whether processors gather elements of this size (32 and 64 bits)."""
    return type_width(element) >= 32


def _safe_pointers(e: WarpEmitter, lanes: Value, mask: Value) -> Value:
    """Pointers of the lanes that run; the others point to memory that nobody minds."""
    b = e.builder
    idle = b.vector(Value("%idle.int", "i64"))
    return b.cast("inttoptr", b.select(mask, lanes, idle), "ptr")


def _lane_addresses(e: WarpEmitter, at: _Address) -> Value:
    if at.lanes is not None:
        return at.lanes
    assert at.base is not None
    b = e.builder
    return b.binary("add", at.base, b.lanes([k * at.stride for k in range(WARP)], 64))


def _repeated(e: WarpEmitter, mask: Value, count: int) -> str:
    """A mask with every lane's bit ``count`` times in a row."""
    if count == 1:
        return mask.text
    picks = ", ".join(f"i32 {k // count}" for k in range(WARP * count))
    return e.builder.assign(f"shufflevector {MASK} {mask.text}, {MASK} poison, <{WARP * count} x i32> <{picks}>")


def _short(element: str) -> str:
    return {"float": "f32", "double": "f64"}.get(element, element)


# -- stores -----------------------------------------------------------------------------------------------


def _store(e: WarpEmitter, op: Op) -> None:
    memory, data = op.sources
    element = element_type(types_of(op)[0])
    assert isinstance(memory, Memory)
    items = data.items if isinstance(data, Group) else (data,)
    values = [e.read(item, element) for item in items]
    at = _address(e, op, memory)
    mask = e.lanes(op)
    if at.base is not None and at.stride == 0:
        _store_uniform(e, at.base, element, values, mask, op)
    elif at.base is None or at.stride != type_width(element) // 8 * len(values):
        _scatter_values(e, _lane_addresses(e, at), element, values, mask)
    elif at.holds is None:
        _store_contiguous(e, at.base, element, values, mask)
    else:
        b = e.builder
        fast, slow, done = b.label("contiguous"), b.label("scattered"), b.label("stored")
        b.line(f"br i1 {at.holds.text}, label %{fast}, label %{slow}")
        b.start(fast)
        _store_contiguous(e, at.base, element, values, mask)
        b.line(f"br label %{done}")
        b.start(slow)
        _scatter_values(e, _lane_addresses(e, at), element, values, mask)
        b.line(f"br label %{done}")
        b.start(done)


def _store_uniform(e: WarpEmitter, base: Value, element: str, values: list[Value], mask: Value, op: Op) -> None:
    """Store to one address: of lanes that store different values, the last one's stays."""
    b = e.builder
    done = b.label("stored")
    if op.guard is not None:
        go = b.label("store")
        b.line(f"br i1 {b.any_lane(mask).text}, label %{go}, label %{done}")
        b.start(go)
    pointer = b.cast("inttoptr", base, "ptr")
    word = Value(b.assign(f"bitcast {MASK} {mask.text} to i{WARP}"), f"i{WARP}")
    zeros = Value(b.call("llvm.ctlz.i32", "i32", [f"i32 {word.text}", "i1 false"], ["i32", "i1"]), "i32")
    last = b.binary("and", b.binary("sub", b.integer(WARP - 1, 32), zeros), b.integer(WARP - 1, 32))
    size = type_width(element) // 8
    for k, value in enumerate(values):
        one = b.extract(value, last) if value.is_vector else value
        at = b.assign(f"getelementptr i8, ptr {pointer.text}, i64 {k * size}")
        b.line(f"store {element} {one.text}, ptr {at}, align {size}")
    if op.guard is not None:
        b.line(f"br label %{done}")
        b.start(done)


def _store_contiguous(e: WarpEmitter, base: Value, element: str, values: list[Value], mask: Value) -> None:
    b = e.builder
    count = len(values)
    whole = _dealt(e, [b.vector(v) for v in values], element)
    n = WARP * count
    wide = f"<{n} x {element}>"
    pointer = b.cast("inttoptr", base, "ptr")
    arguments = [
        f"{wide} {whole}",
        f"ptr {pointer.text}",
        f"i32 {type_width(element) // 8}",
        f"<{n} x i1> {_repeated(e, mask, count)}",
    ]
    b.call(f"llvm.masked.store.v{n}{_short(element)}.p0", "void", arguments, [wide, "ptr", "i32", f"<{n} x i1>"])


def _dealt(e: WarpEmitter, values: list[Value], element: str) -> str:
    """One vector with the lanes' elements in memory order."""
    b = e.builder
    texts, width = [v.text for v in values], WARP
    while len(texts) > 1:
        picks = ", ".join(f"i32 {k}" for k in range(2 * width))
        joined = []
        for first, second in zip(texts[::2], texts[1::2], strict=True):
            t = f"<{width} x {element}>"
            joined.append(b.assign(f"shufflevector {t} {first}, {t} {second}, <{2 * width} x i32> <{picks}>"))
        texts, width = joined, 2 * width
    if len(values) == 1:
        return texts[0]
    count = len(values)
    order = ", ".join(f"i32 {(k % count) * WARP + k // count}" for k in range(width))
    t = f"<{width} x {element}>"
    return b.assign(f"shufflevector {t} {texts[0]}, {t} poison, <{width} x i32> <{order}>")


def _scatter_values(e: WarpEmitter, lanes: Value, element: str, values: list[Value], mask: Value) -> None:
    b = e.builder
    size = type_width(element) // 8
    for k, value in enumerate(values):
        at = b.binary("add", lanes, b.integer(k * size, 64)) if k else lanes
        _scatter(e, at, element, b.vector(value), mask)


def _scatter(e: WarpEmitter, lanes: Value, element: str, value: Value, mask: Value) -> None:
    b = e.builder
    if size_is_native(element):
        pointers = b.cast("inttoptr", lanes, "ptr")
        types = [f"<{WARP} x {element}>", f"<{WARP} x ptr>", "i32", MASK]
        texts = [value.text, pointers.text, str(type_width(element) // 8), mask.text]
        name = f"llvm.masked.scatter.v{WARP}{_short(element)}.v{WARP}p0"
        b.call(name, "void", [f"{t} {v}" for t, v in zip(types, texts, strict=True)], types)
        return
    pointers = _safe_pointers(e, lanes, mask)
    for lane in range(WARP):
        number = b.integer(lane, 32)
        at, one = b.extract(pointers, number), b.extract(value, number)
        b.line(f"store {element} {one.text}, ptr {at.text}, align {type_width(element) // 8}")


# -- moves ------------------------------------------------------------------------------------------------


def _move(e: WarpEmitter, op: Op) -> None:
    source = op.sources[0]
    if isinstance(source, Group):
        e.put(op, _packed(e, source, op))
    elif len(op.results) > 1:
        _unpack(e, op)
    else:
        reg = op.results[0]
        type_ = types_of(op)[0]
        bits = 1 if type_ == "pred" else int(type_[1:])
        wanted = storage_type(reg) if reg is not None and reg.bits == bits else int_type(bits)
        e.put(op, e.read(source, wanted))


def _packed(e: WarpEmitter, group: Group, op: Op) -> Value:
    """``mov.b64 d, {a, b}``: the first element is the lowest part."""
    b = e.builder
    total = int(types_of(op)[0][1:])
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
    total = int(types_of(op)[0][1:])
    part = total // len(op.results)
    whole = e.source(op, 0, int_type(total))
    for k in range(len(op.results)):
        piece = b.binary("lshr", whole, b.integer(k * part, total)) if k else whole
        e.put(op, b.resize(piece, part, signed=False), k)


def _put_parameter(e: WarpEmitter, op: Op) -> None:
    """Store to a call's parameter that became registers."""
    element = int_type(int(types_of(op)[0][1:]))
    data = op.sources[0]
    for k, item in enumerate(data.items if isinstance(data, Group) else (data,)):
        e.put(op, e.read(item, element), k)


def _get_parameter(e: WarpEmitter, op: Op) -> None:
    """Load from a call's parameter that became registers."""
    type_ = types_of(op)[0]
    data = op.sources[0]
    assert isinstance(data, Group)
    for k, item in enumerate(data.items):
        value = e.read(item, int_type(int(type_[1:])))
        e.put(op, _extended(e, value, type_, op.results[k]), k)


def _convert_address(e: WarpEmitter, op: Op) -> None:
    """``cvta``: between an address of a space and a generic one, which is an address of this process."""
    b, space = e.builder, space_of(op)
    bits = int(types_of(op)[0][1:])
    value = b.resize(e.source(op, 0, int_type(bits)), 64, signed=False)
    if space in ("shared", "local"):
        base = Value("%shared.int", "i64") if space == "shared" else local_base(e, first_lane=e.base_form)
        value = b.binary("sub" if "to" in op.modifiers else "add", value, base)
    e.put(op, b.resize(value, bits, signed=False))


def _is_space(e: WarpEmitter, op: Op) -> None:
    """``isspacep``: whether a generic address lies in the window of a space."""
    b, space = e.builder, space_of(op)
    address = e.source(op, 0, "i64")

    def inside(base: Value, size: Value) -> Value:
        return b.compare("icmp ult", b.binary("sub", address, base), size)

    shared = inside(Value("%shared.int", "i64"), Value("%shared.size", "i64"))
    local = inside(Value("%local.int", "i64"), b.integer(max(e.program.local_size, 1) * WARP, 64))
    params = inside(Value("%params.int", "i64"), b.integer(e.program.parameters_size, 64))
    consts = inside(Value("%module.int", "i64"), Value("%module.size", "i64"))
    if space == "global":
        # Constant variables lie beside global ones here, so that both answer yes for them.
        outside = b.binary("or", b.binary("or", shared, local), params)
        e.put(op, b.binary("xor", outside, b.integer(1, 1)))
    else:
        e.put(op, {"shared": shared, "local": local, "param": params, "const": consts}[space])
