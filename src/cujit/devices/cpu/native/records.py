"""What a launch leaves in memory for Python to read: where its threads were, what they said, and what one did.

``runtime/ending.h`` notes where threads were when their launch was ended, ``runtime/output.c`` calls of ``vprintf`` and
failed assertions: ``Launch.output`` is the record that was made last, and each names the one before it. A record of a
trace is a word (which operation, how many words of values follow) and its values; ``emit/tracing.py`` has them written,
before each operation and again after it: a thread that cannot go on has left what it was about to do.
"""

from __future__ import annotations

import ctypes

from cujit.devices.cpu.ir.structures import fields

__all__ = ["DONE", "NULL_TEXT", "STANDS", "Assertion", "Record", "Stand", "Stands", "TraceState"]

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


NULL_TEXT = (1 << 64) - 1
"""The length of a string whose address is null."""


class Record(ctypes.Structure):
    """One call of ``vprintf``, followed by its data.

    These are: the format (``format_bytes``), then from the next multiple of 8 on ``values`` words, one for each
    argument as it lay in memory (a string's is its length in bytes), then the bytes of the strings in turn.
    """

    _fields_ = fields("u64 previous, block, thread, format_bytes, values, text_bytes")


class Assertion(ctypes.Structure):
    """A failed assertion: the lengths in bytes of its texts, which follow in this order, and the source line."""

    _fields_ = fields("u64 message, file, function, line")


DONE = 1 << 31
"""Marks the record of results in the number of its operation."""


class TraceState(ctypes.Structure):
    """The traced thread of a launch, and its records.

    ``block`` is linear in the grid; ``warp`` and ``lane`` are the thread's. ``used`` and ``capacity`` count words of
    8 bytes at ``records``. ``left`` is how many operations may still be kept, ``dropped`` how many were not.
    """

    _fields_ = fields("u64 block; u32 warp, lane; u64 records, used, capacity, left, dropped")
