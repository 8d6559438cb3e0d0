"""What machine code and Python share of profiles: what is counted of an operation, and where."""

from __future__ import annotations

import enum

from cujit.devices.cpu.native.shared import Fields, Shared
from cujit.devices.shapes import WARP


class Count(enum.IntEnum):
    """What is counted of an operation, by place: see ``Measures``.

    Of memory requests, sectors or wavefronts, and bytes; ``OFF`` are lanes that the predicate holds back, ``MISSING``
    those of a warp that do not come. Of ``STRIDED`` requests the lanes are one distance from their neighbours, most of
    them, or there is only one. From ``MOST`` on the highest is kept: ``FARTHEST`` is the longest such distance in
    bytes, plus 2^63, and ``NEAREST`` what the shortest one leaves of 2^64 - 1, likewise; 0 is none.
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
    """An access of the emitted code: ``size`` bytes a lane in a ``Space``, of an operation whose counts begin at
    ``first``. Where lanes lie in one row, they are ``stride`` bytes apart. ``local_bytes`` is a thread's local memory.
    """

    _fields_ = Fields("i64 stride; u64 first, local_bytes; u32 size, space, flags, unused")


class Tally(Shared):
    """Where the blocks that run in one place count, one after the other: that place is their ``shared`` memory.

    ``block_sectors`` counts the sectors that each block accessed, ``tree`` knows which; each operation has a memo, and
    ``PICTURES`` pictures.
    """

    _fields_ = Fields(
        "u64 shared, block_sectors; struct Tree *tree; struct Memo *memos; struct Picture *pictures; "
        "struct Profiled *profiled; struct Tally *next; u64 *counts"
    )


PICTURES = 2
"""Of an operation: one of its accesses to shared memory, and before it one to other memory."""


class Picture(Shared):
    """Where lanes accessed memory in one request: the first one of the first block that made any.

    ``block`` is one more than its number; 0 where there is no picture. ``at`` are addresses in global memory, and in
    others bytes from where they begin for this block or thread.
    """

    _fields_ = Fields(f"u64 block; u32 lanes, space; u64 at[{WARP}], size[{WARP}]")


class Profiled(Shared):
    """A kernel that is profiled: its ``count`` of counts, and where the launch that runs is counted.

    ``sectors`` are those of global memory that a launch accessed, ``block_sectors`` the same by block; ``lost`` tells
    that there was no memory to know. ``row_sectors`` are those by instruction, ``line_sectors`` by line: ``rows`` has
    for each operation the row that it is of, ``lines`` for each row its line. Rows of a line follow each other.
    """

    _fields_ = Fields(
        "struct Tally *tallies; u64 count, local_bytes, sectors, block_sectors, lost, row_count; "
        "const u32 *rows, *lines; u64 *row_sectors, *line_sectors"
    )
