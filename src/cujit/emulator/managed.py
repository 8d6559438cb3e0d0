"""Managed memory: advice and prefetches, which have no effect on its place.

Source: CUDA Driver API manual, ``cuMemAdvise``, ``cuMemPrefetchAsync`` and ``cuMemRangeGetAttribute``.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable

from cujit.emulator import device
from cujit.emulator.capture import not_captured
from cujit.emulator.entries import LEGACY_STREAM, in_any_context, load_u64, require
from cujit.emulator.machine import in_c
from cujit.emulator.structures import Block, BlockKind

_block_of = in_c("block_of", ctypes.c_void_p, ctypes.c_uint64)

_READ_MOSTLY, _PREFERRED, _ACCESSED, _PREFETCHED = range(1, 5)
"""What is kept of each part: attributes of ``CUmem_range_attribute``, by number."""

_TYPES, _ORDINALS = {5: _PREFERRED, 7: _PREFETCHED}, {6: _PREFERRED, 8: _PREFETCHED}
"""Attributes that say the kind of a place, or the ordinal of a device, of what others are about."""

_ADVICE = {1: _READ_MOSTLY, 3: _PREFERRED, 5: _ACCESSED}
"""What ``CUmem_advise`` sets; the next number takes it back."""

_NOWHERE, _ON_DEVICE, _ON_HOST = 0, 1, 2
_THE_HOST, _NO_DEVICE = -1, -2
_HOSTS = (2, 3, 4)
"""Source: CUDA Driver API manual, ``CUmemLocationType``, ``CU_DEVICE_CPU`` and ``CU_DEVICE_INVALID``."""

_PAGE = 4096

_Place = tuple[int, int]
"""A kind of place, and its number."""


class _ManagedBlock:
    """The advice for one allocation: values of ranges, newest first."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._marks: dict[tuple[int, _Place | None], list[tuple[int, int, _Place]]] = {}

    def mark(self, what: int, begin: int, end: int, place: _Place, key: _Place | None = None) -> None:
        """Set a value for all pages of a range. ``key`` distinguishes several values of one kind."""
        begin, end = begin // _PAGE * _PAGE, -(-end // _PAGE) * _PAGE
        marked = self._marks.setdefault((what, key), [])
        rest = [piece for b, e, v in marked for piece in ((b, min(e, begin), v), (max(b, end), e, v))]
        marked[:] = [piece for piece in rest if piece[0] < piece[1]]
        if place[0] != _NOWHERE:
            marked.append((begin, end, place))

    def marked(self, what: int, begin: int, end: int, key: _Place | None = None) -> _Place:
        """Return the value that all pages of a range have. Nowhere, if they differ or have none."""
        met = [
            (min(e, end) - max(b, begin), v) for b, e, v in self._marks.get((what, key), []) if b < end and begin < e
        ]
        is_same = sum(size for size, _ in met) == end - begin and len({value for _, value in met}) == 1
        return met[0][1] if is_same else (_NOWHERE, 0)


_BLOCKS: dict[int, _ManagedBlock] = {}
"""What was said, by the address of the allocation that it was said of last."""


def _managed(address: int, size: int) -> _ManagedBlock:
    """Return the advice for an allocation that contains a range.

    Raises:
        Refused: the range is not inside one allocation of managed memory.
    """
    at = _block_of(address)
    require(at and size)
    block = Block.from_address(at)
    require(block.kind == BlockKind.MANAGED and address + size <= block.begin + block.size)
    found = _BLOCKS.get(block.begin)
    if found is None or found.number != block.id:
        found = _BLOCKS[block.begin] = _ManagedBlock(block.id)
    return found


def _place_of(ordinal: int) -> _Place:
    if ordinal == _THE_HOST:
        return _ON_HOST, 0
    device.check(ordinal)
    return _ON_DEVICE, ordinal


def _place_in(location: int) -> _Place:
    """Read a location. A structure of eight bytes is passed as a number."""
    kind, ordinal = location & 0xFFFFFFFF, location >> 32
    require(kind == _ON_DEVICE or kind in _HOSTS)
    if kind == _ON_DEVICE:
        device.check(ordinal)
    return kind, ordinal


# -- advice -------------------------------------------------------------------------------------------------


def _advise(address: int, size: int, advice: int, location: int, place_of: Callable[[int], _Place]) -> None:
    require(1 <= advice <= 6)
    place = place_of(location) if advice not in (1, 2, 4) else (_NOWHERE, 0)
    block = _managed(address, size)
    what, is_set = _ADVICE[advice - 1 + advice % 2], bool(advice % 2)
    value = (_ON_DEVICE, 1) if what == _READ_MOSTLY else place
    block.mark(what, address, address + size, value if is_set else (_NOWHERE, 0), place if what == _ACCESSED else None)


@in_any_context("cuMemAdvise", "PPII")
def mem_advise_by_ordinal(address: int, size: int, advice: int, ordinal: int) -> None:
    """Store advice about the place of memory."""
    _advise(address, size, advice, ordinal, _place_of)


@in_any_context("cuMemAdvise_v2", "PPIP")
def mem_advise(address: int, size: int, advice: int, location: int) -> None:
    """Store advice about the place of memory."""
    _advise(address, size, advice, location, _place_in)


# -- bringing it somewhere ----------------------------------------------------------------------------------


def _prefetch(address: int, size: int, place: _Place, stream: int) -> None:
    block = _managed(address, size)
    not_captured(stream)
    block.mark(_PREFETCHED, address, address + size, place)


@in_any_context("cuMemPrefetchAsync", "PPIS")
def mem_prefetch_by_ordinal(address: int, size: int, ordinal: int, stream: int) -> None:
    """Prefetch memory, which is already in place."""
    _prefetch(address, size, _place_of(ordinal), stream)


@in_any_context("cuMemPrefetchAsync_v2", "PPPUS")
def mem_prefetch(address: int, size: int, location: int, flags: int, stream: int) -> None:
    """Prefetch memory, which is already in place."""
    require(not flags)
    _prefetch(address, size, _place_in(location), stream)


def _batch(pointers: int, sizes: int, count: int, flags: int, stream: int) -> list[tuple[int, int]]:
    """Read ranges, each in one allocation of managed memory."""
    require(pointers and sizes and count and not flags and stream > LEGACY_STREAM)
    found = [(load_u64(pointers, k), load_u64(sizes, k)) for k in range(count)]
    for address, size in found:
        _managed(address, size)
    not_captured(stream)
    return found


@in_any_context("cuMemDiscardBatchAsync", "PPPPS")
def mem_discard_batch(pointers: int, sizes: int, count: int, flags: int, stream: int) -> None:
    """Discard the contents of memory. They remain, which is allowed."""
    _batch(pointers, sizes, count, flags, stream)


@in_any_context("cuMemPrefetchBatchAsync cuMemDiscardAndPrefetchBatchAsync", "PPPPPPPS")
def mem_prefetch_batch(
    pointers: int,
    sizes: int,
    count: int,
    places: int,
    first: int,
    place_count: int,
    flags: int,
    stream: int,
) -> None:
    """Prefetch ranges, which are already in place. Each location applies to the ranges from an index on."""
    require(places and first and 0 < place_count <= count)
    ranges = _batch(pointers, sizes, count, flags, stream)
    begins = [load_u64(first, k) for k in range(place_count)]
    require(begins[0] == 0 and all(a < b for a, b in itertools.pairwise([*begins, count])))
    for begin, end, k in zip(begins, [*begins[1:], count], range(place_count), strict=True):
        place = _place_in(load_u64(places, k))
        for address, size in ranges[begin:end]:
            _prefetch(address, size, place, stream)


# -- what is asked ------------------------------------------------------------------------------------------


def _ordinal(place: _Place) -> int:
    kind, number = place
    return _NO_DEVICE if kind == _NOWHERE else number if kind == _ON_DEVICE else _THE_HOST


def _attribute(attribute: int, address: int, size: int, count: int) -> list[int]:
    """Return an attribute of a range as ``count`` numbers."""
    block, end = _managed(address, size), address + size
    if attribute == _ACCESSED:
        everywhere = ((_ON_DEVICE, 0), (_ON_HOST, 0))
        found = [_ordinal(place) for place in everywhere if block.marked(_ACCESSED, address, end, place)[0]]
        return (found + [_NO_DEVICE] * count)[:count]
    require(count == 1)
    what = _TYPES.get(attribute) or _ORDINALS.get(attribute, attribute)
    place = block.marked(what, address, end)
    return [place[1] if what == _READ_MOSTLY else place[0] if attribute in _TYPES else _ordinal(place)]


@in_any_context("cuMemRangeGetAttribute", "PPIPP")
def mem_range_get_attribute(out: int, bytes_: int, attribute: int, address: int, size: int) -> None:
    """Write the advice for a range."""
    _store_attribute(out, bytes_, attribute, address, size)


@in_any_context("cuMemRangeGetAttributes", "PPPPPP")
def mem_range_get_attributes(out: int, sizes: int, attributes: int, count: int, address: int, size: int) -> None:
    """Write several attributes of the advice for a range."""
    require(out and sizes and attributes and count)
    for k, attribute in enumerate((ctypes.c_int32 * count).from_address(attributes)):
        _store_attribute(load_u64(out, k), load_u64(sizes, k), attribute, address, size)


def _store_attribute(out: int, bytes_: int, attribute: int, address: int, size: int) -> None:
    require(out and bytes_ and bytes_ % 4 == 0 and 1 <= attribute <= 8)
    numbers = _attribute(attribute, address, size, bytes_ // 4)
    ctypes.memmove(out, (ctypes.c_int32 * len(numbers))(*numbers), bytes_)
