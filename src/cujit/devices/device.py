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

if TYPE_CHECKING:
    import numpy.typing as npt

    from cujit.devices.tensormaps import im2col
    from cujit.devices.tensormaps import tiling as tensormaps
    from cujit.devices.tensormaps.tiling import Tiling
    from cujit.devices.textures import making as texturemaking
    from cujit.devices.textures.texture import TextureUnit

_MOST_PATTERNS = 1024
"""Combinations of parameters of which kernels are found natively; those of others are found in Python."""


class Patterns:
    """What plain launches are made of: by what a build says of the parameters, and by their sizes and places.

    None ever goes, as launches refer to what they were made of.
    """

    def __init__(self) -> None:
        self._known: dict[int, tuple[object, dict[object, bytes]]] = {}
        self._kept: list[object] = []

    def of(self, stated: object) -> dict[object, bytes] | None:
        """Return the patterns for what a build says, one object for all that say the same; None if there are many."""
        found = self._known.get(id(stated))
        if found is None:
            if len(self._known) >= _MOST_PATTERNS:
                return None
            found = self._known.setdefault(id(stated), (stated, {}))
        return found[1]

    def keep(self, referred: object) -> bool:
        """Keep what a new pattern refers to; False if there are many."""
        if len(self._kept) >= _MOST_PATTERNS:
            return False
        self._kept.append(referred)
        return True


class _LazyMethod:
    """A method of a class that another module defines: it is imported when somebody first takes the method."""

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
    """A place where Artifacts run.

    ``name`` is ``cuda:0`` or ``cpu``, ``product`` what its maker calls it. ``arch`` is the real architecture whose code
    it runs (for the CPU device: as which it runs PTX), ``ordinal`` the number of a GPU as the driver counts; 0 for the
    CPU device. ``backend`` does the work.

    Example::

        device = cujit.cpu()
        print(device.name, device.product, device.arch, device.limits.max_threads)
    """

    def __init__(self, backend: Backend) -> None:
        if not hasattr(backend, "is_gpu"):
            raise ArgumentError(
                f"a Device is made of a back end, not of {spell(backend)}",
                help="cujit.cpu(), cujit.gpu(0) and cujit.default_device() give devices",
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
        self.learned_by_id: dict[Hashable, tuple[object, Any]] = {}
        """The same by the identity of signatures, which stay with it, so that no other gets their address."""

    def load(self, artifact: Artifact, options: JitOptions | None = None) -> BackendModule:
        """Load a cubin, PTX or fatbin; ``options`` are for whoever makes machine code of PTX for a GPU.

        Raises:
            LoadError: the image does not run here; the message says what would.
            DriverError: the driver refused it; ``log`` is what its compiler wrote.
        """
        return self.backend.load(artifact, options)

    # -- memory -------------------------------------------------------------------------------------------

    def allocate(self, size: int) -> Allocation:
        """Get ``size`` bytes, aligned to 256; released when nothing holds the Allocation.

        Raises:
            DriverError: the device has no such memory left.
        """
        return self.backend.allocate(size)

    def upload(self, address: int, data: memoryview) -> None:
        """Copy host bytes to the device; done when it returns."""
        self.backend.upload(address, data)

    def read(self, address: int, size: int, elements: np.dtype[Any], *, shared: bool = False) -> None:
        """Report to the checks which bytes the host is about to copy. If its memory is ``shared``, other code is about
        to see them.

        Raises:
            KernelFaultError: an element was never written.
        """
        self.backend.read(address, size, elements, shared=shared)

    def copied(self, to: int, source: int, size: int) -> None:
        """Report to the checks that bytes were copied within the device's memory."""
        self.backend.copied(to, source, size)

    def download(self, data: memoryview, address: int) -> None:
        """Copy device bytes to the host; done when it returns, after earlier work on the default stream."""
        self.backend.download(data, address)

    def fill(self, address: int, size: int, byte: int = 0) -> None:
        """Set ``size`` bytes to one value."""
        self.backend.fill(address, size, byte)

    def ordinal_of(self, address: int) -> int | None:
        """Return the GPU that memory is on, if there are several. None if that does not matter or is unknown."""
        return self.backend.ordinal_of(address)

    def pinned(self, shape: int | tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """Allocate a NumPy array in page-locked memory of the host, unset; plain memory for the CPU device.

        Copies between it and the device in a stream go on while Python goes on; it is freed after the last of them.

        Args:
            shape: the sizes of the axes, outermost first.
            dtype: of the elements.

        Raises:
            ArgumentError: the shape or the dtype is none.
            DriverError: the host has no such memory left.

        Example::

            host = device.pinned(1000, np.float32)
            x.copy_to(host)
        """
        sizes, element, size = layout(shape, dtype)
        return pinned_array(self.backend.pin(max(size, 1)), sizes, element)

    def trim(self, keep_bytes: SupportsIndex = 0) -> None:
        """Release to the system the memory that arrays no longer use, except for ``keep_bytes`` of arrays in streams.

        For arrays in streams a GPU keeps up to an eighth of its memory, which other processes then have not. For others
        it keeps blocks of at most 64 KB, 4 MB together. The CPU device keeps none.

        Args:
            keep_bytes: how much of what arrays in streams have left stays.

        Raises:
            ArgumentError: ``keep_bytes`` is no number of bytes.
            DriverError: the driver refused.

        Example::

            device.trim()
        """
        number = getattr(keep_bytes, "__index__", lambda: -1)()
        if not 0 <= number < 1 << 64:
            raise ArgumentError(f"keep_bytes is {spell(keep_bytes)}; it takes a number of bytes, 0 at least")
        self.backend.trim(number)

    @property
    def cache_bytes(self) -> int:
        """Bytes of the largest cache that all processors share; 0 where that is not known."""
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
        """Make a stream, or see another library's stream (or a handle; 0 is the default stream) as one.

        A new stream does not wait for the default stream. On the CPU device a priority has no effect, and another
        library's stream is as good as the default one, since nothing waits in any.

        Args:
            of: another library's stream, or a handle: 0 is the default stream. None makes a new one.
            priority: of a new one: lower is sooner, 0 the default.

        Raises:
            LaunchError: ``of`` is no stream, or the priority is none that the device has.
            DriverError: the driver refused.
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

        Args:
            stream: where the launches inside the block are made, ours or another library's; None makes one,
                ``graph.stream``.
            mode: what else threads may do meanwhile, as the driver's modes do: ``relaxed`` anything, ``thread_local``
                nothing in this thread that could wait for the GPU, ``global`` in no thread. The CPU device has no use
                for it.

        Raises:
            LaunchError: it is no stream, or the mode is none; at the start of the block also that the stream is the
                default stream, or captured already.
            DriverError: at the end of the block, that the work in it could not be captured (LaunchError on the CPU
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
        """See memory that somebody else allocated as an array of bytes; ``view`` gives it a dtype, and nobody frees it.

        Under ``cujit.cpu(check="memory")`` it counts as an allocation until the array and its views are closed or gone:
        an access beside it is an error that names it. Adopt all that a kernel gets: memory of others that a kernel gets
        and nobody adopted may be accessed as far as it is mapped.

        Args:
            address: of the memory.
            size_bytes: how many bytes it has.

        Raises:
            ArgumentError: one of them is no such number, or some of the memory is known as another allocation.

        Example::

            numbers = np.zeros(1000, np.float32)
            seen = cujit.cpu().adopt(numbers.ctypes.data, numbers.nbytes).view(np.float32)
            seen.fill(2)
            assert numbers[999] == 2
        """
        start = read_int(address, "address", ArgumentError, least=1)
        size = read_int(size_bytes, "size_bytes", ArgumentError, least=1)
        if start + size > 1 << 64:
            raise ArgumentError(f"{spell(size)} bytes from {spell(start)} on end beyond 64 bits")
        return arrays.DeviceArray(self, self.backend.adopt(start, size), (size,), np.dtype(np.uint8))

    # -- what lies on it: each is made, and documented, where its class is --------------------------------

    array = arrays.array
    empty = arrays.empty
    zeros = arrays.zeros

    @property
    def textures(self) -> TextureUnit:
        """What the device does for textures.

        Raises:
            UnsupportedError: it has none.
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
        """Write the 128 bytes of a tensor map that was checked.

        Raises:
            UnsupportedError: the device has no tensor maps, or none like this.
            DriverError: the driver refused.
        """
        return self.backend.encode_tensor_map(tiling)

    def __repr__(self) -> str:
        return f"<Device {self.name}: {self.product} ({self.arch})>"
