"""The line table of an object file from LLVM, which maps each piece of code to its source file and line."""

from __future__ import annotations

import io
import posixpath
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from cujit.values import NamedTuple

if TYPE_CHECKING:
    from elftools.elf.elffile import ELFFile

_ADDRESSES = (1, 257)
"""Kinds of relocations. Source: System V ABI for x86-64, R_X86_64_64, and ELF for the Arm 64-bit Architecture,
R_AARCH64_ABS64."""


class CodeLine(NamedTuple):
    """Where the code of a line begins, in bytes from the begin of its section; line 0 is of no file."""

    offset: int
    file: str
    line: int


def code_lines(data: bytes) -> list[CodeLine]:
    """List the lines of an object with one section of code, in the order of the code."""
    from elftools.elf.elffile import ELFFile  # start-up: only where lines are asked for

    file = ELFFile(io.BytesIO(data))
    first = _begins(file)
    rows: dict[int, CodeLine] = {}
    dwarf = file.get_dwarf_info(relocate_dwarf_sections=False)
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        states = [e.state for e in program.get_entries() if e.state is not None] if program is not None else []
        base = next(first, 0)
        for state in states:
            if state.end_sequence:
                base = next(first, 0)
            else:
                at = base + state.address
                rows[at] = CodeLine(at, _file_of(program, state.file), state.line)
    return [rows[at] for at in sorted(rows)]


def _begins(file: ELFFile) -> Iterator[int]:
    """Return the code offset at which each line sequence begins, from the relocations."""
    relocations = file.get_section_by_name(".rela.debug_line")
    every = relocations.iter_relocations() if relocations is not None else ()
    return iter([r["r_addend"] for r in every if r["r_info_type"] in _ADDRESSES])


def _file_of(program: Any, number: int) -> str:
    """Spell a file of version 4 of the tables, which counts from 1. Source: DWARF 4, 6.2.4, "file_names"."""
    entry = program["file_entry"][number - 1]
    folder = program["include_directory"][entry.dir_index - 1] if entry.dir_index else b""
    return posixpath.join(folder, entry.name).decode("utf-8", "backslashreplace")
