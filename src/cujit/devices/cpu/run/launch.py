"""The data that the host and machine code exchange for a launch, and the memory that a launch uses.

Memory of the CPU device is plain, aligned host memory. It is released with its last owner.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import weakref

from cujit.devices.cpu.native.shared import Fields, Shared
from cujit.devices.cpu.run.mappings import MAPPINGS
from cujit.errors import CujitError, spell

WINDOW_BITS = 24
"""Low bits of a generic address that are the address in the shared memory of a block: the window in which that lies
begins at a multiple of 16 MiB. Source: an H200, ``tests/goldens/windows.json``."""

SYSTEM_BYTES = 1024
"""Bytes of a window before the block's own shared memory. Source: an H200, ``tests/goldens/windows.json``; CUDA C++
Programming Guide, "Shared Memory" of compute capability 8.x and later: 1 KB a block is the system's."""

SHARED_UNIT = 128
"""Bytes in which shared memory is given out: a write beyond ends a launch. Source: an H200, ``windows.json``."""

BLENDED = 256
"""Bytes before and behind shared memory that a store may read and write back: see ``codegen/memory.py``."""

PLACE = SYSTEM_BYTES + (9 << 20) + (3 << 16)
"""Bytes before shared memory, in a page of its own, at which it says what runs: see ``Running`` in
``runtime/launch.h``. It is a multiple of all sizes of pages before the window, and no round distance from it."""


WORKSPACE_BYTES = 256
"""Zeroed memory of a cooperative grid. Source: ``cooperative_groups/details/driver_abi.h``: its barrier takes eight."""

USUAL_CACHE_BYTES = 32 << 20
"""What server processors give a few cores together: taken for the size of a cache that is not known. Of a larger one
other processes have their part: on 16 cores beside 300 MB a transpose of 64 MB took 4.2 ms through the cache, and
1.4 ms past it."""


class Control(Shared):
    """State that all launches of a kernel share. ``cancels`` counts how often running launches were ended."""

    _fields_ = Fields("u64 cancels")


class Launch(Shared):
    """One launch. ``next`` counts the blocks handed out; ``chunk`` how many a thread takes at a time.

    ``together`` is how many blocks have to make progress side by side (a cluster, a cooperative grid; else 1), and
    ``cluster_*`` the shape of a cluster in blocks (0 without clusters); the windows of such blocks lie side
    by side. ``workspace`` is the address of the memory in which a grid counts its arrivals,
    where its kernel asks for that. A launch that writes more than ``cache_bytes`` stores past the cache. The
    ``fault_*`` fields are written by the first thread that cannot go on; ``fault_kind`` is 0 in a launch that went
    well. ``output`` is what kernels printed, ``checks``, ``trace`` and ``coverage`` the tables of those who watch (0:
    nobody does).

    ``code`` and ``code_bytes`` are the kernel's machine code: a thread may be stopped while it is there; ``poked`` is
    not 0 when one was poked elsewhere. A launch ends ``timeout_ns`` after its begin (0: never), which is at
    ``deadline_ns``, and when the ``Control`` at ``control`` counts more than ``cancels``, what it counted at the begin.
    ``stands`` is where its threads were when the host ended it (see ``runtime/ending.h``), ``begun`` how many blocks
    were handed out then, ``raised`` the exception that Python's handler of a signal raised: type, value and traceback.
    """

    _fields_ = Fields(
        "u8 *parameters, *module; u64 module_size, blocks, next, chunk; u32 grid_x, grid_y, grid_z, dynamic_bytes; "
        "u64 shared_bytes, together, workspace, cache_bytes; "
        "u32 cluster_x, cluster_y, cluster_z, fault_kind; u64 fault_block; u32 fault_thread, fault_line; "
        "u64 fault_address, fault_more[6]; struct Printed *output; struct Watch *checks; struct TraceState *trace; "
        "u64 coverage, code, code_bytes, timeout_ns, deadline_ns; struct Control *control; u64 cancels; "
        "struct Stands *stands; u64 poked, begun, raised[3], schedule, order_step, order_first; "
        "u32 yields, lands, picks, unused; struct Writes *writes"
    )

    def place(self, block: int) -> tuple[int, int, int]:
        """Return the position of a block in the grid, by its number."""
        x, y = max(self.grid_x, 1), max(self.grid_y, 1)
        return block % x, block // x % y, block // (x * y)


def release(address: int) -> None:
    """Release memory that machine code allocated with ``malloc``."""
    ctypes.CDLL(None).free(ctypes.c_void_p(address))


def field_offset(name: str) -> int:
    """Return the offset of a field of ``Launch`` in bytes."""
    return int(getattr(Launch, name).offset)


TEMPLATE = {
    "template_bytes": ctypes.sizeof(Launch),
    **{f"at_{name}": field_offset(name) for name in ("parameters", "next", "blocks", "fault_kind", "output", "checks")},
}
"""What the launcher has to know of a ``Launch``, as fields of its ``LaunchState``: sizes and places, in bytes."""


_CACHES, _MOST_CACHES = "/sys/devices/system/cpu/cpu0/cache", 8


@functools.cache
def cache_bytes(unknown: int = USUAL_CACHE_BYTES) -> int:
    """Return the size in bytes of the first processor's largest cache, or ``unknown`` if the system doesn't report a
    size.

    Source: Linux, Documentation/ABI/testing/sysfs-devices-system-cpu.
    """
    sizes = []
    for number in range(_MOST_CACHES):
        with contextlib.suppress(OSError, ValueError), open(f"{_CACHES}/index{number}/size") as file:
            sizes.append(int(file.read().strip().removesuffix("K")) << 10)
    return max(sizes, default=unknown)


# -- memory -----------------------------------------------------------------------------------------------


class HostBlock:
    """A block of ``size`` bytes at ``address``. New memory begins at a multiple of 256.

    With ``place``, an address and its owner, the block refers to existing memory.
    """

    def __init__(self, size: int, place: tuple[int, object] | None = None) -> None:
        self.size = size
        self.address, self._bytes = place or _taken(size)
        _LIVE.add(weakref.ref(self, _forget))
        count_change()

    @property
    def memory(self) -> object:
        """The owner of the bytes. The bytes exist as long as the owner is referenced."""
        return self._bytes

    def write(self, data: bytes | bytearray | memoryview, offset: int = 0) -> None:
        """Copy bytes in."""
        ctypes.memmove(self.address + offset, bytes(data), len(data))


_MAPPED_BYTES = 1 << 20
"""Bytes of a zeroed block from which on the system gives its pages when they are written first."""


def zeroed_block(size: int) -> HostBlock:
    """Return a block of zeros. A large block uses physical memory only for the pages that are written to.

    Raises:
        CujitError: there isn't enough memory for ``size`` bytes.
    """
    if size < _MAPPED_BYTES:
        block = HostBlock(size)
        ctypes.memset(block.address, 0, size)
        return block
    return HostBlock(size, _taken(size, "declare smaller variables"))


def _taken(size: int, smaller: str = "") -> tuple[int, object]:
    """Allocate memory for a block, and return its address and owner.

    With ``smaller``, which is the hint of the error, a large block is newly mapped and contains zeros.
    """
    try:
        taken = MAPPINGS.take(size, new=bool(smaller))
    except (MemoryError, OverflowError, ctypes.ArgumentError) as e:
        raise CujitError(
            f"the CPU device can't allocate {spell(size)} bytes: there isn't enough memory",
            help=smaller or None,
            code="out-of-memory",
        ) from e
    return taken.address, taken


_LIVE: set[weakref.ref[HostBlock]] = set()

CHANGES = ctypes.c_uint64(1)
"""Counts changes of memory that checks know: blocks allocated, freed or renamed. Native code reads it."""


def count_change() -> None:
    """Increase the counter of memory changes, after a change. Simultaneous changes may be counted as one, which still
    changes the counter.
    """
    CHANGES.value += 1


def _forget(block: weakref.ref[HostBlock]) -> None:
    _LIVE.discard(block)
    count_change()


def live_blocks() -> list[tuple[int, int]]:
    """List the blocks that are in use: address and size in bytes of each."""
    blocks = (reference() for reference in list(_LIVE))
    return [(block.address, block.size) for block in blocks if block is not None]
