"""Which line of the PTX an instruction of a kernel's machine code comes from.

Machine code carries no lines: they would cost time whenever a kernel is compiled. When somebody asks, the kernel is
compiled once more with them. They change nothing of the code, which is looked after.
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import io
import re
from collections.abc import Callable

from cujit.devices.jit import emit_object
from cujit.formats.elf import read_elf

__all__ = ["MachineLines", "with_lines"]

_LONGEST = 1_000_000
"""Characters of IR beyond which a kernel is not compiled again: some seconds."""

_ADDRESS_BYTES = 8
_ADDRESSES = (1, 257)
"""Kinds of relocations. Source: System V ABI for x86-64, R_X86_64_64, and ELF for the Arm 64-bit Architecture,
R_AARCH64_ABS64."""

# Numbers of metadata, beyond all that a kernel has.
_UNIT, _VERSION, _FILE, _TYPE, _FIRST = range(900_000, 900_005)


class MachineLines:
    """The lines of one kernel's machine code, found when they are first asked for.

    ``write`` writes the IR with comments as of ``Builder``; ``code`` is where its machine code lies, and its bytes.
    """

    def __init__(self, write: Callable[[], str], code: tuple[int, int]) -> None:
        self._write = write
        self._code = code

    def line_of(self, address: int) -> int:
        """Find the line of the PTX of the instruction at an address; 0 where that is not known."""
        starts, lines = self._table
        at = bisect.bisect_right(starts, address - self._code[0]) - 1
        while at >= 0 and not lines[at]:
            at -= 1
        return lines[at] if at >= 0 else 0

    @functools.cached_property
    def _table(self) -> tuple[list[int], list[int]]:
        """List where in the code each line begins; nothing where the code with lines is not the code that there is."""
        text = self._write()
        if len(text) > _LONGEST:
            return [], []
        for optimised in (True, False):  # it was one of them when the kernel was compiled
            data = emit_object(with_lines(text), 2 if optimised else 0, passes=optimised, kernel=True)
            if _is_same(data, self._code):
                return _rows(data)
        return [], []


def _is_same(data: bytes, code: tuple[int, int]) -> bool:
    """Compare the code of an object with what was loaded, in which addresses are filled in."""
    elf = read_elf(data)
    run = next(s for s in elf.symbols() if s.name == "run")
    section = elf.sections[run.section]
    if section.size != code[1]:
        return False
    addresses = elf.section(f".rela{section.name}")
    places = addresses.size // (3 * _ADDRESS_BYTES) if addresses is not None else 0
    loaded = ctypes.string_at(*code)
    different = sum(a != b for a, b in zip(elf.content(section), loaded, strict=True))
    return different <= places * _ADDRESS_BYTES


def _rows(data: bytes) -> tuple[list[int], list[int]]:
    """List the lines of an object, each with where it begins in the code."""
    from elftools.elf.elffile import ELFFile

    file = ELFFile(io.BytesIO(data))
    dwarf = file.get_dwarf_info(relocate_dwarf_sections=False)
    relocations = file.get_section_by_name(".rela.debug_line")
    every = relocations.iter_relocations() if relocations is not None else ()
    first = [r["r_addend"] for r in every if r["r_info_type"] in _ADDRESSES]
    rows: dict[int, int] = {}
    for unit in dwarf.iter_CUs():
        program = dwarf.line_program_for_CU(unit)
        states = [e.state for e in program.get_entries() if e.state is not None] if program is not None else []
        begin = iter(first)
        base = next(begin, 0)
        for state in states:
            if state.end_sequence:
                base = next(begin, 0)
            else:
                rows[base + state.address] = state.line
    starts = sorted(rows)
    return starts, [rows[start] for start in starts]


# -- the IR -----------------------------------------------------------------------------------------------

_MARK = re.compile(r" ;(\d+)$")


def with_lines(text: str) -> str:
    """Make the comments of ``Builder`` what LLVM knows as lines.

    Source: LLVM, "Source Level Debugging with LLVM", and its language reference, "DICompileUnit" and its neighbours.
    """
    tail = [
        f"!llvm.dbg.cu = !{{!{_UNIT}}}",
        f"!llvm.module.flags = !{{!{_VERSION}}}",
        f"!{_UNIT} = distinct !DICompileUnit(language: DW_LANG_C, file: !{_FILE}, isOptimized: true, "
        "runtimeVersion: 0, emissionKind: LineTablesOnly)",
        f'!{_VERSION} = !{{i32 2, !"Debug Info Version", i32 3}}',
        f'!{_FILE} = !DIFile(filename: "kernel.ptx", directory: "/")',
        f"!{_TYPE} = !DISubroutineType(types: !{{null}})",
    ]
    parts = re.split(r"(?m)^(define [^\n]*\{)\n(.*?)^\}$", text, flags=re.DOTALL)
    numbers = iter(range(_FIRST, 1 << 31))
    out = [parts[0]]
    for head, body, rest in zip(parts[1::3], parts[2::3], parts[3::3], strict=True):
        out += [*_function(head, body, numbers.__next__, tail), rest]
    return "".join(out) + "\n" + "\n".join(tail) + "\n"


def _function(head: str, body: str, number: Callable[[], int], tail: list[str]) -> list[str]:
    """Write one function with lines, and what stands behind the module in ``tail``.

    One without comments stays as it is, but for the one that all others may become a part of.
    """
    lines = body.splitlines()
    if not any(_MARK.search(line) for line in lines) and "@run(" not in head:
        return [head, "\n", body, "}"]
    scope = number()
    tail.append(
        f'!{scope} = distinct !DISubprogram(name: "k", file: !{_FILE}, line: 1, type: !{_TYPE}, unit: !{_UNIT}, '
        "spFlags: DISPFlagDefinition | DISPFlagOptimized)"
    )

    @functools.cache
    def place(line: int) -> int:
        own = number()
        tail.append(f"!{own} = !DILocation(line: {line}, column: 0, scope: !{scope})")
        return own

    found = []
    for text in lines:
        mark = _MARK.search(text)
        if text.startswith("  ") and not text.lstrip().startswith(";"):
            found.append(f"{text[: mark.start()] if mark else text}, !dbg !{place(int(mark[1]) if mark else 0)}")
        else:
            found.append(text)
    return [f"{head[:-1]}!dbg !{scope} {{", "\n", "\n".join(found), "\n}"]
