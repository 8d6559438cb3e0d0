"""Resources of the device for green contexts: its multiprocessors, split into groups, and its work queues.

Source of the rules: ``cuda.h`` of CUDA 13.5, "Green Contexts".
"""

from __future__ import annotations

import ctypes
import itertools
import os
from collections.abc import Iterable

from cujit.devices.cpu.native.shared import Fields
from cujit.emulator import device
from cujit.emulator.entries import got, new_cell, require, started, store_u32, store_u64
from cujit.emulator.machine import cell_is
from cujit.emulator.process import emulation
from cujit.emulator.results import Result
from cujit.emulator.structures import CellKind
from cujit.values import NamedTuple

_NONE, SM, QUEUE_CONFIG, _QUEUE = 0, 1, 1000, 10000
"""``CUdevResourceType``."""

_QUERIED, _GROUP, _REMAINDER = 1, 2, 3
"""Where a resource is from; the caller's memory keeps it in bytes that are the driver's own."""

_EACH_ALONE, _LARGEST_CLUSTERS = 1, 2
"""``CUdevSmResourceSplitByCount_flags``."""

_BACKFILL = 1
"""``CUdevSmResourceGroup_flags``; the others choose a locality domain, of which this device has none."""

_PAIR, _COSCHEDULED, _LARGEST_CLUSTER, _MOST_TOGETHER = 2, 8, 16, 32
"""Multiprocessors that are never parted, the same by default from 9.0 on, that the largest cluster takes, and that can
be wanted for together."""

_splits = itertools.count(1)


class Multiprocessors(NamedTuple):
    """A number of SMs, the minimum number that can be split off, and the number of SMs in each group."""

    sms: int
    smallest: int
    together: int


class Queues(NamedTuple):
    """The expected number of concurrent workloads, and the scope that shares their queues
    (``CUdevWorkqueueConfigScope``).
    """

    limit: int
    scope: int = 0


class GreenResources(NamedTuple):
    """The resources of a green context or of the whole device."""

    processors: Multiprocessors
    queues: Queues


class DevResource(ctypes.Structure):
    """``CUdevResource``; ``words`` are a ``CUdevSmResource`` or a ``CUdevWorkqueueConfigResource``."""

    _fields_ = Fields("u32 type, origin; u64 split, unused[10]; u32 words[10]; u64 next")

    def set(self, type_: int, words: Iterable[int] = (), origin: int = _QUERIED, split: int = 0) -> None:
        """Write all of it."""
        ctypes.memset(ctypes.addressof(self), 0, ctypes.sizeof(self))
        self.type, self.origin, self.split = type_, origin, split
        for k, word in enumerate(words):
            self.words[k] = word


class _GroupParams(ctypes.Structure):
    """``CU_DEV_SM_RESOURCE_GROUP_PARAMS``."""

    _fields_ = Fields("u32 count, together, preferred, flags, domain, reserved[11]")


def whole() -> GreenResources:
    """Return all that the device has."""
    unit = _unit()
    return GreenResources(Multiprocessors(emulation().device.limits.processors, unit, unit), Queues(_connections()))


def _unit() -> int:
    """Return how many multiprocessors are never parted; fewer on a device smaller than any GPU, which can be split."""
    unit = _COSCHEDULED if emulation().settings.cc >= (9, 0) else _PAIR
    while unit > 1 and 2 * unit > emulation().device.limits.processors:
        unit //= 2
    return unit


def _pair() -> int:
    return min(_PAIR, _unit())


def _connections() -> int:
    """Source: CUDA Programming Guide, "CUDA Environment Variables", ``CUDA_DEVICE_MAX_CONNECTIONS``."""
    text = os.environ.get("CUDA_DEVICE_MAX_CONNECTIONS", "")
    return min(max(int(text), 1), 32) if text.isdecimal() else 8


def write(at: int, type_: int, resources: GreenResources) -> None:
    """Write the resource of a type to the caller's memory."""
    require(type_ in (SM, QUEUE_CONFIG, _QUEUE), Result.INVALID_RESOURCE_TYPE)
    require(at)
    words = {SM: resources.processors, QUEUE_CONFIG: (0, *resources.queues)}
    DevResource.from_address(at).set(type_, words.get(type_, ()))


@started("cuDeviceGetDevResource", "IPI")
def device_get_dev_resource(ordinal: int, resource: int, type_: int) -> None:
    """Write a resource of the device."""
    device.check(ordinal)
    write(resource, type_, whole())


# -- splits ---------------------------------------------------------------------------------------------------


def _input(at: int) -> Multiprocessors:
    """Read the multiprocessors to split, which must be no group of another split."""
    require(at)
    resource = DevResource.from_address(at)
    require(resource.type == SM, Result.INVALID_RESOURCE_TYPE)
    require(
        resource.origin in (_QUERIED, _REMAINDER),
        Result.INVALID_RESOURCE_CONFIGURATION,
        "a group of a split can't be split again: make a green context of it, and split what that has",
    )
    return Multiprocessors(*resource.words[:3])


def _store(results: int, remainder: int, groups: list[Multiprocessors], rest: int) -> None:
    split, bytes_each = next(_splits), ctypes.sizeof(DevResource)
    for k, group in enumerate(groups if results else ()):
        DevResource.from_address(results + k * bytes_each).set(SM, group, _GROUP, split)
    if remainder:
        words = (rest, _pair(), _pair()) if rest else ()  # what is left lies together in pairs at most
        DevResource.from_address(remainder).set(SM if rest else _NONE, words, _REMAINDER, split)


@started("cuDevSmResourceSplitByCount", "PPPPUU")
def dev_sm_resource_split_by_count(
    results: int, count: int, resource: int, remainder: int, flags: int, least: int
) -> None:
    """Split multiprocessors into groups of one size, or count the groups that there would be."""
    found = _input(resource)
    require(count and least <= found.sms and flags in (0, _EACH_ALONE, _LARGEST_CLUSTERS))
    is_wide = emulation().settings.cc >= (9, 0)
    require(flags != _LARGEST_CLUSTERS or is_wide)
    unit = {_EACH_ALONE: _pair(), _LARGEST_CLUSTERS: _LARGEST_CLUSTER}.get(flags, _unit())
    size = max(-(-least // unit), 1) * unit
    groups = found.sms // size
    if results:
        groups = min(groups, ctypes.c_uint32.from_address(count).value)
        words = f"{found.sms} SMs can't be split into groups of {size}"
        require(groups, Result.INVALID_RESOURCE_CONFIGURATION, words)
    store_u32(count, groups)
    _store(results, remainder, [Multiprocessors(size, unit, unit)] * groups, found.sms - groups * size)


@started("cuDevSmResourceSplit", "PUPPUP")
def dev_sm_resource_split(results: int, count: int, resource: int, remainder: int, flags: int, parameters: int) -> None:
    """Split SMs into the described groups, and write the sizes of groups that specify none."""
    found = _input(resource)
    require(count and parameters and not flags)
    left, groups = found.sms, []
    for k in range(count):
        wanted = _GroupParams.from_address(parameters + k * ctypes.sizeof(_GroupParams))
        group = _group(wanted, found.sms, left)
        if results:
            require(group.sms >= group.together, Result.INVALID_RESOURCE_CONFIGURATION, f"group {k} has too few SMs")
        wanted.count = group.sms
        groups.append(group)
        left -= group.sms
    _store(results, remainder, groups, left)


def _group(wanted: _GroupParams, total: int, left: int) -> Multiprocessors:
    """Choose the multiprocessors of one group from the remaining ones."""
    together = wanted.together or _unit()
    most = _MOST_TOGETHER if emulation().settings.cc >= (9, 0) else _PAIR
    require(not wanted.together % _PAIR and together <= most and not any(wanted.reserved))
    refused = Result.INVALID_RESOURCE_CONFIGURATION
    require(not wanted.flags & ~_BACKFILL, refused, "the emulated device doesn't have locality domains")
    unit = _pair() if wanted.flags & _BACKFILL else together
    if wanted.count:
        require(_PAIR <= wanted.count <= total and not wanted.count % _PAIR)
        require(not wanted.together or not wanted.count % unit)
        require(wanted.count <= left, refused, f"{wanted.count} SMs are more than the {left} remaining SMs")
    return Multiprocessors(wanted.count or left // unit * unit, together, together)


# -- descriptors ----------------------------------------------------------------------------------------------

_DESCRIBED: dict[int, GreenResources] = {}
"""What descriptors say, which stay valid as long as there is a process."""


@started("cuDevResourceGenerateDesc", "PPU")
def dev_resource_generate_desc(out: int, resources: int, count: int) -> None:
    """Describe the resources of a green context."""
    require(out and resources and count)
    each = (DevResource * count).from_address(resources)
    kinds = [resource.type for resource in each]
    require(all(kind in (SM, QUEUE_CONFIG, _QUEUE) for kind in kinds), Result.INVALID_RESOURCE_TYPE)
    refused = Result.INVALID_RESOURCE_CONFIGURATION
    require(kinds.count(QUEUE_CONFIG) + kinds.count(_QUEUE) <= 1, refused, "work queues are specified twice")
    handle = new_cell(CellKind.RESOURCES)
    _DESCRIBED[handle] = GreenResources(
        _joined([resource for resource in each if resource.type == SM]),
        next((Queues(*resource.words[1:3]) for resource in each if resource.type == QUEUE_CONFIG), whole().queues),
    )
    store_u64(out, handle)


def _joined(parts: list[DevResource]) -> Multiprocessors:
    """Combine the groups of one split. Without groups, return the whole device."""
    if not parts:
        return whole().processors
    first, refused = parts[0], Result.INVALID_RESOURCE_CONFIGURATION
    if len(parts) > 1:
        same = all(part.origin != _QUERIED and part.split == first.split for part in parts)
        require(same, refused, "SMs of one green context must be groups of one split")
        require(all(part.words[2] == first.words[2] for part in parts), refused, "the groups have different alignments")
    return Multiprocessors(sum(part.words[0] for part in parts), *first.words[1:3])


def described(handle: int) -> GreenResources:
    """Return the resources of a descriptor."""
    return got(_DESCRIBED.get(handle if cell_is(handle, CellKind.RESOURCES) else 0))
