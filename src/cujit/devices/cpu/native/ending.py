"""Where threads were when their launch was ended; ``runtime/ending.h`` notes it."""

from __future__ import annotations

import ctypes

from cujit.devices.cpu.structures import fields

__all__ = ["STANDS", "Stand", "Stands"]

STANDS = 1025
"""Threads of a launch whose places are noted: the pool's largest, and the one that launched."""


class Stand(ctypes.Structure):
    """Where a thread was: the number of the block that it ran (all bits set: none) and its warp (-1: not known).

    ``pc`` is the address in the machine code, 0 where the scheduler was at work. ``blocks`` is a copy of the ``count``
    blocks whose warps took turns (0: they do not).
    """

    _fields_ = fields("u64 block, pc; i64 warp; u64 blocks, count")


class Stands(ctypes.Structure):
    """``Launch.stands``: how many threads noted where they were, and each."""

    _fields_ = fields(f"u64 count; Stand each[{STANDS}]", Stand=Stand)
