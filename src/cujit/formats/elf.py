"""ELF files, 64-bit and little-endian: header, sections, symbols and notes, checked before they are used.

Source: System V ABI (gABI), chapters 4 "Object Files" and 5 "Program Loading".
"""

from __future__ import annotations

import struct

from cujit.artifact import magic
from cujit.errors import FormatError, spell
from cujit.forks import cached_property
from cujit.values import NamedTuple, dataclass, field

_CLASS_64, _LITTLE_ENDIAN, _CURRENT, _REL = 2, 1, 1, 1
_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_NOTE = struct.Struct("<III")
_PROGRAM_BYTES = 56
_NOBITS = 8
_XINDEX = 0xFFFF
_MAX_STRING_BYTES = 1 << 16


class Section(NamedTuple):
    """One section header; ``offset`` and ``size`` count bytes, ``link`` and ``info`` depend on the type."""

    index: int  # type: ignore[assignment]  # hides tuple.index
    name: str
    type: int
    flags: int
    offset: int
    size: int
    link: int
    info: int
    entry_bytes: int
    align: int

    @property
    def is_in_file(self) -> bool:
        """Whether the section has bytes in the file (not so for zero-initialised memory)."""
        return self.type != _NOBITS


class _SymbolRow(NamedTuple):
    index: int  # type: ignore[assignment]  # hides tuple.index
    name: str
    type: int
    binding: int
    other: int
    section: int
    value: int
    size: int


class ElfSymbol(_SymbolRow):
    """One symbol; ``section`` is an index, 0 where the symbol is undefined. Source: gABI, "Symbol Table"."""

    __slots__ = ()

    NOTYPE, OBJECT, FUNCTION, SECTION = 0, 1, 2, 3
    LOCAL, GLOBAL, WEAK = 0, 1, 2


@dataclass(frozen=True)
class Note:
    """One ELF note: its owner, its type, and its bytes."""

    owner: str
    type: int
    content: bytes = field(repr=False)


@dataclass(frozen=True)
class Elf:
    """One ELF file. ``length`` is the end of its tables and sections, which may be before the end of the data."""

    data: bytes = field(repr=False)
    os_abi: int
    abi_version: int
    type: int
    machine: int
    version: int
    flags: int
    sections: tuple[Section, ...] = field(repr=False)
    length: int

    def section(self, name: str) -> Section | None:
        """Find the first section of that name."""
        return self._by_name.get(name)

    @cached_property
    def _by_name(self) -> dict[str, Section]:
        return {s.name: s for s in reversed(self.sections)}

    def content(self, section: Section) -> bytes:
        """Return a section's bytes. Return empty bytes for zero-initialized memory."""
        return self.data[section.offset : section.offset + section.size] if section.is_in_file else b""

    def symbols(self, name: str = ".symtab", *, skip: int | None = None) -> tuple[ElfSymbol, ...]:
        """Return the symbols of a table, except symbols of the type ``skip``. Return an empty tuple if there is no such
        table.

        Raises:
            FormatError: the table is truncated, or a name is outside the string table.
        """
        table = self.section(name)
        if table is None:
            return ()
        if table.size % _SYMBOL.size or table.entry_bytes not in (0, _SYMBOL.size):
            raise FormatError(f"the symbol table {name} has an invalid size of {table.size} bytes", offset=table.offset)
        if table.link >= len(self.sections):
            raise FormatError(f"the symbol table {name} has no string table", offset=table.offset)
        text = _Strings(self.data, self.sections[table.link]).at
        rows = enumerate(_SYMBOL.iter_unpack(self.content(table)))
        return tuple(
            ElfSymbol(index, text(name_at), info & 15, info >> 4, other, section, value, size)
            for index, (name_at, info, other, section, value, size) in rows
            if info & 15 != skip
        )

    def notes(self, section: Section) -> tuple[Note, ...]:
        """Return the notes of a section.

        Raises:
            FormatError: a note extends past the end of the section.
        """
        content, notes, at = self.content(section), [], 0
        while at < len(content):
            if len(content) - at < _NOTE.size:
                raise FormatError(f"a note in {section.name} is truncated", offset=section.offset + at)
            owner_bytes, note_bytes, kind = _NOTE.unpack_from(content, at)
            start = at + _NOTE.size + _padded(owner_bytes, 4)
            if start + note_bytes > len(content):
                raise FormatError(f"a note in {section.name} is truncated", offset=section.offset + at)
            owner = content[at + _NOTE.size : at + _NOTE.size + owner_bytes].rstrip(b"\0")
            notes.append(Note(_text(owner), kind, content[start : start + note_bytes]))
            at = start + _padded(note_bytes, 4)
        return tuple(notes)


class _Strings:
    """A string table, read lazily. Every byte of it may be spent a few times, not once per symbol."""

    def __init__(self, data: bytes, section: Section) -> None:
        self._data = data
        self._start = section.offset
        self._end = section.offset + section.size if section.is_in_file else section.offset
        self._budget = 32 * section.size + _MAX_STRING_BYTES
        self._known: dict[int, str] = {}

    def at(self, offset: int) -> str:
        """The string that starts at ``offset`` of the table."""
        known = self._known.get(offset)
        if known is not None:
            return known
        start = self._start + offset
        limit = start + _MAX_STRING_BYTES
        end = self._data.find(b"\0", start, limit if limit < self._end else self._end)
        if end < 0:
            return self._refuse(offset)
        self._budget -= end - start
        if self._budget < 0:
            raise FormatError("too many names overlap", offset=start)
        text = self._known[offset] = _text(self._data[start:end])
        return text

    def _refuse(self, offset: int) -> str:
        """Raise an error that explains why no string is there. An empty table still has the empty
        string at its start.
        """
        if self._start + offset < self._end:
            raise FormatError("a name is not terminated", offset=self._start + offset)
        if offset:
            raise FormatError(f"a name at {offset} is outside its string table", offset=self._start)
        return ""


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def _padded(size: int, align: int) -> int:
    return -(-size // align) * align


_Raw = tuple[int, int, int, int, int, int, int, int, int, int]


class _Tables(NamedTuple):
    """The header, the bare section table, and where all of the file ends."""

    ident: bytes
    type: int
    machine: int
    version: int
    flags: int
    names: int
    rows: list[_Raw]
    rows_at: int
    length: int


def read_elf(data: bytes) -> Elf:
    """Read the header and the section table of an ELF file. The position of every section is checked.

    Raises:
        FormatError: the data is not a 64-bit little-endian ELF file, or a table or section extends past its end.
    """
    found = _read_tables(data)
    ident, kind, machine, version, flags = found[:5]
    return Elf(data, ident[7], ident[8], kind, machine, version, flags, _sections(data, found), found.length)


def bare_header() -> bytes:
    """Return the header of a relocatable ELF file that names no machine and has no section.

    Source: System V gABI, "ELF Header".
    """
    mark = magic.ELF + bytes((_CLASS_64, _LITTLE_ENDIAN, _CURRENT))
    return _HEADER.pack(mark, _REL, 0, _CURRENT, 0, 0, 0, 0, _HEADER.size, 0, 0, 0, 0, 0)


def elf_length(data: bytes, available: int | None = None) -> int:
    """Return the length of an ELF file, which is computed from its header and its tables only.

    ``available`` is the size of the file if ``data`` is only its beginning, up to ``tables_end``.

    Raises:
        FormatError: as in ``read_elf``, except for names.
    """
    return _read_tables(data, available).length


def tables_end(head: bytes) -> int:
    """Return where the tables end that an ELF header names. If it cannot count all sections, only the first is
    included.

    Raises:
        FormatError: it is no 64-bit little-endian ELF file.
    """
    *_, program_at, table_at, _, header_bytes, program_bytes, programs, section_bytes, count, _ = _header(head)
    return max(header_bytes, program_at + programs * program_bytes, table_at + max(count, 1) * section_bytes)


def elf_type(data: bytes) -> int:
    """Return the type in the header of an ELF file: 1 relocatable, 2 executable, 3 shared.

    Raises:
        FormatError: it is no 64-bit little-endian ELF file.
    """
    kind: int = _header(data)[1]
    return kind


def _header(data: bytes) -> tuple[bytes, int, int, int, int, int, int, int, int, int, int, int, int, int]:
    if len(data) < _HEADER.size or data[: len(magic.ELF)] != magic.ELF:
        raise FormatError(
            f"the data is not an ELF file: it begins with {spell(data[:8])} and is {len(data)} bytes long", offset=0
        )
    if data[4] != _CLASS_64 or data[5] != _LITTLE_ENDIAN:
        raise FormatError("the ELF file is not 64-bit little-endian", offset=4)
    return _HEADER.unpack_from(data)


def _read_tables(data: bytes, available: int | None = None) -> _Tables:
    ident, kind, machine, version, _entry, program_at, table_at, flags, header_bytes, *counts = _header(data)
    program_bytes, program_count, section_bytes, count, names = counts
    if program_count and program_bytes != _PROGRAM_BYTES:
        raise FormatError(f"the program headers are {program_bytes} bytes long", offset=54)
    available = len(data) if available is None else available
    length = max(header_bytes, _HEADER.size)
    if program_count:
        length = max(length, program_at + program_count * program_bytes)
    rows = _section_rows(data, table_at, section_bytes, count)
    if rows:
        length = max(length, table_at + len(rows) * _SECTION.size, _end_of(rows, table_at, available))
        names = rows[0][6] if names == _XINDEX else names
    if length > available:
        raise FormatError(
            f"the ELF file should be {length} bytes long, but is truncated after {available}", offset=available
        )
    return _Tables(ident, kind, machine, version, flags, names, rows, table_at, length)


def _section_rows(data: bytes, at: int, entry_bytes: int, count: int) -> list[_Raw]:
    if at == 0:
        return []
    if entry_bytes != _SECTION.size:
        raise FormatError(f"the ELF section headers are {entry_bytes} bytes long", offset=58)
    if at + _SECTION.size > len(data):
        raise FormatError(f"the section table at {at} is outside the {len(data)} bytes of the file", offset=40)
    if count == 0:  # more than fit into the header: the first section tells
        count = _SECTION.unpack_from(data, at)[5]
    end = at + count * _SECTION.size
    if end > len(data):
        raise FormatError(
            f"the table of {count} sections ends at {end}, beyond the {len(data)} bytes of the file", offset=40
        )
    return list(_SECTION.iter_unpack(data[at:end]))


def _end_of(rows: list[_Raw], table_at: int, available: int) -> int:
    """Return the end of the last section. The first header is skipped, because a large file stores counts in it."""
    last = 0
    for i, row in enumerate(rows):
        end = row[4] + row[5]
        if end > last and i and row[1] not in (0, _NOBITS):
            last = end
            if end > available:
                where = table_at + i * _SECTION.size
                raise FormatError(
                    f"section {i} ends at {end}, past the end of the file of {available} bytes", offset=where
                )
    return last


def _sections(data: bytes, found: _Tables) -> tuple[Section, ...]:
    rows = found.rows
    if not rows:
        return ()
    if found.names >= len(rows):
        raise FormatError(
            f"the section names should be in section {found.names}, but there are only {len(rows)} sections", offset=62
        )
    text = _Strings(data, _section(found.names, "", rows[found.names])).at
    return tuple([_section(i, text(row[0]), row) for i, row in enumerate(rows)])


def _section(index: int, name: str, row: _Raw) -> Section:
    _, kind, flags, _, offset, size, link, info, align, entry_bytes = row
    if kind == 0 or index == 0:
        offset = size = 0
    return Section(index, name, kind, flags, offset, size, link, info, entry_bytes, align)
