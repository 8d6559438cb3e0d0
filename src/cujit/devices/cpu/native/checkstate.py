"""What the checks of a launch know, in memory that machine code and Python share."""

from __future__ import annotations

import ctypes
import enum

from cujit.devices.cpu.ir.structures import fields
from cujit.devices.cpu.native.state import BARRIERS, WARPS

__all__ = [
    "CLUSTER_BARRIER", "OBJECTS", "PATTERN", "SLOTS", "Access", "Code", "Entry", "Place", "Record", "Slot", "Space",
    "Span", "Tracker", "Watch", "checks_bits",
]  # fmt: skip

CLUSTER_BARRIER = BARRIERS
"""The number that the barrier of a cluster has among the block's."""

SLOTS = BARRIERS + 1
OBJECTS = 256
"""Clocks of objects in memory that order accesses: mbarriers, and words with atomic operations."""

PATTERN = bytes((0xA5, 0xC3, 0x71, 0xE9, 0x1D, 0x5B, 0xF7, 0x93, 0x2F, 0x6D, 0xB1, 0xD9, 0x47, 0x8B, 0xCF, 0xE5))
"""What memory of ``device.empty`` holds at multiples of 16 under ``check="init"``: whoever writes there without being
seen (NumPy, through a view) leaves something else."""


def checks_bits() -> dict[str, int]:
    """Give the bit of ``Watch.checks`` of each check, by name."""
    return {"memory": 1, "race": 2, "sync": 4, "init": 8}


class Access(enum.IntFlag):
    """What an access does, in the low byte of its flags.

    Above follow its ``Space`` (bits 8 to 11), the bytes of an element (16 to 23), and the binary logarithm of what its
    address is a multiple of (24 on).
    """

    READ = 1
    WRITE = 2
    STRONG = 4
    """Atomic, volatile, relaxed …: no race with another one that is."""
    ACQUIRE = 8
    RELEASE = 16


class Space(enum.IntEnum):
    """State space that an instruction names."""

    GENERIC = 0
    SHARED = 1
    LOCAL = 2
    GLOBAL = 3
    CLUSTER = 4
    PARAM = 5


class Code(enum.IntEnum):
    """What exactly is wrong: ``Launch.fault_more[2]``."""

    MISALIGNED = 1
    OUTSIDE = 2
    FREED = 3
    RAW = 4
    UNORDERED = 5
    DIFFERENT = 6
    NOT_NAMED = 7
    MISSING = 8
    NO_ORIGIN = 9
    NUMBER = 10
    COUNT = 11
    PART = 12


class Span(ctypes.Structure):
    """Memory from ``begin`` to before ``end``; ``marks`` is where its bytes of the ``init`` check are (0: none)."""

    _fields_ = fields("u64 begin, end, freed, marks")


class Watch(ctypes.Structure):
    """What the checks of one launch need: ``Launch.checks`` is its address. Sizes in bytes.

    ``spans`` are sorted. ``shared_total`` is what the blocks that run side by side have, after which their pieces lie,
    ``piece_bytes`` each; in a piece the entries begin at ``entries``. ``serial`` is a number of this launch alone.
    ``local_total`` is the local memory of all of them, behind which its marks lie. ``stack_bytes`` is 0 unless
    functions are called or memory is taken on the stack.
    """

    _fields_ = fields(
        "u64 spans, count; u32 checks, unused; u64 shared_limit, shared_stride, shared_total, cluster_blocks, "
        "piece_bytes, entries, local_bytes, local_total, stack_bytes, parameter_bytes, serial"
    )


class Place(ctypes.Structure):
    """Where a warp runs. The emitted code says so when a kernel or a function begins, and block and warp each time.

    ``local_bytes`` is a thread's local memory in this function, ``kernel_local`` where that of the kernel is;
    ``called`` is 0 in a kernel and 1 in a function that it calls; ``seen_*`` are for which block and warp native code
    has made ready what it keeps. ``side`` is the block's place among those that run side by side, whose shared memory
    begins at ``group``; native code looks both up.
    ``addresses`` and ``values`` are what the lanes hand over, ``data`` (0: none) what they are about to store, in parts
    of ``part_bytes``.
    """

    _fields_ = fields(
        "u64 watch, piece, kernel_local, launch, state, shared, cluster, group, block, local, local_bytes, "
        "seen_block; u32 first, warp, side, seen_warp, called, unused; u64 data, part_bytes, addresses[32], "
        "values[32]"
    )


class Record(ctypes.Structure):
    """An access of a byte: by which thread (its number + 1; 0: none), at which clock of its warp, at which line."""

    _fields_ = fields("u32 thread, clock, sync, line, flags, serial")


class Entry(ctypes.Structure):
    """The last accesses of a byte of shared memory: its writer, and two readers since."""

    _fields_ = fields("Record writer, first_reader, second_reader", Record=Record)


class Slot(ctypes.Structure):
    """A barrier's clock in one generation."""

    _fields_ = fields(f"u32 generation, clock[{WARPS}]")


class Tracker(ctypes.Structure):
    """The order of a block's warps. ``owner`` tells which block of which launch it is made ready for.

    ``clocks[w][v]`` is what warp w knows of v; ``syncs`` counts how often a warp's lanes have met; ``arrivals`` has
    the generation in which a warp came to a barrier last; ``serial`` counts instructions.
    """

    _fields_ = fields(
        f"u64 owner; u32 clocks[{WARPS * WARPS}], syncs[{WARPS}], arrivals[{WARPS * SLOTS}]; Slot slots[{2 * SLOTS}]; "
        f"u32 objects[{OBJECTS * WARPS}], serial, unused",
        Slot=Slot,
    )
