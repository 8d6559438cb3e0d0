"""What the scheduler of a block and its warps share, in memory."""

from __future__ import annotations

import ctypes

from cujit.devices.cpu.ir.structures import fields

__all__ = [
    "BARRIERS",
    "STACK_BYTES",
    "WARPS",
    "Barrier",
    "Block",
    "Group",
    "Place",
    "Plan",
    "State",
    "Warp",
]

BARRIERS = 16
"""Barriers of a block. Source: PTX ISA 9.1, "Parallel Synchronization and Communication Instructions: bar"."""

WARPS = 32
"""Warps of the largest block."""


STACK_BYTES = 256 << 10
"""Bytes of a warp's stack. Memory is taken as it is touched, so that a large one costs no more than a small one."""


class State:
    """What a warp is doing, as numbers."""

    READY = 0
    WAITING = 1
    """Until something of its block changes."""
    SPINNING = 2
    """It looks at memory again and again."""
    DONE = 3


class Barrier(ctypes.Structure):
    """One barrier. ``arrived`` and ``expected`` count threads (``expected`` 0: all that have not exited).

    ``generation`` counts how often it was met. ``count``, ``any`` and ``missing`` gather what ``barrier.red`` asks:
    how many predicates hold, whether one does, whether one does not; ``last_*`` keep them for those who read later.
    """

    _fields_ = fields(
        "u32 arrived, expected, generation, count, any, missing, last_count, last_any, last_missing, unused"
    )


class Place(ctypes.Structure):
    """Where lanes wait for others of their warp: the PTX line, who (0: nobody), and the mask that the first names."""

    _fields_ = fields("u32 line, lanes, members")


class Warp(ctypes.Structure):
    """One warp: the pointer of its stack while it does not run, its ``State``, and what it waits for.

    ``seen`` is the block's ``changes`` when it began to wait; ``line`` and ``lanes`` tell where in the PTX and who, and
    ``barrier`` at which barrier (-1: in several places, or at one of the cluster), while it waits or spins.
    ``cluster_lanes`` arrived last at the cluster's barrier, in ``cluster_generation``. ``stack_end`` is the address
    behind its stack. ``apart`` are the first places where lanes wait for others of the warp while these wait at
    barriers.
    """

    _fields_ = fields(
        "u64 stack; u32 state, seen, line, lanes; i32 barrier; u32 cluster_generation, cluster_lanes, unused; u64 "
        "stack_end; Place apart[2]",
        Place=Place,
    )


class Group(ctypes.Structure):
    """Blocks that belong together (those of a cluster, or all that take turns), and the barrier of a cluster."""

    _fields_ = fields("u64 blocks, count; u32 arrived, generation, exited, threads")


class Block(ctypes.Structure):
    """One block that runs. ``changes`` counts the events that may let a waiting warp go on.

    ``number`` is its linear place in the grid (blocks are taken cluster by cluster), ``ctaid_*`` the same by axes, and
    ``rank`` its place in the cluster, ``side`` that among the blocks that run side by side. ``running`` is the warp
    that ran last. ``group`` is its cluster: ``own_cluster`` of the first block there.
    """

    _fields_ = fields(
        "u64 launch, group, shared, local, number, scheduler, body; u32 threads, warps, exited, done, changes, rank; "
        "u32 ctaid_x, ctaid_y, ctaid_z, side, running; "
        f"Group own_cluster; Barrier barriers[{BARRIERS}]; Warp warp[{WARPS}]",
        Barrier=Barrier,
        Group=Group,
        Warp=Warp,
    )


class Plan(ctypes.Structure):
    """What a kernel's code needs, known when it is compiled: its body, sizes in bytes, and counts of a block."""

    _fields_ = fields("u64 body; u32 threads, warps; u64 local_bytes, stack_bytes")
