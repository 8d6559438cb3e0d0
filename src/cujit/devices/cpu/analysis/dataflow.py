"""What analyses share: sets as the bits of ints, one solver, liveness, dominators, polling loops.

        add.u32 c, a, b;                   a and b are live before it
        @p bra END;                        c is, if the block behind reads it
        sub.u32 c, c, 1;             ->    post-dominated by END
    END: st.global.u32 [q], c;             dominated by the first block, and control-equivalent to it

Source: Lengauer, Tarjan, "A Fast Algorithm for Finding Dominators in a Flowgraph", 1979.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import TypeVar

from cujit.devices.cpu.ir.cfg import BasicBlock, ControlFlowGraph, Loop
from cujit.devices.cpu.ir.program import Op, Reg, Special
from cujit.devices.cpu.native.structures import AT_ANY, AT_PHASE, AT_SHARED
from cujit.formats.ptx.isa.semantics import Collective, Effect
from cujit.values import closure, group_by

_T = TypeVar("_T")


def bits_of(mask: int) -> list[int]:
    """List the bits that are set in a mask."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def joined(sets: Iterable[int]) -> int:
    """Join sets that are bits."""
    return functools.reduce(operator.or_, sets, 0)


# -- solving ----------------------------------------------------------------------------------------------


def solve(nodes: Sequence[_T], transfer: Callable[[_T], bool]) -> None:
    """Apply a transfer function to all nodes in turn until it changes nothing; it tells whether it did."""
    while sum(map(transfer, nodes)):
        pass


def reach(starts: int, stop: int, successors: Sequence[Sequence[int]]) -> int:
    """Collect the positions that lanes pass from some on before ``stop``, all as bits."""
    passed = closure(bits_of(starts & ~(1 << stop)), lambda p: (s for s in successors[p] if s != stop))
    return joined(1 << p for p in passed)


def mark_sides(inactive: list[int], sides: Sequence[int], meet: int, successors: Sequence[Sequence[int]]) -> int:
    """Add to each position behind a branch where lanes on its other sides may wait; count the ways passed.

    ``inactive`` has an item for each position but the exit, the last one.
    """
    positions = (1 << len(inactive)) - 1
    passed = {s: reach(1 << s, meet, successors) for s in sides}
    for s in sides:
        elsewhere = (1 << meet | joined(passed[other] for other in sides if other != s)) & positions
        for p in bits_of(passed[s] & positions):
            inactive[p] |= elsewhere
    return sum(count_ways(each & positions, successors) for each in passed.values())


def count_ways(positions: int, successors: Sequence[Sequence[int]]) -> int:
    """Count the ways out of positions, which are bits: to follow them takes as long."""
    return sum([len(successors[p]) for p in bits_of(positions)])


def live_in(graph: ControlFlowGraph) -> list[int]:
    """Find for each position the registers whose values at its start are read later; the exit needs none."""
    uses, defs = [], []
    for block in graph.blocks:
        used = defined = 0
        for op in block.ops:
            used |= op.reads & ~defined
            defined |= op.writes
        uses.append(used)
        defs.append(defined)
    live = [0] * (len(graph.blocks) + 1)

    def before(p: int) -> bool:
        was, live[p] = live[p], uses[p] | joined(live[s] for s in graph.blocks[p].successors) & ~defs[p]
        return was != live[p]

    solve(range(len(graph.blocks) - 1, -1, -1), before)
    return live


def writers_of(ops: Iterable[Op]) -> dict[int, list[Op]]:
    """List the operations that write a register, by its number."""
    return group_by((r.index, op) for op in ops for r in op.written)


def written_once(graph: ControlFlowGraph) -> dict[int, Op]:
    """Return the operation that writes a register, by the register's number, if only one does."""
    return {index: ops[0] for index, ops in writers_of(graph.ops).items() if len(ops) == 1}


# -- dominance --------------------------------------------------------------------------------------------


def turned(successors: Sequence[Sequence[int]]) -> list[list[int]]:
    """List for each node those that lead to it."""
    found: list[list[int]] = [[] for _ in successors]
    for node, after in enumerate(successors):
        for s in after:
            found[s].append(node)
    return found


def dominators(successors: Sequence[Sequence[int]], root: int) -> tuple[list[int], list[int]]:
    """Return the nodes reachable from ``root`` in reverse postorder, and for each node its immediate dominator.

    That of the root is itself; a node that is not reached has none, which is -1. The time grows as the edges, times
    the logarithm of the nodes, whatever the graph.
    """
    order, reached, above = _depth_first(successors, root)
    number = [-1] * len(successors)
    for k, node in enumerate(reached):
        number[node] = k
    parents = [reached[k] for k in _immediate([[number[s] for s in successors[node]] for node in reached], above)]
    return order, [parents[k] if k >= 0 else -1 for k in number]


def _immediate(successors: Sequence[Sequence[int]], above: Sequence[int]) -> list[int]:
    """Find the immediate dominator of each node. They are numbered in the order of a depth-first search, by whose tree
    one is ``above`` each.
    """
    before = turned(successors)
    semi, best = list(range(len(above))), list(range(len(above)))
    up, found = [-1] * len(above), [0] * len(above)
    waiting: list[list[int]] = [[] for _ in above]

    def least(node: int) -> int:
        """Find the node with the least semidominator on the way up to the root of the node's tree."""
        if up[node] < 0:
            return node
        way, top = [], node
        while up[up[top]] >= 0:
            way.append(top)
            top = up[top]
        for each in reversed(way):  # the way becomes short
            over = up[each]
            if semi[best[over]] < semi[best[each]]:
                best[each] = best[over]
            up[each] = up[over]
        return best[node]

    for node in range(len(above) - 1, 0, -1):
        semi[node] = min([semi[least(p)] for p in before[node]])
        waiting[semi[node]].append(node)
        up[node] = parent = above[node]
        for each in waiting[parent]:
            through = least(each)
            found[each] = through if semi[through] < parent else parent
        waiting[parent] = []
    for node in range(1, len(above)):
        if found[node] != semi[node]:
            found[node] = found[found[node]]
    return found


def _depth_first(successors: Sequence[Sequence[int]], root: int) -> tuple[list[int], list[int], list[int]]:
    """Return the nodes reachable from ``root`` in reverse postorder and as they are reached, and for each of the
    latter the number of the one from which it is reached.
    """
    order, reached, above = [], [root], [0]
    seen = {root}
    todo = [(0, iter(successors[root]))]
    while todo:
        number, ways = todo[-1]
        following = next((s for s in ways if s not in seen), None)
        if following is None:
            order.append(reached[number])
            todo.pop()
        else:
            seen.add(following)
            todo.append((len(reached), iter(successors[following])))
            reached.append(following)
            above.append(number)
    order.reverse()
    return order, reached, above


def immediate_postdominators(graph: ControlFlowGraph) -> list[int]:
    """Find for each position the first one that every way from it to the exit passes; the exit where there is none.

    A block from which the exit cannot be reached (an endless loop) has the exit, too.
    """
    _, nearest = dominators(turned(graph.successors()), graph.exit)
    return [graph.exit if p < 0 else p for p in nearest[: len(graph.blocks)]]


def control_equivalent(graph: ControlFlowGraph) -> list[int | None]:
    """Find for each block an earlier one that exactly the same lanes pass, each time round their common loop.

    Where it exists, the lanes of the later block are known without collecting them: they are the earlier one's.
    """
    found: list[int | None] = [None] * len(graph.blocks)
    for loop in (None, *graph.loops):
        members = range(len(graph.blocks)) if loop is None else range(loop.head, loop.last + 1)
        own = [p for p in members if graph.blocks[p].loop is loop]
        if len(own) > 1 and _has_one_entry(graph, loop):
            _compare(graph, loop, members, own, found)
    return found


def _has_one_entry(graph: ControlFlowGraph, loop: Loop | None) -> bool:
    """Whether lanes come into the loop only by its head; not so where control flow is irreducible."""
    if loop is None:
        return True
    inside = graph.blocks[loop.head + 1 : loop.last + 1]
    return all(p in loop for b in inside for p in b.predecessors)


def _compare(
    graph: ControlFlowGraph, loop: Loop | None, members: Sequence[int], own: list[int], found: list[int | None]
) -> None:
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
    # All lanes that pass two blocks pass the dominator of the later one, too. So it is enough to look whether a block
    # is the first that all ways from its dominator to the end pass.
    order, before = dominators(forward, 0)
    _, behind = dominators(turned(forward), exit_)
    groups = [*range(exit_ + 1)]
    for k in order[1:]:
        if behind[before[k]] == k:
            groups[k] = groups[before[k]]
    first: dict[int, int] = {}
    for p in own:
        earlier = first.setdefault(groups[at[p]], p)
        if earlier != p:
            found[p] = earlier


# -- where lanes of one warp must be able to go on without each other ---------------------------------------------

# Lanes wait at a barrier or a ``.sync`` operation for lanes that took another way, and a loop that polls memory may
# wait for what another lane of the same warp writes later on. So behind such a place the order of blocks does not keep
# lanes together: they do not reconverge from there on, and every position that they can reach may be passed at
# different times.
# That ends at a barrier of the block if they can wait at no other one: it opens when every thread has come, so that all
# of the warp go on from there.
#
#     AGAIN: ld.volatile.u32 x, [flag];      the loop polls: it may wait for what another lane stores,
#         setp.eq.u32 p, x, 0;         ->    so that lanes do not converge in it,
#         @p bra AGAIN;                      nor behind it
#         st.global.u32 [q], x;
#         barrier.sync 0;                    all of them are here,
#         add.u32 i, i, 1;                   and go on together


def find_non_reconverging(
    graph: ControlFlowGraph, inactive: list[int], polls: Sequence[Loop], barriers: Sequence[int]
) -> int:
    """Find the positions that lanes pass at different times; add them to where lanes wait.

    ``polls`` are polling loops that not all lanes are in at a time, ``barriers`` positions of barriers that some
    lanes wait at and others pass by.
    """
    starts = [joined(1 << position for position in range(loop.head, loop.last + 1)) for loop in polls]
    starts += [1 << position for position in barriers]
    sites = (block.position for block in graph.blocks if block.site is not None)
    starts += [1 << position | inactive[position] for position in sites if inactive[position]]
    parts = _parts_of(graph, starts)
    for part in parts:
        for position in bits_of(part):
            inactive[position] |= part
    return joined(parts)


def _parts_of(graph: ControlFlowGraph, starts: Sequence[int]) -> list[int]:
    """Collect the positions that lanes pass at different times, from each of some starts on."""
    waiting, meeting = joined(1 << b.position for b in graph.blocks if b.barrier is not None), _meeting(graph)
    while True:
        parts = _reached(starts, graph, meeting)
        # Where lanes can wait at two barriers they need not meet at either, and what is behind is passed apart, too.
        several = joined(part & meeting for part in parts if (part & waiting).bit_count() > 1)
        if not several:
            return parts
        meeting &= ~several


def _meeting(graph: ControlFlowGraph) -> int:
    """Find the barriers that open only when every thread of the block waits there or has exited, as bits."""
    ops = graph.ops
    of_block = [op for op in ops if op.form.collective is Collective.BLOCK]
    counted = any(not op.form.is_barrier or len(op.sources) != 1 + ("red" in op.modifiers) for op in of_block)
    if counted or any(op.opcode == "call.function" for op in ops):
        return 0
    barriers = (b for b in graph.blocks if b.barrier in of_block)
    return joined(1 << b.position for b in barriers if b.ops[0].guard is None)


def _reached(starts: Iterable[int], graph: ControlFlowGraph, stops: int) -> list[int]:
    """Collect what is reached from each of some starts on, ``stops`` last; what has positions in common is one."""
    successors = [() if stops >> p & 1 else ways for p, ways in enumerate(graph.successors())]
    parts: list[int] = []
    passed = {graph.exit}
    for start in starts:
        part = start & ~(1 << graph.exit)
        fresh = [p for p in bits_of(part) if p not in passed]
        while fresh:  # each part has all that is reached from it, so that none is passed twice
            p = fresh.pop()
            if p not in passed:
                passed.add(p)
                part |= joined(1 << s for s in (p, *successors[p]) if s != graph.exit)
                fresh += successors[p]
        part |= joined(other for other in parts if other & part)
        parts = [*(other for other in parts if not other & part), part]
    return parts


def polling_loops(graph: ControlFlowGraph) -> list[Loop]:
    """Find the loops that end when another thread writes something: their way out depends on memory read anew."""
    return [loop for loop in graph.loops if _polls(graph.blocks[loop.head : loop.last + 1], loop)]


def _polls(inside: Sequence[BasicBlock], loop: Loop) -> bool:
    ops = [op for block in inside for op in block.ops]
    if any(op.opcode == "nanosleep" for op in ops):
        return True
    polled = _polled(ops)
    return bool(polled) and not polled.isdisjoint(_origins(_deciding(inside, loop), ops))


def awaited(graph: ControlFlowGraph, loop: Loop) -> int:
    """Return the only event that ends a loop: ``AT_PHASE`` or ``AT_SHARED``. ``AT_ANY`` if something else may end it.

    Such a loop writes nothing, and what its ways out depend on is computed anew in each turn from what it polls: a turn
    which finds the same as the one before does the same.
    """
    inside = graph.blocks[loop.head : loop.last + 1]
    ops = [op for block in inside for op in block.ops]
    polls = [op for op in ops if op.form.is_poll and op.written]
    tested = {r for op in polls for r in op.written}
    quiet = all(op in polls or _is_quiet(op) for op in ops)
    return _ended_by(polls) if quiet and all(_decide(b, tested, ops) for b in _ways_out(inside, loop)) else AT_ANY


def _ended_by(polls: Sequence[Op]) -> int:
    """Return which event may change what these operations read: ``AT_ANY`` if the host or another launch may."""
    kinds = {op.opcode if op.opcode == "mbarrier" else op.space for op in polls}
    if kinds == {"mbarrier"}:
        return AT_PHASE
    reads = all(op.form.meaning.effect is Effect.READS or op.opcode == "mbarrier" for op in polls)
    return AT_SHARED if reads and polls and kinds <= {"mbarrier", "shared", "cluster"} else AT_ANY


def _is_quiet(op: Op) -> bool:
    """Return whether no other thread can observe that a loop repeated the operation."""
    quiet = (Effect.PURE, Effect.READS, Effect.ORDERS, Effect.CONTROLS, Effect.SIGNALS)
    return op.form.meaning.effect in quiet and op.opcode != "call.function"


def _decide(branch: Op | None, tested: Set[Reg], ops: Sequence[Op]) -> bool:
    """Return whether a branch in a loop depends on what was tested, and on nothing else that changes by itself."""
    if branch is None or tested.isdisjoint(_origins(branch.read_registers(), ops)):
        return False
    others = [op for op in ops if tested.isdisjoint(op.written)]
    decides = _origins(branch.read_registers(), others)
    for op in others:
        if decides.isdisjoint(op.written):
            continue
        carried = not _origins(op.read_registers(), others).isdisjoint(op.written)
        if carried or op.form.meaning.effect is not Effect.PURE or any(isinstance(s, Special) for s in op.sources):
            return False
    return True


def _polled(ops: Sequence[Op]) -> set[Reg]:
    """Collect the registers that get what another thread may write while a loop runs."""
    polled = [op for op in ops if op.form.is_poll and not _is_retry(op, ops)]
    if any(op.opcode == "call.function" for op in ops):
        # What a function gave may be memory that others write, which it looked at.
        polled += [op for op in ops if op.opcode == "ld" and op.space == "local"]
    return {r for op in polled for r in op.written}


def _deciding(inside: Sequence[BasicBlock], loop: Loop) -> Iterator[Reg]:
    """List the registers that branches out of a loop read."""
    for branch in _ways_out(inside, loop):
        if branch is not None:
            yield from branch.read_registers()


def _ways_out(inside: Sequence[BasicBlock], loop: Loop) -> list[Op | None]:
    """List the branches out of a loop; None for a block that leaves it without one."""
    return [b.branch for b in inside if any(s not in loop for s in b.successors)]


def _origins(registers: Iterable[Reg], ops: Sequence[Op]) -> set[Reg]:
    """Collect the registers that some are made from by operations of a loop, themselves included."""
    made_from: dict[Reg, list[Reg]] = {}
    for op in ops:
        for r in op.written:
            made_from.setdefault(r, []).extend(op.read_registers())
    return closure(registers, lambda reg: made_from.get(reg, ()))


def _is_retry(op: Op, ops: Sequence[Op]) -> bool:
    """Return whether the operation is a ``cas`` that retries with the value that it found. Some thread always succeeds.

    One that compares with anything else is a lock, and waits for another thread.
    """
    if op.opcode != "atom" or "cas" not in op.modifiers:
        return False
    compared = op.sources[1]
    return isinstance(compared, Reg) and not _origins([compared], ops).isdisjoint(op.written)
