"""Basic blocks, the order in which a warp scans them, and their loops.

        @p bra ELSE;                       block 0: branches to 2 if p is true, otherwise to 1
        add.u32 x, x, 1;                   block 1: add, continues with 3
        bra END;                     ->    block 2: sub, continues with 3
    ELSE: sub.u32 x, x, 1;                 block 3: ret
    END: ret;

The order is topological except for back edges, and every loop is contiguous in it. A diverged warp always runs the
block with the lowest position at which any of its lanes waits. With this order, lanes reconverge at their nearest
common post-dominator at the latest. This holds for all control flow, including irreducible control flow.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from cujit.devices.cpu.ir.program import KernelProgram, Op
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.values import dataclass, field

_T = TypeVar("_T")


@dataclass(eq=False)
class BasicBlock:
    """Operations without a jump in between. ``ops[-1]`` may be a branch. Otherwise, the block falls through.

    An operation at which lanes wait for other lanes is the first of its block. A barrier is also the last.

    ``successors`` are positions. The position after the last block is the exit. For a guarded branch, the target is
    first and the fall-through is second. For ``brx``, the targets are in table order.
    """

    position: int
    ops: list[Op]
    successors: tuple[int, ...] = ()
    predecessors: list[int] = field(default_factory=list)
    loop: Loop | None = None

    @property
    def site(self) -> Op | None:
        """The operation that lanes may have to wait at, if the block begins with one."""
        return self.ops[0] if self.ops and self.ops[0].form.is_site else None

    @property
    def barrier(self) -> Op | None:
        """The barrier that the block begins and ends with, if there is one."""
        return self.site if self.site is not None and self.site.form.is_barrier else None

    @property
    def branch(self) -> Op | None:
        """The operation that ends the block, unless it falls through."""
        return self.ops[-1] if self.ops and self.ops[-1].form.is_jump else None


@dataclass(eq=False)
class Loop:
    """Positions ``head`` to ``last``, both inside; ``parent`` is the loop around it."""

    head: int
    last: int
    parent: Loop | None = None

    def __contains__(self, position: int) -> bool:
        return self.head <= position <= self.last


@dataclass(eq=False)
class ControlFlowGraph:
    """Basic blocks in scan order. ``exit`` is the position after the last block. Outer loops precede inner ones in
    ``loops``.
    """

    blocks: list[BasicBlock]
    loops: list[Loop]

    @property
    def exit(self) -> int:
        """The position that represents the exit of the kernel."""
        return len(self.blocks)

    @property
    def ops(self) -> list[Op]:
        """The operations of all blocks."""
        return [op for block in self.blocks for op in block.ops]

    def successors(self) -> list[list[int]]:
        """Return the successors of each position, including the exit, which has none."""
        return [list(b.successors) for b in self.blocks] + [[]]


def build_graph(program: KernelProgram, refusals: Refusals) -> ControlFlowGraph:
    """Return the control-flow graph of a program, without unreachable blocks.

    Loops that are nested too deeply are added to ``refusals``.
    """
    pieces, labels = _cut(program.ops)
    edges = [_successors(ops, k, labels, len(pieces), refusals) for k, ops in enumerate(pieces)]
    try:
        return _assemble(pieces, edges)[0]
    except _TooDeepError:
        refusals.add(program.ops[0].line, program.name, "so many loops inside each other")
        return ControlFlowGraph([], [])


def part_of(graph: ControlFlowGraph, start: int, stops: Container[int]) -> tuple[ControlFlowGraph, list[int]]:
    """Return the subgraph of the blocks reachable from ``start``, without continuing past the blocks in ``stops``.

    The subgraph shares its operations with ``graph``. The second list contains the position of each block in ``graph``.
    """
    numbers = {start: 0}
    found = [start]
    for p in found:
        for s in () if p in stops else graph.blocks[p].successors:
            if s != graph.exit and s not in numbers:
                numbers[s] = len(found)
                found.append(s)
    numbers[graph.exit] = len(found)
    edges = [[len(found)] if p in stops else [numbers[s] for s in graph.blocks[p].successors] for p in found]
    part, order = _assemble([graph.blocks[p].ops for p in found], edges)
    return part, [found[old] for old in order]


def _assemble(pieces: Sequence[list[Op]], edges: list[list[int]]) -> tuple[ControlFlowGraph, list[int]]:
    """Return the graph of the blocks reachable from the first piece, in scan order.

    The second list contains the index of the piece that each block consists of.
    """
    end = len(pieces)
    order, spans = _order(edges, end)
    position = {old: new for new, old in enumerate(order)}
    position[end] = len(order)
    blocks = [BasicBlock(new, pieces[old], tuple(position[s] for s in edges[old])) for new, old in enumerate(order)]
    for block in blocks:
        for s in dict.fromkeys(block.successors):
            if s < len(blocks):
                blocks[s].predecessors.append(block.position)
    return ControlFlowGraph(blocks, _nest(blocks, spans)), order


def _cut(ops: Sequence[Op]) -> tuple[list[list[Op]], dict[str, int]]:
    pieces: list[list[Op]] = [[]]
    labels: dict[str, int] = {}
    for op in ops:
        if pieces[-1] and (op.opcode == "label" or op.form.is_site):
            pieces.append([])
        if op.opcode == "label":
            labels[op.targets[0]] = len(pieces) - 1
            continue
        pieces[-1].append(op)
        if op.form.is_jump or op.form.is_barrier:
            pieces.append([])
    return pieces, labels


def _successors(ops: list[Op], k: int, labels: dict[str, int], end: int, refusals: Refusals) -> list[int]:
    last = ops[-1] if ops and ops[-1].form.is_jump else None
    if last is None:
        return [k + 1]
    for name in last.targets:
        if name not in labels:
            refusals.mistake(last.line, last.text or "bra", f"{name} is a label that is defined nowhere")
            labels[name] = end
    targets = [end] if last.opcode == "exit" else [labels[t] for t in last.targets]
    return [*targets, k + 1] if last.guard is not None else targets


# -- order ------------------------------------------------------------------------------------------------

_MOST_STEPS, _MOST_STEPS_EACH = 300_000, 20
"""Blocks that may be looked at to find loops, again for each loop around them: so many, and so many for each block.

Some 400 loops may be inside each other. Compilers write no more than ten or so.
"""


class _TooDeepError(Exception):
    """The error if loops are nested more deeply than supported."""


def _order(edges: list[list[int]], end: int) -> tuple[list[int], list[tuple[int, int]]]:
    """Return the order of the reachable blocks, and the loops as (first, last) positions, outermost first.

    Strongly connected components are in topological order. Inside a component, its head is first. The rest is ordered
    in the same way, without the edges to the head. Thus every retreating edge leads to the head of a loop around it,
    for any graph.

    Raises:
        _TooDeepError: the loops are nested too deeply.
    """
    order: list[int] = []
    spans: list[tuple[int, int]] = []
    everything, steps = set(range(end)), _MOST_STEPS + _MOST_STEPS_EACH * end
    # A stack of work: a part to lay out, or the first position of a loop that ends here.
    work: list[list[int] | int] = list(reversed(_parts([0], everything, edges)))
    while work:
        item = work.pop()
        if isinstance(item, int):
            spans.append((item, len(order) - 1))
            continue
        head = item[0]
        first = len(order)
        order.append(head)
        if len(item) > 1 or head in edges[head]:
            work.append(first)
            inside = set(item[1:])
            steps -= len(item)
            if steps < 0:
                raise _TooDeepError
            work += reversed(_parts([s for s in edges[head] if s in inside], inside, edges))
    spans.sort(key=lambda s: (s[0], -s[1]))
    return order, spans


def _parts(roots: list[int], members: set[int], edges: list[list[int]]) -> list[list[int]]:
    """Find the strongly connected parts that ``roots`` reach inside ``members``, in topological order.

    The first of each part is the one where the search entered it. Source: R. Tarjan, "Depth-first search and
    linear graph algorithms", SIAM J. Comput. 1 (1972), made iterative.
    """
    return _strong(roots, members, edges.__getitem__)[::-1]


def components(edges: Mapping[str, Sequence[str]]) -> list[list[str]]:
    """Return the strongly connected components of a graph, each after the components that it has edges to."""
    return _strong([*edges], set(edges), edges.__getitem__)


def _strong(roots: Iterable[_T], open_: set[_T], edges: Callable[[_T], Iterable[_T]]) -> list[list[_T]]:
    """Return the strongly connected components among the ``open_`` nodes, successors first, and remove them from
    ``open_``.
    """
    index: dict[_T, int] = {}
    low: dict[_T, int] = {}
    stack: list[_T] = []
    parts: list[list[_T]] = []
    path: list[tuple[_T, Iterator[_T]]] = []

    def enter(node: _T) -> None:
        index[node] = low[node] = len(index)
        stack.append(node)
        path.append((node, iter(edges(node))))

    def leave(node: _T) -> None:
        path.pop()
        if path:
            low[path[-1][0]] = min(low[path[-1][0]], low[node])
        if low[node] == index[node]:
            part = [stack.pop()]
            while part[-1] != node:
                part.append(stack.pop())
            parts.append(part[::-1])
            open_.difference_update(part)

    for root in roots:
        if root in open_:
            enter(root)
        while path:
            node, successors = path[-1]
            for s in successors:
                if s in open_ and s not in index:
                    enter(s)
                    break
                if s in open_:
                    low[node] = min(low[node], index[s])
            else:
                leave(node)
    return parts


def _nest(blocks: list[BasicBlock], spans: list[tuple[int, int]]) -> list[Loop]:
    loops: list[Loop] = []
    open_: list[Loop] = []
    for head, last in spans:
        while open_ and open_[-1].last < head:
            open_.pop()
        loop = Loop(head, last, open_[-1] if open_ else None)
        loops.append(loop)
        open_.append(loop)
        for position in range(head, last + 1):
            blocks[position].loop = loop
    return loops
