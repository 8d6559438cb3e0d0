"""Removal of PTX variables that are not used. NVRTC writes every constant of a header, and CUTLASS has thousands."""

from __future__ import annotations

import re
from collections.abc import Collection

from cujit.formats.mangling import demangle

_PIECE = re.compile(
    r'(?P<quiet>"[^"\n]*"|//[^\n]*|/\*.*?\*/)|(?P<brace>[{}])|(?P<global>^\.global\b[^;"/]*;[ \t]*\n?)',
    re.DOTALL | re.MULTILINE,
)
_DECLARED = re.compile(
    r"\.global\s+(?:\.align\s+\d+\s+)?(?:\.v[248]\s+)?\.[bsuf](?:8|16|32|64|128)\s+"
    r"(?P<name>[A-Za-z_$%][\w$]*)"
    r"\s*(?:\[[^\]]*\]\s*)*(?:=\s*(?P<value>[^;]*))?;\s*"
)
"""A variable without linkage and without attributes; whatever is spelled otherwise stays.

NVRTC writes ``__device__`` variables without ``.visible`` too, and the host finds them by name. It cannot find what a
file keeps for itself (``static``, ``const`` and without a namespace's name, within a namespace), nor members of
classes, which cannot be ``__device__``. Source: CUDA C++ Programming Guide, "Device Memory Space Specifiers".
"""
_OF_FILE = "_INTERNAL_"
"""What is in the name of what a file keeps for itself."""
_MAY_BE_MEMBER = re.compile(r"_ZN.*E\d+[A-Za-z_]\w*E")
"""A name with an E before the last part, as template arguments end; a part itself may end so, too."""
_MEMBER = re.compile(r".*>::\w+", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_$%][\w$]*")


def without_unused(text: str, keep: Collection[str] = ()) -> str:
    """Return PTX without the ``.global`` variables of its file and of class templates that nothing in it mentions.

    A name counts as mentioned wherever it stands: in code, in the value of a variable that stays, in debug sections,
    in directives and comments.

    Args:
        text: PTX.
        keep: names that stay, such as those of variables that the host reads.

    Example:
        >>> without_unused(".global .u32 _INTERNAL_a;\\n.global .u32 _INTERNAL_b;\\n.const .u64 p = _INTERNAL_b;\\n")
        '.global .u32 _INTERNAL_b;\\n.const .u64 p = _INTERNAL_b;\\n'
    """
    if "\n.global" not in f"\n{text}":
        return text
    rest, found = _parted(text)
    needed = set(_WORD.findall(rest)) | set(keep)
    values = {name: set(_WORD.findall(value)) for name, value, _, _ in found}
    waiting = [name for name in values if name in needed]
    while waiting:
        more = values[waiting.pop()] - needed
        needed |= more
        waiting += [name for name in more if name in values]
    pieces, end = [], 0
    for name, _, begin, stop in found:
        if name not in needed:
            pieces.append(text[end:begin])
            end = stop
    return "".join([*pieces, text[end:]])


def _is_internal(name: str) -> bool:
    """Return whether a variable belongs to its file or to a class template. Template arguments distinguish it from a
    namespace.
    """
    if _OF_FILE in name:
        return True
    return _MAY_BE_MEMBER.fullmatch(name) is not None and _MEMBER.fullmatch(demangle(name) or "") is not None


def _parted(text: str) -> tuple[str, list[tuple[str, str, int, int]]]:
    """Split a text into the part that stays, and the variables that may be removed: name, value, start, and end."""
    found, rest, end, depth = [], [], 0, 0
    for piece in _PIECE.finditer(text):
        if piece["brace"]:
            depth += 1 if piece["brace"] == "{" else -1
        elif piece["global"] and not depth and (variable := _DECLARED.fullmatch(piece["global"])):
            if not _is_internal(variable["name"]):
                continue
            found.append((variable["name"], variable["value"] or "", *piece.span()))
            rest.append(text[end : piece.start()])
            end = piece.end()
    return " ".join([*rest, text[end:]]), found
