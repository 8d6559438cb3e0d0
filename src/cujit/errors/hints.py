"""Hints of errors, with separate texts for Python and for the command line."""

from __future__ import annotations

from collections.abc import Iterable


class Hint(str):
    """A hint for Python users. ``shell`` is the equivalent hint for command-line users.

    In ``shell``, ``<-n>`` and ``<--arch>`` are placeholders for a command's kernel and architecture options.
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
    """Return the command-line text of a hint, or the hint itself if it has no such text."""
    return hint.shell if isinstance(hint, Hint) else hint


def join_hints(separator: str, hints: Iterable[str]) -> str:
    """Join hints, in both wordings."""
    given = list(hints)
    return Hint(separator.join(given), separator.join(map(shell_hint, given)))
