"""Dominators and post-dominators, as sets in the bits of ints; and blocks that are control-equivalent.

    @p bra ELSE;                       block 0 dominates all, block 3 post-dominates all:
    add.u32 x, x, 1;  bra END;   ->    lanes that come to 0 come to 3, so that the two are control-equivalent,
ELSE: sub.u32 x, x, 1;                 and the mask of 3 is that of 0
END: st.global.u32 [q], x;
"""

from __future__ import annotations

from collections.abc import Sequence

from cujit.devices.cpu.cfg import Graph, Loop

__all__ = ["control_equivalent", "immediate_postdominators"]


def _closure(predecessors: Sequence[Sequence[int]], root: int, order: Sequence[int]) -> list[int]:
    """Find for each node the set of nodes on every path from ``root`` to it (itself included).

    A node that no path reaches keeps the full set.
    """
    full = (1 << len(predecessors)) - 1
    sets = [full] * len(predecessors)
    sets[root] = 1 << root
    changed = True
    while changed:
        changed = False
        for node in order:
            if node == root:
                continue
            meet = full
            for p in predecessors[node]:
                meet &= sets[p]
            meet |= 1 << node
            if meet != sets[node]:
                sets[node] = meet
                changed = True
    return sets


def immediate_postdominators(graph: Graph) -> list[int]:
    """Find for each position the first one that every way from it to the exit passes; the exit where there is none.

    A block from which the exit cannot be reached (an endless loop) has the exit, too.
    """
    successors = graph.successors()
    n = len(graph.blocks)
    sets = _closure(successors, graph.exit, range(n - 1, -1, -1))
    reaches = _can_reach(graph.exit, successors)
    result = []
    for b in range(n):
        if not reaches[b]:
            result.append(graph.exit)
            continue
        candidates = sets[b] & ~(1 << b)
        # The nearest one is post-dominated by all the others, so its own set is the largest.
        members = [k for k in range(n + 1) if candidates >> k & 1]
        result.append(max(members, key=lambda k: sets[k].bit_count()))
    return result


def _can_reach(target: int, successors: list[list[int]]) -> list[bool]:
    predecessors: list[list[int]] = [[] for _ in successors]
    for b, after in enumerate(successors):
        for s in after:
            predecessors[s].append(b)
    found = [False] * len(successors)
    found[target] = True
    todo = [target]
    while todo:
        for p in predecessors[todo.pop()]:
            if not found[p]:
                found[p] = True
                todo.append(p)
    return found


def control_equivalent(graph: Graph) -> list[int | None]:
    """Find for each block an earlier one that exactly the same lanes pass, each time round their common loop.

    Where it exists, the lanes of the later block are known without collecting them: they are the earlier one's.
    """
    twins: list[int | None] = [None] * len(graph.blocks)
    for loop in (None, *graph.loops):
        members = [b.position for b in graph.blocks if loop is None or b.position in loop]
        own = [p for p in members if graph.blocks[p].loop is loop]
        if len(own) > 1 and _has_one_entry(graph, loop):
            _twins_of(graph, loop, members, own, twins)
    return twins


def _has_one_entry(graph: Graph, loop: Loop | None) -> bool:
    """Whether lanes come into the loop only by its head; not so where control flow is irreducible."""
    if loop is None:
        return True
    inside = (b for b in graph.blocks if b.position in loop and b.position != loop.head)
    return all(p in loop for b in inside for p in b.predecessors)


def _twins_of(graph: Graph, loop: Loop | None, members: list[int], own: list[int], twins: list[int | None]) -> None:
    """Compare dominators and post-dominators in one round of ``loop``, inner loops taken as passed through."""
    at = {p: k for k, p in enumerate(members)}
    exit_ = len(members)
    forward: list[list[int]] = [[] for _ in range(exit_ + 1)]
    for p in members:
        for s in graph.blocks[p].successors:
            if s > p and s in at:
                forward[at[p]].append(at[s])
            elif s not in at or (loop is not None and s <= loop.head):
                forward[at[p]].append(exit_)
            # What is left is the back edge of an inner loop: its lanes leave that loop elsewhere.
    backward: list[list[int]] = [[] for _ in range(exit_ + 1)]
    for k, after in enumerate(forward):
        for s in after:
            backward[s].append(k)
    dominators = _closure(backward, 0, range(exit_ + 1))
    postdominators = _closure(forward, exit_, range(exit_ - 1, -1, -1))
    for j, later in enumerate(own):
        for earlier in own[:j]:
            a, b = at[earlier], at[later]
            if dominators[b] >> a & 1 and postdominators[a] >> b & 1:
                twins[later] = earlier
                break
