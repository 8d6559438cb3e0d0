"""What kernels say: ``vprintf`` and failed assertions, kept for Python to read after the launch.

``Launch.output`` is the record that was made last; each names the one before it. ``runtime/output.c`` writes them.
"""

from __future__ import annotations

import ctypes

from cujit.devices.cpu.structures import fields

__all__ = ["NULL_TEXT", "Assertion", "Record"]

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
