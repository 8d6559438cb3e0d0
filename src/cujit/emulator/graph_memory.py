"""Memory of graphs. Its address is fixed when the node is added. A launch allocates it, and a node or the caller frees
it.

Source: CUDA Driver API manual, ``cuGraphAddMemAllocNode`` and ``cuGraphAddMemFreeNode``.
"""

from __future__ import annotations

import ctypes
import weakref

from cujit.emulator import device
from cujit.emulator.entries import checked, got, load_u64, require, started, store_u64
from cujit.emulator.machine import in_c
from cujit.emulator.nodes import EmulatedGraph
from cujit.emulator.results import Result
from cujit.emulator.structures import BlockKind, PoolCell
from cujit.forks import once

_keep = in_c("memory_keep", ctypes.c_int32, ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint64, ctypes.c_uint64)
_take = in_c("memory_take", ctypes.c_int32, ctypes.c_uint64)
_free = in_c("memory_free", ctypes.c_uint32, ctypes.c_uint64, ctypes.c_uint32)
_block_of = in_c("block_of", ctypes.c_void_p, ctypes.c_uint64)
_trim = in_c("memory_trim", None, ctypes.c_uint64)
_recycle = in_c("memory_recycle", None, ctypes.c_uint64)
_new_pool = in_c("pool_new", ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64)


class HeldPlace:
    """The address range of an allocation. It is reused after the last reference to this object is gone."""

    def __init__(self, address: int) -> None:
        weakref.finalize(self, _recycle, address).atexit = False

    @classmethod
    def of(cls, address: int) -> HeldPlace:
        """Return the range of an allocated address: the same object while references to it exist."""
        found = _PLACES.get(address)
        if found is None:
            found = _PLACES[address] = cls(address)
        return found


_PLACES: weakref.WeakValueDictionary[int, HeldPlace] = weakref.WeakValueDictionary()


@once
def _pool() -> int:
    """Create the pool that counts the allocations of graphs. Clients can't get its handle."""
    pool = int(_new_pool(0, BlockKind.POOLED, 0))
    require(pool, Result.OUT_OF_MEMORY)
    return pool


class GraphMemory:
    """Memory of a graph. ``address`` is reserved while one of its nodes exists."""

    def __init__(self, graph: EmulatedGraph, size: int) -> None:
        found = ctypes.c_uint64()
        answer = Result(_keep(found, size, _pool()))
        require(not answer, answer)
        self.address = found.value
        self._graph = weakref.ref(graph)
        self._freeing: weakref.WeakSet[EmulatedGraph] = weakref.WeakSet()
        self._place = HeldPlace.of(self.address)
        _MEMORY[self.address] = self

    @staticmethod
    def of(address: int) -> GraphMemory:
        """Return the graph memory at an address.

        Raises:
            Refused: it is no graph's.
        """
        return got(
            _MEMORY.get(address), words="no graph allocated this memory", hint="free the memory with `cuMemFree`"
        )

    @property
    def is_taken(self) -> bool:
        """Whether a launch allocated the memory and it isn't freed yet."""
        return _block_of(self.address) is not None

    def freed_by(self, graph: EmulatedGraph) -> None:
        """Note that a node of a graph frees it: once in a graph, and in the one that allocates or in others.

        Raises:
            Refused: that cannot be.
        """
        owner = self._graph()
        require(graph not in self._freeing, words="another node of the graph frees this memory")
        require(graph is owner or owner not in self._freeing, words="the graph that allocates this memory frees it")
        require(graph is not owner or not self._freeing, words="another graph frees this memory")
        self._freeing.add(graph)

    def take(self) -> None:
        """Allocate the graph's memory for a launch.

        Raises:
            Refused: the memory is already allocated, or there is not enough memory.
        """
        checked(
            _take(self.address),
            "memory that the graph allocated wasn't freed since its last launch",
            hint="free it with `cuMemFree`, or instantiate the graph with the flag `AUTO_FREE_ON_LAUNCH`",
        )

    def free(self) -> bool:
        """Free the memory of a launch. Return False if it isn't allocated."""
        return bool(_free(self.address, 1 << BlockKind.POOLED))


_MEMORY: weakref.WeakValueDictionary[int, GraphMemory] = weakref.WeakValueDictionary()
"""What there is, by address: nodes of graphs hold it."""


# -- what is counted of it ----------------------------------------------------------------------------------

_COUNTERS = ("reserved", "used_high", "reserved", "reserved_high")
"""What ``CUgraphMem_attribute`` counts: memory is used until it is trimmed. Source: answers of an H200 (CUDA 13.0)."""


@started("cuDeviceGetGraphMemAttribute", "IIP")
def device_get_graph_mem_attribute(ordinal: int, attribute: int, value: int) -> None:
    """Write the current or maximum number of bytes that graphs use or reserve."""
    device.check(ordinal)
    require(0 <= attribute < len(_COUNTERS))
    store_u64(value, getattr(PoolCell.from_address(_pool()), _COUNTERS[attribute]))


@started("cuDeviceSetGraphMemAttribute", "IIP")
def device_set_graph_mem_attribute(ordinal: int, attribute: int, value: int) -> None:
    """Reset a maximum of the memory that graphs used."""
    device.check(ordinal)
    require(value and attribute in (1, 3) and not load_u64(value))
    pool = PoolCell.from_address(_pool())
    setattr(pool, _COUNTERS[attribute], getattr(pool, _COUNTERS[attribute - 1]))


@started("cuDeviceGraphMemTrim", "I")
def device_graph_mem_trim(ordinal: int) -> None:
    """Release the pages of graph memory that no launch holds."""
    device.check(ordinal)
    for memory in list(_MEMORY.values()):
        _trim(memory.address)
    pool = PoolCell.from_address(_pool())
    pool.reserved = pool.used
