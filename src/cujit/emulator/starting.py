"""The door of the emulator: this process and the ones that it starts find it where they look for a driver."""

from __future__ import annotations

import os

from cujit.emulator import (
    capture,
    compilers,
    contexts,
    device,
    graph_execs,
    graphs,
    kernels,
    launches,
    library,
    linking,
    memory,
    memory_operations,
    modules,
    node_work,
    occupancy,
    streams,
    tensor_maps,
    versions,
)
from cujit.emulator.process import emulation
from cujit.emulator.settings import VARIABLE, EmulatorSettings

_DECLARED = (
    capture,
    contexts,
    device,
    graph_execs,
    graphs,
    kernels,
    launches,
    linking,
    memory,
    memory_operations,
    modules,
    occupancy,
    streams,
    tensor_maps,
    versions,
)
"""The modules whose entry points ``ENTRIES`` has."""


def attach(table: int) -> None:
    """Fill in a library's table, as ``library.attach`` does, with all that stands behind it ready."""
    _prepare()
    library.attach(table)


def _prepare() -> None:
    memory.prepare()
    launches.prepare()
    node_work.prepare()
    emulation().native.state.errors_now = emulation().settings.errors_now


def environment_of(settings: EmulatorSettings) -> dict[str, str]:
    """Give the variables of the environment with which a process finds the emulator.

    Raises: as of ``library.folder``.
    """
    folder = str(library.folder())
    paths = [folder, *filter(None, [os.environ.get("LD_LIBRARY_PATH", "")])]
    found = {VARIABLE: settings.text(), "LD_LIBRARY_PATH": ":".join(paths), "TRITON_LIBCUDA_PATH": folder}
    return {**found, **compilers.environment()}


def emulate(settings: EmulatorSettings | None = None) -> None:
    """Have this process, and all that it starts from now on, find the emulator where they look for a driver.

    Raises:
        CujitError: a driver is loaded already.
    """
    os.environ.update(environment_of(settings or EmulatorSettings()))
    _prepare()
    library.load()
    compilers.load()
