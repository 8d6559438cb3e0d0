"""What the scheduler of a block and its warps share, in memory."""

from __future__ import annotations

import ctypes

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

    _fields_ = (
        ("arrived", ctypes.c_uint32),
        ("expected", ctypes.c_uint32),
        ("generation", ctypes.c_uint32),
        ("count", ctypes.c_uint32),
        ("any", ctypes.c_uint32),
        ("missing", ctypes.c_uint32),
        ("last_count", ctypes.c_uint32),
        ("last_any", ctypes.c_uint32),
        ("last_missing", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
    )


class Place(ctypes.Structure):
    """Where lanes wait for others of their warp: the PTX line, who (0: nobody), and the mask that the first names."""

    _fields_ = (("line", ctypes.c_uint32), ("lanes", ctypes.c_uint32), ("members", ctypes.c_uint32))


class Warp(ctypes.Structure):
    """One warp: the pointer of its stack while it does not run, its ``State``, and what it waits for.

    ``seen`` is the block's ``changes`` when it began to wait; ``line`` and ``lanes`` tell where in the PTX and who, and
    ``barrier`` at which barrier (-1: in several places, or at one of the cluster), while it waits or spins.
    ``cluster_lanes`` arrived last at the cluster's barrier, in ``cluster_generation``. ``stack_end`` is the address
    behind its stack. ``apart`` are the first places where lanes wait for others of the warp while these wait at
    barriers.
    """

    _fields_ = (
        ("stack", ctypes.c_uint64),
        ("state", ctypes.c_uint32),
        ("seen", ctypes.c_uint32),
        ("line", ctypes.c_uint32),
        ("lanes", ctypes.c_uint32),
        ("barrier", ctypes.c_int32),
        ("cluster_generation", ctypes.c_uint32),
        ("cluster_lanes", ctypes.c_uint32),
        ("unused", ctypes.c_uint32),
        ("stack_end", ctypes.c_uint64),
        ("apart", Place * 2),
    )


class Group(ctypes.Structure):
    """Blocks that belong together (those of a cluster, or all that take turns), and the barrier of a cluster."""

    _fields_ = (
        ("blocks", ctypes.c_uint64),
        ("count", ctypes.c_uint64),
        ("arrived", ctypes.c_uint32),
        ("generation", ctypes.c_uint32),
        ("exited", ctypes.c_uint32),
        ("threads", ctypes.c_uint32),
    )


class Block(ctypes.Structure):
    """One block that runs. ``changes`` counts the events that may let a waiting warp go on.

    ``number`` is its linear place in the grid (blocks are taken cluster by cluster), ``ctaid_*`` the same by axes, and
    ``rank`` its place in the cluster, ``side`` that among the blocks that run side by side. ``running`` is the warp
    that ran last. ``group`` is its cluster: ``own_cluster`` of the first block there.
    """

    _fields_ = (
        ("launch", ctypes.c_uint64),
        ("group", ctypes.c_uint64),
        ("shared", ctypes.c_uint64),
        ("local", ctypes.c_uint64),
        ("number", ctypes.c_uint64),
        ("scheduler", ctypes.c_uint64),
        ("body", ctypes.c_uint64),
        ("threads", ctypes.c_uint32),
        ("warps", ctypes.c_uint32),
        ("exited", ctypes.c_uint32),
        ("done", ctypes.c_uint32),
        ("changes", ctypes.c_uint32),
        ("rank", ctypes.c_uint32),
        ("ctaid_x", ctypes.c_uint32),
        ("ctaid_y", ctypes.c_uint32),
        ("ctaid_z", ctypes.c_uint32),
        ("side", ctypes.c_uint32),
        ("running", ctypes.c_uint32),
        ("own_cluster", Group),
        ("barriers", Barrier * BARRIERS),
        ("warp", Warp * WARPS),
    )


class Plan(ctypes.Structure):
    """What a kernel's code needs, known when it is compiled: its body, sizes in bytes, and counts of a block."""

    _fields_ = (
        ("body", ctypes.c_uint64),
        ("threads", ctypes.c_uint32),
        ("warps", ctypes.c_uint32),
        ("local_bytes", ctypes.c_uint64),
        ("stack_bytes", ctypes.c_uint64),
    )
