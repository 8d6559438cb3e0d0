"""CUDA graphs: launches and copies that are captured once and launched together."""

from __future__ import annotations

import weakref
from typing import Any

from cujit.devices.cuda import memory
from cujit.devices.cuda.gpu import Gpu
from cujit.devices.streams import DeviceLike, Graph, PinnedMemory, Stream
from cujit.errors import DriverError, LaunchError

_LEGACY = 1  # CU_STREAM_LEGACY; 0 is the same. Source: CUDA Driver API manual, "Stream synchronization behavior".

_HELP = {
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": "a call inside the block can't be captured (waiting for the GPU, plain "
    "copies, allocation, work in the default stream); do it before the block",
    "CUDA_ERROR_STREAM_CAPTURE_UNJOINED": "the stream has to wait for the other streams at the end of the block: "
    "stream.wait(other)",
    "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD": "leave the block in the thread that entered it, or use mode='relaxed'",
}


class CudaGraph(Graph):
    """A ``CUgraph``, and the executable graph that the driver creates from it for launches."""

    def __init__(self, device: DeviceLike, context: Gpu, stream: Stream, mode: str) -> None:
        super().__init__(device, stream)
        self._context = context
        self._mode = mode
        self._graph: Any = None
        self._executable: Any = None
        self._nodes = 0
        self._owned: dict[str, weakref.finalize[..., Any]] = {}

    @property
    def nodes(self) -> int:
        """How many launches, copies, fills and waits it has; a graph that was launched in it counts as one."""
        return self._nodes

    def _begin(self) -> None:
        handle = self.stream.handle
        if handle <= _LEGACY:
            raise LaunchError(
                "the default stream can't be captured",
                help="capture a separate stream: device.stream()",
                code="stream-capture",
            )
        modes = self._context.driver.bindings.CUstreamCaptureMode
        mode = getattr(modes, f"CU_STREAM_CAPTURE_MODE_{self._mode.upper()}")
        self._context.call("cuStreamBeginCapture", handle, mode)
        self._context.capturing[handle] = self

    def _end(self, *, keep: bool) -> None:
        context, handle = self._context, self.stream.handle
        self._context.capturing.pop(handle, None)
        with context as driver:
            status, *result = driver.attempt("cuStreamEndCapture", handle)
        good = status == driver.bindings.CUresult.CUDA_SUCCESS
        graph = result[0] if good and result else None
        if not keep:
            if graph is not None:
                context.release("cuGraphDestroy", graph)
            return
        if graph is None:
            raise _explained(context.explained(driver.error("cuStreamEndCapture", status)))
        self._adopt(graph)

    def _adopt(self, graph: Any) -> None:
        context = self._context
        try:
            executable = context.call("cuGraphInstantiate", graph, 0)
        except DriverError:
            context.release("cuGraphDestroy", graph)
            raise
        self._graph, self._executable = graph, executable
        self._own("cuGraphDestroy", graph)
        self._own("cuGraphExecDestroy", executable)
        _handles, count = context.call("cuGraphGetNodes", graph, 0)
        self._nodes = int(count)

    def _own(self, destroy: str, handle: Any) -> None:
        """Make the driver destroy a handle when this graph is destroyed. Immediately destroy the handle that it
        replaces.

        The driver waits for pending launches before it frees their resources.
        """
        before = self._owned.pop(destroy, None)
        if before is not None:
            before()
        self._owned[destroy] = weakref.finalize(self, self._context.release, destroy, handle)
        self._owned[destroy].atexit = False

    def _launch(self, stream: Stream) -> None:
        context, handle = self._context, stream.handle
        if memory.is_capturing(context, handle):
            self._add_to(handle)
            self._context.keep_in_graph(handle, *self._kept)
            return
        context.call("cuGraphLaunch", self._executable, handle)
        context.ring.note(context.ring.label(f"a graph of {self._nodes} nodes: stream {handle:#x}"))
        pinned = [block for block in self._kept if isinstance(block, PinnedMemory)]
        if not pinned:
            return
        event = stream.record(timing=False)
        for block in pinned:
            block.users[handle] = event

    def _add_to(self, stream: int) -> None:
        """Add a copy of this graph as a node of the graph into which a stream is captured. Later work in the stream
        follows the node.

        The driver refuses to capture a launch of a graph, and invalidates the capture. Source: measured with driver
        580, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED; CUDA Driver API manual, ``cuGraphAddChildGraphNode``.
        """
        context, bindings = self._context, self._context.driver.bindings
        status, _id, outer, before, *_ = context.call(versioned(bindings, "cuStreamGetCaptureInfo", 3), stream)
        if status != bindings.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE:
            raise LaunchError(
                "the capture of this stream has already failed",
                help="leave the with block to get an error that states the reason",
                code="stream-capture",
            )
        node = context.call("cuGraphAddChildGraphNode", outer, before, len(before), self._graph)
        flags = bindings.CUstreamUpdateCaptureDependencies_flags.CU_STREAM_SET_CAPTURE_DEPENDENCIES.value
        context.call(versioned(bindings, "cuStreamUpdateCaptureDependencies", 2), stream, [node], None, 1, flags)

    def _update(self, other: Graph) -> None:
        assert isinstance(other, CudaGraph)  # graphs of one device are of one class
        context = self._context
        graph = context.call("cuGraphClone", other._graph)  # for graphs that it goes into; the other one may go
        with context as driver:
            status, *_reason = driver.attempt("cuGraphExecUpdate", self._executable, other._graph)
        if status != driver.bindings.CUresult.CUDA_SUCCESS:
            context.release("cuGraphDestroy", graph)
            why = driver.error("cuGraphExecUpdate", status)
            raise LaunchError(
                f"a graph with {self.nodes} nodes can't be updated from a graph with {other.nodes} nodes: "
                f"{why.message} ({why.result})",
                help="capture a new graph and launch it",
                code="graph-update",
            )
        self._graph = graph
        self._own("cuGraphDestroy", graph)

    def _release(self) -> None:
        for destroy in self._owned.values():
            destroy()


def versioned(bindings: Any, function: str, version: int) -> str:
    """Return the name of one version of a driver function. Bindings of CUDA 13 contain only the newest version, without
    a suffix.

    Source: cuda.bindings 12.9.4 and 13.5.0.
    """
    name = f"{function}_v{version}"
    return name if hasattr(bindings, name) else function


def _explained(error: DriverError) -> DriverError:
    return DriverError(
        f"the capture failed: {error.message}",
        **error.facts,
        help=_HELP.get(error.result, error.help),
        code="stream-capture",
    )
