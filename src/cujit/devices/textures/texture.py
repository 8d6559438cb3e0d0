"""Textures and surfaces in object mode, and the operations that a device provides for them.

``Texels`` are the elements of a texture in memory, in a layout that the device selects (a CUDA array on a GPU). A
``Texture`` reads texels, or an array in place. A ``Surface`` reads and writes texels. The handle of a texture or
surface is a 64-bit number. A kernel receives it as ``cudaTextureObject_t`` or ``cudaSurfaceObject_t``.
"""

from __future__ import annotations

import abc
import enum
import math
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from cujit.devices.arrays.array import ArrayDevice, DeviceArray
from cujit.errors import ArgumentError, ClosedError
from cujit.values import dataclass

if TYPE_CHECKING:
    import numpy.typing as npt


class AddressMode(enum.Enum):
    """Handling of coordinates outside the texture, numbered as in ``CUaddress_mode``."""

    WRAP = 0
    CLAMP = 1
    MIRROR = 2
    BORDER = 3


class Filter(enum.Enum):
    """The nearest element, or the mean of the neighbors, numbered as in ``CUfilter_mode``."""

    POINT = 0
    LINEAR = 1


@dataclass(frozen=True)
class TexelFormat:
    """Elements of 1, 2 or 4 channels of one dtype."""

    dtype: np.dtype[Any]
    channels: int

    @property
    def texel_bytes(self) -> int:
        """Bytes of an element, all its channels."""
        return self.dtype.itemsize * self.channels

    @property
    def is_float(self) -> bool:
        """Whether the channels are floats."""
        return self.dtype.kind == "f"

    def __str__(self) -> str:
        return f"{self.dtype.name} x {self.channels}"


@dataclass(frozen=True)
class Extent:
    """Sizes in elements; 0 for an axis that there is not. ``layers`` counts the faces of cubes too."""

    width: int
    height: int = 0
    depth: int = 0
    layers: int = 0
    cube: bool = False

    @property
    def rows(self) -> int:
        """Rows of a layer or of a slice, at least 1."""
        return max(self.height, 1)

    @property
    def slices(self) -> int:
        """Slices or layers, at least 1."""
        return max(self.depth, self.layers, 1)

    @property
    def dimensions(self) -> int:
        """How many coordinates an element has within its layer."""
        return 1 + bool(self.height) + bool(self.depth)

    @property
    def shape(self) -> tuple[int, ...]:
        """As NumPy writes it: layers or depth first, width last."""
        return tuple(n for n in (self.layers, self.depth, self.height, self.width) if n)

    def __str__(self) -> str:
        kind = f"{self.dimensions}D" if not self.cube else "cube"
        return f"{kind} {'layered ' if self.layers and not self.cube else ''}{' x '.join(map(str, self.shape))}"


@dataclass(frozen=True)
class Sampling:
    """How a texture is read: ``address`` along x, y and z; ``border`` is the color outside."""

    address: tuple[AddressMode, AddressMode, AddressMode]
    filter: Filter
    normalized: bool
    """Coordinates from 0 to 1."""
    as_float: bool
    """Integers of 8 and 16 bits are read as floats: 0 to 1, or -1 to 1."""
    border: tuple[float, float, float, float]
    srgb: bool


@dataclass(frozen=True)
class TextureHandle:
    """A texture or surface object of a device. ``release`` destroys the object, and keeps its memory
    alive until then.
    """

    number: int
    release: Callable[[], None]


class TextureUnit(abc.ABC):
    """The texture operations of a device."""

    @abc.abstractmethod
    def allocate(self, extent: Extent, format: TexelFormat) -> object:
        """Allocate memory for texels. The memory is freed when no object refers to it.

        Raises:
            DriverError: there is not enough memory.
        """

    @abc.abstractmethod
    def upload(self, texels: Texels, data: memoryview) -> None:
        """Copy tightly packed host bytes into texels, and wait until the copy is complete."""

    @abc.abstractmethod
    def download(self, data: memoryview, texels: Texels) -> None:
        """Copy texels to the host, tightly packed, after earlier work on the default stream."""

    @abc.abstractmethod
    def texture(
        self, source: Texels | DeviceArray, extent: Extent, format: TexelFormat, sampling: Sampling
    ) -> TextureHandle:
        """Make a texture object."""

    @abc.abstractmethod
    def surface(self, texels: Texels) -> TextureHandle:
        """Make a surface object."""

    @property
    @abc.abstractmethod
    def alignment(self) -> int:
        """The alignment in bytes of the start of an array that a texture reads in place."""


class TextureDevice(ArrayDevice, Protocol):
    """A ``Device`` as textures know it."""

    @property
    def textures(self) -> TextureUnit:
        """The texture operations of the device."""


class Texels:
    """An array that backs textures and surfaces, stored in a device-specific memory layout.

    Example::

        texels = device.texels(np.zeros((8, 8), np.float32))
        assert (texels.shape, texels.nbytes) == ((8, 8), 256)
    """

    def __init__(self, device: TextureDevice, extent: Extent, format: TexelFormat) -> None:
        self.device = device
        self.extent = extent
        self.format = format
        self.memory = device.textures.allocate(extent, format)

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape in NumPy's axis order. If there are several channels, they are the last axis."""
        channels = (self.format.channels,) if self.format.channels > 1 else ()
        return (*self.extent.shape, *channels)

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of one channel."""
        return self.format.dtype

    @property
    def nbytes(self) -> int:
        """Total size of all elements, in bytes."""
        return math.prod(self.extent.shape) * self.format.texel_bytes

    def copy_from(self, data: npt.ArrayLike) -> None:
        """Copy host data of the same shape and dtype into the texels.

        Args:
            data: host data of the same shape and dtype.

        Raises:
            ArgumentError: the shape or dtype differs.

        Example::

            texels = device.texels(np.zeros((8, 8), np.float32))
            texels.copy_from(np.ones((8, 8), np.float32))
        """
        host = np.ascontiguousarray(data)
        if host.shape != self.shape or host.dtype != self.dtype:
            raise ArgumentError(
                f"these texels have dtype {self.dtype} and shape {self.shape}, but the data has dtype "
                f"{host.dtype} and shape {host.shape}",
                help="use data.astype(…), or create other texels",
            )
        self.device.textures.upload(self, _bytes(host))

    def numpy(self) -> npt.NDArray[Any]:
        """Copy the texels to a NumPy array, after all earlier work in the default stream.

        Example::

            assert device.texels(np.ones((8, 8), np.float32)).numpy().sum() == 64
        """
        host = np.empty(self.shape, self.dtype)
        self.device.textures.download(_bytes(host), self)
        return host

    def __repr__(self) -> str:
        return f"<Texels {self.extent} of {self.format} on {self.device.name}>"


class _TextureObject:
    """The common base of textures and surfaces. It releases its handle when the object is destroyed."""

    def __init__(self, device: TextureDevice, handle: TextureHandle, source: Texels | DeviceArray) -> None:
        self.device = device
        self.source = source
        self._handle = handle
        self._finish = weakref.finalize(self, handle.release)
        # Not at exit: the process gives everything back, and the driver may be gone by then.
        self._finish.atexit = False

    @property
    def handle(self) -> int:
        """The handle to pass to kernels.

        Raises:
            ClosedError: the object was closed.
        """
        if not self._finish.alive:
            raise ClosedError(f"this {type(self).__name__.lower()} is closed")
        return self._handle.number

    def close(self) -> None:
        """Release the object before it is garbage-collected. Closing the object again has no effect.

        Example::

            texture = device.texture(np.zeros((8, 8), np.float32))
            texture.close()
        """
        self._finish()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.source!r}>"


class Texture(_TextureObject):
    """A texture object. Keep it alive as long as kernels use its ``handle``.

    Example::

        texture = device.texture(np.zeros((8, 8), np.float32))
        print(texture.handle)
    """

    def __init__(
        self, device: TextureDevice, handle: TextureHandle, source: Texels | DeviceArray, sampling: Sampling
    ) -> None:
        super().__init__(device, handle, source)
        self.sampling = sampling


class Surface(_TextureObject):
    """A surface object. Keep it alive as long as kernels use its ``handle``.

    Example::

        surface = device.surface(device.texels(np.zeros((8, 8), np.float32)))
        print(surface.handle)
    """


def _bytes(host: npt.NDArray[Any]) -> memoryview:
    return host.reshape(-1).view(np.uint8).data
