"""What the exit status of ``cujit`` means."""

from __future__ import annotations

import enum

from cujit.errors import CujitError, MissingError

__all__ = ["ExitCode", "exit_code_of"]


class ExitCode(enum.IntEnum):
    """The exit statuses."""

    GOOD = 0
    WRONG_INPUT = 1
    USAGE = 2
    MISSING = 3

    @property
    def meaning(self) -> str:
        """What it says, for the documentation."""
        return _MEANINGS[self]


_MEANINGS = {
    ExitCode.GOOD: "it was done",
    ExitCode.WRONG_INPUT: "the input is wrong: it does not compile, is damaged, does not load, or gives wrong numbers",
    ExitCode.USAGE: "the command line is wrong: an unknown option, a malformed value, a file that is not there",
    ExitCode.MISSING: "the machine lacks something: a library of the toolkit, the driver, a GPU of that number",
}


def exit_code_of(error: CujitError) -> ExitCode:
    """Give the exit status for an error."""
    return ExitCode.MISSING if isinstance(error, MissingError) else ExitCode.WRONG_INPUT
