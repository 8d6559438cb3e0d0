"""What the host hands to machine code for one launch, and what comes back in it."""

from __future__ import annotations

import contextlib
import ctypes
import functools
from pathlib import Path

__all__ = ["PLACE", "SHARED_ALIGN", "WORKSPACE_BYTES", "Launch", "cache_bytes", "field_offset"]

SHARED_ALIGN = 1024
"""Bytes that shared memory is aligned to: the largest pattern of swizzled copies. Source: PTX ISA 9.1, "Tensors"."""

PLACE = SHARED_ALIGN
"""Bytes before shared memory. The first eight are the number of the block that runs: kernels store it there, so that
a fault that comes as a signal can name it."""


WORKSPACE_BYTES = 256
"""Zeroed memory of a cooperative grid. Source: ``cooperative_groups/details/driver_abi.h``: its barrier takes eight."""

_UNKNOWN_CACHE_BYTES = 32 << 20
"""Taken for the size of a cache that is not known: as much as server processors give a few cores together."""


class Launch(ctypes.Structure):
    """One launch. ``next`` counts the blocks handed out; ``chunk`` how many a thread takes at a time.

    ``together`` is how many blocks have to make progress side by side (a cluster, a cooperative grid; else 1), and
    ``cluster_*`` the shape of a cluster in blocks (0 without clusters); the shared memory of such blocks lies
    ``shared_stride`` bytes apart. ``workspace`` is the address of the memory in which a grid counts its arrivals,
    where its kernel asks for that. A launch that writes more than ``cache_bytes`` stores past the cache. The
    ``fault_*`` fields are written by the first thread that cannot go on; ``fault_kind`` is 0 in a launch that went
    well. ``output`` is what kernels printed, ``checks``, ``trace`` and ``coverage`` the tables of those who watch (0:
    nobody does).
    """

    _fields_ = (
        ("parameters", ctypes.c_uint64),
        ("module", ctypes.c_uint64),
        ("module_size", ctypes.c_uint64),
        ("blocks", ctypes.c_uint64),
        ("next", ctypes.c_uint64),
        ("chunk", ctypes.c_uint64),
        ("grid_x", ctypes.c_uint32),
        ("grid_y", ctypes.c_uint32),
        ("grid_z", ctypes.c_uint32),
        ("dynamic_bytes", ctypes.c_uint32),
        ("shared_bytes", ctypes.c_uint64),
        ("shared_stride", ctypes.c_uint64),
        ("together", ctypes.c_uint64),
        ("workspace", ctypes.c_uint64),
        ("cache_bytes", ctypes.c_uint64),
        ("cluster_x", ctypes.c_uint32),
        ("cluster_y", ctypes.c_uint32),
        ("cluster_z", ctypes.c_uint32),
        ("fault_kind", ctypes.c_uint32),
        ("fault_block", ctypes.c_uint64),
        ("fault_thread", ctypes.c_uint32),
        ("fault_line", ctypes.c_uint32),
        ("fault_address", ctypes.c_uint64),
        ("fault_more", ctypes.c_uint64 * 6),
        ("output", ctypes.c_uint64),
        ("checks", ctypes.c_uint64),
        ("trace", ctypes.c_uint64),
        ("coverage", ctypes.c_uint64),
    )


def field_offset(name: str) -> int:
    """Where a field of ``Launch`` lies, in bytes."""
    return int(getattr(Launch, name).offset)


@functools.cache
def cache_bytes() -> int:
    """Count the bytes of the largest cache that the first processor has.

    Source: Linux, Documentation/ABI/testing/sysfs-devices-system-cpu.
    """
    sizes = []
    for path in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        with contextlib.suppress(OSError, ValueError):
            sizes.append(int(path.read_text().strip().removesuffix("K")) << 10)
    return max(sizes, default=_UNKNOWN_CACHE_BYTES)
