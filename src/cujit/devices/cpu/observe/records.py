"""Memory for the ``race`` check's records of global-memory accesses. See ``runtime/across.h``."""

from __future__ import annotations

import ctypes
import mmap

from cujit.devices.cpu.native.checking import RecordHead

_KINDS = 3
"""Records of a byte: who wrote it, and two blocks that read it."""
_SPACE = 64
"""Records between those of one kind and those of the next."""
_RECORD_BYTES = ctypes.sizeof(ctypes.c_uint32)
_LARGE = 1 << 16
"""Bytes from which on pages are taken, each when something in it is first written."""

_NORESERVE = 0x4000
"""``MAP_NORESERVE``, which ``mmap`` does not name in each Python: memory counts when it is used."""


class AccessRecords:
    """Room for the records of ``size`` bytes at ``begin``, and a summary of each 32; larger elements use less.

    Of memory that is ``always_written``, every launch notes reads.
    """

    def __init__(self, begin: int, size: int, *, always_written: bool = False) -> None:
        length = _KINDS * (size + _SPACE) * _RECORD_BYTES + size + _SPACE
        self._held = _room(length)
        address = 0 if self._held is None else ctypes.addressof(self._held)
        self._head = RecordHead(begin=begin, size=size, records=address, bytes=length)
        self._head.written = 0xFFFFFFFF if always_written else 0
        self.address = ctypes.addressof(self._head)


def _room(length: int) -> ctypes.Array[ctypes.c_char] | None:
    """Return zeroed memory, or None if no memory is available, so that nothing is recorded."""
    if length < _LARGE:
        return ctypes.create_string_buffer(length)
    try:
        pages = mmap.mmap(-1, length, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NORESERVE)
    except (OSError, OverflowError):
        return None
    return (ctypes.c_char * length).from_buffer(pages)
