"""Sections of host files: objects, libraries, executables, and archives of objects.

Source: System V ABI (gABI); ar(5), the System V and GNU variants.
"""

from __future__ import annotations

from collections.abc import Iterator

from cujit.artifact import magic
from cujit.errors import FormatError, spell
from cujit.formats.elf import read_elf

_AR_HEADER_BYTES = 60
_AR_HEADER_END = b"`\n"


def places_of_sections(data: bytes, names: tuple[str, ...]) -> Iterator[tuple[int, int]]:
    """Yield where each section of these names starts and ends, in an ELF file or in the ELF files of an archive.

    Raises:
        FormatError: the file is neither, or it or a member of it is damaged.
    """
    if data.startswith(magic.ELF):
        yield from _in_elf(data, names, 0)
    elif data.startswith(magic.ARCHIVE):
        for start, end in _members(data):
            if data.startswith(magic.ELF, start):
                yield from _in_member(data[start:end], names, start)
    elif data.startswith(magic.THIN_ARCHIVE):
        raise FormatError("a thin archive doesn't contain its members", offset=0, help="pass its object files instead")
    else:
        raise FormatError(
            f"expected a fatbin, an ELF file or an archive; the file begins with {spell(data[:8])}", offset=0
        )


def _in_elf(data: bytes, names: tuple[str, ...], base: int) -> list[tuple[int, int]]:
    """The places, counted from ``base`` bytes before ``data``."""
    return [
        (base + s.offset, base + s.offset + s.size) for s in read_elf(data).sections if s.name in names and s.is_in_file
    ]


def _in_member(data: bytes, names: tuple[str, ...], start: int) -> list[tuple[int, int]]:
    try:
        return _in_elf(data, names, start)
    except FormatError as e:
        raise FormatError(f"the archive member at {start}: {e.message}", offset=start) from e


def _members(data: bytes) -> Iterator[tuple[int, int]]:
    """Where each member's content starts and ends."""
    at = len(magic.ARCHIVE)
    while at < len(data):
        header = data[at : at + _AR_HEADER_BYTES]
        digits = header[48:58].strip()
        if len(header) < _AR_HEADER_BYTES or not header.endswith(_AR_HEADER_END) or not digits.isdigit():
            raise FormatError("an archive member has no header", offset=at)
        start = at + _AR_HEADER_BYTES
        end = start + int(digits)
        if end > len(data):
            raise FormatError(f"an archive member of {int(digits)} bytes is truncated", offset=at)
        yield start, end
        at = end + end % 2
