"""Hints for the command line, which name the options of a command instead of Python arguments."""

from __future__ import annotations

from cujit.errors.hints import shell_hint


def for_the_shell(hint: str, command: str = "") -> str:
    """Return a hint in the words of the shell, with the options of ``command`` for a kernel and an architecture."""
    name, arch = "-k" if command == "run" else "-n", "--target" if command == "build" else "--arch"
    return shell_hint(hint).replace("<-n>", name).replace("<--arch>", arch)
