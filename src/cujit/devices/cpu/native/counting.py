"""Structures that machine code and Python share for profiles: the counters of an operation, and their
places in memory.
"""

from __future__ import annotations

import enum

from cujit.devices.cpu.native.shared import Fields, Shared
from cujit.devices.shapes import WARP


class Count(enum.IntEnum):
    """The counters of an operation, by index: see ``Measures``.

    Memory requests also have sectors or wavefronts, and bytes. ``OFF`` counts lanes that the predicate disables.
    ``MISSING`` counts lanes of a warp that don't reach the operation. ``STRIDED`` counts requests in which most lanes
    are at one distance from their neighbors, or only one lane is active. From ``MOST`` on, counters keep the maximum.
    ``FARTHEST`` is the longest such distance in bytes, plus 2^63. ``NEAREST`` is 2^64 - 1, minus the shortest distance
    plus 2^63. 0 means that there is no distance.
    """

    WARPS = 0
    MISSING = 1
    OFF = 2
    DIVERGENT = 3
    REQUESTS = 4
    SECTORS = 5
    BYTES = 6
    LOCAL_REQUESTS = 7
    LOCAL_SECTORS = 8
    LOCAL_BYTES = 9
    SHARED_REQUESTS = 10
    WAVEFRONTS = 11
    PASSES = 12
    """Wavefronts that there would be without conflicts."""
    SHARED_BYTES = 13
    CONTENDED = 14
    """The lanes at the word that most lanes of a request update, of all requests together."""
    STRIDED = 15
    TEXTURE_BYTES = 16
    TEXTURE_SECTORS = 17
    MOST = 18
    FARTHEST = 19
    NEAREST = 20


COUNTS = len(Count)
ACCESSED_UPDATES = 1
"""``Accessed.flags``: an atomic operation, whose lanes at one word come one after the other."""
ACCESSED_LOADS = 2
"""``Accessed.flags``: a load whose lanes get what lies at their own addresses."""


class Accessed(Shared):
    """An access in the emitted code: ``size`` bytes per lane in a ``Space``. ``first`` is the first counter of its
    operation.

    If the lanes are in one row, they are ``stride`` bytes apart. ``local_bytes`` is the size of a thread's local
    memory.
    """

    _fields_ = Fields("i64 stride; u64 first, local_bytes; u32 size, space, flags, unused")


class Tally(Shared):
    """Counters for blocks that run one after another in the same place, which their ``shared`` memory identifies.

    ``block_sectors`` counts the distinct sectors of each block, and ``tree`` contains these sectors. Each operation has
    a memo and ``PICTURES`` pictures.
    """

    _fields_ = Fields(
        "u64 shared, block_sectors; struct Tree *tree; struct Memo *memos; struct Picture *pictures; "
        "struct Profiled *profiled; struct Tally *next; u64 *counts"
    )


PICTURES = 2
"""Of an operation: one of its accesses to shared memory, and before it one to other memory."""


class Picture(Shared):
    """The addresses of the lanes in one memory request: the first request of the first block that made one.

    ``block`` is the block number plus 1, or 0 without a picture. ``at`` contains addresses for global memory. For other
    memory, it contains byte offsets from the beginning of the block's or thread's memory.
    """

    _fields_ = Fields(f"u64 block; u32 lanes, space; u64 at[{WARP}], size[{WARP}]")


class Profiled(Shared):
    """A profiled kernel with ``count`` counters, and the ``tallies`` of the current launch.

    ``sectors`` counts the distinct global-memory sectors of a launch, and ``block_sectors`` counts them by block.
    ``lost`` is set if memory was insufficient to determine them. ``row_sectors`` counts them by instruction, and
    ``line_sectors`` by line. ``rows`` contains the row of each operation, and ``lines`` contains the line of each row.
    Rows of one line are adjacent.
    """

    _fields_ = Fields(
        "struct Tally *tallies; u64 count, local_bytes, sectors, block_sectors, lost, row_count; "
        "const u32 *rows, *lines; u64 *row_sectors, *line_sectors"
    )
