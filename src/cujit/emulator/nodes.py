"""Graphs as values: nodes, edges, and in which order they run."""

from __future__ import annotations

import ctypes
import enum
import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from cujit.emulator.entries import got, new_cell
from cujit.emulator.machine import cell_free
from cujit.emulator.process import emulation
from cujit.emulator.structures import CellKind, GraphStep
from cujit.forks import Lock
from cujit.values import closure

LOCK = Lock()
"""Held while graphs and captures change, never while a node runs."""

NO_DATA = bytes(8)
"""The data of an edge that has none; what an edge has is its ``CUgraphEdgeData``."""


class NodeKind(enum.IntEnum):
    """Kind of a graph node. Source: CUDA Driver API manual, ``CUgraphNodeType``."""

    KERNEL = 0
    MEMCPY = 1
    MEMSET = 2
    HOST = 3
    GRAPH = 4
    EMPTY = 5
    WAIT_EVENT = 6
    EVENT_RECORD = 7
    SEMAPHORES_SIGNAL = 8
    SEMAPHORES_WAIT = 9
    MEM_ALLOC = 10
    MEM_FREE = 11
    BATCH_MEM_OP = 12
    CONDITIONAL = 13


Work = GraphStep | Callable[[], None]
"""What a node does when its graph is launched: a step that C makes, or a function of Python's."""


class GraphNode:
    """A graph node with its ``work``, and ``params``, the driver structure that describes the same work.

    ``before`` contains the nodes that this node waits for, with the data of each edge. ``after`` contains the nodes
    that wait for this node. ``attributes`` are a kernel's attributes. ``origin`` is the node from which this node was
    cloned. ``child`` is the graph of a child-graph node, and ``bodies`` are the graphs of a conditional node. A
    disabled node does nothing.
    """

    def __init__(self, graph: EmulatedGraph, kind: NodeKind, params: Any = None, work: Work | None = None) -> None:
        self.graph = graph
        self.kind = kind
        self.params = params
        self.work = work
        self.before: dict[GraphNode, bytes] = {}
        self.after: dict[GraphNode, None] = {}
        self.attributes: dict[int, bytes] = {}
        self.origin: GraphNode | None = None
        self.child: EmulatedGraph | None = None
        self.bodies: list[EmulatedGraph] = []
        self.is_enabled = True
        self.handle = new_cell(CellKind.NODE)
        self.number = graph.numbered
        graph.numbered += 1
        graph.nodes[self] = None
        NODES[self.handle] = self

    def connect(self, before: GraphNode, data: bytes = NO_DATA) -> None:
        """Make the node depend on another node."""
        self.before[before] = data
        before.after[self] = None

    def disconnect(self, before: GraphNode) -> None:
        """Remove the dependency of the node on another node."""
        del self.before[before], before.after[self]

    def destroy(self) -> None:
        """Remove the node with its edges from its graph, and destroy the graphs in the node."""
        for other in list(self.before):
            self.disconnect(other)
        for other in list(self.after):
            other.disconnect(self)
        del self.graph.nodes[self], NODES[self.handle]
        cell_free(self.handle, CellKind.NODE)
        for graph in self.graphs:
            graph.destroy()

    @property
    def graphs(self) -> list[EmulatedGraph]:
        """List the graphs that belong to it."""
        return self.bodies if self.child is None else [self.child]


class EmulatedGraph:
    """A graph with its nodes in the order of creation. ``owner`` is the node that contains this graph as its child
    graph.

    ``objects`` counts the graph's references to user objects. ``conditions`` contains the conditions that were created
    for the graph, by handle.
    """

    def __init__(self, owner: GraphNode | None = None) -> None:
        self.conditions: dict[int, GraphCondition] = {}
        self.nodes: dict[GraphNode, None] = {}
        self.numbered = 0
        self.objects: Counter[UserObject] = Counter()
        self.owner = owner
        self.origin: EmulatedGraph | None = None
        self.handle = new_cell(CellKind.GRAPH)
        self.number = next(_NUMBERS)
        GRAPHS[self.handle] = self

    @property
    def has_memory(self) -> bool:
        """Whether one of its nodes allocates or frees."""
        return any(
            node.kind in (NodeKind.MEM_ALLOC, NodeKind.MEM_FREE) or any(graph.has_memory for graph in node.graphs)
            for node in self.nodes
        )

    @property
    def has_conditions(self) -> bool:
        """Whether one of its nodes is conditional."""
        return any(node.bodies or any(graph.has_conditions for graph in node.graphs) for node in self.nodes)

    def all_conditions(self) -> list[GraphCondition]:
        """Return the conditions of the graph and of all graphs in it."""
        inner = (graph.all_conditions() for node in self.nodes for graph in node.graphs)
        return list(dict.fromkeys(itertools.chain(self.conditions.values(), *inner)))

    def destroy(self) -> None:
        """Free it, its nodes, and its references."""
        for node in list(self.nodes):
            node.destroy()
        del GRAPHS[self.handle]
        cell_free(self.handle, CellKind.GRAPH)
        for item, count in self.objects.items():
            item.release(count)

    def clone(self, owner: GraphNode | None = None) -> EmulatedGraph:
        """Return a copy of the graph with its nodes, edges, and child graphs."""
        made = EmulatedGraph(owner)
        made.origin = self
        found: dict[GraphNode, GraphNode] = {}
        for node in self.nodes:
            found[node] = copy = GraphNode(made, node.kind, node.params, node.work)
            copy.origin = node
            copy.attributes = dict(node.attributes)
            if node.child is not None:
                copy.child = node.child.clone(copy)
            copy.bodies = [body.clone(copy) for body in node.bodies]
        for node, copy in found.items():
            for before, data in node.before.items():
                copy.connect(found[before], data)
        made.conditions = dict(self.conditions)
        made.objects = Counter(self.objects)
        for item, count in made.objects.items():
            item.references += count
        return made

    def ordered(self) -> list[GraphNode]:
        """Return the nodes in topological order. If edges leave the order open, nodes are in the order of creation."""
        waits = {node: len(node.before) for node in self.nodes}
        ready = [node for node, count in waits.items() if not count]
        done: list[GraphNode] = []
        while ready:
            ready.sort(key=lambda node: node.number)
            done.append(node := ready.pop(0))
            for other in node.after:
                waits[other] -= 1
                if not waits[other]:
                    ready.append(other)
        return done


class GraphCondition:
    """A number that kernels set and conditional nodes read. Its address is its handle.

    ``value`` is the initial value at each graph launch if ``is_assigned`` is set. ``node`` is the node that uses the
    condition.
    """

    def __init__(self, context: int, value: int, *, is_assigned: bool) -> None:
        self._word = ctypes.c_uint32(value)
        self.handle = ctypes.addressof(self._word)
        self._known = emulation().device.adopt(self.handle, ctypes.sizeof(self._word))
        self.context = context
        self.value = value
        self.is_assigned = is_assigned
        self.node: GraphNode | None = None


_NUMBERS = itertools.count(1)
GRAPHS: dict[int, EmulatedGraph] = {}
NODES: dict[int, GraphNode] = {}
"""Graphs and nodes by their handles."""


def behind(nodes: Iterable[GraphNode]) -> set[GraphNode]:
    """Return these nodes and all nodes that they wait for, directly or through other nodes."""
    return closure(nodes, lambda node: node.before)


def graph_of(handle: int) -> EmulatedGraph:
    """Return the graph of a handle.

    Raises:
        Refused: the value is invalid.
    """
    return got(GRAPHS.get(handle), words="no graph has this handle", hint="create a graph with `cuGraphCreate`")


def node_of(handle: int) -> GraphNode:
    """Return the node of a handle.

    Raises:
        Refused: the value is invalid.
    """
    return got(NODES.get(handle), words="no graph node has this handle")


class UserObject:
    """An object of the caller that lives as long as references to it exist. Then ``destroy`` is called with its
    pointer.
    """

    def __init__(self, pointer: int, destroy: int, references: int) -> None:
        self.pointer = pointer
        self.references = references
        self._destroy = ctypes.CFUNCTYPE(None, ctypes.c_uint64)(destroy)
        self.handle = new_cell(CellKind.USER_OBJECT)
        USER_OBJECTS[self.handle] = self

    def release(self, count: int) -> None:
        """Remove references, and destroy the object with the last reference. ``count`` may exceed the number of
        references.
        """
        self.references -= count
        if self.references <= 0 and self.handle in USER_OBJECTS:
            del USER_OBJECTS[self.handle]
            cell_free(self.handle, CellKind.USER_OBJECT)
            self._destroy(self.pointer)


USER_OBJECTS: dict[int, UserObject] = {}
"""User objects by their handles."""
