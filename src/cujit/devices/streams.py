"""Streams, events, graphs, and memory as on every device, and the stream handles of other libraries.

On a GPU, they belong to the driver. The CPU device does its work immediately. On it, a stream never waits, an event is
a point in time, and a graph is the list of requested operations (``cpu/run/streams.py``).
"""

from __future__ import annotations

import abc
import enum
import math
import operator
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from cujit.errors import ArgumentError, ClosedError, LaunchError, spell

if TYPE_CHECKING:
    import numpy.typing as npt

CAPTURE_MODES = ("relaxed", "thread_local", "global")
"""What other work is allowed during a capture. Source: CUDA Driver API manual, ``CUstreamCaptureMode``."""

_S = TypeVar("_S", bound="Stream")
_E = TypeVar("_E", bound="Event")
_G = TypeVar("_G", bound="Graph")


class DeviceLike(Protocol):
    """The interface of a ``Device`` for its streams, arrays, and textures.

    They can't import ``Device``, because it creates them.
    """

    @property
    def name(self) -> str:
        """``cuda:0``, ``cpu``."""

    @property
    def is_gpu(self) -> bool:
        """Whether its memory is a GPU's."""

    @property
    def ordinal(self) -> int:
        """Its number among the GPUs; 0 for the CPU device."""

    @property
    def backend(self) -> object:
        """The back end that does the work of the device."""

    def allocate(self, size: int) -> Allocation:
        """Allocate ``size`` bytes of memory."""

    def upload(self, address: int, data: memoryview) -> None:
        """Copy host bytes to the device."""

    def read(self, address: int, size: int, elements: np.dtype[Any], *, shared: bool = False) -> None:
        """Report to the checks which bytes the host is about to copy or to share."""

    def copied(self, to: int, source: int, size: int) -> None:
        """Report to the checks that bytes were copied within the device's memory."""

    def download(self, data: memoryview, address: int) -> None:
        """Copy device bytes to the host."""

    def fill(self, address: int, size: int, byte: int = 0) -> None:
        """Set bytes to one value."""

    def queue(self, stream: object) -> Stream:
        """Return the Stream of this device for a stream in any form that users may pass."""

    def order(self, earlier: int, later: int) -> None:
        """Make a stream wait for another one."""

    def ordinal_of(self, address: int) -> int | None:
        """Return the GPU that memory is on."""

    def synchronize(self) -> None:
        """Wait until all work is done."""


class Allocation:
    """Device memory with its address and its size in bytes. ``owner`` keeps it alive.

    ``stream`` is the stream in which the memory was allocated and will be freed. None is the default stream.
    """

    __slots__ = ("__weakref__", "address", "owner", "size", "stream")

    def __init__(self, address: int, size: int, owner: object = None, stream: Stream | None = None) -> None:
        self.address, self.size, self.owner, self.stream = address, size, owner, stream

    def __repr__(self) -> str:
        return f"Allocation(address={self.address}, size={self.size})"


class Event(abc.ABC):
    """A point in a stream. An event is done when all earlier work in the stream is done. Create an event with
    ``stream.record()``.

    Example::

        with device.stream() as stream:
            before = stream.record()
            kernel[4, 256, 0, stream](2.0, x, y, 1000)
            print(stream.record().elapsed_ms(before))
    """

    device: DeviceLike
    timed: bool
    """Whether it can be measured with."""

    @property
    @abc.abstractmethod
    def done(self) -> bool:
        """Whether all work before the event is done.

        Raises:
            DriverError: a kernel failed.
            ClosedError: the event was closed.
        """

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait until all work before the event is done.

        Raises:
            DriverError: a kernel failed.
            ClosedError: the event was closed.

        Example::

            device.stream(0).record().synchronize()
        """

    def elapsed_ms(self, since: Event) -> float:
        """Return the time from ``since`` to this event in milliseconds. The call waits for both events.

        GPU events have a resolution of about half a microsecond. Source: CUDA Driver API manual,
        ``cuEventElapsedTime``.

        Args:
            since: an earlier event.

        Raises:
            ArgumentError: an event is not from this device, or was recorded with ``timing=False``.
            DriverError: a kernel failed.
            ClosedError: a graph was closed.

        Example::

            first, second = device.stream(0).record(), device.stream(0).record()
            assert second.elapsed_ms(first) >= 0
        """
        if not isinstance(since, Event):
            raise ArgumentError(
                f"elapsed time is measured from an event, not from {type(since).__name__} {spell(since)}"[:200]
            )
        if since.device is not self.device:
            raise ArgumentError(
                f"an event on {since.device.name} and an event on {self.device.name} have no common clock",
                help="record both events on the same device",
                code="device-mismatch",
            )
        if not (self.timed and since.timed):
            raise ArgumentError(
                "the event was recorded with timing=False, so it can't measure time",
                help="remove timing=False: stream.record()",
            )
        since.synchronize()
        self.synchronize()
        return self._elapsed_ms(since)

    @abc.abstractmethod
    def _elapsed_ms(self, since: Event) -> float: ...

    @abc.abstractmethod
    def close(self) -> None:
        """Close the event. Closing the event again has no effect.

        Example::

            device.stream(0).record().close()
        """

    def __enter__(self: _E) -> _E:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class Stream(abc.ABC):
    """A queue of work on a device. Work in a stream runs in order, concurrently with the work in other streams.

    If you use the stream as a context manager, it is closed at the end of the ``with`` block.

    Example::

        stream = device.stream()
        kernel[4, 256, 0, stream](2.0, x, y, 1000)
        stream.synchronize()
    """

    device: DeviceLike

    @property
    @abc.abstractmethod
    def handle(self) -> int:
        """The stream handle. On a GPU, it is the ``CUstream``; 0 is the default stream.

        Raises:
            ClosedError: the stream was closed.
        """

    @property
    def priority(self) -> int:
        """The priority. Work with a lower number runs first. Default: 0, which is the only priority of the CPU device.

        Raises:
            DriverError: the driver reported an error.
            ClosedError: the stream was closed.
        """
        return 0

    @property
    @abc.abstractmethod
    def is_capturing(self) -> bool:
        """Whether the stream is being captured into a graph."""

    @property
    @abc.abstractmethod
    def done(self) -> bool:
        """Whether all work in the stream is done.

        Raises:
            LaunchError: the stream is being captured into a graph.
            DriverError: a kernel failed.
            ClosedError: the stream was closed.
        """

    @abc.abstractmethod
    def synchronize(self) -> None:
        """Wait until all work in the stream is done.

        Raises:
            LaunchError: the stream is being captured into a graph.
            DriverError: a kernel failed.
            ClosedError: the stream was closed.

        Example::

            device.stream(0).synchronize()
        """

    @abc.abstractmethod
    def record(self, event: Event | None = None, *, timing: bool = True) -> Event:
        """Record a new event, or ``event``, at this point in the stream.

        Args:
            event: an existing event to record again. Default: a new event.
            timing: whether a new event can measure time. An event with ``timing=False`` is cheaper.

        Raises:
            ArgumentError: ``event`` is not an event of this device.
            DriverError: the driver reported an error.
            ClosedError: the stream or the event was closed.

        Example::

            event = device.stream(0).record(timing=False)
        """

    @abc.abstractmethod
    def wait(self, other: object) -> None:
        """Make later work wait for an event, or for the current work of another stream. The call itself doesn't wait.

        Args:
            other: an Event, a Stream, or another library's stream.

        Raises:
            LaunchError: the value has a different type.
            DriverError: the driver reported an error.
            ClosedError: the stream or ``other`` was closed.

        Example::

            first, second = device.stream(), device.stream()
            kernel[4, 256, 0, first](2.0, x, y, 1000)
            second.wait(first)
        """

    @abc.abstractmethod
    def close(self) -> None:
        """Close the stream. Pending work still completes. Closing the stream again has no effect.

        Example::

            stream = device.stream()
            stream.close()
        """

    # -- work on bytes, for arrays ------------------------------------------------------------------------

    @abc.abstractmethod
    def allocate(self, size: int) -> Allocation:
        """Allocate ``size`` bytes for later work in this stream.

        When the memory is released, it is freed after the work that is then in the stream.
        """

    @abc.abstractmethod
    def upload(self, address: int, data: memoryview) -> None:
        """Copy host bytes to the device: when it returns they are read, unless they are in ``device.pinned``."""

    @abc.abstractmethod
    def download(self, data: memoryview, address: int) -> None:
        """Copy bytes to the host: when it returns they are there, unless ``data`` is in ``device.pinned``."""

    @abc.abstractmethod
    def copy(self, to: int, source: int, size: int, origin: DeviceLike) -> None:
        """Copy ``size`` bytes of ``origin``, which is this device or another one of its kind."""

    @abc.abstractmethod
    def fill(self, address: int, pattern: bytes, count: int) -> None:
        """Write ``pattern`` ``count`` times."""

    # -- shared -------------------------------------------------------------------------------------------

    def _require_free(self, what: str) -> None:
        """Refuse an operation while the stream is captured, because it would invalidate the capture."""
        if self.is_capturing:
            raise LaunchError(
                f"this stream on {self.device.name} is being captured into a graph: {what}",
                help="do this before or after the capture",
                code="stream-capture",
            )

    def __enter__(self: _S) -> _S:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()


class _State(enum.Enum):
    NEW = "is not captured yet"
    CAPTURING = "is being captured"
    READY = "is captured"
    CLOSED = "was closed"


class Graph(abc.ABC):
    """Work that you capture once and can launch many times: ``with device.capture(stream) as graph: …``.

    Inside the ``with`` block, nothing runs. cujit records the launches and copies, with their arguments, in ``stream``
    and in streams that wait for ``stream``. ``graph.launch()`` runs the recorded work. Keep the arrays and modules
    alive as long as you launch the graph, for example with ``keep``.

    Example::

        with device.capture() as graph:
            kernel[4, 256, 0, graph.stream](2.0, x, y, 1000)
        graph.launch()
    """

    def __init__(self, device: DeviceLike, stream: Stream) -> None:
        self.device = device
        self.stream = stream
        self._state = _State.NEW
        self._kept: list[object] = []

    @property
    @abc.abstractmethod
    def nodes(self) -> int:
        """The number of launches, copies, and fills. On a GPU, the number includes nodes that only enforce an order. A
        nested graph counts as one node.
        """

    def keep(self, *objects: object) -> None:
        """Keep objects that the work uses alive until the graph is closed.

        Args:
            objects: arrays, modules, and other objects to keep alive.

        Example::

            with device.capture() as graph:
                kernel[4, 256, 0, graph.stream](2.0, x, y, 1000)
            graph.keep(x, y)
        """
        self._kept.extend(objects)

    def launch(self, stream: object = None) -> None:
        """Run the work of the graph, in the stream in which it was captured or in another stream.

        If the stream is being captured, a copy of this graph becomes part of the graph being captured.

        Args:
            stream: stream to launch in. Default: the stream in which the graph was captured.

        Raises:
            LaunchError: the capture isn't complete, or ``stream`` is not a stream.
            DriverError: the driver reported an error.
            ClosedError: the graph, the stream or, on the CPU device, a module that the graph uses was closed.

        Example::

            with device.capture() as graph:
                kernel[4, 256, 0, graph.stream](2.0, x, y, 1000)
            graph.launch()
        """
        self._require()
        self._launch(self.stream if stream is None else self.device.queue(stream))

    def update(self, other: Graph) -> None:
        """Replace the arguments and sizes with those of ``other``, a graph with the same work in the same order.

        Args:
            other: a graph with the same work in the same order.

        Raises:
            LaunchError: the work of the two graphs differs.
            ArgumentError: ``other`` is not a graph on this device.
            ClosedError: a graph was closed.

        Example::

            graphs = []
            for factor in (2.0, 3.0):
                with device.capture() as graph:
                    kernel[4, 256, 0, graph.stream](factor, x, y, 1000)
                graphs.append(graph)
            graphs[0].update(graphs[1])
        """
        if not isinstance(other, Graph) or other.device is not self.device:
            raise ArgumentError(
                f"a graph on {self.device.name} can be updated only from another graph on the same device, not "
                f"from {spell(other)}",
                code="device-mismatch",
            )
        self._require()
        other._require()
        self._update(other)
        self._kept.extend(other._kept)

    def close(self) -> None:
        """Close the graph. A launch in progress still completes. Closing the graph again has no effect.

        Raises:
            LaunchError: the graph is being captured.

        Example::

            with device.capture() as graph:
                pass
            graph.close()
        """
        if self._state is _State.CAPTURING:
            raise LaunchError(
                "this graph is still being captured", help="close the graph after the with block", code="stream-capture"
            )
        self._state = _State.CLOSED
        self._release()
        self._kept.clear()

    def __enter__(self: _G) -> _G:
        if self._state is not _State.NEW:
            raise LaunchError(
                f"this graph {self._state.value}; a capture creates only one graph",
                help="create another one: with device.capture(stream) as graph",
                code="stream-capture",
            )
        self.stream._require_free("a second capture can't begin in it")
        self._begin()
        self._state = _State.CAPTURING
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._state = _State.CLOSED
        try:
            self._end(keep=error is None)
            if error is None:
                self._state = _State.READY
        finally:
            if self._state is _State.CLOSED:
                self._kept.clear()

    def _require(self) -> None:
        if self._state is _State.CLOSED:
            raise ClosedError(f"this graph on {self.device.name} is closed, or its capture failed")
        if self._state is not _State.READY:
            raise LaunchError(
                f"this graph {self._state.value}",
                help="write with device.capture(stream) as graph: …; then graph.launch()",
                code="stream-capture",
            )

    @abc.abstractmethod
    def _begin(self) -> None:
        """Begin to capture."""

    @abc.abstractmethod
    def _end(self, *, keep: bool) -> None:
        """End the capture, and make it ready or, where the block failed, drop it without an error."""

    @abc.abstractmethod
    def _launch(self, stream: Stream) -> None: ...

    @abc.abstractmethod
    def _update(self, other: Graph) -> None: ...

    @abc.abstractmethod
    def _release(self) -> None: ...

    def __repr__(self) -> str:
        return f"<Graph on {self.device.name} that {self._state.value}>"


class PinnedMemory:
    """Pinned host memory of ``size`` bytes at ``address``. ``owner`` keeps it alive.

    NumPy accesses it through the array interface. ``users`` contains the last event of each stream that copies from or
    to the memory, by stream number. Code that frees the memory waits for these events.
    """

    def __init__(self, address: int, size: int, owner: object) -> None:
        self.address = address
        self.size = size
        self.owner = owner
        self.users: dict[int, Event] = {}

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The memory in NumPy's array interface, version 3. Source: NumPy manual, "The array interface protocol"."""
        return {"shape": (self.size,), "typestr": "|u1", "data": (self.address, False), "version": 3}


def pinned_array(memory: PinnedMemory, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the start of the memory as an array. The array and all its views keep the memory alive."""
    return np.asarray(memory)[: math.prod(shape) * dtype.itemsize].view(dtype).reshape(shape)


def pinned_block(data: memoryview) -> PinnedMemory | None:
    """Return the pinned memory that contains the data, or None if the data is in other memory."""
    owner: object = data.obj
    while isinstance(owner, (np.ndarray, memoryview)):
        owner = owner.base if isinstance(owner, np.ndarray) else owner.obj
    return owner if isinstance(owner, PinnedMemory) else None


def is_pinned(data: memoryview) -> bool:
    """Return whether bytes are in pinned memory."""
    return pinned_block(data) is not None


# -- what users pass --------------------------------------------------------------------------------------


def stream_handle(stream: object, device: DeviceLike | None = None) -> int:
    """Return the handle of a stream: None, an int, a cujit Stream, or an object with ``__cuda_stream__``.

    For library versions without this protocol, torch's ``cuda_stream`` and CuPy's ``ptr`` are also accepted. A cujit
    Stream must belong to ``device``, if specified. Otherwise, a stream of the CPU device counts as the default stream,
    because its number is not a handle.

    Raises:
        LaunchError: the object is not a stream, or belongs to another device.
        ClosedError: the stream was closed.
    """
    if stream is None or (type(stream) is int and 0 <= stream < 1 << 64):
        return stream or 0
    if isinstance(stream, Stream):
        return _handle_of_ours(stream, device)
    protocol = getattr(stream, "__cuda_stream__", None)
    try:
        if callable(protocol):
            _version, handle = protocol()
        elif protocol is not None:
            _version, handle = protocol
        else:
            handle = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))
        value = operator.index(handle)
    except (TypeError, ValueError):
        raise LaunchError(
            f"stream is {type(stream).__name__} {spell(stream)}, which is not a stream",
            help="pass a CUstream handle as an int, or an object with __cuda_stream__",
            code="stream",
        ) from None
    if not 0 <= value < 1 << 64:
        raise LaunchError(f"stream {spell(value)} is not a valid handle", code="stream")
    return value


def _handle_of_ours(stream: Stream, device: DeviceLike | None) -> int:
    handle = stream.handle
    if device is None:
        return handle if stream.device.is_gpu else 0
    if stream.device is not device:
        raise LaunchError(
            f"a stream on {stream.device.name} can't contain work for {device.name}",
            help="create a stream on the other device: device.stream()",
            code="stream",
        )
    return handle


def check_mode(mode: object) -> None:
    """Check the mode of a capture.

    Raises:
        LaunchError: the value is invalid.
    """
    if not isinstance(mode, str) or mode not in CAPTURE_MODES:
        raise LaunchError(
            f"unknown capture mode {spell(mode)}",
            help=f"use one of {', '.join(CAPTURE_MODES)}",
            code="stream-capture",
        )
