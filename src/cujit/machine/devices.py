"""The devices of this machine, one object each in a process."""

from __future__ import annotations

import importlib

from cujit.values.garbage import importing

TYPE_CHECKING = False  # as type checkers know it: a driver begins before anything else is imported

if TYPE_CHECKING:
    from cujit.devices.cpu.observe.coverage import Coverage
    from cujit.devices.cpu.observe.profile import Profile
    from cujit.devices.cpu.observe.trace import Trace
    from cujit.devices.cpu.observe.watching import KernelWatcher
    from cujit.devices.device import Device
    from cujit.devices.process import Devices
    from cujit.devices.streams import DeviceLike


_PREFETCHED = ("cujit.devices.globals", "cujit.loading")
"""Modules that processes with a GPU use, by name: nothing here depends on them."""

_WARMED = ("cujit.devices.launcher.learned", "cujit.compiler.runner", "cujit.kernel")
"""Those of them that make ahead what the first hit of the cache and the first launch need."""


def _devices() -> Devices:
    with importing():
        from cujit.devices.process import process_devices  # start-up: a driver begins before, and this brings NumPy

    return process_devices()


def all_devices() -> tuple[Device, ...]:
    """Return all devices in this machine: the GPUs that the driver makes visible, then the CPU device.

    Example::

        assert cujit.all_devices()[-1].name == "cpu"
    """
    return (*_devices().gpus(), _devices().cpu())


def default_device() -> Device:
    """Return the first GPU, or the CPU device if there is no GPU.

    Example::

        device = cujit.default_device()
        print(device.is_gpu)
    """
    from cujit.toolchain.driver_start import beginning  # start-up: for who asks for a GPU

    with beginning(0):
        return _devices().default()


def gpu(ordinal: int = 0) -> Device:
    """Return the GPU with this number among the GPUs that the driver makes visible.

    Args:
        ordinal: number of the GPU, starting at 0.

    Raises:
        DriverNotFoundError: no CUDA driver is installed, or it doesn't respond.
        DeviceNotFoundError: there is no such GPU. The message lists the GPUs.

    Example::

        try:
            device = cujit.gpu(0)
        except cujit.errors.MissingError as error:
            print(error)                        # there is no driver, or no GPU
    """
    from cujit.toolchain.driver_start import beginning  # start-up: for who asks for a GPU

    with beginning(ordinal):
        devices = _devices()
        for name in _PREFETCHED:  # start-up: who has a GPU compiles, loads and launches, and the driver is not done
            importlib.import_module(name)
        for name in _WARMED:
            importlib.import_module(name).warm()
        return devices.gpu(ordinal)


def cpu(
    threads: int | None = None,
    *,
    check: str | None = None,
    trace: Trace | None = None,
    coverage: Coverage | None = None,
    profile: Profile | None = None,
    timeout_s: float | None = None,
    schedule: int | None = None,
    start_order: str = "ascending",
    contract: str | None = None,
) -> Device:
    """Return the CPU device, which runs blocks on several threads.

    Args:
        threads: number of threads that run blocks. Default: one per core.
        check: checks that stop a launch at the first error: ``memory``, ``race``, ``sync``, ``init``, a comma-separated
            list of these, or ``all`` (docs/checks.md).
        trace: a ``Trace``, which records every instruction that one thread executes (docs/testing.md).
        coverage: a ``Coverage``, which counts executions of source lines (docs/testing.md).
        profile: a ``Profile``, which counts memory traffic and other costs of kernels, as GPU counters do
            (docs/profile.md).
        timeout_s: seconds after which a launch stops with a ``KernelFaultError`` that shows where its blocks were
            (docs/cpu.md).
        schedule: seed for the order of warps, blocks, and asynchronous copies, as a non-negative int. The same seed
            produces the same order. Default: None, which selects the fastest order (docs/schedules.md).
        start_order: ``any`` lets blocks start in any order. Default: ``ascending``.
        contract: ``ptxas`` fuses products and sums as ptxas 13.5 does. ``off`` rounds each operation separately
            (docs/cpu.md). Default: None, which means ``off``, or a choice by the seed if there is a ``schedule``.

    Raises:
        MissingError: llvmlite is not installed.
        LoadError: the number of threads is invalid.
        OptionError: ``threads`` or ``schedule`` is not an int, a check, order, or contraction is unknown, or ``trace``,
            ``coverage``, or ``profile`` has a wrong type.
        LaunchError: ``timeout_s`` is not a positive number.

    Example::

        checked = cujit.cpu(threads=2, check="memory,race", timeout_s=10)
    """
    watchers: list[KernelWatcher] = [watcher for watcher in (trace, coverage, profile) if watcher is not None]
    if watchers:
        _check_watchers(trace, coverage, profile)
    if schedule is not None or start_order != "ascending":
        from cujit.devices.cpu.observe.scheduling import Schedule  # start-up: for who wants one

        watchers.insert(0, Schedule(schedule or 0, start_order))
    return _devices().cpu(threads, watchers, check=check, timeout_s=timeout_s, contract=contract)


def _check_watchers(trace: object, coverage: object, profile: object) -> None:
    """Refuse what does not watch.

    Raises:
        OptionError: one is something else.
    """
    # start-up: who made one has the CPU device
    from cujit.devices.cpu.observe.coverage import Coverage
    from cujit.devices.cpu.observe.profile import Profile
    from cujit.devices.cpu.observe.trace import Trace
    from cujit.errors import OptionError, spell

    made = (("trace", trace, Trace, "cujit.Trace()"), ("coverage", coverage, Coverage, "cujit.Coverage()"),
            ("profile", profile, Profile, "cujit.profile.Profile()"))  # fmt: skip
    for name, watcher, kind, help in made:
        if watcher is not None and not isinstance(watcher, kind):
            raise OptionError(f"{name} is {type(watcher).__name__} {spell(watcher)}", help=f"{name}={help}")


def resolve_device(device: DeviceLike | str | None) -> Device:
    """Return a device, by its name or unchanged. Without one, return the default device."""
    if device is None:
        return default_device()
    return _devices().named(device)
