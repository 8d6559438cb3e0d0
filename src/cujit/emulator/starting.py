"""The door of the emulator: this process and the ones that it starts find it where they look for a driver."""

from __future__ import annotations

import os

from cujit.emulator import library, versions
from cujit.emulator.library import attach
from cujit.emulator.settings import VARIABLE, EmulatorSettings

__all__ = ["attach", "emulate", "environment_of"]

_DECLARED = (versions,)
"""The modules whose entry points ``ENTRIES`` has."""


def environment_of(settings: EmulatorSettings) -> dict[str, str]:
    """Give the variables of the environment with which a process finds the emulator.

    Raises: as of ``library.folder``.
    """
    paths = [str(library.folder()), *filter(None, [os.environ.get("LD_LIBRARY_PATH", "")])]
    return {VARIABLE: settings.text(), "LD_LIBRARY_PATH": ":".join(paths)}


def emulate(settings: EmulatorSettings | None = None) -> None:
    """Have this process, and all that it starts from now on, find the emulator where they look for a driver.

    Raises:
        CujitError: a driver is loaded already.
    """
    os.environ.update(environment_of(settings or EmulatorSettings()))
    library.load()
