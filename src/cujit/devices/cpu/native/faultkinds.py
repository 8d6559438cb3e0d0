"""Why a launch could not go on, as numbers that machine code and Python share."""

from __future__ import annotations

import enum

__all__ = ["FaultKind"]


class FaultKind(enum.IntEnum):
    """``Launch.fault_kind``."""

    NONE = 0
    ILLEGAL_ADDRESS = 1
    MISALIGNED = 2
    TRAP = 3
    ASSERT = 4
    DEADLOCK = 5
    LANES_APART = 6
    """Lanes wait for each other at different ``.sync`` operations."""
    STACK_OVERFLOW = 7
    ARITHMETIC = 8
    BREAKPOINT = 9
    ILLEGAL_INSTRUCTION = 10
    BAD_FREE = 11
    """``free`` of what ``malloc`` did not give, or of what was freed already."""
    ILLEGAL_CALL = 12
    """A call by an address that no function of the kernel's module has."""
    TENSOR_MAP = 13
    """A tensor map that is none of the CPU device's, or not for the instruction that takes it."""
    BULK_ALIGN = 14
    """A bulk or tensor copy from, to or of what is not cut at the bytes that such copies move together."""
    TENSOR_START = 15
    """A store or reduction that begins before its tensor along the innermost axis."""
    CANCELLED = 16
    """From here to ``INTERRUPTED``: the host ended it."""
    TIMEOUT = 17
    INTERRUPTED = 18
    """A handler of signals, Python's, raised."""
    CHECK = 19
    """From here on: what a check found, by its name."""
    MEMORY = 20
    RACE = 21
    SYNC = 22
    INIT = 23
