"""The ``.nv.info`` records of a cubin: what ptxas notes for the driver about a module and its kernels.

Source: records of cubins of CUDA 12.0 to 13.5, read beside NVIDIA's own dump of the same files.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from cujit.errors import FormatError

__all__ = ["Attribute", "KernelParameter", "Record", "parameter_of", "read_records", "symbol_values"]


class Attribute(enum.IntEnum):
    """The attributes that cujit reads; names as NVIDIA's dump prints them."""

    MAX_THREADS = 0x05
    PARAM_CBANK = 0x0A
    REQNTID = 0x10
    FRAME_SIZE = 0x11
    MIN_STACK_SIZE = 0x12
    KPARAM_INFO = 0x17
    MAXREG_COUNT = 0x1B
    REGCOUNT = 0x2F
    CTA_PER_CLUSTER = 0x3D
    KPARAM_INFO_V2 = 0x45
    NUM_BARRIERS = 0x4C


class _Format(enum.IntEnum):
    NOTHING = 1
    BYTE = 2
    HALF = 3
    SIZED = 4


@dataclass(frozen=True)
class Record:
    """One record: its attribute, its value (of the short formats) or its bytes, its place in the file."""

    attribute: int
    value: int
    content: bytes
    offset: int

    def words(self, count: int) -> tuple[int, ...]:
        """Read the content as ``count`` 32-bit words.

        Raises:
            FormatError: the record is shorter.
        """
        if len(self.content) < 4 * count:
            raise FormatError(
                f"record {self.attribute:#x} has {len(self.content)} of {4 * count} bytes", offset=self.offset
            )
        return struct.unpack_from(f"<{count}I", self.content)


def read_records(content: bytes, base: int) -> Iterator[Record]:
    """Read the records of one section; ``base`` is its offset in the file.

    Raises:
        FormatError: a record is of no known format or goes beyond the end of the section.
    """
    at = 0
    while at < len(content):
        if len(content) - at < 4:
            raise FormatError("a record cut off", offset=base + at)
        kind, attribute = content[at], content[at + 1]
        half = int.from_bytes(content[at + 2 : at + 4], "little")
        size = half if kind == _Format.SIZED else 0
        if kind not in (_Format.NOTHING, _Format.BYTE, _Format.HALF, _Format.SIZED):
            raise FormatError(f"a record of format {kind}", offset=base + at)
        if at + 4 + size > len(content):
            raise FormatError(f"a record of {size} bytes goes beyond its section", offset=base + at)
        value = {_Format.BYTE: half & 0xFF, _Format.HALF: half}.get(_Format(kind), 0)
        yield Record(attribute, value, content[at + 4 : at + 4 + size], base + at)
        at += 4 + size


def symbol_values(records: list[Record], attribute: Attribute) -> dict[int, int]:
    """Gather the records that give a number to a symbol: symbol index to number.

    Raises:
        FormatError: a record is shorter than that.
    """
    return dict(r.words(2)[:2] for r in records if r.attribute == attribute)  # type: ignore[misc]


@dataclass(frozen=True)
class KernelParameter:
    """One parameter as the cubin records it; ``is_pointer`` is False also where the cubin does not tell."""

    ordinal: int
    offset: int
    size: int
    is_pointer: bool


_SPACE_GENERIC = 5


def parameter_of(record: Record) -> KernelParameter:
    """Read a KPARAM_INFO record, of either version.

    Raises:
        FormatError: the record is shorter than its layout.
    """
    _, place, packed = record.words(3)
    space = packed >> 8 & 15
    size = packed >> 18
    if record.attribute == Attribute.KPARAM_INFO_V2:
        space = packed >> 24 & 15  # the attributes are in the upper half
        size = packed & 0xFFFF
    return KernelParameter(place & 0xFFFF, place >> 16, size, space == _SPACE_GENERIC)
