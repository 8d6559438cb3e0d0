"""The devices of this process: each made once, when it is first asked for."""

from __future__ import annotations

import functools
import threading

from cujit.devices.base import Device
from cujit.devices.cuda.device import CudaDevice
from cujit.errors import DeviceNotFoundError, DriverNotFoundError
from cujit.toolchain.driver import open_driver

__all__ = ["Devices", "process_devices"]


class Devices:
    """The devices that were asked for so far; safe for threads.

    A forked process inherits them, but CUDA does not survive a fork: a GPU that was used before it refuses
    in the child, with an error that says so. The CPU device works on both sides.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._gpus: dict[int, CudaDevice] = {}
        self._cpus: dict[int | None, Device] = {}

    def gpu(self, ordinal: int = 0) -> CudaDevice:
        """Give the GPU with that number.

        Raises:
            DriverNotFoundError: there is no driver.
            DeviceNotFoundError: there is no such GPU; the message says which there are.
        """
        with self._lock:
            if ordinal not in self._gpus:
                self._gpus[ordinal] = CudaDevice(ordinal)
            return self._gpus[ordinal]

    def cpu(self, threads: int | None = None) -> Device:
        """Give the CPU device that runs blocks on that many threads; None is one per processor."""
        from cujit.devices.cpu import CpuDevice  # LLVM is loaded for those who use it

        with self._lock:
            if threads not in self._cpus:
                self._cpus[threads] = CpuDevice(threads)
            return self._cpus[threads]

    def gpus(self) -> tuple[CudaDevice, ...]:
        """Give every GPU; none if there is no driver."""
        try:
            count = open_driver().device_count()
        except (DriverNotFoundError, DeviceNotFoundError):
            return ()
        return tuple(self.gpu(i) for i in range(count))

    def default(self) -> Device:
        """Give the first GPU, or else the CPU device."""
        try:
            return self.gpu(0)
        except (DriverNotFoundError, DeviceNotFoundError):
            return self.cpu()

    def named(self, name: str) -> Device:
        """Give ``cpu`` or ``cuda:1`` by its name; ``cuda`` is the first GPU.

        Raises:
            DriverNotFoundError: there is no driver.
            DeviceNotFoundError: no device is called so.
        """
        kind, _, number = name.partition(":")
        if name == "cpu":
            return self.cpu()
        if kind == "cuda" and (number.isdecimal() or name == "cuda"):
            return self.gpu(int(number or 0))
        raise DeviceNotFoundError(f"no device is called {name!r}", help="devices are called 'cpu', 'cuda:0' …")


@functools.cache
def process_devices() -> Devices:
    """Give the one registry of the process."""
    return Devices()
