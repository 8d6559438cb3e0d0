"""Check the English of pages, help and the changelog: ``python tools/prose.py`` prints a line for each finding.

Harper (`harper-py`) checks grammar, offline. Its rules about spelling, capitals and abbreviations do not know the words
of CUDA, and ``_OFF`` turns them off. A rule checks only what a rule can; ``docs/`` is written by the style of
CONTRIBUTING.md.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from harper import Linter

__all__ = ["findings", "pages", "texts"]

ROOT = Path(__file__).parents[1]
_OFF = (
    "AdjectiveDoubleDegree", "CompoundNouns", "CondenseAllThe", "Dashes", "DisjointPrefixes", "ExpandConfiguration",
    "ExpandControl", "ExpandDirectory", "ExpandMemoryShorthands", "ExpandPerformance", "ExpandTimeShorthands",
    "FindOut", "ItsContraction", "MassNouns", "MergeWords", "MissingDeterminer", "MissingPreposition", "MissingTo",
    "OrthographicConsistency", "Overall", "OxfordComma", "SentenceCapitalization", "Spaces", "SpellCheck", "SplitWords",
    "ThatThan", "TheirToTheyre", "UseTitleCase",
)  # fmt: skip
"""Rules of Harper 2 that were wrong more often than right on these pages, read one by one."""

_RIGHT = ("a SHA-256", "an mbarrier", "an sm_", "an lcov", "an f32", "bit for bit", "a MB", "word of A and")
"""Texts that Harper takes for mistakes, and are none."""

_GENERATED = ("api.md", "instructions.md", "licenses.md")


def pages() -> Iterator[Path]:
    """Yield the pages that somebody writes."""
    yield from (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))
    yield from (page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name not in _GENERATED)


def texts(markdown: str) -> str:
    """Return Markdown without code blocks and tables; lines stay lines."""
    without = re.sub(r"```.*?```", lambda block: "\n" * block[0].count("\n"), markdown, flags=re.DOTALL)
    return re.sub(r"(?m)^(\||    ).*$", "", without)


def findings(markdown: str, linter: Linter | None = None) -> Iterator[tuple[int, str, str]]:
    """Yield the line, the text and the message of each finding in Markdown."""
    text = texts(markdown)
    for lint in (linter or made()).lint(text):
        begin, end = lint.span.start, lint.span.end
        if not any(right in text[max(begin - 20, 0) : end + 20] for right in _RIGHT):
            yield text.count("\n", 0, begin) + 1, " ".join(text[begin:end].split()), lint.message


def made() -> Linter:
    """Make a linter with the rules that can judge these pages."""
    linter = Linter()
    linter.set_lint_config({**linter.get_default_lint_config(), **dict.fromkeys(_OFF, False)})
    return linter


if __name__ == "__main__":
    linter = made()
    found = [
        f"{page.resolve().relative_to(ROOT)}:{line}: {text[:80]!r}: {message}"
        for page in (map(Path, sys.argv[1:]) if sys.argv[1:] else pages())
        for line, text, message in findings(page.read_text(), linter)
    ]
    sys.exit("\n".join(found) or None)
