"""Graphs that can be launched: instantiated, changed, and made ready for C, which launches them.

C has a list of steps, one for each node that does something. A change takes the list away; the next launch asks for
a new one. Steps that only Python can make, such as nodes that allocate, are calls of Python.
"""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Sequence
from typing import Any

from cujit.devices.cpu.native.shared import Fields
from cujit.emulator.capture import captured_node, not_captured, stream_cell
from cujit.emulator.entries import EntryPoint, got, load_u64, new_cell, require, started, store_u32, store_u64
from cujit.emulator.graphs import EVENTS, KINDS, body_of, named
from cujit.emulator.machine import cell_free, guarded, in_c
from cujit.emulator.modules import FUNCTIONS, KERNELS, LoadedFunction
from cujit.emulator.node_params import CopyParams
from cujit.emulator.node_work import begin_launch, step_of, work_of
from cujit.emulator.nodes import LOCK, EmulatedGraph, GraphCondition, GraphNode, NodeKind, graph_of
from cujit.emulator.results import RefusedCall, Result
from cujit.emulator.structures import GO_ON, CellKind, GraphExecCell, GraphStep, StepKind
from cujit.forks import once

# Source: CUDA Driver API manual, ``CUgraphInstantiate_flags``, ``CUgraphInstantiateResult``,
# ``CUgraphExecUpdateResult``.
_AUTO_FREE, _UPLOAD, _DEVICE_LAUNCH, _FLAGS = 1, 2, 4, 15
_INVALID_STRUCTURE = 2
_TOPOLOGY_CHANGED, _TYPE_CHANGED, _PARAMETERS_CHANGED, _UNSUPPORTED = 2, 3, 5, 6
_CAN_BE_DISABLED = (NodeKind.KERNEL, NodeKind.MEMCPY, NodeKind.MEMSET)


class _UpdateError(Exception):
    """The reason why an instantiated graph can't be updated, and the nodes that differ."""

    def __init__(self, result: int, node: GraphNode | None = None, before: GraphNode | None = None) -> None:
        super().__init__(result)
        self.result = result
        self.nodes = [0 if each is None else each.handle for each in (node, before)]


class _Executable:
    """An instantiated graph: a copy of a graph, and the original node of each copied node."""

    def __init__(self, graph: EmulatedGraph, flags: int) -> None:
        self.flags = flags
        self.source = graph
        self.graph = graph.clone()
        self.items: dict[int, GraphNode] = {}
        self.order = _flat(self.graph, self.items)
        self.handle = new_cell(CellKind.GRAPH_EXEC)
        self._cell = GraphExecCell.from_address(self.handle)
        self._kept: list[_Steps] = []
        _EXECUTABLES[self.handle] = self

    def item(self, node: int, *kinds: NodeKind) -> GraphNode:
        """Return the item that corresponds to a node of the graph."""
        item = self.items.get(node)
        return got(
            item if item is not None and item.kind in kinds else None,
            words="the instantiated graph doesn't have this node",
            hint="pass a node of the graph that was instantiated",
        )

    def make_ready(self, context: int) -> None:
        """Write the steps for C, if they are not written: for launches in a context, though others work as well."""
        if not self._cell.steps:
            begin = [_assigned(each) for each in self.graph.all_conditions() if each.is_assigned]
            first = self._begin if self.graph.has_memory else None
            self._kept.append(steps := _Steps(self.handle, context, first, self.order, begin))
            self._cell.steps = steps.address

    def _begin(self) -> None:
        begin_launch(self.order, frees=bool(self.flags & _AUTO_FREE))

    def changed(self) -> None:
        """Drop the steps, so that later launches use the changed nodes. Running launches keep their steps."""
        self._cell.steps = 0
        if not self._cell.running:
            self._drop()

    def _drop(self) -> None:
        for steps in self._kept:
            steps.drop()
        self._kept.clear()

    def free(self) -> None:
        """Invalidate the handle, so that no later call launches the graph."""
        del _EXECUTABLES[self.handle]
        cell_free(self.handle, CellKind.GRAPH_EXEC)

    def destroy(self) -> None:
        """Wait for running launches, and free the graph's resources."""
        while self._cell.running and self._cell.kind == CellKind.FREE:
            time.sleep(0.0002)
        with LOCK:
            self._drop()
            self.graph.destroy()


class _Steps:
    """The steps that C code performs in a launch of a graph, and the Python calls among them."""

    def __init__(
        self,
        graph: int,
        context: int,
        begin: Callable[[], None] | None,
        order: list[GraphNode],
        assigned: Sequence[GraphStep] = (),
    ) -> None:
        self._graph, self._context = graph, context
        self._functions: list[LoadedFunction] = []
        self.calls = [] if begin is None else [begin]
        self._bodies: list[_Steps] = []
        first = [GraphStep(StepKind.PYTHON, number=0) for _ in self.calls]
        self._made = [*assigned, *first, *filter(None, map(self._step_of, order))]
        self._array = (GraphStep * (len(self._made) + 1))(*self._made)  # a step of zeros ends it
        self.address = ctypes.addressof(self._array)
        _STEPS[self.address] = self

    def _step_of(self, node: GraphNode) -> GraphStep | None:
        if not node.bodies:
            return self._known(step_of(node, self.calls))
        bodies = [_Steps(self._graph, self._context, None, _flat(body, {})) for body in node.bodies]
        self._bodies += bodies
        lists = (ctypes.c_uint64 * len(bodies))(*(body.address for body in bodies))
        step = GraphStep(
            _CONDITIONAL[node.params.type],
            function=node.params.handle,
            plan=ctypes.addressof(lists),
            values=len(bodies),
        )
        step.kept = lists
        return step

    def _known(self, step: GraphStep | None) -> GraphStep | None:
        """Register the graph with the function that a step launches, and return the step."""
        function = self._function_of(step) if step is not None and step.kind == StepKind.KERNEL else None
        if step is not None and function is not None:
            function.graphs.add(self._graph)
            self._functions.append(function)
            step.known = function.handle
        return step

    def _function_of(self, step: GraphStep) -> LoadedFunction | None:
        kernel = KERNELS.get(step.function)
        if kernel is None:
            return FUNCTIONS.get(step.function)
        return kernel.function(self._context) if step.context in (0, self._context) else None

    def drop(self) -> None:
        """Drop the steps, including the steps of conditional nodes."""
        for function in self._functions:
            function.graphs.discard(self._graph)
        del _STEPS[self.address]
        for body in self._bodies:
            body.drop()


_CONDITIONAL = StepKind.IF, StepKind.WHILE, StepKind.SWITCH
"""By the type of a conditional node."""


def _assigned(condition: GraphCondition) -> GraphStep:
    """Return the step that sets a condition when its graph is launched."""
    return GraphStep(StepKind.ASSIGN, number=condition.value, function=condition.handle)


_STEPS: dict[int, _Steps] = {}
"""The steps that C may look at, by their address."""


_EXECUTABLES: dict[int, _Executable] = {}


def _flat(graph: EmulatedGraph, items: dict[int, GraphNode]) -> list[GraphNode]:
    """Return nodes in the order in which they run. Nodes of child graphs replace the child graph nodes."""
    order = []
    for node in graph.ordered():
        if node.origin is not None:
            items[node.origin.handle] = node
        order += [node] if node.child is None else _flat(node.child, items)
        for body in node.bodies:
            _flat(body, items)
    return order


def _executable(handle: int) -> _Executable:
    return got(
        _EXECUTABLES.get(handle),
        words="no instantiated graph has this handle",
        hint="instantiate the graph with `cuGraphInstantiate`",
    )


# -- instantiation ------------------------------------------------------------------------------------------


def _is_acyclic(graph: EmulatedGraph) -> bool:
    children = (child for node in graph.nodes for child in node.graphs)
    return len(graph.ordered()) == len(graph.nodes) and all(map(_is_acyclic, children))


def _instantiate(out: int, graph: int, flags: int) -> None:
    require(out and not flags & ~_FLAGS)
    require(not flags & _DEVICE_LAUNCH, Result.NOT_SUPPORTED, "kernels can't launch graphs here")
    with LOCK:
        found = graph_of(graph)
        require(
            _is_acyclic(found),
            words="the graph has a cycle: nodes wait for each other",
            hint="remove an edge with `cuGraphRemoveDependencies`",
        )
        is_once = found.has_memory or found.has_conditions
        require(
            not (is_once and any(each.source is found for each in _EXECUTABLES.values())),
            Result.NOT_SUPPORTED,
            "a graph that allocates or frees, or has conditional nodes, is instantiated only once at a time",
        )
        _check_conditions(found)
        store_u64(out, _Executable(found, flags).handle)


_IN_BODIES = frozenset(
    (NodeKind.KERNEL, NodeKind.MEMCPY, NodeKind.MEMSET, NodeKind.GRAPH, NodeKind.EMPTY, NodeKind.CONDITIONAL)
)
"""Source: CUDA Driver API manual, ``CUDA_CONDITIONAL_NODE_PARAMS``."""


def _check_conditions(graph: EmulatedGraph) -> None:
    require(
        all(each.node is not None for each in graph.all_conditions()),
        words="the graph has a condition without a conditional node",
        hint="add a conditional node for each handle from `cuGraphConditionalHandleCreate`",
    )
    for node in graph.nodes:
        for inner in node.graphs:
            _check_conditions(inner)
            if node.bodies:
                kinds = {each.kind for each in _flat(inner, {})}
                require(
                    kinds <= _IN_BODIES,
                    Result.NOT_SUPPORTED,
                    "the body of a conditional node has a node whose type isn't allowed",
                    hint="use kernel, copy, set, empty, child graph, and conditional nodes",
                )


@started("cuGraphInstantiate cuGraphInstantiate_v2", "PPPPP")
def graph_instantiate(out: int, graph: int, node: int, log: int, log_bytes: int) -> None:
    """Make a graph that can be launched, as CUDA 10 did: with a buffer for words."""
    if node:
        store_u64(node, 0)
    if log and log_bytes:
        ctypes.memset(log, 0, 1)
    _instantiate(out, graph, 0)


@started("cuGraphInstantiateWithFlags", "PPP")
def graph_instantiate_with_flags(out: int, graph: int, flags: int) -> None:
    """Make a graph that can be launched."""
    require(not flags & _UPLOAD)
    _instantiate(out, graph, flags)


class _Instantiation(ctypes.Structure):
    """``CUDA_GRAPH_INSTANTIATE_PARAMS``."""

    _fields_ = Fields("u64 flags, stream, node; u32 result")


@started("cuGraphInstantiateWithParams", "PPP")
def graph_instantiate_with_params(out: int, graph: int, params: int) -> None:
    """Instantiate a graph, and write the reason if it can't be instantiated."""
    require(params)
    instantiation = _Instantiation.from_address(params)
    instantiation.node, instantiation.result = 0, 0
    try:
        _instantiate(out, graph, instantiation.flags)
    except RefusedCall:
        instantiation.result = _INVALID_STRUCTURE if instantiation.flags <= _FLAGS else 1
        raise


@started("cuGraphExecDestroy", "P")
def graph_exec_destroy(handle: int) -> None:
    """Destroy an instantiated graph."""
    with LOCK:
        executable = _executable(handle)
        executable.free()
    executable.destroy()


@started("cuGraphExecGetFlags", "PP")
def graph_exec_get_flags(handle: int, flags: int) -> None:
    """Write the flags that the executable graph was instantiated with."""
    store_u64(flags, _executable(handle).flags)


@started("cuGraphExecGetId", "PP")
def graph_exec_get_id(handle: int, number: int) -> None:
    """Write the unique number of an instantiated graph."""
    store_u32(number, _executable(handle).graph.number)


# -- launches -----------------------------------------------------------------------------------------------


@started("cuGraphUpload", "PS")
def graph_upload(handle: int, stream: int) -> None:
    """Upload a graph to speed up its launch. This does nothing."""
    _executable(handle).make_ready(stream_cell(stream).context)


def _on_graph(handle: int, stream: int) -> int:
    """Make a node of a graph that is launched on a captured stream, or have C go on, by steps that are ready."""
    with LOCK:
        executable = _executable(handle)
        if executable.graph.has_memory:
            not_captured(stream, "a graph that allocates or frees can't be a node of another one")
        if executable.graph.has_conditions:
            not_captured(stream, "a graph with conditional nodes can't be a node of another one")
        node = captured_node(stream, NodeKind.GRAPH, None, None)
        if node is not None:
            node.child = executable.graph.clone(node)
            return 0
        executable.make_ready(stream_cell(stream).context)
        return GO_ON


def _on_step(steps: int, number: int) -> None:
    """Perform a step in Python."""
    _STEPS[steps].calls[number]()


_begin = in_c("graphs_begin", None, *[ctypes.c_void_p] * 2)


@once
def prepare() -> tuple[object, ...]:
    """Register the functions that C calls, before the first call. The returned objects must stay alive."""
    kept = EntryPoint("cuGraphLaunch", "PP", tuple, _on_graph), EntryPoint("a node of a graph", "PP", tuple, _on_step)
    pointers = tuple(each.pointer(is_noted=False) for each in kept)
    _begin(*(guarded("cuGraphLaunch", each) for each in pointers))
    return pointers


# -- changes ------------------------------------------------------------------------------------------------


def _set_work(handle: int, node: int, kind: NodeKind, params: int, size: int = 0) -> None:
    with LOCK:
        executable = _executable(handle)
        item = executable.item(node, kind)
        made, work = work_of(kind, params, size)
        _check_change(item, made)
        item.params, item.work = made, work
        executable.changed()


def _check_change(item: GraphNode, params: Any) -> None:
    """Check that a copy node keeps its memory types. Other changes are allowed."""
    kept = item.params
    if isinstance(params, CopyParams) and isinstance(kept, CopyParams):
        require(
            (params.src_type, params.dst_type) == (kept.src_type, kept.dst_type),
            words="the copy is between other kinds of memory than the node's copy",
            hint="add a separate node, and instantiate the graph again",
        )


def _alike(name: str, kind: NodeKind, more: str, size: int) -> None:
    @started(named("cuGraphExec%sNodeSetParams", name), "PPP" + more)
    def change(handle: int, node: int, params: int, *_context: int) -> None:
        _set_work(handle, node, kind, params, size)


for _name, (_kind, _more, _size) in KINDS.items():
    _alike(_name, _kind, _more, _size)


def _of_event(name: str, kind: NodeKind) -> None:
    @started(f"cuGraphExec{name}NodeSetEvent", "PPP")
    def change(handle: int, node: int, event: int) -> None:
        word = ctypes.c_uint64(event)
        _set_work(handle, node, kind, ctypes.addressof(word))


for _name, _kind in EVENTS.items():
    _of_event(_name, _kind)


@started("cuGraphExecChildGraphNodeSetParams", "PPP")
def graph_exec_child_graph_node_set_params(handle: int, node: int, child: int) -> None:
    """Replace the child graph of a node by another graph with the same nodes and edges."""
    with LOCK:
        executable = _executable(handle)
        item = executable.item(node, NodeKind.GRAPH)
        assert item.child is not None
        try:
            _update(item.child, graph_of(child))
        except _UpdateError as e:
            raise RefusedCall(Result.INVALID_VALUE, "the child graphs have different nodes or edges") from e
        executable.changed()


@started("cuGraphExecNodeSetParams", "PPP")
def graph_exec_node_set_params(handle: int, node: int, params: int) -> None:
    """Change the parameters of a node of any type."""
    kind, body = body_of(params)
    if kind is NodeKind.GRAPH:
        graph_exec_child_graph_node_set_params(handle, node, load_u64(body))
    else:
        require(kind not in (NodeKind.MEM_ALLOC, NodeKind.MEM_FREE))
        _set_work(handle, node, kind, body)


@started("cuGraphNodeSetEnabled", "PPU")
def graph_node_set_enabled(handle: int, node: int, is_enabled: int) -> None:
    """Enable or disable a node. A disabled node does nothing."""
    with LOCK:
        executable = _executable(handle)
        executable.item(node, *_CAN_BE_DISABLED).is_enabled = bool(is_enabled)
        executable.changed()


@started("cuGraphNodeGetEnabled", "PPP")
def graph_node_get_enabled(handle: int, node: int, is_enabled: int) -> None:
    """Write whether a node is enabled."""
    store_u32(is_enabled, _executable(handle).item(node, *_CAN_BE_DISABLED).is_enabled)


def _update(kept: EmulatedGraph, graph: EmulatedGraph) -> None:
    """Update the nodes of an instantiated graph from another graph with the same nodes and edges."""
    changes = list(_changes(kept, graph))
    for item, node in changes:
        item.params, item.work, item.attributes = node.params, node.work, dict(node.attributes)
    kept.conditions = dict(graph.conditions)


def _changes(kept: EmulatedGraph, graph: EmulatedGraph) -> list[tuple[GraphNode, GraphNode]]:
    if len(kept.nodes) != len(graph.nodes):
        raise _UpdateError(_TOPOLOGY_CHANGED)
    pairs = list(zip(kept.nodes, graph.nodes, strict=True))
    stands_for = {node: item for item, node in pairs}
    found = []
    for item, node in pairs:
        found.append((item, node))
        if item.kind is not node.kind:
            raise _UpdateError(_TYPE_CHANGED, node)
        if {stands_for[before]: data for before, data in node.before.items()} != item.before:
            missing = [before for before in node.before if stands_for[before] not in item.before]
            raise _UpdateError(_TOPOLOGY_CHANGED, node, missing[0] if missing else None)
        if item.kind in (NodeKind.MEM_ALLOC, NodeKind.MEM_FREE) and item.params is not node.params:
            raise _UpdateError(_UNSUPPORTED, node)
        try:
            _check_change(item, node.params)
        except RefusedCall:
            raise _UpdateError(_PARAMETERS_CHANGED, node) from None
        if len(item.graphs) != len(node.graphs) or (node.bodies and item.params.type != node.params.type):
            raise _UpdateError(_PARAMETERS_CHANGED, node)
        for inner, other in zip(item.graphs, node.graphs, strict=True):
            found += _changes(inner, other)
    return found


def _try_update(handle: int, graph: int) -> tuple[int, int, int]:
    """Update an instantiated graph, and return the result and the nodes that caused a failure."""
    with LOCK:
        executable = _executable(handle)
        try:
            _update(executable.graph, graph_of(graph))
        except _UpdateError as e:
            return e.result, e.nodes[0], e.nodes[1]
        executable.changed()
        return 0, 0, 0


@started("cuGraphExecUpdate", "PPPP")
def graph_exec_update(handle: int, graph: int, node: int, result: int) -> None:
    """Update an instantiated graph from another graph with the same nodes and edges."""
    found, which, _ = _try_update(handle, graph)
    store_u64(node, which)
    store_u32(result, found)
    require(not found, Result.GRAPH_EXEC_UPDATE_FAILURE)


@started("cuGraphExecUpdate_v2", "PPP")
def graph_exec_update_v2(handle: int, graph: int, info: int) -> None:
    """Update an instantiated graph, and report both nodes of an edge that differs."""
    require(info)
    found, node, before = _try_update(handle, graph)
    store_u32(info, found)
    store_u64(info + 8, node)
    store_u64(info + 16, before)
    require(not found, Result.GRAPH_EXEC_UPDATE_FAILURE)
