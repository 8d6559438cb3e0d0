"""The ``.nv.info`` records of a cubin: ptxas's information for the driver about a module and its kernels.

Source: records of cubins of CUDA 12.0 to 13.5, compared with NVIDIA's own dump of the same files.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterable

from cujit.errors import FormatError
from cujit.values import NamedTuple


class Attribute(enum.IntEnum):
    """The attributes that cujit reads; names as NVIDIA's dump prints them."""

    MAX_THREADS = 0x05
    PARAM_CBANK = 0x0A
    REQNTID = 0x10
    FRAME_SIZE = 0x11
    MIN_STACK_SIZE = 0x12
    KPARAM_INFO = 0x17
    CBANK_PARAM_SIZE = 0x19
    MAXREG_COUNT = 0x1B
    REGCOUNT = 0x2F
    NUM_MBARRIERS = 0x38
    CTA_PER_CLUSTER = 0x3D
    MAX_CLUSTER_RANK = 0x3F
    KPARAM_INFO_V2 = 0x45
    VRC_CTA_INIT_COUNT = 0x4A
    NUM_BARRIERS = 0x4C


_NOTHING, _BYTE, _HALF, _SIZED = 1, 2, 3, 4  # formats of records
_HEAD = struct.Struct("<BBH")


class InfoRecord(NamedTuple):
    """One record: its attribute, its value (in the short formats) or its bytes, and its offset in the file."""

    attribute: int
    value: int
    content: bytes
    offset: int

    def words(self, count: int) -> tuple[int, ...]:
        """Read the content as ``count`` 32-bit words.

        Raises:
            FormatError: the record is shorter.
        """
        try:
            return struct.unpack_from(f"<{count}I", self.content)
        except struct.error:
            size = len(self.content)
            raise FormatError(
                f"the record {self.attribute:#x} contains {size} bytes, expected {4 * count}", offset=self.offset
            ) from None


def read_records(content: bytes, base: int) -> list[InfoRecord]:
    """Return the records of one section. ``base`` is its offset in the file.

    Raises:
        FormatError: a record has an unknown format or extends past the end of the section.
    """
    records, at, end, head = [], 0, len(content), _HEAD.unpack_from
    while at < end:
        if end - at < _HEAD.size:
            raise FormatError("a record is truncated", offset=base + at)
        kind, attribute, half = head(content, at)
        after = at + 4
        if kind == _SIZED:
            after += half
            if after > end:
                raise FormatError(f"a record of {half} bytes extends past its section", offset=base + at)
            records.append(InfoRecord(attribute, 0, content[at + 4 : after], base + at))
        elif _NOTHING <= kind <= _HALF:
            value = half if kind == _HALF else half & 0xFF if kind == _BYTE else 0
            records.append(InfoRecord(attribute, value, b"", base + at))
        else:
            raise FormatError(f"a record has the unknown format {kind}", offset=base + at)
        at = after
    return records


def symbol_values(records: Iterable[InfoRecord], attributes: Iterable[Attribute]) -> dict[int, dict[int, int]]:
    """Return the numbers that records assign to symbols, by attribute and symbol index.

    Raises:
        FormatError: a record is too short.
    """
    values: dict[int, dict[int, int]] = {int(attribute): {} for attribute in attributes}
    for record in records:
        of_symbol = values.get(record.attribute)
        if of_symbol is not None:
            symbol, value = record.words(2)
            of_symbol[symbol] = value
    return values


class KernelParameter(NamedTuple):
    """One parameter as recorded in the cubin. ``is_pointer`` is also False if the cubin doesn't record the kind."""

    ordinal: int
    offset: int
    size: int
    is_pointer: bool


_SPACE_GENERIC = 5


def parameter_of(record: InfoRecord) -> KernelParameter:
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
