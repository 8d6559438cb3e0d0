"""The logs of NVRTC, nvJitLink and ptxas, read into Diagnostic values."""

from __future__ import annotations

import re
from collections.abc import Sequence

from cujit.errors import Diagnostic

NAME_MAP = "__nv_name_map"
"""The file that NVRTC says when a name expression is wrong."""

_SEVERITY = {"catastrophic error": "error", "internal error": "error", "fatal": "error", "info": "note"}

# NVRTC: `x.cu(3): error #20: identifier "a" is undefined`, then source line and caret, indented by 2.
_PLACED = re.compile(
    r"(?P<file>[^\s(][^\n(]*)\((?P<line>\d+)\): "
    r"(?P<severity>(?:catastrophic |internal )?error|warning|remark|note)"
    r"(?: (?P<code>#[\w-]+))?: (?P<message>.*)"
)
# NVRTC about no line: `At end of source: error: …`, `Command-line error: …`, `nvrtc: error: …`.
_UNPLACED = re.compile(
    r"(?:At end of source: |nvrtc: |Command-line )?"
    r"(?P<severity>(?:catastrophic |internal )?error|warning|remark)(?: (?P<code>#[\w-]+))?: (?P<message>.*)"
)
# ptxas: `ptxas application ptx input, line 9; fatal   : …`, `ptxas fatal   : …`, `ptxas warning : …`.
_PTXAS = re.compile(
    r"(?:ptxas|nvlink)(?P<ptx> application ptx input, line (?P<line>\d+);)?"
    r" +(?P<severity>fatal|error|warning)\s*: (?P<message>.*)"
)
# nvJitLink: `error   : Undefined reference to 'f' in 'a'`, `ERROR 4: bad input:a`, `a: link error: error: …`.
_LINKER = re.compile(
    r"(?:(?P<file>\S+): link error: )?(?P<severity>error|ERROR|warning)(?: (?:\d+|[A-Z_]+))?\s*:"
    r" ?(?P<message>.*)",
)


def parse_log(log: str) -> tuple[Diagnostic, ...]:
    """Return every message of a log in order. Other lines are omitted."""
    lines = log.splitlines()
    found: list[Diagnostic] = []
    position = 0
    while position < len(lines):
        match = _PLACED.fullmatch(lines[position])
        position += 1
        if match:
            diagnostic, position = _placed(match, lines, position)
            found.append(diagnostic)
        elif other := _single(lines[position - 1]):
            found.append(other)
    return tuple(found)


def _placed(match: re.Match[str], lines: list[str], position: int) -> tuple[Diagnostic, int]:
    """Return the continuation of a message: lines indented by more than 2, followed by the source line
    and the caret.
    """
    message, source_line, column = match["message"], "", 0
    while position < len(lines) and lines[position].startswith(" "):
        line = lines[position]
        follows = lines[position + 1] if position + 1 < len(lines) else ""
        if not column and follows.startswith("  ") and follows.strip() == "^":
            source_line, column = line[2:], len(follows.rstrip()) - 2
            position += 2
            continue
        message += f"\n{line.strip()}"
        position += 1
    severity = match["severity"]
    return (
        Diagnostic(
            _SEVERITY.get(severity, severity),
            message,
            match["file"],
            int(match["line"]),
            column,
            match["code"] or "",
            source_line,
        ),
        position,
    )


def _single(line: str) -> Diagnostic | None:
    if match := _PTXAS.fullmatch(line):
        severity = _SEVERITY.get(match["severity"], match["severity"])
        place = ("<ptx>", int(match["line"])) if match["line"] else ("", 0)
        return Diagnostic(severity, match["message"], *place)
    if match := _UNPLACED.fullmatch(line):
        severity = _SEVERITY.get(match["severity"], match["severity"])
        return Diagnostic(severity, match["message"], code=match["code"] or "")
    if match := _LINKER.fullmatch(line):
        return Diagnostic(match["severity"].lower(), match["message"], match["file"] or "")
    return None


def without_warnings_in(places: Sequence[str], log: str) -> str:
    """Remove NVRTC's warnings about ``places``, which are files and directories. The rest of the log stays unchanged.

    NVRTC has no ``-isystem``, and a ``#pragma nv_diag_suppress`` before the source would also silence warnings about
    the user's code.
    """
    under = tuple(place.rstrip("/\\") + end for place in places for end in "/\\")
    kept: list[str] = []
    is_left_out = False
    for line in log.splitlines(keepends=True):
        if match := _PLACED.fullmatch(line.rstrip("\r\n")):
            is_left_out = match["severity"] in ("warning", "remark") and (match["file"] + "/").startswith(under)
        elif line[0] not in " \t\r\n" and not line.startswith("Remark: The warnings can be suppressed"):
            is_left_out = False
        if not is_left_out:
            kept.append(line)
    return "".join(kept)


_NOT_OPENED = re.compile(r'(?:could not|cannot) open source file "([^"]+)"')


def missing_header(diagnostics: tuple[Diagnostic, ...]) -> str | None:
    """Return the header that the first error could not open, or None if the error is about something else."""
    first = next((d for d in diagnostics if d.severity == "error"), None)
    match = _NOT_OPENED.match(first.message) if first else None
    return match[1] if match else None
