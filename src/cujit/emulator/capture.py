"""Streams that are captured: calls on them become nodes of a graph instead of being done.

For who does work on streams, in Python::

    def run() -> None: …                      # do it now, or when the graph is launched
    if not recorded(stream, NodeKind.MEMSET, params, run):
        run()

``params`` is the structure that ``cuGraph…NodeGetParams`` is to give: of copies a ``CUDA_MEMCPY3D``, of kernels a
``CUDA_KERNEL_NODE_PARAMS_v2`` whose pointers stay; see ``node_params``. ``recorded`` also answers wrong handles, so it
is asked before anything is done. ``stream`` is what the caller gave, by the letter ``S``.

* ``not_captured(stream)``: for work on a stream that cannot be a node, a copy that waits for example.
* ``safe()``: for calls that may not be made at all while somebody captures, ``cuMemAlloc`` for example.

In C, ``state.h``: while ``state.capturing`` is 0, no stream is captured, and a stream's handle has only to be one.
``SAFE()`` is ``safe``. Otherwise the call belongs to Python.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Iterable
from typing import Any

from cujit.emulator import contexts
from cujit.emulator.entries import (
    LEGACY_STREAM,
    EntryPoint,
    checked,
    got,
    load_u64,
    require,
    started,
    store_u32,
    store_u64,
    without_data,
)
from cujit.emulator.machine import cell_is, guarded, in_c
from cujit.emulator.node_params import HostParams
from cujit.emulator.nodes import (
    GRAPHS,
    LOCK,
    NO_DATA,
    EmulatedGraph,
    GraphNode,
    NodeKind,
    Work,
    behind,
    graph_of,
    node_of,
)
from cujit.emulator.process import emulation
from cujit.emulator.results import RefusedCall, Result
from cujit.emulator.structures import (
    GO_ON,
    CaptureQuestion,
    CaptureStatus,
    CellKind,
    EventCell,
    GraphStep,
    StepKind,
    StreamCell,
)
from cujit.forks import once

GLOBAL, THREAD_LOCAL, RELAXED = range(3)
"""Modes of a capture, and of a thread. Source: CUDA Driver API manual, ``CUstreamCaptureMode``."""

_NON_BLOCKING, _EXTERNAL = 1, 1
_ADD, _SET = 0, 1

_stream = in_c("emulator_stream", ctypes.c_int32, ctypes.c_uint64, ctypes.POINTER(ctypes.c_uint64))
_end_streams = in_c("emulator_end_streams", None, ctypes.c_uint64)
_capture_mode = in_c("emulator_capture_mode", ctypes.c_uint32)
_host = in_c("emulator_host", None, *[ctypes.c_uint64] * 4)
record_event = in_c("emulator_record", ctypes.c_int32, ctypes.c_uint64)
"""Record an event now; what that answers."""

Tail = dict[GraphNode, bytes]
"""The nodes that the next one of a stream waits for, with the data of the edges."""


def stream_cell(handle: int) -> StreamCell:
    """Return the cell that a stream's handle points to, for a default stream too.

    Raises:
        Refused: it is no stream's, or its context has ended in an error.
    """
    found = ctypes.c_uint64()
    checked(_stream(handle, found))
    return StreamCell.from_address(found.value)


def call_host(function: int, *arguments: int) -> None:
    """Call a host function of the caller's, which may not call the driver."""
    _host(function, *arguments, *[0] * (3 - len(arguments)))


class _Capture:
    """A capture: the graph that it builds, and the position of each of its streams and events in the graph.

    ``origin`` is the cell of the stream that began the capture. ``mine`` is whether the capture created the graph.
    """

    def __init__(self, origin: StreamCell, mode: int, graph: EmulatedGraph, tail: Tail, mine: bool) -> None:
        self.origin = ctypes.addressof(origin)
        self.context = origin.context
        self.mode = mode
        self.thread = threading.get_native_id()
        self.graph = graph
        self.mine = mine
        self.is_valid = True
        self.tails: dict[int, Tail] = {}
        self.ended: list[Tail] = []
        self.events: dict[int, Tail] = {}
        self.given: dict[int, Any] = {}
        emulation().native.state.ids += 1
        self.id = emulation().native.state.ids
        self.join(origin, tail)

    def join(self, stream: StreamCell, tail: Tail) -> None:
        """Capture a stream from now on, or make it wait for more nodes."""
        address = ctypes.addressof(stream)
        self.tails[address] = {**self.tails.get(address, {}), **tail}
        stream.capture = self.id
        stream.status = CaptureStatus.ACTIVE
        _BY_STREAM[address] = self

    def streams(self) -> list[StreamCell]:
        """List the streams that it captures."""
        return [StreamCell.from_address(address) for address in self.tails]

    def invalidate(self) -> None:
        """Invalidate the capture. The caller that began it must still end it."""
        self.is_valid = False
        for stream in self.streams():
            stream.status = CaptureStatus.INVALIDATED

    def add(self, stream: StreamCell, node: GraphNode) -> None:
        """Add a node that depends on the earlier work of a stream."""
        address = ctypes.addressof(stream)
        for before, data in self.tails[address].items():
            node.connect(before, data)
        self.tails[address] = {node: NO_DATA}

    def is_joined(self) -> bool:
        """Return whether the stream that began the capture waits for all other streams."""
        reached = behind(self.tails[self.origin])
        others = [tail for address, tail in self.tails.items() if address != self.origin]
        return all(node in reached for tail in [*others, *self.ended] for node in tail)

    def leave(self, address: int) -> None:
        """Remove a stream from the capture."""
        stream = StreamCell.from_address(address)
        stream.capture, stream.status = 0, CaptureStatus.NONE
        self.given.pop(address, None)
        del _BY_STREAM[address]

    def end(self) -> None:
        """Release all streams of the capture."""
        for address in list(self.tails):
            self.leave(address)
        _LIVE.pop(self.id, None)
        if not self.is_valid and self.mine and self.graph.handle in GRAPHS:
            self.graph.destroy()
        _tell_c()


_LIVE: dict[int, _Capture] = {}
_BY_STREAM: dict[int, _Capture] = {}
"""The captures that are under way: by their number, and by the cells of their streams."""


def _tell_c() -> None:
    emulation().native.state.capturing = _question_pointer() if _LIVE else 0


def _refuse(result: Result, captures: Iterable[_Capture], words: str, hint: str = "") -> RefusedCall:
    """Invalidate captures, and return the refusal for the call that caused it."""
    for capture in list(captures):
        capture.invalidate()
    return RefusedCall(result, words, hint=hint)


@contexts.at_end
def _ended(context: int, _is_primary: bool) -> None:
    with LOCK:
        for capture in [each for each in _LIVE.values() if each.context == context]:
            capture.invalidate()
            capture.end()
        _end_streams(context)


# -- what work on streams asks -------------------------------------------------------------------------------


def recorded(stream: int, kind: NodeKind, params: Any, run: Callable[[], None]) -> bool:
    """Add work to the graph as a node if its stream is captured, and return whether it was added.

    If the function returns False, the caller performs the work itself.

    Raises:
        Refused: the stream doesn't exist, its capture is invalid, or captured streams wait for the default stream.
    """
    if not emulation().native.state.capturing:
        stream_cell(stream)
        return False
    return captured_node(stream, kind, params, run) is not None


def captured_node(stream: int, kind: NodeKind, params: Any, work: Work | None) -> GraphNode | None:
    """Return the node that represents some work on a captured stream. None if the stream is not captured. Raises the
    same errors as ``captured_work``.
    """
    return captured_work(stream, kind, lambda _: (params, work))


def captured_work(
    stream: int, kind: NodeKind, work: Callable[[EmulatedGraph], tuple[Any, Work | None]]
) -> GraphNode | None:
    """Do the same of work that is made ready for the graph, if the stream is captured. Raises the same, and as that."""
    with LOCK:
        found = _capturing(stream)
        if found is None:
            return None
        capture, cell = found
        node = GraphNode(capture.graph, kind, *work(capture.graph))
        capture.add(cell, node)
        return node


def _capturing(stream: int) -> tuple[_Capture, StreamCell] | None:
    """Return the capture that a stream is part of, and its cell, before work on it."""
    cell = stream_cell(stream)
    capture = _BY_STREAM.get(ctypes.addressof(cell))
    if capture is None:
        if stream <= LEGACY_STREAM:
            _check_legacy(cell.context)
        return None
    require(
        capture.is_valid,
        Result.STREAM_CAPTURE_INVALIDATED,
        "the capture of this stream was invalidated by an earlier call",
        hint="end the capture with `cuStreamEndCapture`, and begin another one",
    )
    return capture, cell


def _check_legacy(context: int, *, spoils: bool = True) -> None:
    blocked = {
        capture.id: capture
        for capture in _LIVE.values()
        for each in capture.streams()
        if each.context == context and not each.flags & _NON_BLOCKING
    }
    if blocked:
        words = "a stream is captured that waits for the default stream: make it with CU_STREAM_NON_BLOCKING"
        raise _refuse(Result.STREAM_CAPTURE_IMPLICIT, blocked.values() if spoils else (), words)


def not_captured(stream: int, words: str = "this can't be captured", *, hint: str = "") -> None:
    """Refuse a call on a captured stream and invalidate the capture.

    Raises:
        Refused: the stream doesn't exist or is captured, or captured streams wait for the default stream.
    """
    if emulation().native.state.capturing:
        with LOCK:
            found = _capturing(stream)
            if found is not None:
                raise _refuse(Result.STREAM_CAPTURE_UNSUPPORTED, [found[0]], words, hint)
    else:
        stream_cell(stream)


def safe() -> None:
    """Refuse a call that may not be made while a stream is captured, as the modes of capture and thread have it.

    Raises:
        Refused: a stream is captured, by this thread in a mode that is not relaxed, or by any in the global mode.
    """
    mode = _capture_mode() if _LIVE else RELAXED
    if mode == RELAXED:
        return
    with LOCK:
        mine = threading.get_native_id()
        met = [
            capture
            for capture in _LIVE.values()
            if (capture.mode != RELAXED and capture.thread == mine) or (capture.mode == mode == GLOBAL)
        ]
        if met:
            raise _refuse(
                Result.STREAM_CAPTURE_UNSUPPORTED,
                met,
                "this call is not allowed while a stream is being captured in this mode",
            )


# -- what C asks ---------------------------------------------------------------------------------------------


def _capturing_any(which: Callable[[StreamCell], bool]) -> list[_Capture]:
    return [capture for capture in _LIVE.values() if any(which(each) for each in capture.streams())]


def invalidate(which: Callable[[StreamCell], bool]) -> None:
    """Invalidate the captures of some streams. Call this with the lock held."""
    for capture in _capturing_any(which):
        capture.invalidate()


def refuse_captured(which: Callable[[StreamCell], bool]) -> None:
    """Refuse a call that is forbidden while some streams are captured, and invalidate their captures.

    Raises:
        Refused: a stream is captured.
    """
    met = _capturing_any(which)
    if met:
        raise _refuse(Result.STREAM_CAPTURE_UNSUPPORTED, met, "a stream in the context is being captured")


def _ask_context(context: int, *_: int) -> int:
    refuse_captured(lambda stream: stream.context == context)
    return GO_ON


def _ask_stream(cell: int, *_: int) -> int:
    stream = StreamCell.from_address(cell)
    capture = _BY_STREAM.get(cell)
    if capture is not None:
        raise _refuse(Result.STREAM_CAPTURE_UNSUPPORTED, [capture], "can't wait on a stream that is being captured")
    if stream.is_default:
        _check_legacy_default(stream)
    safe()
    return GO_ON


def _ask_status(cell: int, *_: int) -> int:
    _check_legacy(StreamCell.from_address(cell).context, spoils=False)
    return GO_ON


def _check_legacy_default(stream: StreamCell) -> None:
    """A context's default stream is the one that no thread has: its own."""
    if ctypes.addressof(stream) == ctypes.addressof(stream_cell(LEGACY_STREAM)):
        _check_legacy(stream.context)


def _ask_event(event: int, *_: int) -> int:
    capture = _LIVE.get(EventCell.from_address(event).capture)
    if capture is not None:
        raise _refuse(Result.CAPTURED_EVENT, [capture], "the event was recorded during a capture")
    safe()
    return GO_ON


def _ask_record(event: int, cell: int, flags: int) -> int:
    capture = _of_cell(cell)
    if capture is None:
        return GO_ON
    stream = StreamCell.from_address(cell)
    if flags & _EXTERNAL:
        capture.add(stream, event_node(capture.graph, NodeKind.EVENT_RECORD, event))
        return 0
    capture.events[event] = dict(capture.tails[cell])
    EventCell.from_address(event).capture = capture.id
    return 0


def event_node(graph: EmulatedGraph, kind: NodeKind, event: int) -> GraphNode:
    """Make a node that records an event, or waits for one."""
    return GraphNode(graph, kind, ctypes.c_uint64(event), event_work(kind, event))


def event_work(kind: NodeKind, event: int) -> Work | None:
    """Return the work of a node that records an event or waits for one. The preceding work of the graph is already
    complete.
    """
    return GraphStep(StepKind.RECORD, function=event) if kind is NodeKind.EVENT_RECORD else None


def host_work(params: HostParams) -> Work:
    """Return the work of a node that calls a host function."""
    return GraphStep(StepKind.HOST, function=params.function, values=params.data)


def _ask_wait(cell: int, event: int, flags: int) -> int:
    capture = _of_cell(cell)
    stream = StreamCell.from_address(cell)
    source = _LIVE.get(EventCell.from_address(event).capture)
    if flags & _EXTERNAL:
        capture = got(
            capture,
            Result.ILLEGAL_STATE,
            "an external wait requires a stream that is being captured",
            hint="pass 0 as the flags of `cuStreamWaitEvent`",
        )
        capture.add(stream, event_node(capture.graph, NodeKind.WAIT_EVENT, event))
        return 0
    if source is not None:
        require(source.is_valid, Result.STREAM_CAPTURE_INVALIDATED)
        if capture is not None and capture is not source:
            raise _refuse(Result.STREAM_CAPTURE_MERGE, [capture, source], "this call would merge two captures")
        if capture is None and stream.is_default:
            _check_legacy_default(stream)
        source.join(stream, source.events[event])
        return 0
    if capture is not None and (EventCell.from_address(event).recorded_ns or EventCell.from_address(event).capture):
        words = "the event was recorded outside of the capture"
        raise _refuse(Result.STREAM_CAPTURE_ISOLATION, [capture], words)
    return GO_ON if capture is None else 0


def _of_cell(cell: int) -> _Capture | None:
    """Return the capture that a stream is part of, which must be valid. Check the default stream."""
    capture = _BY_STREAM.get(cell)
    if capture is not None:
        require(capture.is_valid, Result.STREAM_CAPTURE_INVALIDATED)
    elif StreamCell.from_address(cell).is_default:
        _check_legacy_default(StreamCell.from_address(cell))
    return capture


def _ask_destroy(cell: int, *_: int) -> int:
    capture = _BY_STREAM.get(cell)
    if capture is not None:
        if capture.origin == cell:
            capture.invalidate()
            capture.end()
        else:
            capture.leave(cell)
            capture.ended.append(capture.tails.pop(cell))
    return 0


def _ask_host(cell: int, function: int, data: int) -> int:
    capture = _of_cell(cell)
    if capture is None:
        return GO_ON
    params = HostParams(function=function, data=data)
    node = GraphNode(capture.graph, NodeKind.HOST, params, host_work(params))
    capture.add(StreamCell.from_address(cell), node)
    return 0


def _ask_unsafe(*_: int) -> int:
    safe()
    return GO_ON


_CALLBACKS: dict[int, Callable[..., int]] = {
    CaptureQuestion.UNSAFE: _ask_unsafe,
    CaptureQuestion.CONTEXT: _ask_context,
    CaptureQuestion.STREAM: _ask_stream,
    CaptureQuestion.EVENT: _ask_event,
    CaptureQuestion.RECORD: _ask_record,
    CaptureQuestion.WAIT: _ask_wait,
    CaptureQuestion.DESTROY: _ask_destroy,
    CaptureQuestion.HOST: _ask_host,
    CaptureQuestion.STATUS: _ask_status,
}


def _answer(question: int, a: int, b: int, more: int) -> int:
    with LOCK:
        return _CALLBACKS[question](a, b, more)


_ANSWER = EntryPoint("the capture of streams", "UPPP", tuple, _answer).pointer(is_noted=False)
"""What C calls."""


@once
def _question_pointer() -> int:
    return guarded("a call on a captured stream", _ANSWER)


# -- entry points --------------------------------------------------------------------------------------------


@started("cuStreamBeginCapture", "S")
@started("cuStreamBeginCapture_v2", "SU")
def stream_begin_capture(stream: int, mode: int = GLOBAL) -> None:
    """Capture a stream; CUDA 10.0 knew one mode."""
    _begin(stream, mode)


@started("cuStreamBeginCaptureToGraph", "SPPPPU")
def stream_begin_capture_to_graph(stream: int, graph: int, nodes: int, data: int, count: int, mode: int) -> None:
    """Capture a stream into an existing graph, after some of its nodes."""
    with LOCK:
        whole = graph_of(graph)
        tail = _tail(whole, nodes, data, count)
        _begin(stream, mode, whole, tail)


def _begin(stream: int, mode: int, graph: EmulatedGraph | None = None, tail: Tail | None = None) -> None:
    require(mode <= RELAXED)
    cell = stream_cell(stream)
    require(
        stream > LEGACY_STREAM,
        Result.STREAM_CAPTURE_UNSUPPORTED,
        "the default stream can't be captured",
        hint="create a stream with `cuStreamCreate`, and capture it",
    )
    with LOCK:
        require(
            not cell.status,
            Result.ILLEGAL_STATE,
            "the stream is already being captured",
            hint="end that capture with `cuStreamEndCapture`",
        )
        capture = _Capture(cell, mode, graph or EmulatedGraph(), tail or {}, graph is None)
        capture.join(cell, tail or {})
        _LIVE[capture.id] = capture
        _tell_c()


def _tail(graph: EmulatedGraph, nodes: int, data: int, count: int) -> Tail:
    """Read nodes of a graph that are to be waited for."""
    require(nodes or not count)
    found = [node_of(load_u64(nodes, k)) for k in range(count)]
    require(
        all(node.graph is graph for node in found),
        words="a dependency belongs to another graph, expected nodes of the captured graph",
        hint="pass nodes that `cuStreamGetCaptureInfo` returns for this stream",
    )
    edges = [ctypes.string_at(data + 8 * k, 8) if data else NO_DATA for k in range(count)]
    return dict(zip(found, edges, strict=True))


@started("cuStreamEndCapture", "SP")
def stream_end_capture(stream: int, graph: int) -> None:
    """End a capture, and write its graph."""
    cell = stream_cell(stream)
    with LOCK:
        store_u64(graph, 0)
        found = _BY_STREAM.get(ctypes.addressof(cell))
        capture = got(
            found,
            Result.ILLEGAL_STATE,
            "the stream isn't being captured",
            hint="begin the capture with `cuStreamBeginCapture`",
        )
        if capture.origin != ctypes.addressof(cell):
            raise _refuse(Result.STREAM_CAPTURE_UNMATCHED, [capture], "the capture began in a different stream")
        allowed = capture.mode == RELAXED or capture.thread == threading.get_native_id()
        was_valid, is_joined = capture.is_valid, capture.is_joined()
        capture.is_valid = was_valid and is_joined and allowed
        capture.end()
        require(
            allowed,
            Result.STREAM_CAPTURE_WRONG_THREAD,
            "another thread began the capture",
            hint="end the capture in the thread that began it, or begin it with `CU_STREAM_CAPTURE_MODE_RELAXED`",
        )
        require(
            was_valid,
            Result.STREAM_CAPTURE_INVALIDATED,
            "the capture was invalidated by an earlier call",
            hint="check the results of the calls since `cuStreamBeginCapture`",
        )
        require(
            is_joined,
            Result.STREAM_CAPTURE_UNJOINED,
            "another stream joined the capture and hasn't been joined back",
            hint="record an event in that stream, and call `cuStreamWaitEvent` in the stream that began the capture",
        )
        store_u64(graph, capture.graph.handle)


@started("cuStreamGetCaptureInfo", "SPP")
@without_data("cuStreamGetCaptureInfo_v2", "SPPPPP", 5)
@started("cuStreamGetCaptureInfo_v3", "SPPPPPP")
def stream_get_capture_info(
    stream: int, status: int, id_out: int, graph: int = 0, nodes: int = 0, edges: int = 0, count: int = 0
) -> None:
    """Write whether a stream is captured, by which capture, the graph, and the nodes that the next node depends on."""
    cell = stream_cell(stream)
    require(status)
    with LOCK:
        if stream <= LEGACY_STREAM:
            _check_legacy(cell.context, spoils=False)
        store_u32(status, cell.status)
        capture = _BY_STREAM.get(ctypes.addressof(cell))
        if capture is None or not capture.is_valid:
            return
        tail = capture.tails[ctypes.addressof(cell)]
        lossy = nodes and not edges and any(data != NO_DATA for data in tail.values())
        require(
            not lossy,
            Result.LOSSY_QUERY,
            "the edges have data that this call can't return",
            hint="call `cuGraphGetEdges_v2` or `cuStreamGetCaptureInfo_v3`",
        )
        handles = (ctypes.c_uint64 * len(tail))(*(node.handle for node in tail))
        data = ctypes.create_string_buffer(b"".join(tail.values()))
        capture.given[ctypes.addressof(cell)] = handles, data  # the caller may read them until the next call
        answers = ((id_out, capture.id), (graph, capture.graph.handle), (nodes, ctypes.addressof(handles)),
                (edges, ctypes.addressof(data)), (count, len(tail)))  # fmt: skip
        for where, value in answers:
            if where:
                store_u64(where, value)


@without_data("cuStreamUpdateCaptureDependencies", "SPPU", 2)
@started("cuStreamUpdateCaptureDependencies_v2", "SPPPU")
def stream_update_capture_dependencies(stream: int, nodes: int, data: int, count: int, flags: int) -> None:
    """Change the dependencies of the next node of a captured stream."""
    require(flags <= _SET)
    with LOCK:
        capture, cell = got(
            _capturing(stream),
            Result.ILLEGAL_STATE,
            "the stream isn't being captured",
            hint="begin the capture with `cuStreamBeginCapture`",
        )
        tail = _tail(capture.graph, nodes, data, count)
        before = capture.tails[ctypes.addressof(cell)] if flags == _ADD else {}
        capture.tails[ctypes.addressof(cell)] = {**before, **tail}


@started("cuCtxRecordEvent", "PP")
def ctx_record_event(context: int, event: int) -> None:
    """Record the work of a context, which is always complete."""
    _check_context(context, event)
    checked(record_event(event))


@started("cuCtxWaitEvent", "PP")
def ctx_wait_event(context: int, event: int) -> None:
    """Make a context wait for an event, which is already complete."""
    _check_context(context, event)


def _check_context(handle: int, event: int) -> None:
    context = ctypes.addressof(contexts.of_context(handle))
    require(cell_is(event, CellKind.EVENT), Result.INVALID_HANDLE)
    with LOCK:
        _ask_context(context, 0, 0)
