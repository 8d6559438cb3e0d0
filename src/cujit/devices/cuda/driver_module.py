"""An image that the driver loaded (``CUmodule``), with the log of the driver's compiler."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from cujit.devices.cuda.context import GpuContext
from cujit.devices.cuda.driver_options import JitLogs, driver_options
from cujit.devices.jit_options import JitOptions
from cujit.devices.launcher.state import HandleSlots
from cujit.errors import ClosedError, DriverError


class DriverModule(HandleSlots):
    """One image, loaded in the primary context of a GPU.

    The driver unloads the image when the module is closed or no longer referenced.

    The image is a ``CUmodule``, not a ``CUlibrary``. To load a cubin, find its kernel, and launch it once needs 0.85 of
    the time of a library. A later launch needs 0.92 of the time. Source: ``benchmarks/life_floor.c`` on an H200, driver
    580, 300 cubins of one kernel each.
    """

    __slots__ = ("_logs",)

    context: GpuContext
    _handle: int
    is_loaded: bool
    """Whether the driver still has it."""

    def __init__(self, context: GpuContext, handle: Any, logs: JitLogs | None = None) -> None:
        self.context, self._handle, self._logs, self.is_loaded = context, int(handle), logs, True

    @property
    def handle(self) -> int:
        """The ``CUmodule``, as native code has it, too.

        Raises:
            ClosedError: it was unloaded.
        """
        self.require()
        return self._handle

    def require(self) -> None:
        """Make sure that the image is still loaded.

        Raises:
            ClosedError: it was unloaded.
        """
        if not self.is_loaded:
            raise ClosedError("this module is closed, as are its kernels and variables")

    @property
    def log(self) -> str:
        """The log of the driver's compiler and linker, with errors last."""
        return self._logs.text if self._logs is not None else ""

    def function(self, name: str) -> Any:
        """Find the ``CUfunction`` of a lowered name; the driver loads its code now.

        Raises:
            ClosedError: the image was unloaded.
            DriverError: the driver rejected the launch.
        """
        return self.context.call("cuModuleGetFunction", self.handle, name.encode())

    def kernels(self) -> list[str]:
        """List the lowered names of the kernels, in the driver's order.

        Raises:
            DriverError: the driver rejected the launch.
        """
        try:
            with self.context as driver:
                count = int(driver.call("cuModuleGetFunctionCount", self.handle))
                handles = driver.call("cuModuleEnumerateFunctions", count, self.handle) if count else []
                return [driver.call("cuFuncGetName", handle).decode() for handle in handles]
        except DriverError as e:
            raise self.context.explained(e) from None

    def close(self) -> None:
        """Unload the image through the driver. Closing again is harmless."""
        if self.is_loaded:
            self.is_loaded = False
            self.context.release("cuModuleUnload", self._handle)

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # Not at the end of the process, which gives everything back as a whole; nor where making it failed.
        if not is_ending() and hasattr(self, "_handle"):
            self.close()


def load_module(context: GpuContext, image: bytes, options: JitOptions | None = None) -> DriverModule:
    """Load an image with the driver. With ``options``, the driver compiles the image for the GPU, and writes a log.

    Without options, the image must be a cubin.

    Raises:
        DriverError: the driver rejected the image. ``log`` contains the output of the driver's compiler.
    """
    driver = context.driver
    logs = None if options is None else JitLogs()
    values = {} if options is None or logs is None else driver_options(driver, options, logs)
    with context:
        status, handle = driver.attempt("cuModuleLoadDataEx", image, len(values), list(values), list(values.values()))
    if status:
        raise context.explained(driver.error("cuModuleLoadDataEx", status, logs.text if logs is not None else ""))
    return DriverModule(context, handle, logs)
