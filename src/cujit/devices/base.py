"""The seam: what a place that runs Artifacts offers. ``cuda`` and ``cpu`` implement it; one test body runs
on both.

A kernel gets its arguments as one *parameter buffer*: the bytes of all parameters at their offsets
(``Signature.offsets``), which both the driver and the CPU device take as it is.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, SupportsIndex

import numpy.typing as npt

from cujit.arch import Arch
from cujit.artifact import Artifact
from cujit.devices import arrays, im2col, tensormaps, texturemaking
from cujit.devices.arrays import DeviceArray
from cujit.devices.inorder import Captures, InOrderGraph, InOrderStream
from cujit.devices.pinned import PinnedMemory, pinned_array
from cujit.devices.streams import Graph, Stream, check_mode, check_priority, stream_handle
from cujit.devices.tensormaps import TensorMap, Tiling
from cujit.devices.textures import Surface, Texels, Texture, TextureUnit
from cujit.errors import ArgumentError, LaunchError, UnsupportedError, spell
from cujit.forks import cached_property
from cujit.formats.mangling import entity_name
from cujit.signature import Signature

__all__ = [
    "Allocation",
    "Device",
    "DeviceKernel",
    "DeviceModule",
    "Dim3",
    "LaunchShape",
    "Limits",
    "Resources",
]


_SIZES = "a grid or block is an int, or a tuple of up to three: 256, or (16, 16)"


class Dim3(NamedTuple):
    """Sizes along x, y and z."""

    x: int
    y: int = 1
    z: int = 1

    @classmethod
    def of(cls, value: object, what: str) -> Dim3:
        """Read an int or a tuple of one to three ints, each at least 1.

        Raises:
            LaunchError: it is something else, or a size is below 1.
        """
        sizes = value if isinstance(value, (tuple, list)) else (value,)
        if not 1 <= len(sizes) <= 3:
            raise LaunchError(f"{what} has {len(sizes)} dimensions; it takes one to three", help=_SIZES)
        ints = []
        for axis, size in zip("xyz", sizes, strict=False):
            try:
                ints.append(size.__index__())
            except (AttributeError, TypeError):
                message = f"{what}.{axis} is {type(size).__name__} {spell(size)}; it takes an int"
                raise LaunchError(message, help=_SIZES) from None
            if ints[-1] < 1:
                raise LaunchError(f"{what}.{axis} is {spell(ints[-1])}; the smallest is 1", help=_SIZES)
            if ints[-1] >= 1 << 63:
                raise LaunchError(f"{what}.{axis} is {spell(ints[-1])}; no device takes so many", help=_SIZES)
        return cls(*ints)

    @property
    def volume(self) -> int:
        """The product of the three sizes."""
        return self.x * self.y * self.z

    def place(self, number: int) -> tuple[int, int, int]:
        """Give the place of a number, counted along x first, then along y."""
        return number % self.x, number // self.x % self.y, number // (self.x * self.y)


@dataclass(frozen=True)
class Resources:
    """What a kernel uses: registers a thread, bytes, barriers, and the largest block that it can run in.

    ``shared_bytes`` is static shared memory of a block, ``local_bytes`` local memory of a thread (spills and
    stack), ``constant_bytes`` the user's constants, ``max_threads`` a block. A field is None where the device
    cannot tell.
    """

    registers: int | None
    shared_bytes: int
    local_bytes: int | None
    constant_bytes: int | None
    max_threads: int
    barriers: int | None = None


@dataclass(frozen=True)
class Limits:
    """What a device allows in one launch. Sizes in threads, blocks and bytes."""

    max_threads: int
    max_block: Dim3
    max_grid: Dim3
    shared_bytes: int
    """Static and dynamic shared memory of a block without asking for more."""
    shared_bytes_optin: int
    """The same, when a kernel opts in."""
    processors: int
    """Multiprocessors of a GPU; threads that the CPU device runs blocks on."""
    warp_size: int = 32
    threads_per_processor: int = 2048
    """Threads that one processor holds at a time, over all its blocks."""


@dataclass(frozen=True)
class LaunchShape:
    """Grid and block sizes and dynamic shared memory in bytes of one launch."""

    grid: Dim3
    block: Dim3
    shared_bytes: int = 0


class DeviceKernel(abc.ABC):
    """One kernel on one device."""

    name: str
    """The lowered name."""
    signature: Signature
    """As far as the image tells: PTX types, or sizes."""

    @property
    def title(self) -> str:
        """Its name in messages: as the source spells it, where the lowered name tells that."""
        return entity_name(self.name) or self.name

    @property
    @abc.abstractmethod
    def resources(self) -> Resources:
        """What the kernel uses."""

    @abc.abstractmethod
    def launch(self, shape: LaunchShape, parameters: bytes | bytearray, stream: int = 0) -> None:
        """Run the kernel over ``shape``; ``parameters`` is the parameter buffer, ``stream`` a ``CUstream``
        or 0.

        Asynchronous on a GPU; on the CPU device done when it returns.

        Raises:
            DriverError: the driver refused.
        """

    @abc.abstractmethod
    def active_blocks(self, block_threads: int, shared_bytes: int = 0) -> int:
        """Count the blocks that one processor holds at a time."""

    @abc.abstractmethod
    def best_block(self, shared_bytes: int = 0) -> int:
        """Choose the threads per block of highest occupancy."""


class DeviceModule(abc.ABC):
    """One Artifact loaded on one device."""

    kernels: Mapping[str, DeviceKernel]
    """By lowered name, in the order of the image where it tells."""
    log: str = ""
    """What the loader wrote (the driver's JIT logs)."""
    route: str = ""
    """How the image came to run: ``cubin sm_90 of the fatbin``, ``PTX … through the driver's JIT``."""

    @abc.abstractmethod
    def variable(self, name: str) -> tuple[int, int]:
        """Find a ``__device__`` or ``__constant__`` variable: its address and its size in bytes.

        Raises:
            NameNotFoundError: there is none of that name.
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Release the module; again is harmless."""


@dataclass(frozen=True)
class Allocation:
    """Memory of a device: address and size in bytes; ``owner`` keeps it alive.

    ``stream`` is where it was allocated and will be freed; None is the default stream.
    """

    address: int
    size: int
    owner: object = field(repr=False, compare=False, default=None)
    stream: Stream | None = field(repr=False, compare=False, default=None)


class Device(abc.ABC):
    """A place where Artifacts run."""

    name: str
    """``cuda:0``, ``cpu``."""
    product: str
    """What it is called by its maker."""
    arch: Arch
    """The real architecture whose code it runs (for the CPU device: as which it runs PTX)."""
    limits: Limits
    is_gpu: bool
    ordinal: int = 0
    """The number of a GPU among those that the driver shows; 0 for the CPU device."""

    @abc.abstractmethod
    def load(self, artifact: Artifact) -> DeviceModule:
        """Load a cubin, PTX or fatbin.

        Raises:
            LoadError: the image does not run here; the message says what would.
            DriverError: the driver refused it.
        """

    @abc.abstractmethod
    def allocate(self, size: int) -> Allocation:
        """Get ``size`` bytes, aligned to 256; released when nothing holds the Allocation."""

    @abc.abstractmethod
    def upload(self, address: int, data: memoryview) -> None:
        """Copy host bytes to the device; done when it returns."""

    @abc.abstractmethod
    def download(self, data: memoryview, address: int) -> None:
        """Copy device bytes to the host; done when it returns, after earlier work on the default stream."""

    @abc.abstractmethod
    def fill(self, address: int, size: int, byte: int = 0) -> None:
        """Set ``size`` bytes to one value."""

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait until all work on the device is done.

        Raises:
            DriverError: a kernel failed.
        """

    def order(self, earlier: int, later: int) -> None:  # noqa: B027  (a device that runs in order has nothing to do)
        """Make stream ``later`` wait for the work now on stream ``earlier``, without waiting here."""

    def ordinal_of(self, address: int) -> int | None:
        """Tell on which GPU memory is, where there are several; None if that does not matter, or nobody knows."""
        del address
        return None

    # -- streams and graphs: here as for a device whose work is done when the call returns ----------------

    @cached_property
    def captures(self) -> Captures:
        """Which of its streams are captured into graphs."""
        return Captures()

    def stream(self, of: object = None, *, priority: int | None = None) -> Stream:
        """Make a stream, or see another library's stream (or a handle; 0 is the default stream) as one.

        ``priority`` is of a new stream: lower is sooner, 0 the default. On the CPU device it has no effect, and
        another library's stream is as good as the default one, since nothing waits in any.

        Raises:
            LaunchError: ``of`` is no stream, or the priority is none that the device has.
            DriverError: the driver refused.
            ClosedError: ``of`` was closed.
        """
        if priority is not None:
            check_priority(priority, of)
        if isinstance(of, Stream) and of.device is self:
            return of
        if of is None:
            return InOrderStream(self, self.captures, self.captures.number())
        stream_handle(of, self)
        return InOrderStream(self, self.captures, 0)

    def queue(self, stream: object) -> Stream:
        """See what users pass as a stream (None is the default stream) as a Stream of this device.

        Raises:
            LaunchError: it is no stream, or a stream of another device.
            ClosedError: it was closed.
        """
        if isinstance(stream, Stream):
            stream_handle(stream, self)
            return stream
        return self.stream(0 if stream is None else stream)

    def capture(self, stream: object = None, *, mode: str = "relaxed") -> Graph:
        """Capture work into a graph: ``with device.capture(stream) as graph: …``, and then ``graph.launch()``.

        ``stream`` is where the launches inside the block are made, ours or another library's; None makes one,
        ``graph.stream``. ``mode`` says what else threads may do meanwhile, as the driver's modes do: ``relaxed``
        anything, ``thread_local`` nothing in this thread that could wait for the GPU, ``global`` in no thread. The
        CPU device has no use for it.

        Raises:
            LaunchError: it is no stream, or the mode is none; at the start of the block also that the stream is the
                default stream, or captured already; at its end that the work in it could not be captured.
        """
        check_mode(mode)
        queue = self.stream() if stream is None else self.queue(stream)
        assert isinstance(queue, InOrderStream)  # streams of such a device are
        return InOrderGraph(self, queue, self.captures)

    def pinned(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Allocate a NumPy array in page-locked memory of the host, unset; plain memory for the CPU device.

        Copies between it and the device in a stream go on while Python goes on; it is freed after the last of them.

        Raises:
            ArgumentError: the shape or the dtype is none.
            DriverError: the host has no such memory left.
        """
        sizes, element, size = arrays.layout(shape, dtype)
        return pinned_array(self._pin(max(size, 1)), sizes, element)

    def _pin(self, size: int) -> PinnedMemory:
        block = self.allocate(size)
        return PinnedMemory(block.address, size, block)

    def trim(self, keep_bytes: SupportsIndex = 0) -> None:
        """Give memory back to the system that arrays in streams have left, but for ``keep_bytes``.

        A GPU keeps up to an eighth of its memory for the next ones, which other processes then have not; the CPU
        device keeps none.

        Raises:
            ArgumentError: ``keep_bytes`` is no number of bytes.
            DriverError: the driver refused.
        """
        number = getattr(keep_bytes, "__index__", lambda: -1)()
        if not 0 <= number < 1 << 64:
            raise ArgumentError(f"keep_bytes is {spell(keep_bytes)}; it takes a number of bytes, 0 at least")
        self._trim(number)

    def _trim(self, keep_bytes: int) -> None:  # noqa: B027  (a device that keeps none has nothing to do)
        """Give back what is not used, but for so many bytes."""

    @property
    def cache_bytes(self) -> int:
        """Bytes of the largest cache that all processors share; 0 where that is not known."""
        return 0

    # -- arrays -------------------------------------------------------------------------------------------

    def array(self, data: npt.ArrayLike, dtype: npt.DTypeLike | None = None, *, stream: object = None) -> DeviceArray:
        """Copy a NumPy array, a list or a number to the device; in ``stream``, as ``empty`` says.

        Raises:
            ArgumentError: it is no array of numbers.
            LaunchError: ``stream`` is none.
            DriverError: the device has no such memory left.
        """
        return arrays.array(self, data, dtype, stream)

    def empty(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike, *, stream: object = None) -> DeviceArray:
        """Allocate an array without setting its elements.

        With a ``stream``, the memory is had and given back in the order of the work in it, which waits for nothing:
        use the array in that stream, or in others that wait for it and that it waits for before the array goes. A
        stream that is given as a bare handle has to live as long as the array.

        Raises:
            ArgumentError: the shape or the dtype is none.
            LaunchError: ``stream`` is none, or is captured into a graph.
            DriverError: the device has no such memory left.
        """
        return arrays.empty(self, shape, dtype, stream)

    def zeros(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike, *, stream: object = None) -> DeviceArray:
        """Allocate an array and set its elements to 0; in ``stream``, as ``empty`` says.

        Raises:
            ArgumentError: the shape or the dtype is none.
            LaunchError: ``stream`` is none, or is captured into a graph.
            DriverError: the device has no such memory left.
        """
        return arrays.zeros(self, shape, dtype, stream)

    # -- textures -----------------------------------------------------------------------------------------

    @cached_property
    def textures(self) -> TextureUnit:
        """What the device does for textures.

        Raises:
            UnsupportedError: it has none.
        """
        raise UnsupportedError(f"{self.name} has no textures")

    def texels(self, data: npt.ArrayLike, *, channels: int = 1, layered: bool = False, cube: bool = False) -> Texels:
        """Copy host data into elements for textures and surfaces (a CUDA array on a GPU).

        The shape is ``(width,)``, ``(height, width)`` or ``(depth, height, width)``; ``layered`` and ``cube`` take
        layers or faces first. With 2 or 4 ``channels`` they are one more axis, the last.

        Raises:
            ArgumentError: no texture can be made of it.
            DriverError: the device has no such memory left.
        """
        return texturemaking.make_texels(self, data, channels, layered, cube)

    def texture(
        self,
        data: Texels | DeviceArray | npt.ArrayLike,
        *,
        channels: int = 1,
        layered: bool = False,
        cube: bool = False,
        address: str | tuple[str, ...] = "clamp",
        filter: str = "point",
        normalized: bool = False,
        read: str = "element",
        border: float | tuple[float, ...] = 0.0,
        srgb: bool = False,
    ) -> Texture:
        """Make a texture; kernels take its ``handle`` as a ``cudaTextureObject_t``.

        ``data`` is texels; or an array of this device, which is read in place: one axis for ``tex1Dfetch``, two for
        ``tex2D``; or host data, of which texels are made. ``address`` (``clamp``, ``border``, and with ``normalized``
        coordinates ``wrap`` and ``mirror``) is one word or one for each axis, x first; ``filter`` is ``point`` or
        ``linear``; ``read`` is ``element``, or ``normalized_float`` for integers of 8 and 16 bits; ``border`` is the
        color outside, ``srgb`` says that the first three channels of 8 bits are coded so.

        Raises:
            ArgumentError: no texture can be made of it, or it cannot be read so.
            DriverError: the device has no such memory left.
        """
        sampling = texturemaking.sampling_of(
            address=address, filter=filter, normalized=normalized, read=read, border=border, srgb=srgb
        )
        return texturemaking.make_texture(self, data, sampling, channels=channels, layered=layered, cube=cube)

    def surface(self, texels: Texels) -> Surface:
        """Make a surface of texels; kernels take its ``handle`` as a ``cudaSurfaceObject_t``.

        Raises:
            ArgumentError: it is something else, or of another device.
            DriverError: the driver refused.
        """
        return texturemaking.make_surface(self, texels)

    # -- tensor maps --------------------------------------------------------------------------------------

    def tensor_map(
        self,
        array: object,
        box: int | tuple[int, ...],
        *,
        shape: int | tuple[int, ...] | None = None,
        strides: tuple[int, ...] | None = None,
        element_strides: int | tuple[int, ...] | None = None,
        swizzle: str | int = "none",
        interleave: str | int = "none",
        fill: str = "zero",
        l2: str | int = "none",
        data_type: str | None = None,
    ) -> TensorMap:
        """Describe an array for the tensor memory accelerator; kernels take it as a ``__grid_constant__ CUtensorMap``.

        ``box`` are the elements that one copy takes, axes outermost first as in ``array.shape``; the coordinates in
        a kernel come innermost first. ``shape`` and ``strides`` (bytes) describe a part of the array, such as rows
        that are padded; ``element_strides`` take every so manieth element. ``swizzle`` is ``none``, ``32``, ``64``
        or ``128``, ``l2`` ``none``, ``64``, ``128`` or ``256`` (bytes that the L2 cache fetches); ``fill`` is what
        lies outside, ``zero`` or ``nan``. ``data_type`` is another type of the same size: ``tfloat32``, ``bfloat16``.
        ``interleave`` is ``none``: interleaved layouts are not supported.

        Raises:
            ArgumentError: no tensor map can be made of it.
            UnsupportedError: the device has no tensor maps, or none like this.
            DriverError: the driver refused.
        """
        return tensormaps.make_tensor_map(
            self, array, box, shape=shape, strides=strides, element_strides=element_strides, swizzle=swizzle,
            interleave=interleave, fill=fill, l2=l2, data_type=data_type,
        )  # fmt: skip

    def im2col_map(
        self,
        array: object,
        lower: int | tuple[int, ...],
        upper: int | tuple[int, ...],
        pixels: int,
        channels: int,
        *,
        element_strides: tuple[int, ...] | None = None,
        swizzle: str | int = "none",
        fill: str = "zero",
        l2: str | int = "none",
        data_type: str | None = None,
    ) -> TensorMap:
        """Describe images for copies in im2col mode, which take pixels as a convolution goes over them.

        ``array`` is ``(N, W, C)``, ``(N, H, W, C)`` or ``(N, D, H, W, C)``. ``lower`` and ``upper`` bound where the
        filter's corner can be along D, H and W, seen from the first and from the last pixel: ``-padding``, and
        ``padding - (filter - 1) * dilation``. A copy takes ``channels`` of so many ``pixels``; ``element_strides``
        are the convolution's strides, one for each axis of the array. The rest is as in ``tensor_map``.

        Raises:
            ArgumentError: no such map can be made of it.
            UnsupportedError: the device has no tensor maps.
            DriverError: the driver refused.
        """
        return im2col.make_im2col_map(
            self, array, lower, upper, pixels, channels, element_strides=element_strides, swizzle=swizzle, fill=fill,
            l2=l2, data_type=data_type,
        )  # fmt: skip

    def encode_tensor_map(self, tiling: Tiling) -> bytes:
        """Write the 128 bytes of a tensor map that was checked.

        Raises:
            UnsupportedError: the device has no tensor maps, or none like this.
            DriverError: the driver refused.
        """
        del tiling
        raise UnsupportedError(f"{self.name} has no tensor maps")

    def __repr__(self) -> str:
        return f"<Device {self.name}: {self.product} ({self.arch})>"
