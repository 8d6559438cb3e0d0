"""Memory of the CPU device: plain host memory, aligned, released with its last owner."""

from __future__ import annotations

import ctypes
import weakref

import numpy as np

from cujit.errors import CujitError, spell

__all__ = ["APART", "HostBlock", "aligned", "live_blocks"]

ALIGNMENT = 256
"""Bytes. Source: CUDA C++ Programming Guide, "Device Memory Accesses": allocations align to at least 256 bytes."""

APART = 512
"""Bytes behind each block in which nothing else lies: an address there is one beyond the block, and of nobody else."""


def aligned(offset: int, align: int) -> int:
    """Round up to a multiple of ``align``."""
    return (offset + align - 1) // align * align


class HostBlock:
    """``size`` bytes at ``address``, a multiple of 256."""

    def __init__(self, size: int) -> None:
        try:
            self._bytes = np.empty(size + ALIGNMENT + APART, np.uint8)
        except (MemoryError, ValueError) as e:
            raise CujitError(f"the CPU device has no {spell(size)} bytes of memory left") from e
        start = int(self._bytes.__array_interface__["data"][0])
        self.address = aligned(start, ALIGNMENT)
        self.size = size
        _LIVE[id(self)] = self

    @property
    def memory(self) -> object:
        """What the bytes belong to: they stay while somebody holds it."""
        return self._bytes

    def write(self, data: bytes | bytearray | memoryview, offset: int = 0) -> None:
        """Copy bytes in."""
        ctypes.memmove(self.address + offset, bytes(data), len(data))


_LIVE: weakref.WeakValueDictionary[int, HostBlock] = weakref.WeakValueDictionary()


def live_blocks() -> list[tuple[int, int]]:
    """List the blocks that are in use: address and size in bytes of each."""
    blocks = (reference() for reference in _LIVE.valuerefs())
    return [(block.address, block.size) for block in blocks if block is not None]
