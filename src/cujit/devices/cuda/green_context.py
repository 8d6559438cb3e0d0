"""Green contexts of a GPU: groups of its SMs, as the driver splits them.

Source: CUDA Driver API manual, "Green Contexts".
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Sequence
from typing import Any

from cujit.devices.cuda.gpu import Gpu
from cujit.devices.cuda.stream import CudaStream
from cujit.devices.green_contexts import GreenContext
from cujit.devices.streams import DeviceLike
from cujit.errors import LaunchError, UnsupportedError
from cujit.values import NamedTuple

_SINCE = (12, 5)
"""Source: CUDA Driver API manual, ``cuGreenCtxStreamCreate``."""


class _Split(NamedTuple):
    """The SMs of a GPU: groups of ``size`` SMs, and the rest, which is smaller."""

    total: int
    size: int
    groups: list[Any]
    rest: Any


class _Held:
    """A ``CUgreenCtx``, which is destroyed when no GreenContext and no stream refers to it."""

    def __init__(self, context: Gpu, handle: Any) -> None:
        self.handle = handle
        weakref.finalize(self, context.release, "cuGreenCtxDestroy", handle).atexit = False


def green_contexts(device: DeviceLike, context: Gpu, counts: Sequence[int | None]) -> tuple[GreenContext, ...]:
    """Create a green context for each count, with whole groups of SMs. A count of None means all remaining SMs.

    Raises:
        UnsupportedError: the driver doesn't support streams of green contexts.
        LaunchError: the GPU has too few SMs.
        DriverError: the driver reported an error.
    """
    if context.driver.version < _SINCE:
        major, minor = context.driver.version
        raise UnsupportedError(
            f"{context.name}: green contexts need a driver for CUDA {_SINCE[0]}.{_SINCE[1]} or later, and this one "
            f"supports CUDA {major}.{minor}",
            help="update the driver, or create the streams with device.stream()",
        )
    split = _split(context)
    return tuple(_green_context(device, context, parts) for parts in _parts(context, split, counts))


def _split(context: Gpu) -> _Split:
    """Split the SMs into the smallest groups that the driver makes."""
    kind = context.driver.bindings.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM
    whole = context.call("cuDeviceGetDevResource", context.device, kind)
    _, count, _ = context.call("cuDevSmResourceSplitByCount", 0, whole, 0, 1)
    groups, count, rest = context.call("cuDevSmResourceSplitByCount", count, whole, 0, 1)
    return _Split(whole.sm.smCount, groups[0].sm.smCount, groups[:count], rest if rest.type == kind else None)


def _parts(context: Gpu, split: _Split, counts: Sequence[int | None]) -> list[list[Any]]:
    """Divide the groups in the order of the counts."""
    needs = [-(-(count or 1) // split.size) for count in counts]
    spare = len(split.groups) - sum(needs)
    if spare < 0:
        requested = ", ".join("the rest" if count is None else str(count) for count in counts)
        raise LaunchError(
            f"{context.name} has {split.total} SMs, which the driver splits into {len(split.groups)} groups of "
            f"{split.size}; green contexts with {requested} SMs need {sum(needs)} groups",
            help="request fewer SMs, or fewer green contexts",
            code="sm-count",
        )
    left, parts = list(split.groups), []
    for count, need in zip(counts, needs, strict=True):
        number = need + spare if count is None else need
        parts.append(left[:number] + ([split.rest] if count is None and _joins(split) else []))
        del left[:number]
    return parts


def _joins(split: _Split) -> bool:
    """Return whether the remaining SMs can share a green context with the groups. The driver requires
    equal alignment.
    """
    if split.rest is None:
        return False
    alignments = {getattr(each.sm, "smCoscheduledAlignment", 0) for each in (split.groups[0], split.rest)}
    return len(alignments) == 1


def _green_context(device: DeviceLike, context: Gpu, parts: list[Any]) -> GreenContext:
    flag = context.driver.bindings.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
    description = context.call("cuDevResourceGenerateDesc", parts, len(parts))
    held = _Held(context, context.call("cuGreenCtxCreate", description, context.device, flag))
    make_stream = functools.partial(CudaStream.in_green_context, device, context, held)
    return GreenContext(device, sum(part.sm.smCount for part in parts), make_stream)
