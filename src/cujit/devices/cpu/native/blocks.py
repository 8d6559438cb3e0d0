"""The scheduler: the warps of a block (or of the blocks of a cluster, or of a cooperative grid) on stacks of their own.

A warp runs until it waits at a barrier, spins, or ends; then the next warp in turn goes on, and the scheduler's stack
where none of the block can. A warp that waits is not taken before something of its block has changed. When no warp can
be taken and none spins, no barrier can ever be met: that is a deadlock, and the launch ends with a fault.
"""

from __future__ import annotations

from cujit.devices.cpu.launch import PLACE
from cujit.devices.cpu.native import barriers
from cujit.devices.cpu.native.arena import ARENA
from cujit.devices.cpu.native.faultkinds import FaultKind
from cujit.devices.cpu.native.state import BARRIERS, State, with_offsets
from cujit.devices.cpu.native.switch import switch_text
from cujit.devices.cpu.native.turns import RUN, TURNS

__all__ = ["SYMBOLS", "blocks_text"]

SYMBOLS = (
    "cujit_run_blocks",
    "cujit_barrier_arrive",
    "cujit_barrier_wait",
    "cujit_exit",
    "cujit_wait",
    "cujit_spin",
    "cujit_cluster_arrive",
    "cujit_cluster_wait",
    "cujit_cluster_arrival",
    "cujit_cluster_generation",
    "cujit_barrier_generation",
    "cujit_barrier_count",
    "cujit_barrier_any",
    "cujit_barrier_missing",
)
"""What emitted kernels call."""

_STACK_GUARD = 4096
_PATIENCE = 64
"""Turns in which every warp only spins, before the processor is given to others."""

_NUMBERS = {
    "PLACE": PLACE,
    "GROUP_PLACE": PLACE - 8,
    "GUARD": _STACK_GUARD,
    "PATIENCE": _PATIENCE,
    "BARRIERS": BARRIERS,
    "LAST_BARRIER": BARRIERS - 1,
    "READY": State.READY,
    "WAITING": State.WAITING,
    "SPINNING": State.SPINNING,
    "DONE": State.DONE,
    "DEADLOCK": int(FaultKind.DEADLOCK),
}


def blocks_text() -> str:
    """Write the scheduler's IR; ``cujit_fault`` is another part's."""
    text = "\n".join((switch_text(), ARENA, RUN, TURNS, barriers.BARRIERS, barriers.READS, barriers.CLUSTERS))
    for name, number in _NUMBERS.items():
        text = text.replace(f"@{name}@", str(number))
    return with_offsets(text)
