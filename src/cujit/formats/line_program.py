"""Line tables of cubins, which contain the source file and line of each part of the code.

Source: DWARF 2 and 4, 6.2 "Line Number Information"; cubins of CUDA 12.9 and 13.5 with tables of version 2 or 3.
Extended opcodes of NVIDIA (inlined calls, function names) are skipped.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

from cujit.errors import FormatError
from cujit.formats.elf import Elf, Section
from cujit.values import NamedTuple

_HEADER = struct.Struct("<IHI")
_REL, _RELA = 9, 4  # of sh_type
_END, _SET_ADDRESS = 1, 2  # extended opcodes
_COPY, _ADVANCE_PC, _ADVANCE_LINE, _SET_FILE, _CONST_ADD, _FIXED_ADVANCE = 1, 2, 3, 4, 8, 9
_MOST_VERSION = 4


class CubinLine(NamedTuple):
    """Where the code of a line begins: bytes from the begin of a section of code. The end of a sequence has line 0."""

    section: int
    offset: int
    file: str
    line: int


def code_lines(elf: Elf, name: str) -> list[CubinLine]:
    """Return the rows of a line table in order. Return an empty list if there is no such section.

    Raises:
        FormatError: the table is truncated or malformed.
    """
    table = elf.section(name)
    if table is None:
        return []
    try:
        return list(_rows(elf.content(table), _starts(elf, table)))
    except (IndexError, struct.error, ValueError) as e:
        raise FormatError(f"the line table {name} is truncated", offset=table.offset) from e


def _starts(elf: Elf, table: Section) -> dict[int, tuple[int, int]]:
    """Return the code section and offset of each address in the table, by the position of the address."""
    symbols = {symbol.index: symbol for symbol in elf.symbols()}
    found = {}
    for section in elf.sections:
        if section.type not in (_REL, _RELA) or section.info != table.index:
            continue
        layout = struct.Struct("<QQq" if section.type == _RELA else "<QQ")
        content = elf.content(section)
        for at, info, *addend in layout.iter_unpack(content[: len(content) // layout.size * layout.size]):
            symbol = symbols.get(info >> 32)
            if symbol is not None:
                found[at] = (symbol.section, symbol.value + sum(addend))
    return found


class _LineReader:
    """Reader of bytes from an offset on. Reading past the end raises IndexError."""

    def __init__(self, data: bytes, at: int) -> None:
        self.data, self.at = data, at

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def leb(self, *, signed: bool = False) -> int:
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value - (1 << shift) if signed and byte & 0x40 else value
            if shift > 63:
                raise ValueError("a number has more than 64 bits")

    def text(self) -> str:
        end = self.data.index(b"\0", self.at)
        found, self.at = self.data[self.at : end], end + 1
        return found.decode("utf-8", "backslashreplace")


def _rows(data: bytes, starts: Mapping[int, tuple[int, int]]) -> Iterator[CubinLine]:
    at = 0
    while at < len(data):
        length, version, header_bytes = _HEADER.unpack_from(data, at)
        end, begin = at + 4 + length, at + _HEADER.size + header_bytes
        if not at < end <= len(data) or begin > end or not 2 <= version <= _MOST_VERSION:
            raise ValueError("a unit extends past the end of its section")
        reader = _LineReader(data[:end], at + _HEADER.size)
        step = reader.byte()
        if version >= _MOST_VERSION:
            reader.byte()  # operations per instruction
        reader.byte()  # whether rows are statements
        base, span, first = struct.unpack_from("<bBB", data, reader.at)
        reader.at += 3
        lengths = [0, *(reader.byte() for _ in range(1, first))]
        files = list(_files(reader))
        reader.at = begin
        yield from _Program(reader, end, step, base, span, lengths, files, starts).rows()
        at = end


def _files(reader: _LineReader) -> Iterator[str]:
    folders = [""]
    while folder := reader.text():
        folders.append(folder)
    while name := reader.text():
        number, _, _ = reader.leb(), reader.leb(), reader.leb()
        yield f"{folders[number]}/{name}" if number else name


class _Program:
    """The state machine of one unit."""

    def __init__(
        self,
        reader: _LineReader,
        end: int,
        step: int,
        base: int,
        span: int,
        lengths: list[int],
        files: list[str],
        starts: Mapping[int, tuple[int, int]],
    ) -> None:
        self._reader, self._end, self._step, self._base, self._span = reader, end, step, base, max(span, 1)
        self._lengths, self._files, self._starts = lengths, files, starts
        self._reset()

    def _reset(self) -> None:
        self._section, self._offset, self._file, self._line = 0, 0, 1, 1

    def _row(self) -> CubinLine:
        file = self._files[self._file - 1] if 0 < self._file <= len(self._files) else ""
        return CubinLine(self._section, self._offset, file, self._line)

    def rows(self) -> Iterator[CubinLine]:
        reader = self._reader
        while reader.at < self._end:
            opcode = reader.byte()
            if opcode >= len(self._lengths):
                turns, line = divmod(opcode - len(self._lengths), self._span)
                self._offset += turns * self._step
                self._line += self._base + line
                yield self._row()
            elif opcode == 0:
                yield from self._extended()
            elif opcode == _COPY:
                yield self._row()
            else:
                self._standard(opcode)

    def _extended(self) -> Iterator[CubinLine]:
        reader = self._reader
        size = reader.leb()
        next_at = reader.at + size
        opcode = reader.byte() if size else 0
        if opcode == _SET_ADDRESS:
            self._section, self._offset = self._starts.get(reader.at, (0, 0))
        elif opcode == _END:
            yield CubinLine(self._section, self._offset, "", 0)
            self._reset()
        reader.at = next_at

    def _standard(self, opcode: int) -> None:
        reader = self._reader
        if opcode == _ADVANCE_PC:
            self._offset += reader.leb() * self._step
        elif opcode == _ADVANCE_LINE:
            self._line += reader.leb(signed=True)
        elif opcode == _SET_FILE:
            self._file = reader.leb()
        elif opcode == _CONST_ADD:
            self._offset += (255 - len(self._lengths)) // self._span * self._step
        elif opcode == _FIXED_ADVANCE:
            self._offset += reader.byte() | reader.byte() << 8
        else:
            for _ in range(self._lengths[opcode]):
                reader.leb()
