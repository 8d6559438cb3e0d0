"""Containers, which replace cubins under ``cujit emulate`` and contain the PTX that runs instead.

A container is an ELF file for CUDA's machine, and its header contains the architecture. Therefore, caches, files,
fatbins, and pickles for cubins also accept containers. Its sections are the PTX, the name of the architecture, the
replaced cubin if there is one, and the section names. Only the emulator's driver loads a container.
"""

from __future__ import annotations

import struct

from cujit.arch import Arch
from cujit.artifact import magic
from cujit.errors import ArchError, FormatError, spell
from cujit.values import NamedTuple

# Source: System V gABI, "ELF Header" and "Sections"; cubins of CUDA 13.5 for machine, OS ABI, ABI version and flags.
_HEADER = struct.Struct("<4s5B7sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_LITTLE_ENDIAN_64 = (2, 1, 1)
_OS_ABI, _ABI = 0x41, 8
_RELOCATABLE, _EXECUTABLE, _NOTHING, _CONTENT, _STRINGS = 1, 2, 0, 1, 3
_ACCELERATED = 0x8

_MARK = b"cujit\0\1"
"""What a container has in the bytes of ELF's identification that nobody else uses."""

_MARK_AT = slice(9, 16)
_NAMES = b"\0.cujit.ptx\0.cujit.arch\0.cujit.cubin\0.shstrtab\0"
_SECTIONS = 5

HEADER_BYTES = _HEADER.size
"""How much of a container says how long it is."""


class Container(NamedTuple):
    """Contents of a container.

    ``arch`` is the architecture in its header, and ``is_relocatable`` is whether it must still be linked. ``cubin`` is
    the cubin compiled from the PTX, or empty. The resource usage of kernels is known only from this cubin.
    """

    ptx: bytes
    arch: Arch
    is_relocatable: bool = False
    cubin: bytes = b""


def write_container(held: Container) -> bytes:
    """Write a container.

    Example:
        >>> read_container(write_container(Container(b".version 8.0", Arch.parse("sm_90a"))))
        Container(ptx=b'.version 8.0', arch=Arch('sm_90a'), is_relocatable=False, cubin=b'')
    """
    rows, at, name_at = [_SECTION.pack(0, _NOTHING, 0, 0, 0, 0, 0, 0, 0, 0)], _HEADER.size, 1
    contents = (held.ptx, str(held.arch.real).encode(), held.cubin, _NAMES)
    for content in contents:
        kind = _STRINGS if content is _NAMES else _CONTENT
        rows.append(_SECTION.pack(name_at, kind, 0, 0, at, len(content), 0, 0, 1, 0))
        at, name_at = at + len(content), _NAMES.index(b"\0", name_at) + 1
    table_at = -(-at // 8) * 8
    identity = (magic.ELF, *_LITTLE_ENDIAN_64, _OS_ABI, _ABI, _MARK)
    type_of_file = _RELOCATABLE if held.is_relocatable else _EXECUTABLE
    flags = held.arch.number << 8 | _ACCELERATED * (held.arch.suffix == "a")
    sizes = (_HEADER.size, 0, 0, _SECTION.size, _SECTIONS, _SECTIONS - 1)
    header = _HEADER.pack(*identity, type_of_file, magic.EM_CUDA, 1, 0, 0, table_at, flags, *sizes)
    return b"".join((header, *contents)).ljust(table_at, b"\0") + b"".join(rows)


def is_container(data: bytes) -> bool:
    """Return whether the data begins like a container."""
    return data[:4] == magic.ELF and data[_MARK_AT] == _MARK


def container_bytes(head: bytes) -> int:
    """Return the length of a container, from its first ``HEADER_BYTES``.

    Raises:
        FormatError: they are not.
    """
    if len(head) < _HEADER.size:
        raise FormatError("the PTX container is truncated", offset=len(head))
    table_at: int = _HEADER.unpack_from(head)[12]
    return table_at + _SECTIONS * _SECTION.size


def read_container(data: bytes) -> Container | None:
    """Return the contents of a container, or None if the data is not a container.

    Raises:
        FormatError: the container is truncated or was changed.
    """
    if not is_container(data):
        return None
    end = container_bytes(data)
    if len(data) < end:
        raise FormatError("the PTX container is truncated", offset=len(data))
    table_at = end - _SECTIONS * _SECTION.size
    ptx, arch, cubin = (_content(data, table_at + index * _SECTION.size) for index in (1, 2, 3))
    try:
        name = arch.decode("ascii")
        return Container(ptx, Arch.parse(name).real, _HEADER.unpack_from(data)[7] == _RELOCATABLE, cubin)
    except (UnicodeDecodeError, ArchError) as e:
        raise FormatError(f"the PTX container has an invalid architecture: {spell(arch[:32])}") from e


def _content(data: bytes, row_at: int) -> bytes:
    _, _, _, _, start, size, *_ = _SECTION.unpack_from(data, row_at)
    if start + size > len(data):
        raise FormatError("a section of the PTX container extends past the container's end", offset=row_at)
    return data[start : start + size]
