"""Recovery of the readable parts of damaged fatbins and of files with fatbins."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from itertools import islice

from cujit.artifact import magic
from cujit.errors import FormatError
from cujit.formats.fatbin_entry import FatbinEntry, Recent, read_entries
from cujit.values import dataclass

# Source: the layout of containers and entries as in ``fatbin`` and ``fatbin_entry``: magic, version 1, header of 16
# bytes, bytes of entries; an entry tells its header's bytes at 4 and its payload's at 8. Both are aligned to 8.
_CONTAINER = magic.FATBIN + b"\x01\x00\x10\x00"
_CONTAINER_BYTES = 16
_ENTRY_SIZES = struct.Struct("<4xIQ")
_ENTRY_BYTES = 64
_ALIGNMENT = 8
_MOST_PIECES = 1 << 15  # entries and containers; a file that lies can have the square of what it holds


@dataclass(frozen=True)
class Damaged:
    """An entry that cannot be read: where in the file it begins, in bytes, its length as far as known, and why."""

    offset: int
    size: int
    why: str


def salvage(data: bytes) -> tuple[tuple[FatbinEntry | Damaged, ...], ...]:
    """Find the containers of a damaged file by their magic numbers, and read the readable parts of each.

    Only damaged entries, and entries after a wrong length, are lost. Offsets count from the start of ``data``.
    """
    found: list[tuple[FatbinEntry | Damaged, ...]] = []
    pieces, recent = 0, Recent()
    at = data.find(_CONTAINER)
    while at >= 0 and pieces < _MOST_PIECES:
        if len(data) - at < _CONTAINER_BYTES:
            break
        size = int.from_bytes(data[at + 8 : at + 16], "little")
        end = at + _CONTAINER_BYTES + size
        inside = _entries(data, at + _CONTAINER_BYTES, min(end, len(data)), end, recent)
        entries = tuple(islice(inside, _MOST_PIECES - pieces))
        found.append(entries)
        pieces += 1 + len(entries)
        at = data.find(_CONTAINER, end if end <= len(data) else at + _CONTAINER_BYTES)
    return tuple(found)


def _entries(data: bytes, at: int, end: int, declared_end: int, recent: Recent) -> Iterator[FatbinEntry | Damaged]:
    """The entries of one container, which ends at ``end`` although it declares ``declared_end``."""
    while at < end:
        try:
            more, following = read_entries(data, at, end, recent)
        except FormatError as e:
            following = _following(data, at, end)
            place = "" if e.offset is None or e.offset == at else f", in the entry at byte {at}"
            yield Damaged(at, following - at, f"{e.message}{place}")
            at = following
            continue
        yield from more
        at = following
    if declared_end > end:
        yield Damaged(end, 0, f"the fatbin is truncated: {declared_end - end} bytes are missing")


def _following(data: bytes, at: int, end: int) -> int:
    """Return the offset of the next entry if the lengths of this one are plausible, otherwise the end."""
    if at + _ENTRY_BYTES > end:
        return end
    header, payload = _ENTRY_SIZES.unpack_from(data, at)
    following: int = at + header + payload
    return (
        following if header >= _ENTRY_BYTES and following <= end and following % _ALIGNMENT == at % _ALIGNMENT else end
    )
