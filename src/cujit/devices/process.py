"""The devices of this process, each created at the first request for it."""

from __future__ import annotations

import copyreg
import operator
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from cujit.devices.backend import Backend
from cujit.devices.device import Device
from cujit.devices.options import check_timeout
from cujit.errors import DeviceNotFoundError, DriverNotFoundError, LoadError, MissingError, OptionError, spell
from cujit.errors.hints import Hint
from cujit.forks import Lock, once
from cujit.values.garbage import importing
from cujit.values.imported import find_spec, imported

if TYPE_CHECKING:
    from cujit.devices.cpu.backend import CpuBackend
    from cujit.devices.cpu.observe.watching import KernelWatcher

_DeviceRequest: TypeAlias = tuple[int | None, str | None, float | None, str | None]
"""What a CPU device was asked for by: threads, checks, seconds that launches may run, and how sums are contracted."""

MAX_CPU_THREADS = 1024
"""The most threads that the CPU device starts; more is a mistake rather than a machine."""

_MOST_DIGITS = 9
_NAMES = "devices are called 'cpu', 'cuda:0' …"


class Devices:
    """The devices requested so far, usable by any number of threads.

    A forked process inherits them, but CUDA doesn't survive a fork. In the child, a GPU that was used before the fork
    raises an error with this explanation. The CPU device works in both processes.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._gpus: dict[int, Device] = {}
        self._cpus: dict[_DeviceRequest, tuple[Device, CpuBackend]] = {}
        self._default: Device | None = None
        self._watchers: tuple[KernelWatcher, ...] = ()

    def gpu(self, ordinal: int = 0) -> Device:
        """Return the GPU with the number ``ordinal``.

        Raises:
            DriverNotFoundError: no CUDA driver is installed.
            DeviceNotFoundError: there is no such GPU. The message lists the GPUs.
            OptionError: the number is not an int.
        """
        ordinal = _int(ordinal, "a GPU's number", "cujit.gpu(0)")
        with self._lock:
            if ordinal not in self._gpus:
                # Start-up: for those who have a GPU.
                from cujit.devices.cuda.backend import CudaBackend
                from cujit.toolchain.driver import open_driver

                self._gpus[ordinal] = _made(CudaBackend(ordinal, open_driver()), _gpu_that_arrives, ordinal)
            return self._gpus[ordinal]

    def watch(self, watcher: KernelWatcher | None) -> None:
        """Set the watcher of kernels that are loaded on CPU devices from now on. None removes the watcher."""
        with self._lock:
            self._watchers = () if watcher is None else (watcher,)
            for _device, backend in self._cpus.values():
                backend.watchers = self._watchers  # checks stay

    def cpu(
        self,
        threads: int | None = None,
        watchers: Sequence[KernelWatcher] = (),
        *,
        check: str | None = None,
        timeout_s: float | None = None,
        contract: str | None = None,
    ) -> Device:
        """Return the CPU device that runs blocks on the given number of threads. None means one thread per processor.

        With ``watchers``, the device is not shared with other callers. ``check`` contains the names of its checks.
        ``timeout_s`` is the time limit of its launches in seconds. ``contract`` selects how it contracts sums.

        Raises:
            MissingError: llvmlite is not installed.
            LoadError: the number of threads is invalid.
            OptionError: the number of threads is not an int, or a check or contraction is unknown.
            LaunchError: ``timeout_s`` is not a positive number.
        """
        if threads is not None:
            threads = _int(threads, "the number of threads", "cujit.cpu(4), or cujit.cpu() for one a processor")
            if not 1 <= threads <= MAX_CPU_THREADS:
                raise LoadError(
                    f"the CPU device supports 1 to {MAX_CPU_THREADS} threads, not {spell(threads)}",
                    help=Hint(
                        "cujit.cpu() uses one thread per processor", shell="--device cpu uses one thread per processor"
                    ),
                )
        with self._lock:
            key = (threads, check, None if timeout_s is None else check_timeout(timeout_s), contract)
            if watchers:
                return _cpu_device(key, (*self._watchers, *watchers))[0]
            if key not in self._cpus:
                self._cpus[key] = _cpu_device(key, self._watchers)
            return self._cpus[key][0]

    def gpus(self) -> tuple[Device, ...]:
        """Return every GPU. Empty if there is no driver."""
        from cujit.toolchain.driver import open_driver  # start-up: the CPU device needs no driver

        try:
            count = open_driver().device_count()
        except (DriverNotFoundError, DeviceNotFoundError):
            return ()
        return tuple(self.gpu(i) for i in range(count))

    def default(self) -> Device:
        """Return the first GPU, or the CPU device if there is no GPU.

        The result is cached, because the search for a driver takes 0.2 ms.
        """
        if self._default is None:
            try:
                self._default = self.gpu(0)
            except (DriverNotFoundError, DeviceNotFoundError) as e:
                self._default = self.cpu()
                if imported("cujit.events") or imported("logging"):  # else nobody can hear of it
                    from cujit.events.hub import emit  # start-up: as above
                    from cujit.events.values import Fallback  # start-up: as above

                    emit(Fallback, "devices", "the default device", "the CPU device", e.message)
        return self._default

    def named(self, name: object) -> Device:
        """Return the device with a name such as ``cpu`` or ``cuda:1``.

        ``cuda`` is the first GPU. A Device is returned unchanged.

        Raises:
            DriverNotFoundError: no CUDA driver is installed.
            DeviceNotFoundError: no device has this name.
            MissingError: llvmlite is not installed.
            OptionError: the argument is neither a name nor a Device.
        """
        if isinstance(name, Device):
            return name
        if not isinstance(name, str):
            raise OptionError(
                f"a device must be a name or a Device, not {type(name).__name__} {spell(name)}",
                help=Hint(
                    "write 'cpu', 'cuda:0', cujit.cpu() or cujit.gpu(0)", shell="write --device cpu or --device cuda:0"
                ),
            )
        if not is_device_name(name):
            raise DeviceNotFoundError(f"unknown device {spell(name)}", help=_NAMES)
        return self.cpu() if name == "cpu" else self.gpu(int(name.partition(":")[2] or 0))


def is_device_name(name: str) -> bool:
    """Return whether a device could have this name: ``cpu``, ``cuda``, ``cuda:0`` … Whether the device exists is not
    checked.
    """
    kind, colon, number = name.partition(":")
    if kind != "cuda" or not colon:
        return name in ("cpu", "cuda")
    return number.isascii() and number.isdecimal() and len(number) <= _MOST_DIGITS


def _int(value: object, what: str, example: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise OptionError(f"{what} must be an int, not {type(value).__name__} {spell(value)}", help=example)
    return operator.index(value)


def _cpu_device(request: _DeviceRequest, watchers: Sequence[KernelWatcher]) -> tuple[Device, CpuBackend]:
    """Create the CPU device if llvmlite is installed. The check finds llvmlite without importing it.

    Raises:
        MissingError: llvmlite is not installed.
        OptionError: a check or contraction is unknown.
        LaunchError: ``timeout_s`` is not a positive number.
    """
    try:
        found = find_spec("llvmlite") is not None
    except ImportError:  # somebody's import hook
        found = False
    if not found:
        raise MissingError(
            "llvmlite is not installed; the CPU device needs it to compile", help="run pip install cujit"
        )
    with importing():
        from cujit.devices.cpu.backend import CpuBackend  # optional: the CPU device needs llvmlite

    threads, check, timeout_s, contract = request
    backend = CpuBackend(threads, watchers, check=check, timeout_s=timeout_s, contract=contract)
    return _made(backend, _cpu_that_arrives, *request), backend


# -- devices in other processes ---------------------------------------------------------------------------

_ORIGINS: weakref.WeakKeyDictionary[Device, tuple[Callable[..., Device], tuple[object, ...]]] = (
    weakref.WeakKeyDictionary()
)
"""What gives the same device in another process, and what it was asked for by."""


def _made(backend: Backend, arrives: Callable[..., Device], *request: object) -> Device:
    """Make the device of a back end; ``arrives`` finds it in a process that it travels to."""
    device = Device(backend)
    _ORIGINS[device] = arrives, request
    return device


def _parts(device: Device) -> tuple[Callable[..., Device], tuple[object, ...]]:
    """Return the function and arguments that unpickle a device: its original request, otherwise its name."""
    return _ORIGINS.get(device, (_named_that_arrives, (device.name,)))


def _named_that_arrives(name: str) -> Device:
    return process_devices().named(name)


copyreg.pickle(Device, _parts)


def _cpu_that_arrives(threads: int | None, check: str | None, timeout_s: float | None, contract: str | None) -> Device:
    """Return the equivalent CPU device of this process for an unpickled one, without its watchers."""
    return process_devices().cpu(threads, check=check, timeout_s=timeout_s, contract=contract)


def _gpu_that_arrives(ordinal: int) -> Device:
    """Return the GPU with the number of an unpickled one, or the first GPU if there is no such number.

    Schedulers often assign each process a single GPU, which then has the number 0.
    """
    devices = process_devices()
    return devices.gpu(ordinal if ordinal < len(devices.gpus()) else 0)


@once
def process_devices() -> Devices:
    """Return the only registry of the process."""
    return Devices()
