"""The start of the emulator. This process and its child processes find the emulator where they search for a driver."""

from __future__ import annotations

import os

from cujit.devices.watch import watch_emulated
from cujit.emulator import (  # noqa: F401  # most of them are here to declare their entry points
    capture,
    compilers,
    contexts,
    device,
    device_resources,
    graph_execs,
    graph_memory,
    graphs,
    green_contexts,
    kernels,
    launches,
    library,
    linking,
    managed,
    memory,
    memory_operations,
    modules,
    node_work,
    occupancy,
    pools,
    streams,
    tensor_maps,
    textures,
    versions,
    virtual_memory,
)
from cujit.emulator.environment import environment_of
from cujit.emulator.machine import watch_waits
from cujit.emulator.process import emulation
from cujit.emulator.settings import VARIABLE, EmulatorSettings
from cujit.errors import CujitError


def attach(table: int) -> None:
    """Prepare the emulator, and fill in a library's table as ``library.attach`` does."""
    _prepare()
    library.attach(table)


def _prepare() -> None:
    memory.prepare()
    launches.prepare()
    node_work.prepare()
    graph_execs.prepare()
    device.write_facts(emulation().native.state.device)
    settings = emulation().settings
    emulation().native.state.errors_now = settings.errors_now
    emulation().native.state.wait_ns = int((settings.timeout_s or 0) * 1e9)
    watch_waits()
    watch_emulated(lambda: emulation().device.watchers)


def emulate(
    *,
    cc: str | tuple[int, int] = (9, 0),
    check: str | None = None,
    threads: int | None = None,
    timeout_s: float | None = None,
    errors_now: bool = False,
    log: str = "",
) -> None:
    """Use the emulator as the CUDA driver for this process and for all processes that it starts later.

    Call this function before any CUDA library is loaded, for example at the top of a notebook or a ``conftest.py``.

    Args:
        cc: compute capability of the device, as ``"9.0"`` or ``(9, 0)``.
        check: checks for kernels, as for ``cujit.cpu``, such as ``"memory,race"``. Default: none.
        threads: number of cores that run blocks. Default: all cores.
        timeout_s: seconds after which cujit stops a launch. Default: no limit.
        errors_now: whether a launch reports its own faults. If False, a later call reports them, as on a GPU.
        log: file to log every driver call to. "-" means standard error, and "" disables the log.

    Raises:
        CujitError: a CUDA driver or an NVIDIA compiler is already loaded, or this process already uses the emulator
            with other settings.
        OptionError: the compute capability or a check is unknown.
        LaunchError: ``timeout_s`` is not a positive number.

    Example:
        cujit.emulate(check="memory,race")
        from cuda.bindings import driver  # and so do cuda.core, numba and Triton
        assert driver.cuInit(0)[0] == driver.CUresult.CUDA_SUCCESS
    """
    start(EmulatorSettings.of(cc=cc, check=check, threads=threads, timeout_s=timeout_s, errors_now=errors_now, log=log))


def start(settings: EmulatorSettings) -> None:
    """Start the emulator, as ``emulate`` does.

    Raises:
        CujitError: a CUDA driver or an NVIDIA compiler is already loaded, or this process already uses the emulator
            with other settings.
    """
    if (loaded := library.driver_path()) is not None:
        raise library.loaded_already(loaded)
    compilers.load()
    wanted = settings.inside(EmulatorSettings.from_environment())
    os.environ.update(environment_of(wanted))
    _prepare()
    if (before := emulation().settings) != wanted:
        os.environ[VARIABLE] = before.text()
        raise CujitError(
            f"this process already emulates {before.text()} and can't switch to {wanted.text()}",
            help="set it once, before any CUDA call, or start a separate process",
        )
    library.load()
