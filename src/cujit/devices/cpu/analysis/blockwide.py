"""What all threads of a block have in common: values, and the way that they take from barrier to barrier.

    ld.param.u32 n, [count];               n is common
    setp.gt.u32 p, n, 8;             ->    p is,
    @p bra END;                            so that all warps take one way
    shr.u32 w, %tid.x, 5;                  w is not: it is uniform, but another in each warp

A register is *common* where all warps that come to the next barrier have the same value in it; a branch is where it
sends all of them one way. Lanes that will never come to a barrier again do not count: they leave for good.
"""

from __future__ import annotations

from dataclasses import dataclass

from cujit.devices.base import Dim3
from cujit.devices.cpu.analysis.dominance import immediate_postdominators
from cujit.devices.cpu.analysis.uniformity import reach
from cujit.devices.cpu.ir.cfg import Block, Graph
from cujit.devices.cpu.ir.program import Group, Memory, Negation, Op, Operand, Reg, Special

__all__ = ["Blockwide", "find_common"]

_COMMON_SPECIALS = ("ctaid.", "nctaid.", "ntid.", "nwarpid", "smid", "nsmid", "gridid")
_COMMON_SPACES = ("param", "const")


@dataclass(frozen=True)
class Blockwide:
    """``differing`` are the registers that may differ between the threads of a block, as bits of their numbers.

    ``together``: all warps that go on come to the same barrier each time. ``leaves``: some lanes may exit while
    others come to another barrier.
    """

    differing: int
    together: bool
    leaves: bool

    def is_common(self, reg: Reg) -> bool:
        """Whether a register is the same in all threads that come to the next barrier."""
        return not self.differing >> reg.index & 1


def find_common(graph: Graph, block: Dim3) -> Blockwide:
    """Analyse a kernel for blocks of the size ``block``."""
    ipdom = immediate_postdominators(graph)
    successors = graph.successors()
    barriers = sum(1 << b.position for b in graph.blocks if b.site is not None and b.site.form.is_barrier)
    goes_on = [bool(reach(b.position, graph.exit, successors) & barriers) for b in graph.blocks] + [False]
    differing = apart = 0
    while True:
        before = differing
        for b in graph.blocks:
            for op in b.ops:
                if apart >> b.position & 1 or _differs(op, differing, block):
                    for r in op.results:
                        if r is not None:
                            differing |= 1 << r.index
        apart = 0
        for b in _parting(graph, differing):
            if sum(goes_on[s] for s in set(b.successors)) > 1:
                for s in b.successors:
                    apart |= reach(s, ipdom[b.position], successors)
        if differing == before:
            break
    sides = [[goes_on[s] for s in set(b.successors)] for b in _parting(graph, differing)]
    return Blockwide(differing, not apart & barriers, any(any(side) and not all(side) for side in sides))


def _parting(graph: Graph, differing: int) -> list[Block]:
    """List the blocks behind which threads of the block may go different ways."""
    found = []
    for b in graph.blocks:
        if b.branch is not None and len(set(b.successors)) > 1:
            deciding = b.branch.read_registers()
            if any(differing >> r.index & 1 for r in deciding):
                found.append(b)
    return found


def _differs(op: Op, differing: int, block: Dim3) -> bool:
    if op.form.is_per_lane:
        return True
    if op.form.is_load and op.space not in _COMMON_SPACES:
        return True
    if op.opcode == "cvta" and op.space == "local":
        return True
    if any(differing >> r.index & 1 for r in op.read_registers()):
        return True
    return any(_special_differs(s, block) for s in op.sources)


def _special_differs(operand: Operand | None, block: Dim3) -> bool:
    if isinstance(operand, Special):
        if operand.name.startswith("tid."):
            return bool(getattr(block, operand.name[-1], 1) != 1)
        return not operand.name.startswith(_COMMON_SPECIALS)
    if isinstance(operand, Group):
        return any(_special_differs(i, block) for i in operand.items)
    if isinstance(operand, Negation):
        return _special_differs(operand.item, block)
    return isinstance(operand, Memory) and any(_special_differs(i, block) for i in operand.coords)
