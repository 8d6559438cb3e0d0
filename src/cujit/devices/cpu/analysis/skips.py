"""Barriers that some threads of a block may skip: those behind a branch on what differs between threads.

        setp.gt.u32 p, %tid.x, 39;
        @p bra ON;                       threads 40 and above skip the barrier,
        bar.sync 0;
    ON: st.global.u32 [x], r;            and go on here

A way that only leaves the kernel skips nothing: since Volta, a barrier is for the threads that have not exited. Source:
CUDA C++ Programming Guide, "Independent Thread Scheduling".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from cujit.devices.cpu.analysis.dataflow import bits_of, immediate_postdominators, reach
from cujit.devices.cpu.analysis.fission import find_common
from cujit.devices.cpu.ir.cfg import BasicBlock, ControlFlowGraph
from cujit.devices.cpu.ir.program import IntConstant, Op
from cujit.devices.shapes import Dim3
from cujit.values import dataclass, field

_Ways: TypeAlias = tuple[tuple[Op, ...], tuple[Op, ...]]
_LEAVING = ("label", "bra", "ret", "exit")


@dataclass(frozen=True)
class Skips:
    """``ways`` are the barriers that threads skip which take a branch, and which do not; or which a guard keeps away.

    ``barriers`` are those of a function where threads may skip one, or wait at different ones; each tells whether all
    threads that wait at that time have to do so there.
    """

    ways: Mapping[Op, _Ways] = field(default_factory=dict)
    barriers: Mapping[Op, bool] = field(default_factory=dict)

    @property
    def skipped(self) -> frozenset[Op]:
        """The barriers that threads may skip."""
        return frozenset(op for ways in self.ways.values() for way in ways for op in way)


def number_for_all(op: Op) -> int | None:
    """Return the number of a barrier for all threads of a block. None if it is another."""
    numbers = op.sources[:-1] if "red" in op.modifiers else op.sources
    is_one = op.form.is_barrier and op.scope != "cluster" and len(numbers) == 1
    return numbers[0].value if is_one and isinstance(numbers[0], IntConstant) else None


def find_skips(graph: ControlFlowGraph, block: Dim3) -> Skips:
    """Find the barriers that threads may skip in blocks of the size ``block``."""
    barriers = {b.position: b.ops[0] for b in graph.blocks if b.barrier and number_for_all(b.ops[0]) is not None}
    if not barriers:
        return Skips()
    common, ipdom = find_common(graph, block), immediate_postdominators(graph)
    differing = common.differing
    guarded = [op for op in barriers.values() if op.guard is not None and differing >> op.guard.index & 1]
    ways: dict[Op, _Ways] = {op: ((), (op,)) for op in guarded}
    for b in graph.blocks:
        meet = ipdom[b.position]
        if _parts(b, differing) and not _leaves(graph, meet) and not _diverges_in_loop(graph, b, meet, differing):
            ways[b.ops[-1]] = _skipped(graph, b, meet, barriers)
    ways = {op: each for op, each in ways.items() if any(each)}
    if common.together and not ways:
        return Skips()
    alike = {
        p: op.form.is_aligned and not _diverges_in_loop(graph, graph.blocks[p], p, differing)
        for p, op in barriers.items()
    }
    return Skips(ways, {barriers[p]: each for p, each in alike.items()})


def _leaves(graph: ControlFlowGraph, position: int) -> bool:
    """Return whether threads do nothing from a position on but leave."""
    while position != graph.exit:
        block = graph.blocks[position]
        if any(op.opcode not in _LEAVING for op in block.ops) or block.successors[0] <= position:
            return False
        position = block.successors[0]
    return True


def _parts(b: BasicBlock, differing: int) -> bool:
    """Return whether threads of a block may go two ways behind a block."""
    return b.branch is not None and bool(b.branch.reads & differing) and len(set(b.successors)) > 1


def _diverges_in_loop(graph: ControlFlowGraph, block: BasicBlock, meet: int, differing: int) -> bool:
    """Return whether a block and where threads meet are in a loop that these leave one by one.

    They may be in different rounds of it, and a compiler that unrolls it makes a barrier of each round.
    """
    loop = block.loop
    while loop is not None:
        inside = graph.blocks[loop.head : loop.last + 1]
        if meet in loop and any(_parts(b, differing) and not all(s in loop for s in b.successors) for b in inside):
            return True
        loop = loop.parent
    return False


def _skipped(graph: ControlFlowGraph, b: BasicBlock, meet: int, barriers: Mapping[int, Op]) -> _Ways:
    """List the barriers that threads skip by either way behind a block, while others come to one of them first by the
    other way.
    """
    if b.ops[-1].opcode == "brx":
        return (), ()
    onward = [[] if p in barriers else ways for p, ways in enumerate(graph.successors())]
    taken, falls = (reach(1 << b.successors[k], meet, onward) for k in (0, -1))
    first, second = ([barriers[p] for p in bits_of(way) if p in barriers] for way in (falls & ~taken, taken & ~falls))
    return tuple(first), tuple(second)
