"""The PTX line of each machine instruction of a kernel, and the names of the kernel's functions for users.

Machine code has no line information unless ``CUJIT_PERF`` requests it, because lines slow every compile. After a fault,
the kernel is compiled again with lines. The lines are used only if both compiles produce the same code.
"""

from __future__ import annotations

import bisect
import ctypes
import functools
import itertools
from collections.abc import Callable

from cujit.devices.cpu.run.source_map import Lines, SourceLine
from cujit.devices.jit import emit_object
from cujit.devices.line_table import code_lines
from cujit.devices.shapes import Dim3
from cujit.forks import cached_property
from cujit.formats.elf import read_elf
from cujit.values import NamedTuple

_LONGEST = 1_400_000
"""Characters of IR with lines beyond which a kernel is not compiled again: some seconds."""

_ADDRESS_BYTES = 8


class MachineLines:
    """The line table of one kernel's machine code, built on first use.

    ``write`` returns the IR with lines. ``code`` is the address and size of the machine code.
    """

    def __init__(self, write: Callable[[], str], code: tuple[int, int]) -> None:
        self._write = write
        self._code = code

    def line_of(self, address: int) -> int:
        """Find the line of the PTX of the instruction at an address; 0 where that is not known."""
        begin, size = self._code
        if not begin <= address < begin + size:  # in a function that the kernel calls
            return 0
        starts, lines = self._table
        at = bisect.bisect_right(starts, address - begin) - 1
        while at >= 0 and not lines[at]:
            at -= 1
        return lines[at] if at >= 0 else 0

    @cached_property
    def _table(self) -> tuple[list[int], list[int]]:
        """Return the code offset where each line begins, and the lines.

        Return empty lists if the code with lines differs from the loaded code, or if the IR is too long.
        """
        text = self._write()
        if len(text) > _LONGEST:
            return [], []
        for optimised in (True, False):  # it was one of them when the kernel was compiled
            data = emit_object(text, 2 if optimised else 0, passes=optimised, kernel=True)
            if _is_same(data, self._code):
                rows = code_lines(data)
                return [row.offset for row in rows], [row.line for row in rows]
        return [], []


def _is_same(data: bytes, code: tuple[int, int]) -> bool:
    """Return whether the code of an object equals the loaded code, except for relocated addresses."""
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


# -- the IR ---------------------------------------------------------------------------------------------


class DebugOrigin(NamedTuple):
    """The names and source places of a kernel's functions and lines.

    ``name_of`` maps a function name in the IR to its name for users and its lowered name, which is "" if both are
    equal. ``place_of`` maps a function name in the IR and a line of the PTX to a source line. Line 0 is for
    instructions without a line.
    """

    name_of: Callable[[str], tuple[str, str]]
    place_of: Callable[[str, int], SourceLine]


PTX_ALONE = DebugOrigin(lambda symbol: (symbol, ""), lambda _, line: SourceLine("kernel.ptx", line))
"""For who looks for lines of the PTX, and shows them to nobody."""

_KERNEL = ("run", "body")
"""The functions of the IR that are a kernel whole, and its warps on stacks of their own."""

_CALLED = "function "
"""What the names of functions of the PTX begin with (see ``instructions.calls``)."""


def name_in_profiles(kernel: str, block: Dim3, symbol: str) -> str:
    """Name a function of the machine code of a kernel, for one shape of its blocks: ``axpy<float> 256x1x1``."""
    return f"{_name(kernel, symbol)[0]} {block.x}x{block.y}x{block.z}"


def origin_of(kernel: str, lines: Lines, ptx: str, *, of_source: bool) -> DebugOrigin:
    """Return the origin of functions and lines: the PTX file ``ptx``, or with ``of_source`` the source
    if it is known.
    """

    def place_of(symbol: str, line: int) -> SourceLine:
        if line:
            return (lines.source_of(line) if of_source else None) or SourceLine(ptx, line)
        line = lines.begin_of(symbol[len(_CALLED) :] if symbol.startswith(_CALLED) else kernel)
        function = lines.function_of(line)
        return (function.begins if of_source and function else None) or SourceLine(ptx, line)

    return DebugOrigin(functools.partial(_name, kernel), functools.cache(place_of))


def _name(kernel: str, symbol: str) -> tuple[str, str]:
    """Return a function's display name, and its lowered name if that is different."""
    from cujit.formats.mangling import entity_name  # for who asks

    lowered = symbol[len(_CALLED) :] if symbol.startswith(_CALLED) else kernel
    name = entity_name(lowered) or lowered
    if symbol in _KERNEL or symbol.startswith(_CALLED):
        return name, lowered if lowered != name else ""
    return f"{name}.{symbol}", ""


_FIRST = 900_000
"""Numbers of metadata, beyond all that a kernel has."""


class DebugInfo:
    """The debug metadata of a module, in ``lines``: its files, functions, and locations, each emitted once.

    Source: LLVM, "Source Level Debugging with LLVM", and its language reference, "DICompileUnit" and its neighbours.
    """

    def __init__(self, origin: DebugOrigin) -> None:
        self._origin = origin
        self._numbers = itertools.count(_FIRST)
        self.lines: list[str] = []
        self._written = functools.cache(self._write)
        version = '!{i32 2, !"Debug Info Version", i32 3}', '!{i32 2, !"Dwarf Version", i32 4}'
        flags = ", ".join(f"!{self._written(each)}" for each in version)
        file = self._file(origin.place_of("run", 0).file)
        self._unit = self._write(
            f"distinct !DICompileUnit(language: DW_LANG_C_plus_plus_14, file: {file}, isOptimized: true, "
            "runtimeVersion: 0, emissionKind: FullDebug)"
        )
        self.lines += [f"!llvm.dbg.cu = !{{!{self._unit}}}", f"!llvm.module.flags = !{{{flags}}}"]

    def _write(self, text: str) -> int:
        number = next(self._numbers)
        self.lines.append(f"!{number} = {text}")
        return number

    def _file(self, file: str) -> str:
        number = self._written(f'!DIFile(filename: {_quoted(file)}, directory: "")')
        return f"!{number}"

    def function(self, symbol: str) -> tuple[str, Callable[[int], str]]:
        """Emit the debug metadata of a function: its name and the place where it begins.

        Return the text that follows the function's head, and a function that maps a PTX line to the text after an
        instruction.
        """
        name, lowered = self._origin.name_of(symbol)
        begin = self._origin.place_of(symbol, 0)
        type_ = self._written("!DISubroutineType(types: !{null})")
        linked = f"linkageName: {_quoted(lowered)}, " if lowered else ""
        scope = self._write(
            f"distinct !DISubprogram(name: {_quoted(name)}, {linked}file: {self._file(begin.file)}, "
            f"line: {begin.line}, scopeLine: {begin.line}, type: !{type_}, unit: !{self._unit}, "
            "spFlags: DISPFlagDefinition | DISPFlagOptimized)"
        )
        return f"!dbg !{scope}", functools.cache(lambda line: f", !dbg !{self._place(symbol, scope, line)}")

    def _place(self, symbol: str, scope: int, line: int) -> int:
        """Emit the location of an instruction of a function, and return its metadata number."""
        at, begin = self._origin.place_of(symbol, line), self._origin.place_of(symbol, 0)
        if at.file != begin.file:
            file = self._file(at.file)
            scope = self._written(f"!DILexicalBlockFile(scope: !{scope}, file: {file}, discriminator: 0)")
        return self._written(f"!DILocation(line: {at.line}, column: 0, scope: !{scope})")


def _quoted(text: str) -> str:
    """Write a string of metadata. Source: LLVM Language Reference, "String constants"."""
    return '"' + "".join(chr(c) if 32 <= c < 127 and c not in b'"\\' else f"\\{c:02x}" for c in text.encode()) + '"'
