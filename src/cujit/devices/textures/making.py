"""Functions that create textures and surfaces from the user's arguments, and refuse invalid combinations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from cujit.devices.arrays.array import DeviceArray
from cujit.devices.textures.texture import (
    AddressMode,
    Extent,
    Filter,
    Sampling,
    Surface,
    TexelFormat,
    Texels,
    Texture,
    TextureDevice,
)
from cujit.errors import ArgumentError, spell
from cujit.values import NamedTuple
from cujit.values.keywords import has_keywords, take

if TYPE_CHECKING:
    from typing import TypedDict

    import numpy.typing as npt
    from typing_extensions import Unpack

    class SamplingKeywords(TypedDict, total=False):
        """The fields of ``SamplingWords``."""

        address: str | tuple[str, ...]
        filter: str
        normalized: bool
        read: str
        border: float | tuple[float, ...]
        srgb: bool


_DTYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32")

# Largest sizes of CUDA arrays that are textures: width, height, depth or layers.
# Source: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability", 9.0.
_LIMITS = {
    (1, False): (131072, 0, 0),
    (2, False): (131072, 65536, 0),
    (3, False): (16384, 16384, 16384),
    (1, True): (32768, 0, 2048),
    (2, True): (32768, 32768, 2048),
}
_LINEAR_ELEMENTS = 1 << 28
_PITCHED = (131072, 65000)
_LARGEST = float(np.finfo(np.float32).max)
_PITCH_BYTES = 32
"""Rows of an array that is read in place begin at multiples of this. Source: CUDA Driver API manual,
``CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT``, 32 on every GPU so far."""


def texels(
    device: TextureDevice, data: npt.ArrayLike, *, channels: int = 1, layered: bool = False, cube: bool = False
) -> Texels:
    """Copy host data into texels for textures and surfaces (on a GPU, a CUDA array).

    The shape is ``(width,)``, ``(height, width)``, or ``(depth, height, width)``. ``layered`` and ``cube`` add an axis
    for layers or faces at the front. Two or four ``channels`` add an axis at the end.

    Args:
        data: host data of shape ``(width,)``, ``(height, width)``, or ``(depth, height, width)``.
        channels: 1, 2, or 4. With 2 or 4, the channels are the last axis.
        layered: whether the first axis is the layer index.
        cube: whether the first axis is the cube-face index.

    Raises:
        ArgumentError: textures don't support this shape or dtype.
        DriverError: the device is out of memory.

    Example::

        texels = device.texels(np.zeros((8, 8, 4), np.uint8), channels=4)
    """
    host = _host(data)
    format = _format(host.dtype, channels)
    extent = _extent(_sizes(host.shape, format.channels), layered, cube)
    _check_limits(extent)
    made = Texels(device, extent, format)
    made.copy_from(host)
    return made


class SamplingWords(NamedTuple):
    """How a texture is sampled, as users write it."""

    address: str | tuple[str, ...] = "clamp"
    filter: str = "point"
    normalized: bool = False
    read: str = "element"
    border: float | tuple[float, ...] = 0.0
    srgb: bool = False


@has_keywords(SamplingWords)
def texture(
    device: TextureDevice,
    data: Texels | DeviceArray | npt.ArrayLike,
    *,
    channels: int = 1,
    layered: bool = False,
    cube: bool = False,
    **sampling: Unpack[SamplingKeywords],
) -> Texture:
    """Create a texture. Pass the ``handle`` to kernels as a ``cudaTextureObject_t``.

    Args:
        data: texels, an array on this device, or host data. The texture reads a device array in place: one axis for
            ``tex1Dfetch``, two axes for ``tex2D``. cujit copies host data to texels.
        channels: channels of host data; see ``texels``.
        layered: layers of host data; see ``texels``.
        cube: faces of host data; see ``texels``.
        address: address mode: ``clamp`` or ``border``, or with ``normalized`` coordinates also ``wrap`` or ``mirror``.
            Specify one mode, or one mode per axis, x first.
        filter: ``point`` or ``linear``.
        normalized: whether coordinates range from 0 to 1.
        read: ``element``, or ``normalized_float`` for 8-bit and 16-bit integers.
        border: color outside the texture.
        srgb: whether the first three 8-bit channels contain sRGB values.

    Raises:
        ArgumentError: textures don't support this shape, dtype, or read mode.
        DriverError: the device is out of memory.

    Example::

        picture = np.zeros((8, 8), np.float32)
        texture = device.texture(picture, filter="linear", normalized=True, address="wrap")
        print(texture.handle)
    """
    wanted = _sampling(take(SamplingWords, sampling, texture))
    if not isinstance(data, (Texels, DeviceArray)):
        data = texels(device, data, channels=channels, layered=layered, cube=cube)
    elif data.device is not device:
        raise ArgumentError(f"{spell(data)} is not on {device.name}", code="device-mismatch")
    if isinstance(data, Texels):
        extent, format = data.extent, data.format
    else:
        format = _format(data.dtype, channels)
        extent = _in_place(device, data, format, layered or cube)
    _check_reading(wanted, format)
    _check_coordinates(wanted, extent, is_linear=not isinstance(data, Texels) and extent.height == 0)
    return Texture(device, device.textures.texture(data, extent, format, wanted), data, wanted)


def surface(device: TextureDevice, texels: Texels) -> Surface:
    """Create a surface for texels. Pass the ``handle`` to kernels as a ``cudaSurfaceObject_t``.

    Args:
        texels: texels that kernels write to.

    Raises:
        ArgumentError: the value is not a Texels object, or it belongs to another device.
        DriverError: the driver reported an error.

    Example::

        surface = device.surface(device.texels(np.zeros((8, 8), np.float32)))
    """
    if not isinstance(texels, Texels):
        raise ArgumentError(
            f"a surface requires Texels, not a {type(texels).__name__}", help="device.surface(device.texels(x))"
        )
    if texels.device is not device:
        raise ArgumentError(f"{spell(texels)} is not on {device.name}", code="device-mismatch")
    return Surface(device, device.textures.surface(texels), texels)


def _host(data: npt.ArrayLike) -> npt.NDArray[Any]:
    try:
        return np.ascontiguousarray(data)
    except (TypeError, ValueError, OverflowError) as e:
        raise ArgumentError(f"can't create Texels from this {type(data).__name__}: {e}") from e


def _format(dtype: np.dtype[Any], channels: int) -> TexelFormat:
    if dtype.name not in _DTYPES or not dtype.isnative:
        raise ArgumentError(
            f"textures don't support {dtype}; their channels can be {', '.join(_DTYPES)}",
            help="use x.astype('float32'), or x.view('uint32') with channels=2 for 64-bit elements",
        )
    if not isinstance(channels, (int, np.integer)) or channels not in (1, 2, 4):
        raise ArgumentError(f"a texture can have 1, 2 or 4 channels, not {spell(channels)}")
    return TexelFormat(dtype, int(channels))


def _sizes(shape: tuple[int, ...], channels: int) -> tuple[int, ...]:
    """Return a shape without its last axis if that axis holds the channels."""
    if channels == 1:
        return shape
    if not shape or shape[-1] != channels:
        raise ArgumentError(
            f"the last axis of {shape} should hold the {channels} channels",
            help="for example, an image with 4 channels needs the shape (height, width, 4)",
        )
    return shape[:-1]


def _extent(sizes: tuple[int, ...], layered: bool, cube: bool) -> Extent:
    least, most = (3, 3) if cube else (2, 3) if layered else (1, 3)
    if not least <= len(sizes) <= most or 0 in sizes:
        kind = "a cube" if cube else "a layered texture" if layered else "a texture"
        wanted = {(1, 3): "1 to 3", (2, 3): "2 or 3 (layers first)", (3, 3): "3 (faces first)"}[least, most]
        raise ArgumentError(f"{kind} requires {wanted} axes of nonzero size in addition to the channels, not {sizes}")
    *outer, width = sizes
    if not (layered or cube):
        height, depth = [0, 0, *outer][::-1][:2]
        return Extent(width, height, depth)
    layers, *rows = outer
    if cube and (rows[0] != width or layers % 6 or (layers != 6 and not layered)):
        several = "layered=True takes several cubes, six layers each"
        raise ArgumentError(f"a cube map requires six square faces, not {sizes}", help=several)
    return Extent(width, rows[0] if rows else 0, 0, layers, cube)


def _check_limits(extent: Extent) -> None:
    most = _LIMITS[extent.dimensions, bool(extent.layers)]
    have = (extent.width, extent.height, max(extent.depth, extent.layers))
    for axis, size, limit in zip(("width", "height", "depth"), have, most, strict=True):
        if size > limit:
            name = "layers" if axis == "depth" and extent.layers else axis
            raise ArgumentError(f"the {name} of a {extent} texture is {size}, expected at most {limit}")


def _in_place(device: TextureDevice, data: DeviceArray, format: TexelFormat, is_layered: bool) -> Extent:
    """Check that a texture can read an array in place, and return the extent of the texture."""
    copy = "copy it to texels: device.texture(device.texels(x.numpy()))"
    sizes = _sizes(data.shape, format.channels)
    if is_layered or not 1 <= len(sizes) <= 2 or 0 in sizes:
        raise ArgumentError(
            f"an array of {sizes} elements can't be read in place; only arrays with one or two axes can", help=copy
        )
    if data.address % device.textures.alignment:
        bytes_ = device.textures.alignment
        raise ArgumentError(
            f"the array starts at {data.address:#x}; a texture must start at a multiple of {bytes_} bytes"
        )
    if len(sizes) == 1:
        if sizes[0] > _LINEAR_ELEMENTS:
            raise ArgumentError(f"{sizes[0]} elements are too many to read in place; the limit is {_LINEAR_ELEMENTS}")
        return Extent(sizes[0])
    height, width = sizes
    if width > _PITCHED[0] or height > _PITCHED[1]:
        message = (
            f"{width} x {height} elements are too many to read in place; the limit is {_PITCHED[0]} x {_PITCHED[1]}"
        )
        raise ArgumentError(message, help=copy)
    if height > 1 and width * format.texel_bytes % _PITCH_BYTES:
        row = width * format.texel_bytes
        message = (
            f"a row of the array is {row} bytes long; to read it in place, its size must be a multiple "
            f"of {_PITCH_BYTES}"
        )
        raise ArgumentError(message, help=copy)
    return Extent(width, height)


def _sampling(words: SamplingWords) -> Sampling:
    """Read how a texture is sampled."""
    address, filter, normalized, read, border, srgb = words
    names = (address,) * 3 if isinstance(address, str) else tuple(address) if isinstance(address, (tuple, list)) else ()
    modes = {m.name.lower(): m for m in AddressMode}
    if not 1 <= len(names) <= 3 or not all(isinstance(n, str) and n in modes for n in names):
        raise ArgumentError(
            f"address must be one of {', '.join(modes)}, or one of them for each axis, not {spell(address)}"
        )
    filters = {f.name.lower(): f for f in Filter}
    if not isinstance(filter, str) or filter not in filters:
        raise ArgumentError(f"filter must be one of {', '.join(filters)}, not {spell(filter)}")
    if not isinstance(read, str) or read not in ("element", "normalized_float"):
        raise ArgumentError(f"read must be 'element' or 'normalized_float', not {spell(read)}")
    x, y, z = (*(modes[n] for n in names), AddressMode.CLAMP, AddressMode.CLAMP)[:3]
    as_float = read == "normalized_float"
    return Sampling((x, y, z), filters[filter], bool(normalized), as_float, _border(border), bool(srgb))


def _border(border: object) -> tuple[float, float, float, float]:
    items = border if isinstance(border, (tuple, list)) else (border,) * 4
    try:
        numbers = [float(n) for n in items]
    except (TypeError, ValueError, OverflowError):
        numbers = []
    if not 1 <= len(numbers) <= 4 or not all(abs(n) <= _LARGEST for n in numbers):
        raise ArgumentError(f"border must be one to four finite 32-bit numbers, not {spell(border)}")
    r, g, b, a = (numbers + [0.0] * 3)[:4]
    return r, g, b, a


def _check_reading(sampling: Sampling, format: TexelFormat) -> None:
    """Refuse to read elements in a way that the hardware doesn't support.

    Source: CUDA Driver API manual, ``cuTexObjectCreate``; CUDA C++ Programming Guide, "Texture Memory".
    """
    is_small = not format.is_float and format.dtype.itemsize <= 2
    if sampling.as_float and not is_small:
        message = f"only 8-bit and 16-bit integers can be read as normalized floats, not {format.dtype.name}"
        raise ArgumentError(message, help="leave read='element'")
    if sampling.filter is Filter.LINEAR and not (format.is_float or sampling.as_float):
        raise ArgumentError(
            f"the mean of {format.dtype.name} elements is not an integer, so linear filtering requires floats",
            help="set read='normalized_float' for 8-bit and 16-bit elements, or create a texture of floats",
        )
    if sampling.srgb and not (sampling.as_float and format.dtype == np.uint8):
        raise ArgumentError(
            f"sRGB requires 8-bit elements that are read as floats, not {format.dtype.name}",
            help="use uint8 texels with read='normalized_float'",
        )


def _check_coordinates(sampling: Sampling, extent: Extent, is_linear: bool) -> None:
    """Refuse coordinates that the hardware would interpret differently. Source: as for ``_check_reading``."""
    if is_linear and (sampling.filter is Filter.LINEAR or sampling.normalized):
        raise ArgumentError(
            "a one-dimensional array that is read in place is indexed by element (tex1Dfetch) and can't be filtered",
            help="device.texture(device.texels(x.numpy()), …)",
        )
    if not sampling.normalized and {AddressMode.WRAP, AddressMode.MIRROR}.intersection(sampling.address):
        raise ArgumentError(
            "the address modes 'wrap' and 'mirror' require normalized coordinates", help="normalized=True"
        )
    if extent.cube and not sampling.normalized:
        raise ArgumentError(
            "a cube map is indexed by direction and requires normalized coordinates", help="normalized=True"
        )
