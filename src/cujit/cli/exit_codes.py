"""The exit statuses of ``cujit``."""

from __future__ import annotations

import enum

from cujit.errors import CujitError, MissingError


class ExitCode(enum.IntEnum):
    """The exit statuses."""

    GOOD = 0
    WRONG_INPUT = 1
    USAGE = 2
    MISSING = 3


def exit_code_of(error: CujitError) -> ExitCode:
    """Return the exit status for an error."""
    return ExitCode.MISSING if isinstance(error, MissingError) else ExitCode.WRONG_INPUT
