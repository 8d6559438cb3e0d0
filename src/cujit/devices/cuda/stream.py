"""Streams of a GPU, including wrapped streams of other libraries, and their events."""

from __future__ import annotations

import weakref
from typing import Any, Protocol

from cujit.devices.cuda import memory
from cujit.devices.cuda.context import GpuContext
from cujit.devices.cuda.gpu import Gpu
from cujit.devices.streams import Allocation, DeviceLike, Event, PinnedMemory, Stream, pinned_block, stream_handle
from cujit.errors import ArgumentError, ClosedError, LaunchError, spell


class CudaEvent(Event):
    """An event in a stream of a GPU, destroyed when no longer referenced.

    The host spins while it waits for the event, because spinning allows the most precise measurements.
    """

    def __init__(self, device: DeviceLike, context: Gpu, *, timing: bool = True) -> None:
        self.device = device
        self._context = context
        self.timed = timing
        flags = context.driver.bindings.CUevent_flags
        flag = flags.CU_EVENT_DEFAULT if timing else flags.CU_EVENT_DISABLE_TIMING
        self._handle: int | None = int(context.call("cuEventCreate", flag.value))
        self._finalizer = weakref.finalize(self, context.release, "cuEventDestroy", self._handle)
        self._finalizer.atexit = False

    @property
    def handle(self) -> int:
        """The ``CUevent``.

        Raises:
            ClosedError: it was closed.
        """
        if self._handle is None:
            raise ClosedError(f"this event on {self.device.name} is closed")
        return self._handle

    @property
    def done(self) -> bool:
        """Whether all work before the event is done.

        Raises:
            DriverError: a kernel failed.
            ClosedError: it was closed.
        """
        return self._context.is_done("cuEventQuery", self.handle)

    def synchronize(self) -> None:
        """Wait until all work before the event is done.

        Raises:
            DriverError: a kernel failed, or it was recorded into a graph.
            ClosedError: it was closed.
        """
        self._context.call("cuEventSynchronize", self.handle)

    def _elapsed_ms(self, since: Event) -> float:
        assert isinstance(since, CudaEvent)  # events of one device are of one class
        return float(self._context.call("cuEventElapsedTime", since.handle, self.handle))

    def close(self) -> None:
        """Destroy the event. The driver destroys it once the stream reaches it. Further calls have no effect."""
        self._handle = None
        self._finalizer()

    def __repr__(self) -> str:
        return f"<Event of {self.device.name}{'' if self._handle is not None else ' closed'}>"


class _Queue:
    """A ``CUstream``. A stream that cujit created is destroyed when no Stream and no array allocated in it refers to
    it.

    ``owner`` keeps a stream of another library alive.
    """

    def __init__(self, context: GpuContext, handle: int, *, owner: object = None, is_ours: bool = False) -> None:
        self.handle = handle
        self.owner = owner
        self.late: list[int] = []
        """Addresses that could not be freed because the stream was being captured."""
        weakref.finalize(self, _release, context, handle, self.late, owner, is_ours).atexit = False


def _release(context: GpuContext, handle: int, late: list[int], _owner: object, is_ours: bool) -> None:
    memory.free_late(context, handle, late)
    if is_ours:
        context.release("cuStreamDestroy", handle)


class HasHandle(Protocol):
    """An object that the driver identifies by a handle."""

    handle: Any


def _create(context: Gpu, function: str, priority: int | None, *place: Any) -> int:
    """Create a stream that does not wait for the default stream, and return its handle."""
    if priority is not None:
        context.check_priority(priority)
    flags = context.driver.bindings.CUstream_flags.CU_STREAM_NON_BLOCKING.value
    return int(context.call(function, *place, flags, priority or 0))


class CudaStream(Stream):
    """A queue of GPU work that does not wait for the default stream.

    Other libraries accept the stream through ``__cuda_stream__``. The stream is destroyed when nothing refers to it,
    including arrays that were allocated in it. Its pending work is still done. Work with a lower ``priority`` runs
    sooner. None means 0.

    Raises:
        LaunchError: the device doesn't support the priority.
        DriverError: the driver reported an error.
    """

    def __init__(self, device: DeviceLike, context: Gpu, *, priority: int | None = None) -> None:
        self.device = device
        self._context = context
        handle = _create(context, "cuStreamCreateWithPriority", priority)
        self._queue: _Queue | None = _Queue(context, handle, is_ours=True)

    @classmethod
    def in_green_context(cls, device: DeviceLike, context: Gpu, held: HasHandle, priority: int | None) -> CudaStream:
        """Make a stream of a green context, which ``held`` keeps as long as the stream is there.

        Raises:
            LaunchError: the device has no such priority.
            DriverError: the driver reported an error.
        """
        handle = _create(context, "cuGreenCtxStreamCreate", priority, held.handle)
        return cls._on(device, context, _Queue(context, handle, owner=held, is_ours=True))

    @classmethod
    def of(cls, device: DeviceLike, context: Gpu, stream: object) -> CudaStream:
        """Wrap another library's stream, or a handle, as a stream of ``device``. The other library still owns the
        stream.

        Raises:
            LaunchError: the object is not a stream, or the stream belongs to another device.
            ClosedError: the stream was closed.
        """
        return cls._on(device, context, _Queue(context, stream_handle(stream, device), owner=stream))

    @classmethod
    def _on(cls, device: DeviceLike, context: Gpu, queue: _Queue) -> CudaStream:
        result = cls.__new__(cls)
        result.device = device
        result._context = context
        result._queue = queue
        return result

    def _open(self) -> _Queue:
        if self._queue is None:
            raise ClosedError(f"this stream on {self.device.name} is closed")
        return self._queue

    @property
    def handle(self) -> int:
        """The ``CUstream``.

        Raises:
            ClosedError: the stream was closed.
        """
        return self._open().handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """Return the protocol's version and the handle.

        Source: cuda.core manual, "CUDA stream protocol".
        """
        return (0, self.handle)

    @property
    def priority(self) -> int:
        """The priority: a lower number runs first. Default: 0.

        Raises:
            DriverError: the driver reported an error.
            ClosedError: it was closed.
        """
        return int(self._context.call("cuStreamGetPriority", self.handle))

    @property
    def is_capturing(self) -> bool:
        """Whether the stream is being captured into a graph.

        Raises:
            DriverError: the driver reported an error.
            ClosedError: it was closed.
        """
        return memory.is_capturing(self._context, self.handle)

    @property
    def done(self) -> bool:
        """Whether all work in the stream is done.

        Raises:
            LaunchError: the stream is being captured into a graph.
            DriverError: a kernel failed.
            ClosedError: it was closed.
        """
        self._require_free("none of its work is done before the graph is launched")
        return self._context.is_done("cuStreamQuery", self.handle)

    def synchronize(self) -> None:
        """Wait until the work in the stream is done.

        Raises:
            LaunchError: the stream is being captured into a graph.
            DriverError: a kernel failed.
            ClosedError: the stream was closed.
        """
        self._require_free("you can't wait for it")
        self._context.call("cuStreamSynchronize", self.handle)

    def record(self, event: Event | None = None, *, timing: bool = True) -> CudaEvent:
        """Mark this moment by an event: a new one, or ``event`` again.

        Raises:
            ArgumentError: ``event`` is no event of this GPU.
            DriverError: the driver reported an error.
            ClosedError: the stream or the event was closed.
        """
        handle = self.handle
        if event is None:
            event = CudaEvent(self.device, self._context, timing=timing)
        elif not isinstance(event, CudaEvent) or event.device is not self.device:
            raise ArgumentError(
                f"a stream on {self.device.name} can record only events of the same device, not {spell(event)}",
                code="device-mismatch",
            )
        self._context.call("cuEventRecord", event.handle, handle)
        return event

    def wait(self, other: object) -> None:
        """Make later work wait for an event, or for the current work of another stream. The call itself doesn't wait.

        Raises:
            LaunchError: it is neither.
            DriverError: the driver reported an error.
            ClosedError: it was closed.
        """
        handle = self.handle
        if isinstance(other, Stream):
            other = other.record(timing=False)
        if isinstance(other, CudaEvent):
            self._context.call("cuStreamWaitEvent", handle, other.handle, 0)
        elif isinstance(other, Event):
            other.synchronize()
        else:
            self._context.order(stream_handle(other), handle)

    def close(self) -> None:
        """Close the stream. Pending work still completes. Closing the stream again has no effect."""
        self._queue = None

    # -- work on bytes ------------------------------------------------------------------------------------

    def allocate(self, size: int) -> Allocation:
        """Allocate ``size`` bytes for later work in this stream. Once released, they are freed after all work that the
        stream then contains.

        If the GPU doesn't support memory pools, the memory is allocated as by ``device.allocate``.

        Raises:
            LaunchError: the stream is being captured into a graph.
            DriverError: the GPU is out of memory.
            ClosedError: the stream was closed.
        """
        queue = self._open()
        self._require_free("memory can't be allocated in it")
        context = self._context
        stream = CudaStream._on(self.device, context, queue)
        if size == 0:
            return Allocation(0, 0, stream=stream)
        if not context.has_pools:
            plain = memory.blocks_of(context).allocate(size)
            return Allocation(plain.address, size, plain, stream)
        memory.free_late(context, queue.handle, queue.late)
        address, owner = context.pool.allocate(size, queue.handle, queue.late, queue)
        return Allocation(address, size, owner, stream)

    def upload(self, address: int, data: memoryview) -> None:
        """Copy host bytes to the GPU: when it returns they are read, unless they are in ``device.pinned``.

        Raises:
            LaunchError: the stream is captured, and the bytes are not in ``device.pinned``.
            DriverError: the driver reported an error.
        """
        if data.nbytes:
            block = self._copying(data)
            self._context.call("cuMemcpyHtoDAsync", address, memory.address_of(data), data.nbytes, self.handle)
            self._copied(block)

    def download(self, data: memoryview, address: int) -> None:
        """Copy bytes to the host: when it returns they are there, unless ``data`` is in ``device.pinned``.

        Raises:
            LaunchError: the stream is captured, and ``data`` is not in ``device.pinned``.
            DriverError: a kernel failed.
        """
        if data.nbytes:
            block = self._copying(data)
            self._context.call("cuMemcpyDtoHAsync", memory.address_of(data), address, data.nbytes, self.handle)
            self._copied(block)

    def _copying(self, data: memoryview) -> PinnedMemory | None:
        block = pinned_block(data)
        if block is None:
            self._require_free(
                "a copy from or to ordinary host memory can't be captured: a graph would use the memory later. "
                "Memory of device.pinned(shape, dtype) can be copied"
            )
        return block

    def _copied(self, block: PinnedMemory | None) -> None:
        """Wait, or have pinned memory outlive the copy."""
        if block is None:
            self._context.call("cuStreamSynchronize", self.handle)
        elif self.is_capturing:
            self._context.keep_in_graph(self.handle, block)
        else:
            block.users[self.handle] = self.record(timing=False)

    def copy(self, to: int, source: int, size: int, origin: DeviceLike) -> None:
        """Copy ``size`` bytes of ``origin``, this GPU or another one.

        Raises:
            LaunchError: ``origin`` is no GPU.
            DriverError: the driver reported an error.
        """
        context = self._context
        if origin is self.device:
            context.call("cuMemcpyDtoDAsync", to, source, size, self.handle)
            return
        theirs = getattr(origin.backend, "context", None)
        if not isinstance(theirs, GpuContext):
            raise LaunchError(f"{self.device.name} can't copy from {origin.name}, which is not a GPU")
        context.call("cuMemcpyPeerAsync", to, context.handle, source, theirs.handle, size, self.handle)

    def fill(self, address: int, pattern: bytes, count: int) -> None:
        """Write ``pattern`` ``count`` times.

        Raises:
            DriverError: the driver reported an error.
        """
        memory.repeat(self._context, address, pattern, count, self.handle)

    def __repr__(self) -> str:
        return f"<Stream of {self.device.name}{'' if self._queue is not None else ' closed'}>"
