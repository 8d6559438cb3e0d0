"""Where lanes wait for each other, and which loops wait for somebody else.

Known before the graph is cut: such an operation begins a basic block, so that lanes can wait at it.
"""

from __future__ import annotations

from cujit.devices.cpu.program import Op

__all__ = ["is_barrier", "is_poll", "is_site", "names_cluster", "names_members", "needs_others", "whole_warp"]

# Operations that name the lanes that take part. Source: PTX ISA 9.1, "Parallel Synchronization …".
_BY_MASK = frozenset({"shfl", "vote", "match", "redux", "elect"})

# Operations that all lanes of the warp do together (``.aligned``). Source: PTX ISA 9.1, "Warp Level Matrix …".
_WHOLE_WARP = frozenset({"mma", "wmma", "ldmatrix", "stmatrix", "movmatrix", "wgmma"})

_POLLED = frozenset({"volatile", "relaxed", "acquire", "acq_rel", "mmio"})


def is_barrier(op: Op) -> bool:
    """Tell whether an operation waits for other warps: a barrier of the block or of the cluster."""
    if op.opcode not in ("bar", "barrier") or "warp" in op.modifiers:
        return False
    return "arrive" not in op.modifiers


def whole_warp(op: Op) -> bool:
    """Tell whether all lanes of the warp do the operation together."""
    return op.opcode in _WHOLE_WARP


def is_site(op: Op) -> bool:
    """Tell whether lanes may have to wait at the operation for other lanes or warps."""
    if op.opcode in ("bar", "barrier") or whole_warp(op):
        return True
    return op.opcode in _BY_MASK and "sync" in op.modifiers


def names_members(op: Op) -> bool:
    """Tell whether lanes do the operation with those that its member mask names."""
    return is_site(op) and (op.opcode in _BY_MASK or (op.opcode == "bar" and "warp" in op.modifiers))


def needs_others(op: Op) -> bool:
    """Tell whether lanes do the operation only with others: all but an arrival that is not ``.aligned``."""
    return op.opcode != "barrier" or "arrive" not in op.modifiers or "aligned" in op.modifiers


def names_cluster(op: Op) -> bool:
    """Tell whether an operation may have to do with the shared memory of another block of the cluster."""
    return op.opcode in ("mapa", "getctarank") or "shared::cluster" in op.modifiers


def is_poll(op: Op) -> bool:
    """Tell whether an operation reads what another thread may write meanwhile."""
    if op.opcode == "mbarrier":
        return "test_wait" in op.modifiers or "try_wait" in op.modifiers
    if op.opcode in ("ld", "atom"):
        return op.opcode == "atom" or not _POLLED.isdisjoint(op.modifiers)
    return op.opcode == "nanosleep"
