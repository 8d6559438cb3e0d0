"""Streams, events, and graphs of the CPU device, which completes work before the call returns."""

from __future__ import annotations

import ctypes
import itertools
import threading
import time
from collections.abc import Callable

from cujit.devices.streams import Allocation, DeviceLike, Event, Graph, Stream, is_pinned, stream_handle
from cujit.errors import ArgumentError, ClosedError, DriverError, LaunchError, spell

_DO_BEFORE = "wait, and copy from or to ordinary memory, before or after the block"
_LEAVE = "leave the block in the thread that entered it, or use mode='relaxed'"


def _error(reason: str, message: str, call: str, help: str) -> DriverError:
    """Make the error that a GPU's driver has for a capture."""
    return DriverError(message, call=call, result=f"CUDA_ERROR_STREAM_CAPTURE_{reason}", help=help)


_NOT_PINNED = "a copy from or to ordinary host memory can't be captured: a graph would use the memory later"


class Captures:
    """The graphs into which streams of a device are being captured, by stream number. This class also assigns the
    numbers.
    """

    def __init__(self) -> None:
        # Not 0 to 2, which are the default streams. Source: CUDA Driver API manual, CU_STREAM_LEGACY and _PER_THREAD.
        self._numbers = itertools.count(16)
        self._graphs: dict[int, InOrderGraph] = {}
        self._running = threading.local()

    def number(self) -> int:
        """Return the number of a new stream."""
        return next(self._numbers)

    def begin(self, stream: int, graph: InOrderGraph) -> None:
        """Capture work in ``stream`` into ``graph``."""
        self._graphs[stream] = graph

    def end(self, graph: InOrderGraph) -> None:
        """End the capture into ``graph``: new work in the captured streams runs again."""
        for stream in [number for number, other in self._graphs.items() if other is graph]:
            del self._graphs[stream]

    def of(self, stream: int) -> InOrderGraph | None:
        """Return the graph that work in ``stream`` is captured into, if there is one."""
        return self._graphs.get(stream) if self._graphs else None

    def do(self, stream: int, work: Callable[[], None]) -> None:
        """Do work in ``stream``. If the stream is being captured, the work is done when its graph is launched,
        otherwise now.

        Raises:
            DriverError: the capture of the stream failed earlier.
        """
        graph = self.of(stream)
        if graph is not None:
            graph.add(work)
            return
        before = getattr(self._running, "is_running", False)
        self._running.is_running = True
        try:
            work()
        finally:
            self._running.is_running = before

    def check_wait(self, call: str) -> None:
        """Refuse a waiting call that the mode of a capture forbids, and invalidate each capture that forbids the call.

        A capture forbids such calls in its thread unless the mode is relaxed. A global capture forbids such calls in
        all threads. Calls within other work, such as the work of a graph, are not checked.

        Args:
            call: name of the driver function that the call would use on a GPU.

        Raises:
            DriverError: a capture forbids the call.
        """
        if self._graphs and not getattr(self._running, "is_running", False):
            mine = threading.get_ident()
            self._refuse(call, [g for g in self._graphs.values() if g.mode == "global" or g.is_of(mine)])

    def check_wait_for_all(self, call: str) -> None:
        """Refuse a call that waits for all streams if a stream is being captured, in any mode.

        Raises:
            DriverError: a stream is being captured.
        """
        if self._graphs:
            self._refuse(call, list(self._graphs.values()))

    def _refuse(self, call: str, graphs: list[InOrderGraph]) -> None:
        for graph in graphs:
            graph.is_spoiled = True
        if graphs:
            message = f"this can't be done while a stream is captured in mode={graphs[0].mode!r}"
            raise _error("UNSUPPORTED", message, call, _DO_BEFORE)


class InOrderEvent(Event):
    """An event of the CPU device. All earlier work is done, unless the event is in a graph that is being captured."""

    def __init__(self, device: DeviceLike, captures: Captures, *, timing: bool) -> None:
        self.device = device
        self.timed = timing
        self._captures = captures
        self.graph: InOrderGraph | None = None
        self._at_ns: int | None = time.perf_counter_ns()

    def mark(self, graph: InOrderGraph | None) -> None:
        """Record the event: in ``graph`` if its stream is being captured, otherwise now."""
        self._time()
        self.graph = graph
        self._at_ns = time.perf_counter_ns()

    def _time(self) -> int:
        if self._at_ns is None:
            raise ClosedError(f"this event on {self.device.name} is closed")
        return self._at_ns

    @property
    def done(self) -> bool:
        """Always True, because all work is done when a call returns."""
        self._time()
        self._captures.check_wait("cuEventQuery")
        return True

    def synchronize(self) -> None:
        """Check that no capture forbids waiting, and return immediately."""
        self._time()
        self._captures.check_wait("cuEventSynchronize")
        if self.graph is not None:
            raise LaunchError(
                "this event was recorded in a graph and doesn't exist outside the graph", code="stream-capture"
            )

    def _elapsed_ms(self, since: Event) -> float:
        assert isinstance(since, InOrderEvent)  # events of one device are of one class
        return (self._time() - since._time()) / 1e6

    def close(self) -> None:
        """Close the event. Closing the event again has no effect."""
        self._at_ns = None

    def __repr__(self) -> str:
        return f"<Event of {self.device.name}{' closed' if self._at_ns is None else ''}>"


class InOrderStream(Stream):
    """A stream without pending work, because each piece of work is done when the call returns."""

    def __init__(self, device: DeviceLike, captures: Captures, number: int) -> None:
        self.device = device
        self._captures = captures
        self._number: int | None = number

    @property
    def handle(self) -> int:
        """Its number, which no driver knows.

        Raises:
            ClosedError: it was closed.
        """
        if self._number is None:
            raise ClosedError(f"this stream on {self.device.name} is closed")
        return self._number

    @property
    def is_capturing(self) -> bool:
        """Whether the stream is being captured into a graph."""
        return self._captures.of(self.handle) is not None

    @property
    def done(self) -> bool:
        """Always True, because all work is done when a call returns."""
        self._require_free("none of its work is done before the graph is launched")
        self._captures.check_wait("cuStreamQuery")
        return True

    def synchronize(self) -> None:
        """Check that no capture forbids waiting, and return immediately."""
        self._require_free("you can't wait for it")
        self._captures.check_wait("cuStreamSynchronize")

    def record(self, event: Event | None = None, *, timing: bool = True) -> InOrderEvent:
        """Mark this moment by an event: a new one, or ``event`` again."""
        graph = self._captures.of(self.handle)
        if event is None:
            event = InOrderEvent(self.device, self._captures, timing=timing)
        elif not isinstance(event, InOrderEvent) or event.device is not self.device:
            raise ArgumentError(
                f"a stream on {self.device.name} can record only events of the same device, not {spell(event)}",
                code="device-mismatch",
            )
        event.mark(graph)
        return event

    def wait(self, other: object) -> None:
        """Wait for an event of a GPU. All work of the CPU device is already done, so its events and streams only join a
        capture.
        """
        handle = self.handle
        if isinstance(other, InOrderEvent):
            other._time()
            self._join(handle, other.graph)
        elif isinstance(other, Event):
            other.synchronize()
        elif isinstance(other, InOrderStream) and other.device is self.device:
            self._join(handle, self._captures.of(other.handle))
        elif isinstance(other, Stream):
            other.synchronize()
        else:
            stream_handle(other)

    def _join(self, handle: int, graph: InOrderGraph | None) -> None:
        """Capture into a graph that is being captured in the stream that was waited for."""
        if graph is not None and graph.is_capturing and self._captures.of(handle) is None:
            self._captures.begin(handle, graph)

    def close(self) -> None:
        """Close the stream. Closing again is harmless."""
        self._number = None

    def allocate(self, size: int) -> Allocation:
        """Allocate ``size`` bytes."""
        self._require_free("memory can't be allocated in it")
        self._captures.check_wait("cuMemAllocFromPoolAsync")
        found = self.device.allocate(size)
        stream = InOrderStream(self.device, self._captures, self.handle)
        return Allocation(found.address, size, found.owner, stream)

    def upload(self, address: int, data: memoryview) -> None:
        """Copy host bytes to the device."""
        self._copied(data)
        self._captures.do(self.handle, lambda: self.device.upload(address, data))

    def download(self, data: memoryview, address: int) -> None:
        """Copy bytes to the host."""
        self._copied(data)
        self._captures.do(self.handle, lambda: self.device.download(data, address))

    def _copied(self, data: memoryview) -> None:
        if not is_pinned(data):
            self._require_free(_NOT_PINNED)
            self._captures.check_wait("cuStreamSynchronize")

    def copy(self, to: int, source: int, size: int, origin: DeviceLike) -> None:
        """Copy ``size`` bytes within the memory of the host."""
        del origin
        self._captures.do(self.handle, lambda: _move(self.device, to, source, size))

    def fill(self, address: int, pattern: bytes, count: int) -> None:
        """Write ``pattern`` ``count`` times."""
        self._captures.do(self.handle, lambda: _repeat(self.device, address, pattern, count))

    def __repr__(self) -> str:
        return f"<Stream of {self.device.name}{' closed' if self._number is None else ''}>"


def _move(device: DeviceLike, to: int, source: int, size: int) -> None:
    device.copied(to, source, size)
    ctypes.memmove(to, source, size)


def _repeat(device: DeviceLike, address: int, pattern: bytes, count: int) -> None:
    if pattern == pattern[:1] * len(pattern):
        device.fill(address, len(pattern) * count, pattern[0])
    else:
        device.upload(address, memoryview(pattern * count))


class InOrderGraph(Graph):
    """A list of calls; ``add`` appends one."""

    def __init__(self, device: DeviceLike, stream: Stream, captures: Captures, mode: str) -> None:
        super().__init__(device, stream)
        self._captures = captures
        self.mode = mode
        self.is_spoiled = False
        self._thread = 0
        self._works: list[Callable[[], None]] = []
        self.is_capturing = False

    @property
    def nodes(self) -> int:
        """The number of launches, copies and fills in the graph."""
        return len(self._works)

    def is_of(self, thread: int) -> bool:
        """Return whether a thread captures into the graph, in a mode that forbids it some calls."""
        return self._thread == thread and self.mode != "relaxed"

    def add(self, work: Callable[[], None]) -> None:
        """Record a piece of work.

        Raises:
            DriverError: the capture failed earlier.
        """
        self._check("cuStreamIsCapturing")
        self._works.append(work)

    def _begin(self) -> None:
        if self.stream.handle == 0:
            raise LaunchError(
                "the default stream can't be captured",
                help="capture a separate stream: device.stream()",
                code="stream-capture",
            )
        self._captures.begin(self.stream.handle, self)
        self._thread = threading.get_ident()
        self.is_capturing = True

    def _check(self, call: str) -> None:
        if self.is_spoiled:
            raise _error("INVALIDATED", "the capture failed: a call in the block invalidated it", call, _DO_BEFORE)

    def _end(self, *, keep: bool) -> None:
        self.is_capturing = False
        self._captures.end(self)
        if not keep:
            self._works.clear()
            return
        self._check("cuStreamEndCapture")
        if self.mode != "relaxed" and self._thread != threading.get_ident():
            message = "the capture failed: it began in another thread"
            raise _error("WRONG_THREAD", message, "cuStreamEndCapture", _LEAVE)

    def _launch(self, stream: Stream) -> None:
        outer = self._captures.of(stream.handle)
        if outer is not None:
            outer.keep(*self._kept)
        for work in list(self._works):
            self._captures.do(stream.handle, work)

    def _update(self, other: Graph) -> None:
        if other.nodes != self.nodes:
            raise LaunchError(
                f"a graph with {self.nodes} nodes can't be updated from a graph with {other.nodes} nodes",
                help="capture a new graph and launch it",
                code="graph-update",
            )
        assert isinstance(other, InOrderGraph)  # graphs of one device are of one class
        self._works = list(other._works)

    def _release(self) -> None:
        self._works.clear()
