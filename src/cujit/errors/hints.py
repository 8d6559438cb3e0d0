"""Hints of errors, in the words of Python and in those of a command line."""

from __future__ import annotations

from collections.abc import Iterable


class Hint(str):
    """What to try: a text in the words of Python. ``shell`` is the same in the words of a command line.

    ``<-n>`` and ``<--arch>`` in ``shell`` stand for the options of a command that take a kernel and an architecture.
    """

    shell: str

    def __new__(cls, python: str, shell: str) -> Hint:
        """Make a hint of both texts."""
        made = super().__new__(cls, python)
        made.shell = shell
        return made

    def format(self, *values: object, **named: object) -> Hint:
        """Fill in the values, in both texts."""
        return Hint(super().format(*values, **named), self.shell.format(*values, **named))

    def __add__(self, other: str) -> Hint:
        return Hint(f"{self}{other}", self.shell + shell_hint(other))

    def __radd__(self, other: str) -> Hint:
        return Hint(f"{other}{self}", other + self.shell)

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        return str(self), self.shell


def shell_hint(hint: str) -> str:
    """Return a hint in the words of a command line, where it has such words."""
    return hint.shell if isinstance(hint, Hint) else hint


def join_hints(separator: str, hints: Iterable[str]) -> str:
    """Join hints, in both wordings."""
    given = list(hints)
    return Hint(separator.join(given), separator.join(map(shell_hint, given)))
