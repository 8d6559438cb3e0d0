"""Contexts: the primary context, created contexts, and their rarely used functions."""

from __future__ import annotations

import ctypes
from collections.abc import Callable

from cujit.emulator import device
from cujit.emulator.entries import (
    checked,
    in_any_context,
    in_context,
    load_u64,
    new_cell,
    require,
    started,
    store_u32,
    store_u64,
)
from cujit.emulator.machine import cell_free, cell_is, in_c
from cujit.emulator.process import emulation
from cujit.emulator.results import RefusedCall, Result
from cujit.emulator.structures import CellKind, Context
from cujit.forks import Lock

_LOCK = Lock()
_ENDINGS: list[Callable[[int, bool], None]] = []
_PRIMARY: list[int] = []
"""The cell of the primary context, once it was there: its handle stays the same."""

_SCHEDULES = (0, 1, 2, 4)
_FLAGS = 0xFF
"""Source: CUDA Driver API manual, ``CUctx_flags``."""

_fail = in_c("emulator_fail", None, ctypes.c_uint64, ctypes.c_uint32)
_current = in_c("emulator_current", ctypes.c_uint64)
_push = in_c("cuCtxPushCurrent_v2", ctypes.c_int32, ctypes.c_uint64)
_pop = in_c("cuCtxPopCurrent_v2", ctypes.c_int32, ctypes.c_uint64)


def at_end(ended: Callable[[int, bool], None]) -> Callable[[int, bool], None]:
    """Register a function that releases what a context owns. It is called with each context that ends and whether it is
    primary.
    """
    _ENDINGS.append(ended)
    return ended


def of_context(handle: int) -> Context:
    """Return the cell of a context. For a green context, return the cell of the primary context.

    Raises:
        Refused: the context doesn't exist.
    """
    require(cell_is(handle, CellKind.CONTEXT), Result.INVALID_CONTEXT)
    context = Context.from_address(handle)
    return Context.from_address(context.context) if context.green else context


def fail(result: Result, words: str, context: int | None = None) -> None:
    """Store the error that ended a kernel in a context, by default the current one. All later calls return it."""
    emulation().fault = (result, words)
    _fail(_current() if context is None else context, result)


def _check_flags(flags: int) -> None:
    require(not flags & ~_FLAGS and flags & 7 in _SCHEDULES)


def _end(handle: int, *, is_primary: bool) -> None:
    for ended in _ENDINGS:
        ended(handle, is_primary)
    _LIMITS.pop(handle, None)
    _CACHE.pop(handle, None)


# -- the primary context ------------------------------------------------------------------------------------


def _primary() -> Context:
    """Return the cell of the primary context, created if it was never there. Call this with the lock held."""
    if not _PRIMARY:
        handle = new_cell(CellKind.CONTEXT)
        context = Context.from_address(handle)
        context.is_primary, context.version, context.kind = 1, 3020, CellKind.FREE
        _PRIMARY.append(handle)
    return Context.from_address(_PRIMARY[0])


@started("cuDevicePrimaryCtxRetain", "PI")
def device_primary_ctx_retain(out: int, ordinal: int) -> None:
    """Retain the primary context. The first call creates it."""
    require(out)
    device.check(ordinal)
    store_u64(out, retain())


def retain() -> int:
    """Retain the primary context, and return its handle."""
    with _LOCK:
        context = _primary()
        context.users += 1
        if context.kind != CellKind.CONTEXT:
            state = emulation().native.state
            state.ids += 1
            context.id, context.error, context.kind = state.ids, 0, CellKind.CONTEXT
            state.primary = ctypes.addressof(context)
    return ctypes.addressof(context)


@started("cuDevicePrimaryCtxRelease cuDevicePrimaryCtxRelease_v2", "I")
def device_primary_ctx_release(ordinal: int) -> None:
    """Release the primary context. The last call destroys it."""
    device.check(ordinal)
    release()


def release() -> None:
    """Release the primary context. The last call destroys it."""
    with _LOCK:
        context = _primary()
        require(context.users, Result.INVALID_CONTEXT)
        context.users -= 1
        if not context.users:
            _end_primary(context)


@started("cuDevicePrimaryCtxReset cuDevicePrimaryCtxReset_v2", "I")
def device_primary_ctx_reset(ordinal: int) -> None:
    """Destroy the primary context, even if it is retained. The next call that retains it creates it again."""
    device.check(ordinal)
    with _LOCK:
        _end_primary(_primary())


def _end_primary(context: Context) -> None:
    if context.kind == CellKind.CONTEXT:
        _end(ctypes.addressof(context), is_primary=True)
        emulation().native.state.primary, context.kind = 0, CellKind.FREE


@started("cuDevicePrimaryCtxSetFlags cuDevicePrimaryCtxSetFlags_v2", "IU")
def device_primary_ctx_set_flags(ordinal: int, flags: int) -> None:
    """Set the flags of the primary context."""
    device.check(ordinal)
    _check_flags(flags)
    with _LOCK:
        _primary().flags = flags


@started("cuDevicePrimaryCtxGetState", "IPP")
def device_primary_ctx_get_state(ordinal: int, flags: int, active: int) -> None:
    """Write the flags of the primary context, and whether it is active."""
    device.check(ordinal)
    require(flags and active)
    with _LOCK:
        context = _primary()
        store_u32(flags, context.flags)
        store_u32(active, context.kind == CellKind.CONTEXT)


# -- contexts that programs make ----------------------------------------------------------------------------


def _create(out: int, flags: int, ordinal: int, version: int = 3020) -> None:
    require(out)
    device.check(ordinal)
    _check_flags(flags)
    handle = new_cell(CellKind.CONTEXT)
    context = Context.from_address(handle)
    context.flags, context.version, context.users = flags, version, 1
    checked(_push(handle))
    store_u64(out, handle)


@started("cuCtxCreate", "PUI")
def ctx_create_first(out: int, flags: int, ordinal: int) -> None:
    """Make a context as programs of CUDA 3.1 did."""
    _create(out, flags, ordinal, 3010)


@started("cuCtxCreate_v2", "PUI")
def ctx_create(out: int, flags: int, ordinal: int) -> None:
    """Make a context, and make it the thread's."""
    _create(out, flags, ordinal)


@started("cuCtxCreate_v3", "PPIUI")
def ctx_create_for_part(out: int, affinities: int, count: int, flags: int, ordinal: int) -> None:
    """Create a context. Contexts for a part of the device are refused."""
    require(count >= 0 and bool(affinities) == bool(count))
    require(not count, Result.UNSUPPORTED_EXEC_AFFINITY)
    _create(out, flags, ordinal)


@started("cuCtxCreate_v4", "PPUI")
def ctx_create_with(out: int, parameters: int, flags: int, ordinal: int) -> None:
    """Create a context. Contexts for a part of the device or for graphics are refused."""
    if parameters:
        require(not load_u64(parameters), Result.UNSUPPORTED_EXEC_AFFINITY)
        require(not load_u64(parameters, 2), Result.NOT_SUPPORTED)
    _create(out, flags, ordinal)


@started("cuCtxDestroy cuCtxDestroy_v2", "P")
def ctx_destroy(handle: int) -> None:
    """Destroy a context, in whatever threads it is current. The primary context is released by other functions."""
    require(handle)
    with _LOCK:
        require(not of_context(handle).is_primary, Result.INVALID_CONTEXT)
        if _current() == handle:
            _pop(0)
        _end(handle, is_primary=False)
        cell_free(handle, CellKind.CONTEXT)


@in_context("cuCtxAttach", "PU")
def ctx_attach(context: int, out: int, flags: int) -> None:
    """Hold the current context once more."""
    require(out and not flags)
    with _LOCK:
        Context.from_address(context).users += 1
    store_u64(out, context)


@started("cuCtxDetach", "P")
def ctx_detach(handle: int) -> None:
    """Decrement the reference count of a context. The last call destroys it."""
    with _LOCK:
        context = of_context(handle)
        require(_current() == handle and not context.is_primary, Result.INVALID_CONTEXT)
        context.users -= 1
        if not context.users:
            ctx_destroy(handle)


# -- what is said of a context ------------------------------------------------------------------------------

_LIMITS: dict[int, dict[int, int]] = {}
_CACHE: dict[int, int] = {}

_FIRST_LIMITS = {0: 1 << 10, 1: 1 << 20, 2: 8 << 20, 4: 2048, 5: 64, 6: 0, 7: 0, 8: 0}
"""Stack, ``printf``, ``malloc``, pending launches, bytes that the second cache fetches, and that persist there; shared
memory and state of contexts made for graphics. Source:
CUDA Driver API manual, ``CUlimit``; CUDA C++ Programming Guide, of "Formatted Output" and "Dynamic Global Memory
Allocation"."""

_LIMIT_BEYOND = 11
_PERSISTING, _FETCHED = 6, 5


@in_context("cuCtxGetLimit", "PI")
def ctx_get_limit(context: int, value: int, limit: int) -> None:
    """Write a limit of the current context."""
    require(value and 0 <= limit < _LIMIT_BEYOND)
    require(limit in _FIRST_LIMITS, Result.UNSUPPORTED_LIMIT)
    store_u64(value, _LIMITS.get(context, {}).get(limit, _FIRST_LIMITS[limit]))


@in_context("cuCtxSetLimit", "IP")
def ctx_set_limit(context: int, limit: int, value: int) -> None:
    """Set a limit of the current context. Kernels don't depend on the limits."""
    require(0 <= limit < _LIMIT_BEYOND)
    require(limit in _FIRST_LIMITS and limit < _PERSISTING, Result.UNSUPPORTED_LIMIT)
    require(value < device.total_bytes())
    if limit == _FETCHED:
        value = min(value, 128)
    _LIMITS.setdefault(context, {})[limit] = value


@in_context("cuCtxGetCacheConfig", "P")
def ctx_get_cache_config(context: int, config: int) -> None:
    """Write the cache configuration that the current context prefers."""
    store_u32(config, _CACHE.get(context, 0))


@in_context("cuCtxSetCacheConfig", "I")
def ctx_set_cache_config(context: int, config: int) -> None:
    """Set the cache configuration that the current context prefers."""
    require(0 <= config <= 3)
    _CACHE[context] = config


@in_any_context("cuCtxGetSharedMemConfig", "P")
def ctx_get_shared_mem_config(config: int) -> None:
    """Write that banks of shared memory are four bytes wide."""
    store_u32(config, 1)


@in_any_context("cuCtxSetSharedMemConfig", "I")
def ctx_set_shared_mem_config(config: int) -> None:
    """Accept a preferred bank size of shared memory, which no current device supports."""
    require(0 <= config <= 2)


@started("cuCtxGetFlags", "P")
def ctx_get_flags(flags: int) -> None:
    """Write the flags of the current context, even after an error in it."""
    store_u32(flags, of_context(_current()).flags)


@in_context("cuCtxSetFlags", "U")
def ctx_set_flags(context: int, flags: int) -> None:
    """Set the flags of the current context."""
    _check_flags(flags)
    Context.from_address(context).flags = flags


def _or_current(handle: int) -> Context:
    return of_context(handle or _current())


@started("cuCtxGetId", "PP")
def ctx_get_id(handle: int, identity: int) -> None:
    """Write the unique number of a context. A null handle means the current context."""
    require(identity)
    store_u64(identity, _or_current(handle).id)


@started("cuCtxGetApiVersion", "PP")
def ctx_get_api_version(handle: int, version: int) -> None:
    """Write the version of the API that a context was created with."""
    require(version)
    store_u32(version, _or_current(handle).version)


@in_any_context("cuCtxGetStreamPriorityRange", "PP")
def ctx_get_stream_priority_range(least: int, greatest: int) -> None:
    """Write the range of stream priorities: as many as GPUs of compute capability 7.0 and later report."""
    for at, number in ((least, 0), (greatest, -5)):
        if at:
            store_u32(at, number)


@in_any_context("cuCtxResetPersistingL2Cache", "")
def ctx_reset_persisting_l2_cache() -> None:
    """Reset persisting lines of the L2 cache. There are none."""


@in_any_context("cuCtxGetExecAffinity", "PI")
def ctx_get_exec_affinity(affinity: int, kind: int) -> None:
    """Refuse: contexts have all of the device."""
    require(affinity and kind == 0)
    raise RefusedCall(Result.UNSUPPORTED_EXEC_AFFINITY)


@in_any_context("cuCtxEnablePeerAccess", "PU")
def ctx_enable_peer_access(peer: int, flags: int) -> None:
    """Refuse: there is no peer."""
    require(not flags)
    of_context(peer)
    raise RefusedCall(Result.PEER_ACCESS_UNSUPPORTED)


@in_any_context("cuCtxDisablePeerAccess", "P")
def ctx_disable_peer_access(peer: int) -> None:
    """Refuse: there is no peer."""
    of_context(peer)
    raise RefusedCall(Result.PEER_ACCESS_NOT_ENABLED)
