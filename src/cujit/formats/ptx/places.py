"""Source positions for PTX from a cubin. The line tables of the code contain the information of the
original ``.loc``.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from cujit.errors import FormatError
from cujit.formats.elf import Elf, Section
from cujit.formats.line_program import CubinLine, code_lines

_OF_PTX, _OF_SOURCE = ".nv_debug_line_sass", ".debug_line"
_MOST_LINES = 1 << 31
_ENDS = (";", "{", "}", ":")
"""How a line ends after which a directive may stand."""


def with_places(text: str, elf: Elf, section: Section) -> str:
    """Insert ``.loc`` into empty lines before code, so that no line moves, and ``.file`` after the text.

    Raises:
        FormatError: a table is damaged, or code refers to an empty line.
            ptxas leaves out text that follows ``.loc``.
    """
    lines = text.split("\n")
    rows = [row for row in code_lines(elf, _OF_PTX) if row.line and row.file in ("", section.name)]
    for row in rows:
        if not 0 < row.line <= len(lines) or not lines[row.line - 1].strip():
            raise FormatError(f"code refers to line {row.line} of the PTX, but this line is missing")
    sources = sorted(code_lines(elf, _OF_SOURCE), key=lambda row: (row.section, row.offset))
    keys = [(row.section, row.offset) for row in sources]
    found: dict[int, tuple[str, int]] = {}
    for row in sorted(rows, key=lambda row: (row.section, row.offset)):
        at = bisect_right(keys, (row.section, row.offset)) - 1
        if at >= 0 and sources[at].section == row.section and _is_place(sources[at]):
            found.setdefault(row.line, (sources[at].file, sources[at].line))
    return "\n".join(_placed(lines, found))


def _is_place(row: CubinLine) -> bool:
    """Return whether a row can be written as ``.loc`` and its file as ``.file``."""
    return 0 < row.line < _MOST_LINES and row.file.isprintable() and '"' not in row.file and row.file != ""


def _placed(lines: list[str], found: dict[int, tuple[str, int]]) -> list[str]:
    numbers: dict[str, int] = {}
    empty, depth, before = -1, 0, ""
    for index, line in enumerate(lines):
        code = line.strip()
        if not code:
            empty = index if depth > 0 and before.endswith(_ENDS) else -1
            continue
        place = found.get(index + 1)
        if empty >= 0 and place is not None:
            file, number = place
            lines[empty] = f".loc {numbers.setdefault(file, len(numbers) + 1)} {number} 0"
            empty = -1
        depth += code.count("{") - code.count("}")
        before = code.partition("//")[0].rstrip()
    return [*lines, *(f'.file {number} "{as_written(file)}"' for file, number in numbers.items())]


_LAST_OCTAL = re.compile(r"(.*\\[0-7]{3}.*)/([23][0-7]{2}.*)")
"""What ptxas makes of a name that is no ASCII: it takes the last backslash for the end of a folder (measured, 13.x)."""


def as_written(file: str) -> str:
    """Return the name of a file as in ``.file``, from a line table or from the output of nvdisasm."""
    found = _LAST_OCTAL.fullmatch(file)
    return file if found is None else f"{found[1]}\\{found[2]}"
