"""Conditions with a known result in every compile by NVRTC: those on ``__CUDACC_RTC__`` and ``__CUDACC__``.

Large parts of the toolkit's headers are for a host compiler (``#if !defined(__CUDACC_RTC__)``). They would add half of
libcu++ to the closure of a header as simple as ``cuda_fp16.h``. Other conditions count as both true and false.
"""

from __future__ import annotations

import re

# What NVRTC always defines. Source: NVRTC 13 user guide, "Predefined Macros".
_ALWAYS = ("__CUDACC_RTC__", "__CUDACC__")
_KNOWN = rf"(?:\(\s*)?(?:{'|'.join(_ALWAYS)})(?:\s*\))?"
_TRUE = re.compile(rf"\(?\s*defined\s*{_KNOWN}\s*\)?")
_FALSE = re.compile(rf"\(?\s*!\s*\(?\s*defined\s*{_KNOWN}\s*\)?\s*\)?")
# A term that stays one when its macros are expanded: one that holds none, or that is wholly in parentheses.
_SIMPLE = re.compile(
    r"[!\s]*(?:defined\s*(?:\(\s*\w+\s*\)|\w+)|\d\w*|(?:__cplusplus|__CUDA_ARCH__)(?:\s*(?:[<>]=?|[!=]=)\s*\d\w*)?)\s*"
)
_UNDEFINED = re.compile(rf"undef[ \t\f\v\r]+(?:{'|'.join(_ALWAYS)})(?![\w$])")  # begins with what `re` skips to


def is_undefined(text: str) -> bool:
    """Return whether a text undefines a macro that NVRTC always defines."""
    return may_be_certain(text) and _UNDEFINED.search(text) is not None


def may_be_certain(text: str) -> bool:
    """Return whether a text may contain a condition with a known result. Most texts contain none."""
    return "__CUDACC" in text  # as each of _ALWAYS has


class Conditions:
    """The nesting of ``#if`` at one point of a text. ``is_live`` is False if no compile reaches the point."""

    def __init__(self) -> None:
        # For each open #if: whether its present group may be compiled, and whether one of its groups surely was.
        self._open: list[tuple[bool, bool]] = []
        self.is_broken = False
        self.is_live = True

    def see(self, word: str, rest: str) -> None:
        """Process one directive: its name and the rest of the line."""
        if word in ("if", "ifdef", "ifndef"):
            outcome = _outcome(word, rest)
            self._open.append((outcome is not False, outcome is True))
        elif not self._open:
            self.is_broken = self.is_broken or word in ("else", "endif") or word.startswith("elif")
        elif word == "endif":
            self._open.pop()
        elif word == "else" or word.startswith("elif"):
            is_settled = self._open[-1][1]
            outcome = True if word == "else" else _outcome(word.removeprefix("el"), rest)
            self._open[-1] = (not is_settled and outcome is not False, is_settled or outcome is True)
        self.is_live = all(live for live, _ in self._open)

    @property
    def is_whole(self) -> bool:
        """Whether every ``#if`` had its ``#endif``."""
        return not self._open and not self.is_broken


def _outcome(word: str, rest: str) -> bool | None:
    """Return the known result of a condition, or None."""
    rest = rest.strip()
    if word in ("ifdef", "ifndef"):
        name = re.match(r"[\w$]*", rest)
        return (word == "ifdef") if name and name[0] in _ALWAYS else None
    if not any(name in rest for name in _ALWAYS):
        return None
    either, every = _terms(rest, "||"), _terms(rest, "&&")
    if any(_TRUE.fullmatch(term) for term in either) and all(map(_is_one, either)):
        return True
    if any(_FALSE.fullmatch(term) for term in every) and all(map(_is_one, every)):
        return False
    return None


def _is_one(term: str) -> bool:
    """Return whether a term is a single operand for any definition of its macros."""
    if _SIMPLE.fullmatch(term) or _TRUE.fullmatch(term) or _FALSE.fullmatch(term):
        return True
    depth = 0
    for at, c in enumerate(term):
        depth += (c == "(") - (c == ")")
        if depth <= 0:
            return c == ")" and depth == 0 and at == len(term) - 1
    return False


def _terms(condition: str, operator: str) -> list[str]:
    """Split a condition at an operator outside of parentheses. With ``? :`` or a string, return one term."""
    if any(c in condition for c in "?\"'"):
        return [condition]
    terms, depth, start = [], 0, 0
    for match in re.finditer(r"[()]|\|\||&&", condition):
        depth += (match[0] == "(") - (match[0] == ")")
        if depth == 0 and match[0] == operator:
            terms.append(condition[start : match.start()].strip())
            start = match.end()
    return [*terms, condition[start:].strip()]
