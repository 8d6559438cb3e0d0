"""Memory of the CPU device: plain host memory, aligned, released with its last owner."""

from __future__ import annotations

import ctypes

import numpy as np

from cujit.errors import CujitError

__all__ = ["HostBlock"]

ALIGNMENT = 256
"""Bytes. Source: CUDA C++ Programming Guide, "Device Memory Accesses": allocations align to at least 256 bytes."""


class HostBlock:
    """``size`` bytes at ``address``, a multiple of 256."""

    def __init__(self, size: int) -> None:
        try:
            self._bytes = np.empty(size + ALIGNMENT, np.uint8)
        except (MemoryError, ValueError) as e:
            raise CujitError(f"the CPU device has no {size} bytes of memory left") from e
        start = int(self._bytes.__array_interface__["data"][0])
        self.address = (start + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT
        self.size = size

    def write(self, data: bytes | bytearray | memoryview, offset: int = 0) -> None:
        """Copy bytes in."""
        ctypes.memmove(self.address + offset, bytes(data), len(data))
