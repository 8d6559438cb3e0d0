"""The number of a function's blocks per SM, which clients query when they choose a launch configuration.

Source of the rules: CUDA C++ Programming Guide, "Technical Specifications per Compute Capability"; CUDA Driver API
manual, "Occupancy".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from cujit.devices.options import LaunchOptions
from cujit.devices.shapes import Dim3, LaunchShape
from cujit.emulator import device
from cujit.emulator.entries import got, in_any_context, require, store_u32, store_u64
from cujit.emulator.green_contexts import processors_of
from cujit.emulator.launches import check
from cujit.emulator.modules import NON_PORTABLE, LoadedFunction, function_of
from cujit.emulator.process import emulation
from cujit.emulator.structures import LaunchWords

_WARP = 32
_UNIT = 128
"""Bytes in which shared memory is given."""

# Numbers of ``CUdevice_attribute`` and ``CUfunction_attribute``.
_THREADS, _SHARED, _OPTIN, _BLOCKS, _RESERVED = 39, 81, 97, 106, 111
_LARGEST_CLUSTER = 16

_DISABLE_CACHING = 1
"""Flag. Source: CUDA Driver API manual, ``CUoccupancy_flags``."""


def active_blocks(function: LoadedFunction, threads: int, dynamic_bytes: int) -> int:
    """Count the blocks that a multiprocessor holds at a time, by threads, warps and shared memory."""
    has, resources = device.attributes(), function.settings.resources
    if threads > resources.max_threads or resources.shared_bytes + dynamic_bytes > has[_OPTIN]:
        return 0
    warps = -(-threads // _WARP)
    needs = -(-(resources.shared_bytes + dynamic_bytes + has.get(_RESERVED, 0)) // _UNIT) * _UNIT
    by_shared = has[_SHARED] // needs if needs else has[_BLOCKS]
    return min(has[_BLOCKS], has[_THREADS] // _WARP // warps, by_shared)


def _check(handle: int, flags: int) -> LoadedFunction:
    require(not flags & ~_DISABLE_CACHING)
    return function_of(handle)


@in_any_context("cuOccupancyMaxActiveBlocksPerMultiprocessor", "PPIP")
@in_any_context("cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags", "PPIPU")
def max_active_blocks(blocks: int, handle: int, threads: int, dynamic_bytes: int, flags: int = 0) -> None:
    """Write the number of blocks that an SM can hold at a time. The flags don't affect the number."""
    require(blocks and threads > 0)
    store_u32(blocks, active_blocks(_check(handle, flags), threads, dynamic_bytes))


def _best(function: LoadedFunction, most: int, dynamic_bytes: Callable[[int], int]) -> tuple[int, int]:
    """Choose the block with which most threads are there at a time, the largest of such, and count these blocks."""
    limit = min(most or function.settings.resources.max_threads, function.settings.resources.max_threads)
    sizes = [min(size, limit) for size in range(-(-limit // _WARP) * _WARP, 0, -_WARP)]
    counted = [(active_blocks(function, size, dynamic_bytes(size)), size) for size in sizes]
    blocks, size = max(counted, key=lambda pair: (pair[0] * pair[1], pair[1]))
    return size, blocks


@in_any_context("cuOccupancyMaxPotentialBlockSize", "PPPPPI")
@in_any_context("cuOccupancyMaxPotentialBlockSizeWithFlags", "PPPPPIU")
def max_potential_block_size(
    grid: int, block: int, handle: int, of_block: int, dynamic_bytes: int, most: int, flags: int = 0
) -> None:
    """Write the block size with the highest occupancy, and the grid size that fills the device with such blocks.

    ``of_block`` is a function that returns the dynamic shared memory of a block from its number of threads.
    """
    require(grid and block and most >= 0)
    function = _check(handle, flags)
    ask = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_int)(of_block) if of_block else lambda _: dynamic_bytes
    threads, blocks = _best(function, most, ask)
    store_u32(block, threads)
    store_u32(grid, blocks * emulation().device.limits.processors)


@in_any_context("cuOccupancyAvailableDynamicSMemPerBlock", "PPII")
def available_dynamic_smem_per_block(size: int, handle: int, blocks: int, threads: int) -> None:
    """Write the dynamic shared memory that is available to each block if an SM must hold ``blocks`` blocks."""
    require(size and blocks > 0 and threads > 0)
    function, has = function_of(handle), device.attributes()
    require(blocks <= active_blocks(function, threads, 0))
    static = function.settings.resources.shared_bytes
    each = has[_SHARED] // blocks // _UNIT * _UNIT - has.get(_RESERVED, 0)
    store_u64(size, max(min(each, has[_OPTIN]) - static, 0))


_CLUSTER, _ATTRIBUTE_BYTES = 4, 72
"""The number of the attribute that says the cluster, and the bytes of each. Source: ``CUlaunchAttribute``."""


def _launch_shape(config: int) -> tuple[LaunchShape, Dim3 | None]:
    require(config)
    launch = LaunchWords.from_address(config)
    shape = LaunchShape(
        Dim3(launch.grid_x, launch.grid_y, launch.grid_z),
        Dim3(launch.block_x, launch.block_y, launch.block_z),
        launch.shared_bytes,
    )
    require(not launch.count or launch.attributes)
    for k in range(launch.count):
        words = (ctypes.c_uint32 * 5).from_address(launch.attributes + k * _ATTRIBUTE_BYTES)
        if words[0] == _CLUSTER:
            return shape, Dim3(*words[2:5])
    return shape, None


@in_any_context("cuOccupancyMaxPotentialClusterSize", "PPP")
def max_potential_cluster_size(size: int, handle: int, config: int) -> None:
    """Write how many blocks a cluster can have."""
    function = function_of(handle)
    shape, _ = _launch_shape(config)
    require(size)
    fits = active_blocks(function, shape.block.volume, shape.shared_bytes)
    most = _LARGEST_CLUSTER if function.settings.values[NON_PORTABLE] else 8
    store_u32(size, most if fits else 0)


@in_any_context("cuOccupancyMaxActiveClusters", "PPP")
def max_active_clusters(count: int, handle: int, config: int) -> None:
    """Count the clusters that the device holds at a time."""
    function = function_of(handle)
    shape, cluster = _launch_shape(config)
    cluster = cluster or function.kernel.own_cluster
    cluster = got(cluster)
    require(count and all(cluster))
    check(shape, LaunchOptions(cluster=cluster), function)
    processors = processors_of(LaunchWords.from_address(config).stream)
    together = processors * active_blocks(function, shape.block.volume, shape.shared_bytes)
    store_u32(count, together // cluster.volume)
