"""Liveness: which registers are still needed where, as sets in the bits of ints.

add.u32 c, a, b;                       a and b are needed before it
@p bra END;                      ->    c is, if the block behind it reads it
st.global.u32 [q], c;                  q and c
"""

from __future__ import annotations

from cujit.devices.cpu.ir.cfg import Graph

__all__ = ["live_in"]


def live_in(graph: Graph) -> list[int]:
    """Find for each position the registers whose values at its start are read later; the exit needs none."""
    uses, defs = [], []
    for block in graph.blocks:
        used = defined = 0
        for op in block.ops:
            for reg in op.read_registers():
                if not defined >> reg.index & 1:
                    used |= 1 << reg.index
            for result in op.results:
                if result is not None:
                    defined |= 1 << result.index
        uses.append(used)
        defs.append(defined)
    live = [0] * (len(graph.blocks) + 1)
    changed = True
    while changed:
        changed = False
        for block in reversed(graph.blocks):
            p = block.position
            after = 0
            for s in block.successors:
                after |= live[s]
            now = uses[p] | (after & ~defs[p])
            if now != live[p]:
                live[p] = now
                changed = True
    return live
