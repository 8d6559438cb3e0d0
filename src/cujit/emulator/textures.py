"""CUDA arrays, and textures and surfaces of arrays and plain memory. The CPU device reads them through descriptors.

The handle of a texture or surface is the address of the descriptor that kernels read. A destroyed descriptor loses its
mark, and is not reused immediately. A kernel that uses the handle of a destroyed descriptor faults.

Source: CUDA Driver API manual, ``cuArray3DCreate``, ``cuTexObjectCreate`` and ``cuSurfObjectCreate``.
"""

from __future__ import annotations

import ctypes
from collections import deque
from typing import Any, TypeVar

import numpy as np

from cujit.devices.cpu.native.shared import Fields
from cujit.devices.cpu.run.textures import FORMATS, Descriptor, surface_descriptor, texture_descriptor
from cujit.devices.textures.texture import AddressMode, Extent, Filter, Sampling, TexelFormat
from cujit.emulator import contexts
from cujit.emulator.capture import safe
from cujit.emulator.device import TEXEL_DTYPES, TEXTURE_LIMITS
from cujit.emulator.entries import in_any_context, in_context, new_cell, require, store_u64
from cujit.emulator.machine import cell_free, cell_is, in_c
from cujit.emulator.results import RefusedCall, Result
from cujit.emulator.structures import ArrayCell, Block, BlockKind, CellKind
from cujit.values import NamedTuple

_memory_new = in_c(
    "memory_new", ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint64
)
_memory_free = in_c("memory_free", ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint32)

_Words = TypeVar("_Words", bound=ctypes.Structure)


def _copied(type_: type[_Words], pointer: int) -> _Words:
    require(pointer)
    return type_.from_buffer_copy(ctypes.string_at(pointer, ctypes.sizeof(type_)))


def _format(number: int, channels: int) -> TexelFormat:
    require(channels in (1, 2, 4))
    coded = any(first <= number <= last for first, last in _CODED)
    require(
        not coded,
        Result.NOT_SUPPORTED,
        "the element format isn't an integer or float of 8 to 32 bits",
        hint="pass a format such as `CU_AD_FORMAT_FLOAT`",
    )
    require(number in TEXEL_DTYPES)
    return TexelFormat(np.dtype(TEXEL_DTYPES[number]), channels)


_CODED = (0x50, 0x5E), (0x91, 0x9F), (0xA1, 0xA9), (0xB0, 0xB5), (0xC0, 0xCB)
"""Packed, planar, compressed and normalised formats. Source: ``cuda.h`` of CUDA 13.5, ``CUarray_format``."""


# -- arrays -------------------------------------------------------------------------------------------------

_LAYERED, _SURFACE, _CUBE, _GATHER = 0x01, 0x02, 0x04, 0x08
_TAKEN, _NOT_TAKEN = _LAYERED | _SURFACE | _CUBE | _GATHER, 0x40 | 0x80 | 0x100
"""Flags of arrays. Those of depths and attachments, 0x10 and 0x20, an H200 refuses as well."""

_ROW_BYTES = 16
"""Rows begin at multiples of this: the largest element."""

_ARRAYS: set[int] = set()


class _Plane(ctypes.Structure):
    """``CUDA_ARRAY_DESCRIPTOR``."""

    _fields_ = Fields("u64 width, height; u32 format, channels")


class _Space(ctypes.Structure):
    """``CUDA_ARRAY3D_DESCRIPTOR``."""

    _fields_ = Fields("u64 width, height, depth; u32 format, channels, flags")


def _array_of(handle: int) -> ArrayCell:
    require(not cell_is(handle, CellKind.FREE), Result.CONTEXT_IS_DESTROYED, "the array was destroyed")
    require(
        cell_is(handle, CellKind.ARRAY),
        Result.INVALID_HANDLE,
        "the array doesn't exist",
        hint="create it with `cuArrayCreate` or `cuArray3DCreate`",
    )
    return ArrayCell.from_address(handle)


def _kind(descriptor: _Space) -> str:
    """Return the kind of an array as it is spelled in the names of size attributes, such as ``2D_LAYERED``."""
    if descriptor.flags & _CUBE:
        return "CUBEMAP_LAYERED" if descriptor.flags & _LAYERED else "CUBEMAP"
    axes = (
        1 + bool(descriptor.height) + bool(descriptor.height and descriptor.depth and not descriptor.flags & _LAYERED)
    )
    return f"{axes}D_LAYERED" if descriptor.flags & _LAYERED else f"{axes}D"


def _fits(descriptor: _Space, kind: str, *, ending: str = "") -> bool:
    """Return whether an array is within the limits of a kind, in elements and layers."""

    def most(axis: str) -> int:
        return TEXTURE_LIMITS.get(f"MAXIMUM_{kind}_{axis}{ending}", 0)

    width = most("WIDTH")
    if "CUBEMAP" in kind:
        layers = most("LAYERS") or 6
        is_cube = descriptor.width == descriptor.height and descriptor.depth and not descriptor.depth % 6
        return bool(is_cube and descriptor.width <= width and descriptor.depth <= layers)
    depth = most("DEPTH") or most("LAYERS")
    return bool(descriptor.width <= width and descriptor.height <= most("HEIGHT") and descriptor.depth <= depth)


def _check_sizes(descriptor: _Space) -> None:
    kind, flags = _kind(descriptor), descriptor.flags
    require(descriptor.width and (descriptor.depth or not flags & _LAYERED))
    fits = _fits(descriptor, f"TEXTURE{kind}") or (kind == "3D" and _fits(descriptor, "TEXTURE3D", ending="_ALTERNATE"))
    require(
        fits,
        Result.INVALID_VALUE,
        "the sizes don't match the kind of the array",
        hint="check width, height, depth, and flags of the descriptor",
    )
    require(
        not flags & _SURFACE or _fits(descriptor, f"SURFACE{kind}"),
        words="the sizes are too large for an array with `CUDA_ARRAY3D_SURFACE_LDST`",
        hint="check width, height, and depth of the descriptor",
    )
    require(
        not flags & _GATHER or (kind == "2D" and _fits(descriptor, "TEXTURE2D_GATHER")),
        words="texture gather requires a two-dimensional array",
        hint="remove `CUDA_ARRAY3D_TEXTURE_GATHER`, or set the depth to 0",
    )


def _create(context: int, out: int, descriptor: _Space) -> None:
    require(out and not descriptor.flags & ~(_TAKEN | _NOT_TAKEN))
    require(
        not descriptor.flags & _NOT_TAKEN,
        Result.NOT_SUPPORTED,
        "the emulator doesn't support sparse, deferred, or video arrays",
        hint="remove these flags from the descriptor",
    )
    format_ = _format(descriptor.format, descriptor.channels)
    _check_sizes(descriptor)
    safe()
    row = -(-descriptor.width * format_.texel_bytes // _ROW_BYTES) * _ROW_BYTES
    slice_ = row * max(descriptor.height, 1)
    found = _memory_new(slice_ * max(descriptor.depth, 1), BlockKind.ARRAY, 0, context, 0)
    require(found, Result.OUT_OF_MEMORY)
    handle = new_cell(CellKind.ARRAY, context)
    array = ArrayCell.from_address(handle)
    array.base, array.row, array.slice = Block.from_address(found).begin, row, slice_
    array.texel_bytes = format_.texel_bytes
    for name, _ in _Space._fields_:
        setattr(array, name, getattr(descriptor, name))
    _ARRAYS.add(handle)
    store_u64(out, handle)


@in_context("cuArrayCreate_v2", "PP")
def array_create(context: int, out: int, descriptor: int) -> None:
    """Make an array of one or two axes."""
    plane = _copied(_Plane, descriptor)
    _create(context, out, _Space(plane.width, plane.height, 0, plane.format, plane.channels, 0))


@in_context("cuArray3DCreate_v2", "PP")
def array_3d_create(context: int, out: int, descriptor: int) -> None:
    """Make an array of any kind."""
    _create(context, out, _copied(_Space, descriptor))


def _store_description(out: int, type_: type[ctypes.Structure], handle: int) -> None:
    require(out)
    array = _array_of(handle)
    description = type_(*(getattr(array, field[0]) for field in type_._fields_))
    ctypes.memmove(out, ctypes.byref(description), ctypes.sizeof(type_))


@in_any_context("cuArrayGetDescriptor_v2", "PP")
def array_get_descriptor(out: int, handle: int) -> None:
    """Write the description of an array, without its depth."""
    _store_description(out, _Plane, handle)


@in_any_context("cuArray3DGetDescriptor_v2", "PP")
def array_3d_get_descriptor(out: int, handle: int) -> None:
    """Write the description of an array."""
    _store_description(out, _Space, handle)


@in_any_context("cuArrayDestroy", "P")
def array_destroy(handle: int) -> None:
    """Free an array; kernels that read it by a texture from now on fault."""
    _array_of(handle)
    safe()
    _destroy(handle)


def _destroy(handle: int) -> None:
    base = ArrayCell.from_address(handle).base
    require(cell_free(handle, CellKind.ARRAY), Result.INVALID_HANDLE)
    _ARRAYS.discard(handle)
    for each in list(_OBJECTS.values()):
        if (each.resource.type, each.resource.address) == (_OF_ARRAY, handle):
            each.descriptor.mark = 0
    _memory_free(base, 1 << BlockKind.ARRAY)


# -- what textures and surfaces are made of ---------------------------------------------------------------------

_OF_ARRAY, _OF_MIPMAPS, _OF_LINE, _OF_ROWS = range(4)
"""Source: CUDA Driver API manual, ``CUresourcetype``."""

_ALIGN, _PITCH_ALIGN = 512, 32
"""Bytes: the attributes ``TEXTURE_ALIGNMENT`` and ``TEXTURE_PITCH_ALIGNMENT`` of the device."""

_MOST = 2**31 - 1
"""Elements that a number of an element can name."""


class _Resource(ctypes.Structure):
    """``CUDA_RESOURCE_DESC``: ``address`` may be an array; a line has its bytes in ``width``."""

    _fields_ = Fields("u32 type; u64 address; u32 format, channels; u64 width, height, pitch, rest[11]; u32 flags")


class _View(ctypes.Structure):
    """``CUDA_RESOURCE_VIEW_DESC``."""

    _fields_ = Fields(
        "u32 format; u64 width, height, depth; u32 first_level, last_level, first_layer, last_layer, reserved[16]"
    )


class _Elements(NamedTuple):
    """Elements in memory. ``is_line`` marks plain memory without rows, and ``is_empty`` marks memory
    without elements.
    """

    base: int
    extent: Extent
    format: TexelFormat
    row_bytes: int | None
    is_line: bool = False
    is_empty: bool = False


def _of_array(resource: _Resource) -> _Elements:
    require(
        not resource.flags and cell_is(resource.address, CellKind.ARRAY),
        words="the array doesn't exist",
        hint="create it with `cuArrayCreate` or `cuArray3DCreate`",
    )
    array = ArrayCell.from_address(resource.address)
    format_ = _format(array.format, array.channels)
    depth, layers = (0, array.depth) if array.flags & (_LAYERED | _CUBE) else (array.depth, 0)
    extent = Extent(array.width, array.height, depth, layers, bool(array.flags & _CUBE))
    return _Elements(array.base, extent, format_, array.row)


def _of_memory(resource: _Resource) -> _Elements:
    """Return the elements of memory that the caller describes. As on an H200, the memory may be missing, and rows may
    overlap.
    """
    format_ = _format(resource.format, resource.channels)
    at, width, height, pitch = resource.address, resource.width, resource.height, resource.pitch
    require(at and not at % _ALIGN, words=f"a texture begins at a multiple of {_ALIGN} bytes")
    if resource.type == _OF_LINE:
        count = min(width // format_.texel_bytes, _MOST)
        return _Elements(at, Extent(count), format_, None, is_line=True, is_empty=not count)
    require(0 < width <= TEXTURE_LIMITS["MAXIMUM_TEXTURE2D_LINEAR_WIDTH"])
    require(height <= TEXTURE_LIMITS["MAXIMUM_TEXTURE2D_LINEAR_HEIGHT"])
    require(pitch <= TEXTURE_LIMITS["MAXIMUM_TEXTURE2D_LINEAR_PITCH"])
    require(not pitch % _PITCH_ALIGN, words=f"a row begins at a multiple of {_PITCH_ALIGN} bytes")
    return _Elements(at, Extent(width, height), format_, pitch, is_empty=not height)


def _elements(resource: _Resource) -> _Elements:
    require(resource.type != _OF_MIPMAPS, Result.NOT_SUPPORTED, "the emulator doesn't support mipmaps")
    require(resource.type <= _OF_ROWS and not resource.flags)
    return _of_array(resource) if resource.type == _OF_ARRAY else _of_memory(resource)


def _seen(elements: _Elements, view: _View) -> _Elements:
    """Return the elements of an array that a view shows: with another type, and only some of the layers.

    As on an H200, the last layer of the view may be one past the last layer of the array.
    """
    extent = elements.extent
    sizes = view.width, view.height, view.depth
    require(sizes == (extent.width, extent.height, max(extent.depth, extent.layers)))
    require(not view.first_level and not view.last_level and view.first_layer <= view.last_layer <= extent.layers)
    require(1 <= view.format <= _LAST_VIEW)
    kind, channels = divmod(view.format - 1, 3)
    require(kind < len(FORMATS), Result.NOT_SUPPORTED, "the emulator doesn't support compressed elements")
    format_ = TexelFormat(np.dtype(FORMATS[kind]), (1, 2, 4)[channels])
    require(
        format_.texel_bytes == elements.format.texel_bytes,
        words="the elements of the view are larger or smaller than the elements of the array",
        hint="pass a view format with elements of the same size",
    )
    layers = min(view.last_layer + 1, extent.layers) - view.first_layer
    require(layers > 0 or not extent.layers)
    assert elements.row_bytes is not None
    skipped = view.first_layer * elements.row_bytes * extent.rows
    seen = Extent(extent.width, extent.height, extent.depth, layers, extent.cube)
    return _Elements(elements.base + skipped, seen, format_, elements.row_bytes)


_LAST_VIEW = 0x22
"""Source: CUDA Driver API manual, ``CUresourceViewFormat``: three numbers of channels of each of ``FORMATS`` come
first, compressed ones after them."""

# -- how textures are read -----------------------------------------------------------------------------------

_AS_INTEGER, _NORMALIZED, _SRGB, _SEAMLESS, _FLAGS = 0x01, 0x02, 0x10, 0x40, 0x7F
"""Source: CUDA Driver API manual, ``CU_TRSF_READ_AS_INTEGER`` and its like; an H200 refuses flags beyond the last."""


class _Reading(ctypes.Structure):
    """``CUDA_TEXTURE_DESC``."""

    _fields_ = Fields(
        "u32 address[3], filter, flags, anisotropy, level_filter; f32 levels[3], border[4]; u32 reserved[12]"
    )


def _sampling(reading: _Reading, elements: _Elements) -> Sampling:
    """Return the sampling settings of a texture. For a line of memory, only the conversion of elements applies."""
    flags, format_ = reading.flags, elements.format
    require(not flags & ~_FLAGS)
    is_float = format_.is_float or (format_.dtype.itemsize <= 2 and not flags & _AS_INTEGER)
    srgb = bool(flags & _SRGB and is_float and format_.dtype == np.uint8)
    r, g, b, a = reading.border if is_float else map(_whole, reading.border)
    modes, filter_ = (AddressMode.CLAMP,) * 3, Filter.POINT
    if not elements.is_line:
        modes, filter_ = _looking(reading, elements.extent)
    normalized = bool(flags & _NORMALIZED and not elements.is_line) or elements.extent.cube
    return Sampling(modes, filter_, normalized, is_float and not format_.is_float, (r, g, b, a), srgb)


def _looking(reading: _Reading, extent: Extent) -> tuple[tuple[AddressMode, AddressMode, AddressMode], Filter]:
    """Return the address modes and the filter of a texture.

    Without normalized coordinates, wrap and mirror modes become clamp mode. Cubemaps always have normalized
    coordinates.
    """
    require(extent.cube or not reading.flags & _SEAMLESS)
    require(not reading.flags & _SEAMLESS, Result.NOT_SUPPORTED, "the emulator doesn't support seamless cube maps")
    require(
        reading.anisotropy <= 1,
        Result.NOT_SUPPORTED,
        "the emulator doesn't support anisotropic filtering",
        hint="set `maxAnisotropy` to 0 or 1",
    )
    try:
        x, y, z = (AddressMode(mode) for mode in reading.address)
        filter_ = Filter(reading.filter)
    except ValueError as e:
        raise RefusedCall(Result.INVALID_VALUE, str(e)) from None
    if reading.flags & _NORMALIZED or extent.cube:
        return (x, y, z), filter_
    x, y, z = (mode if mode is AddressMode.BORDER else AddressMode.CLAMP for mode in (x, y, z))
    return (x, y, z), filter_


def _whole(value: float) -> float:
    """Return the number clamped to the range of a 32-bit integer."""
    return max(-_MOST, min(value, _MOST)) if value == value else 0.0


# -- textures and surfaces -----------------------------------------------------------------------------------


class _Object:
    """A texture or surface: the descriptor that kernels read, and the caller's parameters. A surface has no
    ``reading``.
    """

    def __init__(
        self, context: int, made: Descriptor, resource: _Resource, reading: _Reading | None, view: _View | None
    ) -> None:
        self.context = context
        self.resource = resource
        self.reading = reading
        self.view = view
        self.descriptor = _RESTING.popleft() if len(_RESTING) > _MOST_RESTING else Descriptor()
        ctypes.memmove(ctypes.byref(self.descriptor), ctypes.byref(made), ctypes.sizeof(Descriptor))
        _OBJECTS[ctypes.addressof(self.descriptor)] = self


_OBJECTS: dict[int, _Object] = {}
"""Textures and surfaces by their handles."""

_RESTING: deque[Descriptor] = deque()
_MOST_RESTING = 4096
"""Descriptors of what was destroyed, before the oldest is used again."""


def _found(handle: int, *, is_texture: bool) -> _Object | None:
    found = _OBJECTS.get(handle)
    return found if found is not None and (found.reading is not None) == is_texture else None


def _object_of(handle: int, *, is_texture: bool) -> _Object:
    found = _found(handle, is_texture=is_texture)
    if found is None:
        raise RefusedCall(Result.INVALID_VALUE, f"this {'texture' if is_texture else 'surface'} doesn't exist")
    return found


def _forget(handle: int, *, is_texture: bool) -> None:
    """Destroy a texture or surface. As on an H200, an unknown handle is not an error."""
    found = _found(handle, is_texture=is_texture)
    if found is not None:
        del _OBJECTS[handle]
        found.descriptor.mark = 0
        _RESTING.append(found.descriptor)


def _store(out: int, words: Any) -> None:
    require(out and words is not None)
    ctypes.memmove(out, ctypes.byref(words), ctypes.sizeof(words))


@in_context("cuTexObjectCreate", "PPPP")
def tex_object_create(context: int, out: int, descriptor: int, how: int, seen: int) -> None:
    """Make a texture of an array or of memory."""
    require(out)
    resource, reading = _copied(_Resource, descriptor), _copied(_Reading, how)
    safe()
    elements, view = _elements(resource), _copied(_View, seen) if seen else None
    if view is not None and resource.type == _OF_ARRAY:
        elements = _seen(elements, view)
    sampling = _sampling(reading, elements)
    base, extent, format_, row_bytes, is_line, is_empty = elements
    made = texture_descriptor(base, extent, format_, sampling, row_bytes=row_bytes, is_line=is_line, is_empty=is_empty)
    texture = _Object(context, made, resource, reading, view)
    store_u64(out, ctypes.addressof(texture.descriptor))


@in_any_context("cuTexObjectDestroy", "P")
def tex_object_destroy(handle: int) -> None:
    """Destroy a texture. The underlying array or memory remains."""
    safe()
    _forget(handle, is_texture=True)


@in_any_context("cuTexObjectGetResourceDesc", "PP")
def tex_object_get_resource_desc(out: int, handle: int) -> None:
    """Write the resource descriptor with which a texture was created."""
    _store(out, _object_of(handle, is_texture=True).resource)


@in_any_context("cuTexObjectGetTextureDesc", "PP")
def tex_object_get_texture_desc(out: int, handle: int) -> None:
    """Write how a texture is read."""
    _store(out, _object_of(handle, is_texture=True).reading)


@in_any_context("cuTexObjectGetResourceViewDesc", "PP")
def tex_object_get_resource_view_desc(out: int, handle: int) -> None:
    """Write the resource view descriptor of a texture. Write nothing if the texture was created without a view."""
    require(out)
    view = _object_of(handle, is_texture=True).view
    if view is not None:
        _store(out, view)


@in_context("cuSurfObjectCreate", "PP")
def surf_object_create(context: int, out: int, descriptor: int) -> None:
    """Create a surface of an array. As on an H200, the array doesn't need the flag for surfaces."""
    require(out)
    resource = _copied(_Resource, descriptor)
    require(resource.type == _OF_ARRAY)
    safe()
    base, extent, format_, row_bytes, *_ = _of_array(resource)
    made = surface_descriptor(base, extent, format_, row_bytes=row_bytes)
    store_u64(out, ctypes.addressof(_Object(context, made, resource, None, None).descriptor))


@in_any_context("cuSurfObjectDestroy", "P")
def surf_object_destroy(handle: int) -> None:
    """Destroy a surface. The underlying array remains."""
    safe()
    _forget(handle, is_texture=False)


@in_any_context("cuSurfObjectGetResourceDesc", "PP")
def surf_object_get_resource_desc(out: int, handle: int) -> None:
    """Write the resource descriptor with which a surface was created."""
    _store(out, _object_of(handle, is_texture=False).resource)


@contexts.at_end
def _ended(context: int, _is_primary: bool) -> None:
    for handle, each in list(_OBJECTS.items()):
        if each.context == context:
            _forget(handle, is_texture=each.reading is not None)
    for handle in [each for each in _ARRAYS if ArrayCell.from_address(each).context == context]:
        _destroy(handle)
