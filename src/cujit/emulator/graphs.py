"""Graphs: functions that add, connect, query, and remove nodes."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cujit.artifact.writing import write_file
from cujit.emulator.entries import (
    current_context,
    got,
    in_any_context,
    load_u64,
    require,
    started,
    store_u32,
    store_u64,
    text_at,
    without_data,
)
from cujit.emulator.node_params import AllocParams, ConditionalParams, NodeParams
from cujit.emulator.node_work import store_params, work_of
from cujit.emulator.nodes import (
    LOCK,
    NO_DATA,
    USER_OBJECTS,
    EmulatedGraph,
    GraphCondition,
    GraphNode,
    NodeKind,
    UserObject,
    graph_of,
    node_of,
)
from cujit.emulator.results import Result
from cujit.errors import CujitError

_VALUE_BYTES = 64
"""Bytes of a ``CUkernelNodeAttrValue``."""

_KERNEL_ATTRIBUTES = frozenset({1, 2, 4, 5, 6, 8, 9, 10, 11, 13, 14, 16})
"""Source: CUDA Driver API manual, ``CUlaunchAttributeID``, as far as "graph nodes" are named there."""

# -- graphs -------------------------------------------------------------------------------------------------


@started("cuGraphCreate", "PU")
def graph_create(graph: int, flags: int) -> None:
    """Make a graph without nodes."""
    require(graph and not flags)
    store_u64(graph, EmulatedGraph().handle)


@started("cuGraphDestroy", "P")
def graph_destroy(graph: int) -> None:
    """Destroy a graph and its nodes."""
    with LOCK:
        found = graph_of(graph)
        require(
            found.owner is None,
            words="the graph belongs to a node, and can't be destroyed or added to another node",
            hint="clone the graph with `cuGraphClone`",
        )
        found.destroy()


@started("cuGraphClone", "PP")
def graph_clone(clone: int, graph: int) -> None:
    """Make a graph of the same nodes."""
    require(clone)
    with LOCK:
        found = graph_of(graph)
        _check_clone(found)
        store_u64(clone, found.clone().handle)


_ALLOCATES = "a graph that allocates or frees can't be cloned, and nothing can be taken out of it"


def _check_clone(graph: EmulatedGraph) -> None:
    require(not graph.has_memory, Result.NOT_SUPPORTED, _ALLOCATES)
    require(not graph.has_conditions, Result.NOT_SUPPORTED, "a graph with conditional nodes can't be cloned")


@started("cuGraphNodeFindInClone", "PPP")
def graph_node_find_in_clone(found: int, node: int, clone: int) -> None:
    """Write the node of a clone that corresponds to an original node."""
    require(found)
    with LOCK:
        original = node_of(node)
        copies = [each for each in graph_of(clone).nodes if each.origin is original]
        require(copies)
        store_u64(found, copies[0].handle)


@started("cuGraphGetId", "PP")
def graph_get_id(graph: int, number: int) -> None:
    """Write the unique number of a graph."""
    store_u32(number, graph_of(graph).number)


# -- nodes --------------------------------------------------------------------------------------------------


_Work = Callable[[EmulatedGraph], tuple[Any, Any]]


def _added(out: int, graph: int, nodes: int, count: int, kind: NodeKind, work: _Work, data: int = 0) -> GraphNode:
    """Add a node after checking its parameters."""
    require(out)
    with LOCK:
        found = graph_of(graph)
        require(nodes or not count)
        before = [node_of(load_u64(nodes, k)) for k in range(count)]
        require(all(each.graph is found for each in before) and len(set(before)) == len(before))
        node = GraphNode(found, kind, *work(found))
        for k, each in enumerate(before):
            node.connect(each, ctypes.string_at(data + 8 * k, 8) if data else NO_DATA)
        store_u64(out, node.handle)
        return node


KINDS = {
    "Kernel": (NodeKind.KERNEL, "", 56),
    "Kernel_v2": (NodeKind.KERNEL, "", 72),
    "Memcpy": (NodeKind.MEMCPY, "P", 200),
    "Memset": (NodeKind.MEMSET, "P", 40),
    "Host": (NodeKind.HOST, "", 16),
    "BatchMemOp": (NodeKind.BATCH_MEM_OP, "", 0),
}
"""The nodes that are added, read and changed alike: whether a context follows, and the bytes of the structure."""

EVENTS = {"EventRecord": NodeKind.EVENT_RECORD, "EventWait": NodeKind.WAIT_EVENT}
"""The nodes of events, likewise."""


def named(verb: str, name: str) -> str:
    """``Kernel_v2`` and ``cuGraph%sNodeGetParams`` become ``cuGraphKernelNodeGetParams_v2``."""
    plain, version, number = name.partition("_")
    return verb % plain + version + number


def _alike(name: str, kind: NodeKind, more: str, size: int) -> None:
    @started(named("cuGraphAdd%sNode", name), "PPPPP" + more)
    def add(out: int, graph: int, nodes: int, count: int, params: int, *_context: int) -> None:
        _added(out, graph, nodes, count, kind, lambda _: work_of(kind, params, size))

    @started(named("cuGraph%sNodeGetParams", name), "PP")
    def get(node: int, params: int) -> None:
        store_params(_of_kind(node, kind), params, size)

    @started(named("cuGraph%sNodeSetParams", name), "PP")
    def change(node: int, params: int) -> None:
        found = _of_kind(node, kind)
        found.params, found.work = work_of(kind, params, size)


for _name, (_kind, _more, _size) in KINDS.items():
    _alike(_name, _kind, _more, _size)


def _of_kind(handle: int, *kinds: NodeKind) -> GraphNode:
    node = node_of(handle)
    require(
        node.kind in kinds,
        words="the node has another type than this call requires",
        hint="get the type with `cuGraphNodeGetType`",
    )
    return node


def _of_event(name: str, kind: NodeKind) -> None:
    @started(f"cuGraphAdd{name}Node", "PPPPP")
    def add(out: int, graph: int, nodes: int, count: int, event: int) -> None:
        word = ctypes.c_uint64(event)
        _added(out, graph, nodes, count, kind, lambda _: work_of(kind, ctypes.addressof(word)))

    @started(f"cuGraph{name}NodeGetEvent", "PP")
    def get(node: int, event: int) -> None:
        store_params(_of_kind(node, kind), event)

    @started(f"cuGraph{name}NodeSetEvent", "PP")
    def change(node: int, event: int) -> None:
        found = _of_kind(node, kind)
        word = ctypes.c_uint64(event)
        found.params, found.work = work_of(kind, ctypes.addressof(word))


for _name, _kind in EVENTS.items():
    _of_event(_name, _kind)


@started("cuGraphAddEmptyNode", "PPPP")
def graph_add_empty_node(out: int, graph: int, nodes: int, count: int) -> None:
    """Add a node that only waits for others."""
    _added(out, graph, nodes, count, NodeKind.EMPTY, lambda _: (None, None))


@started("cuGraphAddChildGraphNode", "PPPPP")
def graph_add_child_graph_node(
    out: int, graph: int, nodes: int, count: int, child: int, data: int = 0, is_moved: bool = False
) -> None:
    """Add a node that runs a copy of another graph, or the graph itself if ``is_moved`` is set."""
    with LOCK:
        source = graph_of(child)
        require(not source.has_conditions, Result.NOT_SUPPORTED, "a child graph can't have conditional nodes")
        if not is_moved:
            _check_clone(source)
        require(not is_moved or source.owner is None)
        node = _added(out, graph, nodes, count, NodeKind.GRAPH, lambda _: (None, None), data)
        node.child = source if is_moved else source.clone(node)
        node.child.owner = node


@started("cuGraphChildGraphNodeGetGraph", "PP")
def graph_child_graph_node_get_graph(node: int, graph: int) -> None:
    """Write the graph that a node runs."""
    child = _of_kind(node, NodeKind.GRAPH).child
    assert child is not None
    store_u64(graph, child.handle)


@started("cuGraphAddMemAllocNode", "PPPPP")
def graph_add_mem_alloc_node(out: int, graph: int, nodes: int, count: int, params: int) -> None:
    """Add a node that allocates memory, and write its address, which is already known."""
    kind = NodeKind.MEM_ALLOC
    node = _added(out, graph, nodes, count, kind, lambda found: work_of(kind, params, 0, found))
    AllocParams.from_address(params).address = node.params.address


@started("cuGraphMemAllocNodeGetParams", "PP")
def graph_mem_alloc_node_get_params(node: int, params: int) -> None:
    """Write the allocation of a node."""
    store_params(_of_kind(node, NodeKind.MEM_ALLOC), params)


@started("cuGraphAddMemFreeNode", "PPPPP")
def graph_add_mem_free_node(out: int, graph: int, nodes: int, count: int, pointer: int) -> None:
    """Add a node that frees memory that a graph node allocated."""
    where = ctypes.c_uint64(pointer)
    kind = NodeKind.MEM_FREE
    _added(out, graph, nodes, count, kind, lambda found: work_of(kind, ctypes.addressof(where), 0, found))


@started("cuGraphMemFreeNodeGetParams", "PP")
def graph_mem_free_node_get_params(node: int, pointer: int) -> None:
    """Write the address that a node frees."""
    store_params(_of_kind(node, NodeKind.MEM_FREE), pointer)


# -- nodes of any type --------------------------------------------------------------------------------------

_BODY = NodeParams.body.offset
_COPY = 16
"""Where in the parameters of a copy its structure begins, behind flags and a context."""


def body_of(params: int) -> tuple[NodeKind, int]:
    """Return the type in a ``CUgraphNodeParams``, and the address of the parameters of that type."""
    require(params)
    number = NodeParams.from_address(params).type
    require(number in NodeKind._value2member_map_)
    kind = NodeKind(number)
    return kind, params + _BODY + (_COPY if kind is NodeKind.MEMCPY else 0)


@without_data("cuGraphAddNode", "PPPPP", 3)
@started("cuGraphAddNode_v2 cuGraphAddNode_v3", "PPPPPP")
def graph_add_node(out: int, graph: int, nodes: int, data: int, count: int, params: int) -> None:
    """Add a node of any type."""
    kind, body = body_of(params)
    if kind is NodeKind.GRAPH:
        is_moved = ctypes.c_int32.from_address(body + 8).value == 1
        graph_add_child_graph_node(out, graph, nodes, count, load_u64(body), data, is_moved)
    elif kind is NodeKind.CONDITIONAL:
        _add_conditional(out, graph, nodes, count, body, data)
    else:
        node = _added(out, graph, nodes, count, kind, lambda found: work_of(kind, body, 0, found), data)
        if kind is NodeKind.MEM_ALLOC:
            AllocParams.from_address(body).address = node.params.address


@started("cuGraphNodeSetParams cuGraphNodeSetParams_v2", "PP")
def graph_node_set_params(node: int, params: int) -> None:
    """Change the parameters of a node of any type."""
    kind, body = body_of(params)
    found = _of_kind(node, kind)
    require(kind not in (NodeKind.MEM_ALLOC, NodeKind.MEM_FREE, NodeKind.GRAPH, NodeKind.CONDITIONAL))
    found.params, found.work = work_of(kind, body)


@started("cuGraphNodeGetParams", "PP")
def graph_node_get_params(node: int, params: int) -> None:
    """Write the parameters of a node of any type."""
    found = node_of(node)
    require(params)
    ctypes.memset(params, 0, ctypes.sizeof(NodeParams))
    NodeParams.from_address(params).type = found.kind
    body = params + _BODY
    if found.child is not None:
        store_u64(body, found.child.handle)
        ctypes.c_int32.from_address(body + 8).value = -1
    elif found.bodies:
        ctypes.memmove(body, ctypes.addressof(found.params), ctypes.sizeof(found.params))
    elif found.kind is not NodeKind.EMPTY:
        store_params(found, body + (_COPY if found.kind is NodeKind.MEMCPY else 0))


# -- conditional nodes --------------------------------------------------------------------------------------

_ASSIGN_DEFAULT = 1
_IF, _WHILE, _SWITCH = range(3)
"""Source: CUDA Driver API manual, ``CUgraphConditionalNodeType``."""


@in_any_context("cuGraphConditionalHandleCreate", "PPPUU")
def graph_conditional_handle_create(out: int, graph: int, context: int, value: int, flags: int) -> None:
    """Create a condition for a node of a graph. Its handle is the address of a number, which kernels set."""
    require(out and flags in (0, _ASSIGN_DEFAULT))
    with LOCK:
        found = graph_of(graph)
        made = GraphCondition(context or current_context(), value, is_assigned=bool(flags))
        found.conditions[made.handle] = made
        store_u64(out, made.handle)


def _add_conditional(out: int, graph: int, nodes: int, count: int, body: int, data: int) -> None:
    """Add a conditional node, and write the handles of its graphs."""
    params = ConditionalParams.from_buffer_copy(ctypes.string_at(body, ctypes.sizeof(ConditionalParams)))
    with LOCK:
        condition = got(
            graph_of(graph).conditions.get(params.handle),
            words="the graph doesn't have this condition",
            hint="create the handle for this graph with `cuGraphConditionalHandleCreate`",
        )
        require(condition.node is None, words="another node has this condition")
        require(params.context in (0, condition.context), words="the condition was made for another context")
        most = {_IF: 2, _WHILE: 1, _SWITCH: params.size}.get(params.type, 0)
        require(
            0 < params.size <= most,
            words="the number of graphs doesn't match the type of the conditional node",
            hint="pass 1 or 2 graphs with IF, 1 with WHILE, and at least 1 with SWITCH",
        )
        node = _added(out, graph, nodes, count, NodeKind.CONDITIONAL, lambda _: (params, None), data)
        condition.node = node
        node.bodies = [EmulatedGraph(node) for _ in range(params.size)]
        for each in node.bodies:
            each.conditions = graph_of(graph).conditions
        handles = params.kept = (ctypes.c_uint64 * params.size)(*(each.handle for each in node.bodies))
        params.bodies = ConditionalParams.from_address(body).bodies = ctypes.addressof(handles)


@started("cuGraphDestroyNode", "P")
def graph_destroy_node(node: int) -> None:
    """Remove a node from its graph."""
    with LOCK:
        found = node_of(node)
        require(not found.graph.has_memory, Result.NOT_SUPPORTED, _ALLOCATES)
        found.destroy()


@started("cuGraphNodeGetType", "PP")
def graph_node_get_type(node: int, type_: int) -> None:
    """Write the type of a node."""
    store_u32(type_, node_of(node).kind)


@started("cuGraphNodeGetContainingGraph", "PP")
def graph_node_get_containing_graph(node: int, graph: int) -> None:
    """Write the graph of a node."""
    store_u64(graph, node_of(node).graph.handle)


@started("cuGraphNodeGetLocalId", "PP")
def graph_node_get_local_id(node: int, number: int) -> None:
    """Write a number that is unique among the nodes of the graph."""
    store_u32(number, node_of(node).number)


@started("cuGraphNodeGetToolsId", "PP")
def graph_node_get_tools_id(node: int, number: int) -> None:
    """Write a number that is unique among all nodes."""
    found = node_of(node)
    store_u64(number, found.graph.number << 32 | found.number)


# -- edges --------------------------------------------------------------------------------------------------

Edge = tuple[GraphNode, GraphNode, bytes]
"""Who is waited for, who waits, and the edge's data."""


def _store_some(count: int, columns: Sequence[tuple[int, Sequence[int]]], total: int) -> int:
    """Write lists of handles, as many as there is room for; without a list, say how many there are.

    Source: CUDA Driver API manual, ``cuGraphGetNodes``: what is left of the room is filled with nulls.
    """
    if not any(where for where, _ in columns):
        store_u64(count, total)
        return 0
    room = load_u64(count)
    require(room or not total)
    some = min(room, total)
    for where, values in columns:
        for k in range(room if where else 0):
            store_u64(where + 8 * k, values[k] if k < some else 0)
    store_u64(count, some)
    return some


def _store_edges(edges: list[Edge], before: int, after: int, data: int, count: int) -> None:
    lossy = (before or after) and not data and any(each != NO_DATA for _, _, each in edges)
    require(
        not lossy,
        Result.LOSSY_QUERY,
        "the edges have data that this call can't return",
        hint="call `cuGraphGetEdges_v2` or `cuStreamGetCaptureInfo_v3`",
    )
    columns = [(before, [a.handle for a, _, _ in edges]), (after, [b.handle for _, b, _ in edges])]
    some = _store_some(count, columns, len(edges))
    for k in range(some if data else 0):
        ctypes.memmove(data + 8 * k, edges[k][2], 8)


def _edges(nodes: Iterable[GraphNode]) -> list[Edge]:
    return [(before, node, data) for node in nodes for before, data in node.before.items()]


@started("cuGraphGetNodes", "PPP")
def graph_get_nodes(graph: int, nodes: int, count: int) -> None:
    """List the nodes of a graph."""
    found = [node.handle for node in graph_of(graph).nodes]
    _store_some(count, [(nodes, found)], len(found))


@started("cuGraphGetRootNodes", "PPP")
def graph_get_root_nodes(graph: int, nodes: int, count: int) -> None:
    """List the nodes without dependencies."""
    found = [node.handle for node in graph_of(graph).nodes if not node.before]
    _store_some(count, [(nodes, found)], len(found))


@without_data("cuGraphGetEdges", "PPPP", 3)
@started("cuGraphGetEdges_v2", "PPPPP")
def graph_get_edges(graph: int, before: int, after: int, data: int, count: int) -> None:
    """List the edges of a graph."""
    require(bool(before) == bool(after))
    _store_edges(_edges(graph_of(graph).nodes), before, after, data, count)


@without_data("cuGraphNodeGetDependencies", "PPP", 2)
@started("cuGraphNodeGetDependencies_v2", "PPPP")
def graph_node_get_dependencies(node: int, nodes: int, data: int, count: int) -> None:
    """List the dependencies of a node."""
    _store_edges(_edges([node_of(node)]), nodes, 0, data, count)


@without_data("cuGraphNodeGetDependentNodes", "PPP", 2)
@started("cuGraphNodeGetDependentNodes_v2", "PPPP")
def graph_node_get_dependent_nodes(node: int, nodes: int, data: int, count: int) -> None:
    """List the nodes that depend on a node."""
    found = node_of(node)
    _store_edges([(found, after, after.before[found]) for after in found.after], 0, nodes, data, count)


def _pairs(graph: int, before: int, after: int, data: int, count: int) -> list[Edge]:
    """Read edges of a graph."""
    whole = graph_of(graph)
    require((before and after) or not count)
    found = []
    for k in range(count):
        one, other = node_of(load_u64(before, k)), node_of(load_u64(after, k))
        require(one.graph is other.graph is whole and one is not other)
        found.append((one, other, ctypes.string_at(data + 8 * k, 8) if data else NO_DATA))
    require(len({edge[:2] for edge in found}) == count)
    return found


@without_data("cuGraphAddDependencies", "PPPP", 3)
@started("cuGraphAddDependencies_v2", "PPPPP")
def graph_add_dependencies(graph: int, before: int, after: int, data: int, count: int) -> None:
    """Add edges."""
    with LOCK:
        found = _pairs(graph, before, after, data, count)
        require(
            all(one not in other.before for one, other, _ in found),
            words="the graph already has this edge",
            hint="list the edges with `cuGraphGetEdges`",
        )
        for one, other, each in found:
            other.connect(one, each)


@without_data("cuGraphRemoveDependencies", "PPPP", 3)
@started("cuGraphRemoveDependencies_v2", "PPPPP")
def graph_remove_dependencies(graph: int, before: int, after: int, data: int, count: int) -> None:
    """Remove edges with the given data."""
    with LOCK:
        found = _pairs(graph, before, after, data, count)
        require(not graph_of(graph).has_memory, Result.NOT_SUPPORTED, _ALLOCATES)
        for one, other, each in found:
            require(
                other.before.get(one) == each,
                words="the graph doesn't have this edge",
                hint="list the edges with `cuGraphGetEdges`",
            )
        for one, other, _ in found:
            other.disconnect(one)


# -- attributes of kernels ----------------------------------------------------------------------------------


@started("cuGraphKernelNodeGetAttribute", "PUP")
def graph_kernel_node_get_attribute(node: int, attribute: int, value: int) -> None:
    """Write an attribute of a kernel node."""
    found = _of_kind(node, NodeKind.KERNEL)
    require(value and attribute in _KERNEL_ATTRIBUTES)
    ctypes.memmove(value, found.attributes.get(attribute, bytes(_VALUE_BYTES)), _VALUE_BYTES)


@started("cuGraphKernelNodeSetAttribute", "PUP")
def graph_kernel_node_set_attribute(node: int, attribute: int, value: int) -> None:
    """Set an attribute of a kernel's node."""
    found = _of_kind(node, NodeKind.KERNEL)
    require(value and attribute in _KERNEL_ATTRIBUTES)
    found.attributes[attribute] = ctypes.string_at(value, _VALUE_BYTES)


@started("cuGraphKernelNodeCopyAttributes", "PP")
def graph_kernel_node_copy_attributes(to: int, of: int) -> None:
    """Set all attributes of a kernel's node as another one has them."""
    _of_kind(to, NodeKind.KERNEL).attributes.update(_of_kind(of, NodeKind.KERNEL).attributes)


# -- user objects -------------------------------------------------------------------------------------------

_MOVE = 1


def _user_object(handle: int) -> UserObject:
    return got(USER_OBJECTS.get(handle))


@started("cuUserObjectCreate", "PPPUU")
def user_object_create(out: int, pointer: int, destroy: int, references: int, flags: int) -> None:
    """Create a reference count for an object of the caller's. A function destroys the object at the end."""
    require(out and destroy and 0 < references < 1 << 31 and flags == 1)
    store_u64(out, UserObject(pointer, destroy, references).handle)


@started("cuUserObjectRetain", "PU")
def user_object_retain(handle: int, count: int) -> None:
    """Increase the reference count of a user object."""
    require(0 < count < 1 << 31)
    with LOCK:
        _user_object(handle).references += count


@started("cuUserObjectRelease", "PU")
def user_object_release(handle: int, count: int) -> None:
    """Release references."""
    found = _user_object(handle)
    require(count > 0)
    found.release(count)


@started("cuGraphRetainUserObject", "PPUU")
def graph_retain_user_object(graph: int, handle: int, count: int, flags: int) -> None:
    """Retain references for a graph, or move the caller's references to it."""
    require(0 < count < 1 << 31 and flags <= _MOVE)
    with LOCK:
        found = _user_object(handle)
        graph_of(graph).objects[found] += count
        found.references += 0 if flags & _MOVE else count


@started("cuGraphReleaseUserObject", "PPU")
def graph_release_user_object(graph: int, handle: int, count: int) -> None:
    """Release references that a graph holds."""
    found, whole = _user_object(handle), graph_of(graph)
    require(0 < count <= whole.objects[found])
    whole.objects[found] -= count
    found.release(count)


# -- as a drawing -------------------------------------------------------------------------------------------

_VERBOSE, _HANDLES = 1, 1 << 10


@started("cuGraphDebugDotPrint", "PPU")
def graph_debug_dot_print(graph: int, path: int, flags: int) -> None:
    """Write a graph as a file that Graphviz draws."""
    require(path)
    lines = ["digraph dot {", *_drawn(graph_of(graph), flags, "graph_1"), "}"]
    try:
        write_file(text_at(path), "\n".join(lines) + "\n")
    except CujitError as e:
        require(False, Result.OPERATING_SYSTEM, str(e))


def _drawn(graph: EmulatedGraph, flags: int, name: str) -> list[str]:
    lines = [f"subgraph cluster_{name} {{", f'label="{name}"']
    for node in graph.nodes:
        words = f"{node.number}\\n{node.kind.name}"
        words += f"\\n{node.handle:#x}" if flags & (_VERBOSE | _HANDLES) else ""
        if flags & _VERBOSE and isinstance(node.params, ctypes.Structure):
            fields = ((field[0], getattr(node.params, field[0])) for field in type(node.params)._fields_)
            words += "".join(f"\\n{field} = {value}" for field, value in fields if isinstance(value, int))
        lines.append(f'"{name}_node_{node.number}" [shape=box, label="{words}"];')
        for k, child in enumerate(node.graphs):
            lines += _drawn(child, flags, f"{name}_{node.number}" + f"_{k}" * bool(node.bodies))
    lines += [
        f'"{name}_node_{before.number}" -> "{name}_node_{after.number}";' for before, after, _ in _edges(graph.nodes)
    ]
    return [*lines, "}"]
