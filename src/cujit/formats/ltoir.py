"""LTO-IR: the header in front of a body that only NVIDIA's linker reads.

Source: the headers that NVRTC 12.4 to 13.5 writes, compared over architectures and options.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

from cujit.arch import Arch, ArchKind
from cujit.arch.support import Version
from cujit.artifact import magic
from cujit.errors import ArchError, FormatError, spell
from cujit.values import dataclass

_HEADER = struct.Struct("<I6BHHHII")
_TAG = struct.Struct("<HH")
_TAG_ARCH, _TAG_SPECIFIC, _TAG_END = 1, 0x20, 0x63
# IR minor version -> the toolkit that writes it.
# Source: NVRTC of each of these releases was run.
_TOOLKITS: dict[int, Version] = {
    0x47: (12, 4),
    0x54: (12, 6),
    0x59: (12, 8),
    0x5D: (12, 9),
    0x62: (13, 0),
    0x6B: (13, 1),
    0x72: (13, 2),
    0x73: (13, 3),
    0x78: (13, 4),
    0x83: (13, 5),
}
_FIRST_CONTAINER_13 = 0x41


@dataclass(frozen=True)
class Ltoir:
    """Contents of an LTO-IR header: ``arch``, and the versions of its writer.

    ``container_version`` and ``ir_version`` are the recorded versions. A linker accepts its own version and older
    versions. ``toolkit`` is the CUDA release that writes that IR version, or None if the version is in no table. The
    ``f`` of a family-specific architecture is not recorded.
    """

    arch: Arch
    container_version: Version
    ir_version: Version
    toolkit: Version | None


def read_ltoir(data: bytes) -> Ltoir:
    """Read the header of LTO-IR.

    Raises:
        FormatError: it is no LTO-IR, is cut inside its header, or names no architecture.
    """
    if len(data) < _HEADER.size:
        raise FormatError(f"the LTO-IR is truncated in its header, after {len(data)} bytes", offset=len(data))
    first, container, container_minor, ir, ir_minor = _HEADER.unpack_from(data)[:5]
    if first != int.from_bytes(magic.LTOIR, "little"):
        raise FormatError(f"the data is not LTO-IR: it begins with {spell(data[:4])}", offset=0)
    tags = dict(_tags(data))
    if _TAG_ARCH not in tags:
        raise FormatError("the LTO-IR doesn't specify an architecture", offset=_HEADER.size)
    number = tags[_TAG_ARCH] // 10
    if number == 101 and container_minor >= _FIRST_CONTAINER_13:
        number = 110  # CUDA 13.0 renamed 10.1 to 11.0; the IR kept the old number
    try:
        arch = Arch(ArchKind.LTO, number, "a" if tags.get(_TAG_SPECIFIC) else "")
    except ArchError as e:
        raise FormatError(f"the LTO-IR has the unknown architecture {tags[_TAG_ARCH]}", offset=_HEADER.size) from e
    return Ltoir(arch, (container, container_minor), (ir, ir_minor), _TOOLKITS.get(ir_minor))


def _tags(data: bytes) -> Iterator[tuple[int, int]]:
    """The pairs after the fixed header, up to the one that ends them."""
    at = _HEADER.size
    while at + _TAG.size <= len(data):
        tag, value = _TAG.unpack_from(data, at)
        if tag == _TAG_END:
            return
        yield tag, value
        at += _TAG.size
    raise FormatError("the LTO-IR is truncated in its header", offset=len(data))
