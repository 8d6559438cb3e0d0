"""Memory pools: the device's default pool, other pools, and their attributes. C code allocates memory
from the pools.
"""

from __future__ import annotations

import ctypes

from cujit.devices.cpu.native.shared import Fields
from cujit.emulator import device
from cujit.emulator.entries import load_u64, require, started, store_u32, store_u64
from cujit.emulator.machine import cell_free, cell_is, in_c
from cujit.emulator.process import emulation
from cujit.emulator.results import RefusedCall, Result
from cujit.emulator.structures import BlockKind, CellKind, PoolCell

_ON_DEVICE, _ON_HOST = 1, (2, 3, 4)
_PINNED, _MANAGED, _READ_WRITE = 1, 2, 3
"""Source: CUDA Driver API manual, ``CUmemLocationType``, ``CUmemAllocationType`` and ``CUmemAccess_flags``."""

_REUSES = (1, 2, 3)
_THRESHOLD, _RESERVED, _RESERVED_HIGH, _USED, _USED_HIGH = range(4, 9)
_LAST_ATTRIBUTE = 15
"""Source: CUDA Driver API manual, ``CUmemPool_attribute``."""


_new = in_c("pool_new", ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint64)
_own = in_c("pool_own", ctypes.c_uint64, ctypes.c_uint32)
_used = in_c("pool_used", ctypes.c_uint64)


def _pool(handle: int) -> PoolCell:
    require(cell_is(handle, CellKind.POOL))
    pool = PoolCell.from_address(handle)
    require(not pool.ended)
    return pool


_NAMED: dict[BlockKind, int] = {}
"""The pools that were named for blocks of a kind, but for those of the device, which C knows."""


def _blocks_at(location: int, kind: int) -> BlockKind:
    """Return the kind of blocks for a location and a kind of allocation. Managed memory doesn't depend
    on the location.
    """
    require(location)
    place, ordinal = (ctypes.c_int32 * 2).from_address(location)
    require(place in range(7) and kind in (_PINNED, _MANAGED))
    if place == _ON_DEVICE:
        device.check(ordinal)
    if kind == _MANAGED:
        return BlockKind.MANAGED
    require(place == _ON_DEVICE or place in _ON_HOST, Result.NOT_SUPPORTED)
    return BlockKind.POOLED if place == _ON_DEVICE else BlockKind.HOST


class _PoolProps(ctypes.Structure):
    """Source: CUDA Driver API manual, ``CUmemPoolProps``."""

    _fields_ = Fields("u32 kind, handles; i32 location[2]; u64 security, most_bytes; u8 rest[56]")


@started("cuMemPoolCreate", "PP")
def mem_pool_create(out: int, properties: int) -> None:
    """Make a pool, which cannot be shared."""
    require(out and properties)
    props = _PoolProps.from_address(properties)
    place = properties + _PoolProps.location.offset
    blocks = _blocks_at(place, props.kind)
    require(not props.handles, Result.NOT_SUPPORTED)
    require(not props.security)
    handle = _new(props.most_bytes, blocks, load_u64(place))
    require(handle, Result.OUT_OF_MEMORY)
    store_u64(out, handle)


@started("cuMemPoolDestroy", "P")
def mem_pool_destroy(handle: int) -> None:
    """Mark a pool as destroyed, so that it is freed with its last allocation. The default pool is refused."""
    pool = _pool(handle)
    require(not pool.is_default)
    memory = emulation().native.state.memory
    if memory.pool == handle:
        memory.pool = 0
    for kind in [kind for kind, each in _NAMED.items() if each == handle]:
        del _NAMED[kind]
    pool.ended = 1
    if not pool.blocks:
        cell_free(handle, CellKind.POOL)


@started("cuMemPoolTrimTo", "PP")
def mem_pool_trim_to(handle: int, _least_bytes: int) -> None:
    """Check the handle of a pool. There is never any unused memory to release."""
    _pool(handle)


def _attribute(pool: PoolCell, attribute: int) -> tuple[int, int]:
    """Return an attribute, and its size in bytes."""
    if attribute in _REUSES:
        return pool.reuse >> attribute - 1 & 1, 4
    wide = {
        _THRESHOLD: pool.threshold, _RESERVED: pool.used, _RESERVED_HIGH: pool.reserved_high, _USED: pool.used,
        _USED_HIGH: pool.used_high, 13: pool.most_bytes,
    }  # fmt: skip
    kind = _MANAGED if pool.block == BlockKind.MANAGED else _PINNED
    narrow = {9: kind, 10: 0, 11: pool.place >> 32, 12: pool.place & 0xFFFFFFFF, 14: 0, 15: -1}
    return (wide[attribute], 8) if attribute in wide else (narrow[attribute], 4)


@started("cuMemPoolGetAttribute", "PIP")
def mem_pool_get_attribute(handle: int, attribute: int, value: int) -> None:
    """Write an attribute of a pool."""
    pool = _pool(handle)
    require(value and 1 <= attribute <= _LAST_ATTRIBUTE)
    number, size = _attribute(pool, attribute)
    (store_u32 if size == 4 else store_u64)(value, number)


@started("cuMemPoolSetAttribute", "PIP")
def mem_pool_set_attribute(handle: int, attribute: int, value: int) -> None:
    """Set an attribute of a pool. High-water marks can only be reset."""
    pool = _pool(handle)
    require(value and 1 <= attribute <= _USED_HIGH and attribute not in (_RESERVED, _USED))
    if attribute in _REUSES:
        bit = 1 << attribute - 1
        on = ctypes.c_int32.from_address(value).value
        pool.reuse = pool.reuse | bit if on else pool.reuse & ~bit
        return
    number = ctypes.c_uint64.from_address(value).value
    if attribute == _THRESHOLD:
        pool.threshold = number
    else:
        require(not number)
        setattr(pool, "used_high" if attribute == _USED_HIGH else "reserved_high", pool.used)


@started("cuMemPoolSetAccess", "PPP")
def mem_pool_set_access(handle: int, descriptions: int, count: int) -> None:
    """Set which devices may access a pool. The device always may."""
    _pool(handle)
    require(descriptions or not count)
    for index in range(count):
        place, ordinal, flags = (ctypes.c_int32 * 3).from_address(descriptions + 12 * index)
        require(place == _ON_DEVICE and flags == _READ_WRITE)
        device.check(ordinal)


@started("cuMemPoolGetAccess", "PPP")
def mem_pool_get_access(flags: int, handle: int, location: int) -> None:
    """Report that the device may access a pool."""
    require(flags and location)
    _pool(handle)
    place, ordinal = (ctypes.c_int32 * 2).from_address(location)
    require(place == _ON_DEVICE)
    device.check(ordinal)
    store_u32(flags, _READ_WRITE)


@started("cuDeviceGetDefaultMemPool", "PI")
def device_get_default_mem_pool(out: int, ordinal: int) -> None:
    """Write the device's own pool."""
    require(out)
    device.check(ordinal)
    store_u64(out, _own(BlockKind.POOLED))


@started("cuDeviceGetMemPool", "PI")
def device_get_mem_pool(out: int, ordinal: int) -> None:
    """Write the handle of the pool that is used by allocations without an explicit pool."""
    require(out)
    device.check(ordinal)
    store_u64(out, _used())


@started("cuDeviceSetMemPool", "IP")
def device_set_mem_pool(ordinal: int, handle: int) -> None:
    """Set the pool that is used by allocations without an explicit pool."""
    device.check(ordinal)
    require(_pool(handle).block == BlockKind.POOLED)
    emulation().native.state.memory.pool = handle


@started("cuMemGetDefaultMemPool", "PPI")
def mem_get_default_mem_pool(out: int, location: int, kind: int) -> None:
    """Write the default pool of a location."""
    store_u64(out, _own(_blocks_at(location, kind)))


@started("cuMemGetMemPool", "PPI")
def mem_get_mem_pool(out: int, location: int, kind: int) -> None:
    """Write the pool that is used for a location."""
    blocks = _blocks_at(location, kind)
    store_u64(out, _used() if blocks is BlockKind.POOLED else _NAMED.get(blocks) or _own(blocks))


@started("cuMemSetMemPool", "PIP")
def mem_set_mem_pool(location: int, kind: int, handle: int) -> None:
    """Set the pool that is used for a location."""
    blocks = _blocks_at(location, kind)
    require(_pool(handle).block == blocks)
    if blocks is BlockKind.POOLED:
        emulation().native.state.memory.pool = handle
    else:
        _NAMED[blocks] = handle


@started("cuMemPoolExportToShareableHandle", "PPIP")
def mem_pool_export_to_shareable_handle(out: int, handle: int, _kind: int, flags: int) -> None:
    """Refuse: no pool can be shared."""
    require(out and not flags)
    _pool(handle)
    raise RefusedCall(Result.NOT_SUPPORTED)
