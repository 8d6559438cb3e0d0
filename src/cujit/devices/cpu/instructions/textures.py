"""Textures and surfaces in object mode, which native code accesses for one lane after another.

PTX ISA 9.1, "Texture Instructions", "Surface Instructions". The handle is the address of a ``Descriptor``.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from cujit.devices.cpu.analysis.uniformity import WARP
from cujit.devices.cpu.codegen.builder import Builder, Value
from cujit.devices.cpu.codegen.nodes import BLOCK, FIRST_THREAD, LAUNCH
from cujit.devices.cpu.codegen.registry import Rules
from cujit.devices.cpu.codegen.warp import WarpEmitter
from cujit.devices.cpu.instructions.halves import join_halves
from cujit.devices.cpu.instructions.small_formats import half_bits
from cujit.devices.cpu.ir.program import MemoryOperand, Op, OperandGroup, Reg, items_of
from cujit.devices.cpu.native.structures import BOUNDS, OPERATIONS, Exchange
from cujit.devices.cpu.run.textures import SURFACE_MARK, TEXTURE_MARK, Descriptor
from cujit.errors import UnsupportedError

# Geometry: how many coordinates there are, whether a layer comes before them, whether they are a direction.
_GEOMETRIES = {
    "1d": (1, False, False), "2d": (2, False, False), "3d": (3, False, False), "a1d": (1, True, False),
    "a2d": (2, True, False), "cube": (2, False, True), "acube": (2, True, True),
}  # fmt: skip
_COMPONENTS = ("r", "g", "b", "a")

# Fields that txq and suq read. Numbers of addr_mode: PTX ISA 9.1, "txq". What channel_data_type and channel_order
# return is the source language's business, and CUDA C++ says nothing of it.
_TEXTURE_FIELDS = {
    "width": "width", "height": "height", "depth": "depth", "array_size": "layers", "num_mipmap_levels": "levels",
    "num_samples": "samples", "normalized_coords": "normalized", "filter_mode": "filter",
    "addr_mode_0": "address_0", "addr_mode_1": "address_1", "addr_mode_2": "address_2",
}  # fmt: skip
_SURFACE_FIELDS = ("width", "height", "depth", "array_size")
_PTX_ADDRESS_MODES = (0, 3, 1, 4)
"""wrap, clamp_to_edge, mirror and clamp_to_border, by ``AddressMode``."""


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    rules.on("tex", _fetch)
    rules.on("tld4", _gather)
    rules.on("txq", _query_texture)
    rules.on("suq", _query_surface)
    rules.on("suld", _load)
    rules.on("sust", _store)
    rules.on("sured", _reduce)


# -- the exchange -----------------------------------------------------------------------------------------

_DATA = "%texture.data"


def _place(e: WarpEmitter, field: str, index: int = 0) -> Value:
    """Point to the lanes of a field of the exchange."""
    e.builder.reserve(_DATA, f"[{ctypes.sizeof(Exchange)} x i8]")
    offset = getattr(Exchange, field).offset + index * WARP * 8
    return e.builder.offset(_DATA, offset)


def _set(e: WarpEmitter, field: str, value: Value, index: int = 0) -> None:
    e.builder.store(e.builder.vector(value), _place(e, field, index), align=8)


def _answer(e: WarpEmitter, index: int) -> Value:
    return e.builder.load("i64", _place(e, "values", index), lanes=WARP, align=8)


def _call(e: WarpEmitter, op: Op, name: str, numbers: Sequence[int], bits: int = 32) -> None:
    """Call native code for the lanes of an operation. ``numbers``, of ``bits`` bits each, follow the
    common arguments.
    """
    b = e.builder
    arguments = [b.integer(number, bits) for number in numbers]
    where = (LAUNCH, BLOCK, FIRST_THREAD, b.integer(op.line, 32), b.word(e.lanes(op)), Value(_DATA, "ptr"))
    b.call(f"cujit_{name}", "void", *where, *arguments)


def _set_handle(e: WarpEmitter, op: Op, groups: int) -> MemoryOperand:
    """Store the handle of ``[handle, …]`` in the exchange. ``groups`` is the required number of coordinate groups."""
    memory = op.memory
    if not isinstance(memory.base, Reg) or len(memory.coords) != groups:
        raise _refused(op, ".texref, .samplerref and .surfref are not supported; use texture handles")
    _set(e, "handle", e.read(memory.base, "i64"))
    return memory


def _set_place(e: WarpEmitter, op: Op, geometry: str, words: str) -> None:
    """Store the handle and the coordinates of ``[handle, {…}]`` in the exchange. ``words`` is the type of the
    coordinates.
    """
    axes, layered, cube = _GEOMETRIES[geometry]
    coordinates = items_of(_set_handle(e, op, 1).coords[0])
    wanted = 3 if cube else axes
    if len(coordinates) < wanted + layered:
        raise _refused(
            op, f"the instruction has {len(coordinates)} coordinates; {geometry} requires {wanted + layered}"
        )
    if layered:
        _set(e, "layer", e.read(coordinates[0], "i32"))
    for name, item in zip("xyz", coordinates[layered : layered + wanted], strict=False):
        value = e.read(item, "float" if words == "f32" else "i32")
        _set(e, name, e.builder.bits_as(value, "i32"))


def _geometry(op: Op) -> str:
    return next(m for m in op.modifiers if m in _GEOMETRIES)


def _refused(op: Op, why: str) -> UnsupportedError:
    return UnsupportedError(
        f"the CPU device can't execute {op.text or op.name} (line {op.line}): {why}",
        items=[(op.line, op.text or op.name, why)],
    )


# -- textures ---------------------------------------------------------------------------------------------


def _fetch(e: WarpEmitter, op: Op) -> None:
    """Emit a texture fetch. Textures have one mipmap level, so the level and the gradients have no effect."""
    _look_up(e, op, op.types[1], -1, {"level": 2, "grad": 3})


def _gather(e: WarpEmitter, op: Op) -> None:
    component = next(m for m in op.modifiers if m in _COMPONENTS)
    _look_up(e, op, "f32", _COMPONENTS.index(component), {})


def _look_up(e: WarpEmitter, op: Op, words: str, component: int, before: dict[str, int]) -> None:
    geometry = _geometry(op)
    axes, *_ = _GEOMETRIES[geometry]
    _set_place(e, op, geometry, words)
    extra = op.sources[next((n for word, n in before.items() if word in op.modifiers), 1) :]
    offsets = items_of(extra[0])[:axes] if extra and isinstance(extra[0], OperandGroup) else ()
    if len(extra) > bool(offsets):
        raise _refused(op, "depth comparison")
    for k, name in enumerate(("dx", "dy", "dz")):
        _set(e, name, e.read(offsets[k], "i32") if k < len(offsets) else e.builder.integer(0, 32))
    _call(e, op, "texture", _lookup(op, words, component))
    channels = [e.builder.resize(_answer(e, k), 32, signed=False) for k in range(4)]
    results = _in_halves(e.builder, op.type, channels)
    for k, result in enumerate(results):
        e.put(op, result, k)
    if len(op.results) > len(results):  # {…}|p: what was read is in memory
        e.put(op, e.builder.integer(1, 1), len(results))


def _lookup(op: Op, words: str, component: int) -> list[int]:
    """Return a lookup as numbers: of axes, layers, a direction, element numbers, and the component."""
    return [*_GEOMETRIES[_geometry(op)], words == "s32", component]


def count_texels(e: WarpEmitter, op: Op, counts: Value) -> None:
    """Call native code that adds the bytes and sectors of the preceding lookup to two counts."""
    b, is_gather = e.builder, op.opcode == "tld4"
    component = _COMPONENTS.index(next(m for m in op.modifiers if m in _COMPONENTS)) if is_gather else -1
    numbers = _lookup(op, "f32" if is_gather else op.types[1], component)
    requested = [b.integer(number, 32) for number in numbers]
    b.call("cujit_texels", "void", b.word(e.lanes(op)), Value(_DATA, "ptr"), *requested, counts)


def _in_halves(b: Builder, type_: str, channels: list[Value]) -> list[Value]:
    """Round f32 channels to f16 if the instruction returns f16. With ``.f16x2``, pack two channels into a word."""
    if type_ not in ("f16", "f16x2"):
        return channels
    halves = [half_bits(b, b.bits_as(x, "float"), "f16") for x in channels]
    return halves if type_ == "f16" else [join_halves(b, *halves[k : k + 2]) for k in (0, 2)]


# -- queries ----------------------------------------------------------------------------------------------


def _query_texture(e: WarpEmitter, op: Op) -> None:
    word = next(m for m in op.modifiers if m in _TEXTURE_FIELDS)
    found = _query(e, op, TEXTURE_MARK, _TEXTURE_FIELDS[word])
    if word.startswith("addr_mode"):
        b = e.builder
        coded = b.integer(sum(code << 4 * k for k, code in enumerate(_PTX_ADDRESS_MODES)), 32)
        mode = b.binary("and", found, b.integer(3, 32))  # lanes that do not ask have found anything
        shift = b.binary("shl", mode, b.integer(2, 32))
        found = b.binary("and", b.binary("lshr", coded, shift), b.integer(15, 32))
    e.put(op, found)


def _query_surface(e: WarpEmitter, op: Op) -> None:
    """Query; surfaces are arrays, never linear memory, as on a GPU."""
    word = next((m for m in op.modifiers if m in _SURFACE_FIELDS), "")
    e.put(op, _query(e, op, SURFACE_MARK, _TEXTURE_FIELDS[word]) if word else e.builder.integer(0, 32))


def _query(e: WarpEmitter, op: Op, mark: int, field: str) -> Value:
    _set_handle(e, op, 0)
    _call(e, op, "query", [mark, getattr(Descriptor, field).offset], 64)
    return e.builder.resize(_answer(e, 0), 32, signed=False)


# -- surfaces ---------------------------------------------------------------------------------------------


def _access(e: WarpEmitter, op: Op, operation: str, count: int, *, unit: int = 1) -> None:
    """Do a surface operation; ``unit`` is the size in bytes that x counts in, 0 for elements."""
    geometry = _geometry(op)
    axes, layered, _ = _GEOMETRIES[geometry]
    _set_place(e, op, geometry, "s32")
    bounds = next(k for k, name in enumerate(BOUNDS) if name in op.modifiers)
    _call(e, op, "surface", [OPERATIONS.index(operation), axes, layered, unit, op.type.bits // 8, count, bounds])


def _load(e: WarpEmitter, op: Op) -> None:
    _access(e, op, "load", len(op.results))
    for k in range(len(op.results)):
        e.put(op, e.builder.resize(_answer(e, k), op.type.bits, signed=False), k)


def _store(e: WarpEmitter, op: Op) -> None:
    formatted = "p" in op.modifiers
    _access(e, op, "format" if formatted else "store", _set_data(e, op), unit=0 if formatted else 1)


def _reduce(e: WarpEmitter, op: Op) -> None:
    step = next(m for m in op.modifiers if m in ("add", "min", "max", "and", "or"))
    sized = "p" in op.modifiers
    if step in ("min", "max") and not sized:
        step = f"{'s' if op.type.is_signed else 'u'}{step}"
    _set_data(e, op)
    _access(e, op, step, 1, unit=op.type.bits // 8 if sized else 1)


def _set_data(e: WarpEmitter, op: Op) -> int:
    """Store the data of a store instruction in the exchange. Return the number of elements."""
    items = items_of(op.sources[1])
    for k, item in enumerate(items):
        _set(e, "values", e.builder.resize(e.read(item, f"i{op.type.bits}"), 64, signed=False), k)
    return len(items)
