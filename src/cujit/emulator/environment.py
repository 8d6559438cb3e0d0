"""The environment in which processes find the emulator, made without any of its entry points."""

from __future__ import annotations

import os

from cujit.emulator import compiler_files, library_files
from cujit.emulator.settings import VARIABLE, EmulatorSettings


def environment_of(settings: EmulatorSettings) -> dict[str, str]:
    """Return the environment variables with which a process finds the emulator.

    Raises: as of ``library_files.folder``.
    """
    folder = str(library_files.folder())
    paths = [folder, *filter(None, [os.environ.get("LD_LIBRARY_PATH", "")])]
    found = {VARIABLE: settings.text(), "LD_LIBRARY_PATH": ":".join(paths), "TRITON_LIBCUDA_PATH": folder}
    return {**found, **compiler_files.environment()}
