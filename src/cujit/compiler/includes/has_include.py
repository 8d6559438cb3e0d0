"""Macros that test for headers, such as ``#define HAS(x) __has_include(x)``, and their calls.

Such a macro tests for headers in every expansion, so each mention of its name must be understood. A call in ``#if`` or
``#elif`` is expanded like a computed include, and a macro that calls it counts as another such macro. Other mentions
are refused. Measured with NVRTC 13.5: the operand of ``__has_include`` in a macro is expanded, including
``<linux/a.h>``, both in code and in conditions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from cujit.values import dataclass

HAS_INCLUDE = "__has_include"

_HEAD = re.compile(r"([^\W\d][\w$]*)(\([^()]*\))?")
_DEFINED = re.compile(r"\bdefined\s*\(?\s*$")
_DIRECTIVE = re.compile(r"\s*(?:#|%:)\s*(\w*)")
_STRING = re.compile(r'"(?:[^"\\\n]|\\[^\n])*"?')
# Directives in which a name is not expanded. Source: ISO C++ [cpp.cond], [cpp.undef], [cpp.error].
_INERT = ("define", "undef", "ifdef", "ifndef", "elifdef", "elifndef", "error", "warning", "else", "endif", "")


@dataclass(frozen=True, slots=True)
class HasIncludeCalls:
    """Calls in the conditions of one text, as tokens to expand, or ``refusal``, an unsupported use."""

    calls: tuple[str, ...] = ()
    refusal: str = ""


def askers(defines: Iterable[str]) -> dict[str, bool]:
    """Return the macros that test for headers, directly or through other macros, and whether each has arguments.

    ``defines`` are the texts after ``#define``. A macro with several definitions asks if one of them does.

    Raises:
        ValueError: a definition names one and does not call it; the message is the end of "it has …".
    """
    known = {HAS_INCLUDE: True}
    texts = tuple(defines)
    while True:
        before = dict(known)
        named = _named(before)
        for text in dict.fromkeys(text for name in before for text in texts if name in text):
            if not (head := _HEAD.match(text)):
                continue
            body = text[head.end() :]
            for match in named.finditer(body):
                if _DEFINED.search(body[: match.start()]):
                    continue
                if before[match[0]] and balanced(body, match.end()) is None:
                    raise ValueError(f"{match[0]} is used under another name")
                known[head[1]] = known.get(head[1], False) or head[2] is not None
        if known == before:
            return {name: takes for name, takes in known.items() if name != HAS_INCLUDE}


def find_calls(plain: str, names: Mapping[str, bool]) -> HasIncludeCalls:
    """Find the uses of testing macros in a text without comments. ``names`` is the result of ``askers``."""
    calls: dict[str, None] = {}
    for match in _named(names).finditer(plain):
        start = plain.rfind("\n", 0, match.start()) + 1
        end = plain.find("\n", match.end())
        line, at = plain[start : len(plain) if end < 0 else end], match.end() - start
        word = _DIRECTIVE.match(line)
        before = line[: match.start() - start]
        if (word and word[1] in _INERT) or _DEFINED.search(before) or _in_string(line, match.start() - start):
            continue
        if word is None or word[1] not in ("if", "elif"):
            return HasIncludeCalls(refusal=f"{match[0]}, which asks for a header, outside of a condition")
        close = balanced(line, at)
        if close is None and names[match[0]]:
            return HasIncludeCalls(refusal=f"{match[0]}, which asks for a header, under another name")
        calls[match[0] if close is None else match[0] + line[at:close]] = None
    return HasIncludeCalls(tuple(calls))


def balanced(text: str, at: int) -> int | None:
    """Return the end of the ``(…)`` that follows after blanks, or None if there is none or it isn't closed."""
    start = at + len(text[at:]) - len(text[at:].lstrip())
    if not text.startswith("(", start):
        return None
    depth = 0
    for match in _parentheses(text, start):
        depth += 1 if match[0] == "(" else -1
        if depth == 0:
            return match.end()
    return None


def _parentheses(text: str, start: int) -> Iterator[re.Match[str]]:
    return (m for m in re.compile(r'"(?:[^"\\\n]|\\.)*"|[()]').finditer(text, start) if m[0] in "()")


def _named(names: Iterable[str]) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w$])(?:{'|'.join(map(re.escape, names))})(?![\w$])")


def _in_string(line: str, at: int) -> bool:
    return any(match.start() < at < match.end() for match in _STRING.finditer(line))
