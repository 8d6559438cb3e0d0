"""Green contexts: parts of the primary context with some of the device's multiprocessors, and their streams.

Kernels run on all cores, whatever multiprocessors their stream has: what is counted is only how many blocks of a
cooperative launch run at a time.
"""

from __future__ import annotations

import ctypes

from cujit.emulator import capture, contexts, device, device_resources
from cujit.emulator.device_resources import GreenResources
from cujit.emulator.entries import OWN_STREAM, checked, in_any_context, new_cell, require, started, store_u64
from cujit.emulator.machine import cell_free, cell_is, in_c
from cujit.emulator.nodes import LOCK
from cujit.emulator.results import Result
from cujit.emulator.structures import CellKind, Context, GreenCell

_DEFAULT_STREAM = 1
"""``CUgreenCtxCreate_flags``: a default stream of its own; every context has one."""

_HAVE: dict[int, GreenResources] = {}
"""What the green contexts have, by their handles."""

_current = in_c("emulator_current", ctypes.c_uint64)
_detach_streams = in_c("emulator_detach_streams", None, ctypes.c_uint64)


def _of(handle: int) -> GreenCell:
    require(cell_is(handle, CellKind.GREEN_CONTEXT), Result.INVALID_CONTEXT)
    return GreenCell.from_address(handle)


def _current_green() -> int:
    handle = _current()
    return Context.from_address(handle).green if cell_is(handle, CellKind.CONTEXT) else 0


def processors_of(stream: int) -> int:
    """Count the multiprocessors that a stream may use."""
    green = capture.stream_cell(stream).green if stream > OWN_STREAM else _current_green()
    return _resources(green).processors.sms


def _resources(green: int) -> GreenResources:
    return _HAVE.get(green) or device_resources.whole()


@started("cuGreenCtxCreate", "PPIU")
def green_ctx_create(out: int, description: int, ordinal: int, flags: int) -> None:
    """Make a green context of described resources, which holds the primary context."""
    device.check(ordinal)
    require(out and flags in (0, _DEFAULT_STREAM))
    resources = device_resources.described(description)
    primary = contexts.retain()
    handle = new_cell(CellKind.GREEN_CONTEXT, primary)
    context = Context.from_address(new_cell(CellKind.CONTEXT, primary))
    context.green = handle
    GreenCell.from_address(handle).as_context = ctypes.addressof(context)
    _HAVE[handle] = resources
    store_u64(out, handle)


@started("cuGreenCtxDestroy", "P")
def green_ctx_destroy(handle: int) -> None:
    """End a green context; its streams can only be destroyed from now on."""
    _of(handle)
    _end(handle)
    contexts.release()


def _end(handle: int) -> None:
    with LOCK:
        capture.invalidate(lambda stream: stream.green == handle)
        _detach_streams(handle)
    cell_free(GreenCell.from_address(handle).as_context, CellKind.CONTEXT)
    cell_free(handle, CellKind.GREEN_CONTEXT)
    _HAVE.pop(handle, None)


@contexts.at_end
def _ended(context: int, is_primary: bool) -> None:
    for handle in [each for each in _HAVE if is_primary and GreenCell.from_address(each).context == context]:
        _end(handle)


@started("cuCtxFromGreenCtx", "PP")
def ctx_from_green_ctx(out: int, handle: int) -> None:
    """Write the context to make current for a green context."""
    green = _of(handle)
    require(out)
    store_u64(out, green.as_context)


@started("cuGreenCtxGetId", "PP")
def green_ctx_get_id(handle: int, identity: int) -> None:
    """Write the unique number of a green context; null is the current one."""
    green = _of(handle or _current_green())
    require(identity)
    store_u64(identity, green.id)


# -- what they have -------------------------------------------------------------------------------------------


@started("cuGreenCtxGetDevResource", "PPI")
def green_ctx_get_dev_resource(handle: int, resource: int, type_: int) -> None:
    """Write a resource of a green context."""
    _of(handle)
    device_resources.write(resource, type_, _resources(handle))


@started("cuCtxGetDevResource", "PPI")
def ctx_get_dev_resource(handle: int, resource: int, type_: int) -> None:
    """Write a resource of a context."""
    require(cell_is(handle, CellKind.CONTEXT), Result.INVALID_CONTEXT)
    device_resources.write(resource, type_, _resources(Context.from_address(handle).green))


@in_any_context("cuStreamGetDevResource", "SPI")
def stream_get_dev_resource(stream: int, resource: int, type_: int) -> None:
    """Write the multiprocessors of a stream."""
    require(type_ == device_resources.SM, Result.INVALID_RESOURCE_TYPE)
    green = capture.stream_cell(stream).green if stream > OWN_STREAM else _current_green()
    device_resources.write(resource, type_, _resources(green))


# -- events ---------------------------------------------------------------------------------------------------


def _check_event(handle: int, event: int) -> None:
    _of(handle)
    require(cell_is(event, CellKind.EVENT), Result.INVALID_HANDLE)
    with LOCK:
        capture.refuse_captured(lambda stream: stream.green == handle)


@started("cuGreenCtxRecordEvent", "PP")
def green_ctx_record_event(handle: int, event: int) -> None:
    """Record the work of a green context, which is always complete."""
    _check_event(handle, event)
    checked(capture.record_event(event))


@started("cuGreenCtxWaitEvent", "PP")
def green_ctx_wait_event(handle: int, event: int) -> None:
    """Make a green context wait for an event, which is already complete."""
    _check_event(handle, event)
