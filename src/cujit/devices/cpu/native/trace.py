"""What one thread does: records in memory that grows, for Python to read after the launch.

A record is a word (which operation, how many words of values follow) and its values. ``emit/tracing.py`` has them
written, before each operation and again after it: a thread that cannot go on has left what it was about to do.
"""

from __future__ import annotations

import ctypes

from cujit.devices.cpu.structures import fields

__all__ = ["DONE", "TraceState"]

DONE = 1 << 31
"""Marks the record of results in the number of its operation."""


class TraceState(ctypes.Structure):
    """The traced thread of a launch, and its records.

    ``block`` is linear in the grid; ``warp`` and ``lane`` are the thread's. ``used`` and ``capacity`` count words of
    8 bytes at ``records``. ``left`` is how many operations may still be kept, ``dropped`` how many were not.
    """

    _fields_ = fields("u64 block; u32 warp, lane; u64 records, used, capacity, left, dropped")
