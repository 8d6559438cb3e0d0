"""A device as users hold it: the same for every back end."""

from __future__ import annotations

import importlib
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any, SupportsIndex, final

import numpy as np

from cujit.artifact import Artifact
from cujit.devices.arrays import array as arrays
from cujit.devices.arrays.elements import layout
from cujit.devices.backend import Backend, BackendModule
from cujit.devices.jit_options import JitOptions
from cujit.devices.options import check_priority
from cujit.devices.streams import (
    Allocation,
    Graph,
    Stream,
    check_mode,
    pinned_array,
    stream_handle,
)
from cujit.errors import ArgumentError, read_int, spell
from cujit.forks import cached_property

if TYPE_CHECKING:
    import numpy.typing as npt

    from cujit.devices.green_contexts import GreenContext
    from cujit.devices.tensormaps import im2col
    from cujit.devices.tensormaps import tiling as tensormaps
    from cujit.devices.tensormaps.tiling import Tiling
    from cujit.devices.textures import making as texturemaking
    from cujit.devices.textures.texture import TextureUnit

_MOST_PATTERNS = 1024
"""Combinations of parameters of which kernels are found natively; those of others are found in Python."""


class Patterns:
    """Patterns for plain launches, by the build's facts about parameters, and then by the parameters' sizes and
    offsets.

    No pattern is ever removed, because launches refer to their patterns.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, dict[object, bytes]]] = {}
        self._kept: list[object] = []

    def of(self, stated: object) -> dict[object, bytes] | None:
        """Return the patterns for a build's facts about parameters, or None if too many facts are stored.

        Builds share patterns only if they pass the same object.
        """
        found = self._known.get(id(stated))
        if found is None:
            if len(self._known) >= _MOST_PATTERNS:
                return None
            found = self._known.setdefault(id(stated), (stated, {}))
        return found[1]

    def keep(self, referred: object) -> bool:
        """Keep an object that a new pattern refers to. Return False if too many objects are kept."""
        if len(self._kept) >= _MOST_PATTERNS:
            return False
        self._kept.append(referred)
        return True


class _LazyMethod:
    """A method that another module defines. The module is imported on first access to the method."""

    def __init__(self, module: str) -> None:
        self._module = module

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: object, owner: type) -> Any:
        method = getattr(importlib.import_module(self._module), self._name)
        setattr(owner, self._name, method)
        return method.__get__(instance, owner)


@final
class Device:
    """A GPU or the CPU device, which runs Artifacts.

    ``name`` is ``cuda:0`` or ``cpu``, and ``product`` is the manufacturer's name for the device. ``arch`` is the real
    architecture of a GPU, or the architecture that the CPU device emulates. ``ordinal`` is the driver's number for the
    GPU; it is 0 for the CPU device. ``backend`` implements the device.

    Example::

        device = cujit.cpu()
        print(device.name, device.product, device.arch, device.limits.max_threads)
    """

    def __init__(self, backend: Backend) -> None:
        if not hasattr(backend, "is_gpu"):
            raise ArgumentError(
                f"a Device requires a back end, not {spell(backend)}",
                help="call cujit.cpu(), cujit.gpu(0) or cujit.default_device()",
            )
        self.backend = backend
        self.name = backend.name
        self.product = backend.product
        self.arch = backend.arch
        self.limits = backend.limits
        self.is_gpu = backend.is_gpu
        self.ordinal = backend.ordinal
        self.patterns = Patterns()
        """What plain launches are made of (``devices.launcher.state``)."""
        self.learned: dict[Hashable, Any] = {}
        """What the launcher knows of the signatures that kernels have here (``devices.launcher.learned``)."""
        self.shortcuts: dict[Hashable, Any] = {}
        """How hits of a cache are found for it, by the cache (``cujit.loading``)."""
        self.learned_by_id: dict[Hashable, tuple[object, Any]] = {}
        """The same by the identity of signatures, which stay with it, so that no other gets their address."""

    @cached_property
    def plain_cubins(self) -> Any:
        """The native functions that load usual cubins (``devices.cuda.plain``), or None if only
        ``load`` loads cubins.
        """
        return self.backend.plain_cubins(self, self.patterns.of(None))

    def load(self, artifact: Artifact, options: JitOptions | None = None) -> BackendModule:
        """Load a cubin, PTX, or a fatbin. ``options`` are for the tool that compiles PTX for a GPU.

        Raises:
            LoadError: the image does not run on this device. The message describes an image that would run.
            DriverError: the driver rejected the image. ``log`` contains the output of the driver's compiler.
        """
        return self.backend.load(artifact, options)

    # -- memory -------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> Allocation:
        """Allocate ``size`` bytes, aligned to 256. The memory is released when nothing refers to the Allocation.

        Raises:
            DriverError: the device is out of memory.
        """
        return self.backend.allocate(size)

    def upload(self, address: int, data: memoryview) -> None:
        """Copy host bytes to the device, and return when the copy is done."""
        self.backend.upload(address, data)

    def read(self, address: int, size: int, elements: np.dtype[Any], *, shared: bool = False) -> None:
        """Report to the checks which bytes the host is about to copy. With ``shared``, the memory is about to become
        visible to other code.

        Raises:
            KernelFaultError: an element was never written.
        """
        self.backend.read(address, size, elements, shared=shared)

    def copied(self, to: int, source: int, size: int) -> None:
        """Report to the checks that bytes were copied within the device's memory."""
        self.backend.copied(to, source, size)

    def download(self, data: memoryview, address: int) -> None:
        """Copy device bytes to the host after all earlier work on the default stream, and return when
        the copy is done.
        """
        self.backend.download(data, address)

    def fill(self, address: int, size: int, byte: int = 0) -> None:
        """Set ``size`` bytes to one value."""
        self.backend.fill(address, size, byte)

    def ordinal_of(self, address: int) -> int | None:
        """Return the number of the GPU that memory is on, if there are several GPUs. Return None if the number is
        irrelevant or unknown.
        """
        return self.backend.ordinal_of(address)

    def pinned(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Allocate an uninitialized NumPy array in page-locked host memory. For the CPU device, the memory is ordinary
        host memory.

        In a stream, copies between this memory and the device run in the background. The memory is freed after the last
        copy.

        Args:
            shape: sizes of the axes, outermost first.
            dtype: dtype of the elements.

        Raises:
            ArgumentError: the shape or the dtype is invalid.
            DriverError: the host is out of memory.

        Example::

            host = device.pinned(1000, np.float32)
            x.copy_to(host)
        """
        sizes, element, size = layout(shape, dtype)
        return pinned_array(self.backend.pin(max(size, 1)), sizes, element)

    def trim(self, keep_bytes: SupportsIndex = 0) -> None:
        """Return unused memory to the system, except for ``keep_bytes`` of stream-ordered memory.

        For stream-ordered arrays, cujit keeps up to an eighth of a GPU's memory, which other processes can't use. For
        other arrays, cujit keeps freed blocks of up to 64 KB, 4 MB in total. On the CPU device, cujit keeps no memory.

        Args:
            keep_bytes: bytes of unused stream-ordered memory to keep.

        Raises:
            ArgumentError: ``keep_bytes`` is not a number of bytes.
            DriverError: the driver reported an error.

        Example::

            device.trim()
        """
        number = getattr(keep_bytes, "__index__", lambda: -1)()
        if not 0 <= number < 1 << 64:
            raise ArgumentError(f"keep_bytes is {spell(keep_bytes)}, expected a number of bytes of at least 0")
        self.backend.trim(number)

    @property
    def cache_bytes(self) -> int:
        """Size in bytes of the largest cache that all SMs or cores share, or 0 if unknown."""
        return self.backend.cache_bytes

    # -- streams and graphs -------------------------------------------------------------------------------

    def synchronize(self) -> None:
        """Wait until all work on the device is done.

        Raises:
            DriverError: a kernel failed.

        Example::

            kernel[4, 256](2.0, x, y, 1000)
            device.synchronize()
        """
        self.backend.synchronize()

    def order(self, earlier: int, later: int) -> None:
        """Make stream ``later`` wait for the work now on stream ``earlier``, without waiting here."""
        self.backend.order(earlier, later)

    def stream(self, of: object = None, *, priority: int | None = None) -> Stream:
        """Create a stream, or wrap another library's stream or a stream handle (0 is the default stream).

        A new stream doesn't wait for the default stream. On the CPU device, work runs immediately, so priorities have
        no effect and all streams behave alike.

        Args:
            of: another library's stream, or a stream handle (0 is the default stream). Default: create a new stream.
            priority: priority of a new stream: work with a lower number runs first. Default: 0.

        Raises:
            LaunchError: ``of`` is not a stream, or the device doesn't support this priority.
            DriverError: the driver reported an error.
            ClosedError: ``of`` was closed.

        Example::

            with device.stream() as stream:
                kernel[4, 256, 0, stream](2.0, x, y, 1000)
                stream.synchronize()
        """
        if priority is not None:
            check_priority(priority, of)
        if isinstance(of, Stream) and of.device is self:
            return of
        return self.backend.stream(self, of, priority)

    def green_contexts(self, *sm_counts: SupportsIndex | None) -> tuple[GreenContext, ...]:
        """Split the device's SMs, and return a green context for each number of SMs. Launches in streams of a green
        context run only on its SMs.

        The driver allocates SMs in groups: 8 SMs on compute capability 9.0 and later, 2 SMs on earlier GPUs. A green
        context therefore has at least the requested number of SMs; ``sm_count`` is the actual number. On the CPU
        device, every number is accepted, and all streams use all cores.

        Args:
            sm_counts: number of SMs for each green context. One of them can be ``None``: all remaining SMs.

        Raises:
            ArgumentError: a number is invalid.
            LaunchError: the GPU has too few SMs.
            UnsupportedError: the driver doesn't support green contexts.
            DriverError: the driver reported an error.

        Example::

            first, rest = device.green_contexts(max(device.limits.processors // 2, 1), None)
            kernel[4, 256, 0, first.stream()](2.0, x, y, 1000)
            device.synchronize()
        """
        from cujit.devices.green_contexts import check_sm_counts  # start-up: few programs split a device

        return self.backend.green_contexts(self, check_sm_counts(sm_counts))

    def queue(self, stream: object) -> Stream:
        """Return a Stream of this device for a user's stream argument. None means the default stream.

        Raises:
            LaunchError: the argument is not a stream, or the stream belongs to another device.
            ClosedError: the stream was closed.
        """
        if isinstance(stream, Stream):
            stream_handle(stream, self)
            return stream
        return self.stream(0 if stream is None else stream)

    def capture(self, stream: object = None, *, mode: str = "relaxed") -> Graph:
        """Capture work into a graph: ``with device.capture(stream) as graph: …``. Then call ``graph.launch()``.

        Args:
            stream: stream to capture, from cujit or another library. Default: a new stream, ``graph.stream``.
            mode: the driver's capture mode. ``relaxed`` allows all calls. With ``thread_local``, this thread can't call
                functions that might wait for the GPU. With ``global``, no thread can call such functions.

        Raises:
            LaunchError: ``stream`` is not a stream, is the default stream, or is already being captured, or the mode is
                unknown.
            DriverError: at the end of the ``with`` block: the driver couldn't capture the work (LaunchError on the CPU
                device).

        Example::

            with device.capture() as graph:
                kernel[4, 256, 0, graph.stream](2.0, x, y, 1000)
            graph.launch()
            device.synchronize()
        """
        check_mode(mode)
        return self.backend.graph(self, self.stream() if stream is None else self.queue(stream), mode)

    def adopt(self, address: int, size_bytes: int) -> arrays.DeviceArray:
        """Wrap externally allocated memory as an array of bytes. To change the dtype, call ``view``. cujit doesn't free
        the memory.

        With ``cujit.cpu(check="memory")``, the memory counts as an allocation until the array and all its views are
        deleted. Out-of-bounds accesses to this memory are then errors. Adopt all external memory that kernels use. If
        cujit doesn't know a pointer, it accepts any access to mapped memory near the pointer.

        Args:
            address: address of the memory.
            size_bytes: size of the memory in bytes.

        Raises:
            ArgumentError: an argument is not a valid number, or the memory overlaps another allocation.

        Example::

            numbers = np.zeros(1000, np.float32)
            seen = cujit.cpu().adopt(numbers.ctypes.data, numbers.nbytes).view(np.float32)
            seen.fill(2)
            assert numbers[999] == 2
        """
        start = read_int(address, "address", ArgumentError, least=1)
        size = read_int(size_bytes, "size_bytes", ArgumentError, least=1)
        if start + size > 1 << 64:
            raise ArgumentError(
                f"the range of {spell(size)} bytes that starts at {spell(start)} extends beyond the 64-bit "
                "address space"
            )
        return arrays.DeviceArray(self, self.backend.adopt(start, size), (size,), np.dtype(np.uint8))

    # -- what lies on it: each is made, and documented, where its class is --------------------------------

    array = arrays.array
    empty = arrays.empty
    zeros = arrays.zeros

    @property
    def textures(self) -> TextureUnit:
        """The texture functions of the device.

        Raises:
            UnsupportedError: the device doesn't support textures.
        """
        return self.backend.textures

    if TYPE_CHECKING:
        texels = texturemaking.texels
        texture = texturemaking.texture
        surface = texturemaking.surface
        tensor_map = tensormaps.tensor_map
        im2col_map = im2col.im2col_map
    else:
        texels = _LazyMethod("cujit.devices.textures.making")
        texture = _LazyMethod("cujit.devices.textures.making")
        surface = _LazyMethod("cujit.devices.textures.making")
        tensor_map = _LazyMethod("cujit.devices.tensormaps.tiling")
        im2col_map = _LazyMethod("cujit.devices.tensormaps.im2col")

    def encode_tensor_map(self, tiling: Tiling) -> bytes:
        """Return the 128 bytes of a checked tensor map.

        Raises:
            UnsupportedError: the device doesn't support tensor maps, or doesn't support this tensor map.
            DriverError: the driver reported an error.
        """
        return self.backend.encode_tensor_map(tiling)

    def __repr__(self) -> str:
        return f"<Device {self.name}: {self.product} ({self.arch})>"
