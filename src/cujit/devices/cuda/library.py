"""An image in the hands of the driver (``CUlibrary``), with what the driver's compiler wrote."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from cujit.devices.cuda.context import GpuContext
from cujit.devices.cuda.driver_options import JitLogs, driver_options
from cujit.devices.jit_options import JitOptions
from cujit.errors import ClosedError, DriverError

_INVALID_CONTEXT = 201  # Source: cuda.h, CUDA_ERROR_INVALID_CONTEXT


class LoadedLibrary:
    """One loaded image; the driver unloads it when it is closed, or when no module and no kernel refers to it."""

    is_loaded = True
    """Whether the driver still has it."""
    _logs: JitLogs | None = None

    def __init__(self, context: GpuContext, handle: Any, logs: JitLogs | None = None) -> None:
        self.context, self._handle = context, handle
        if logs is not None:
            self._logs = logs

    @property
    def handle(self) -> Any:
        """The ``CUlibrary``.

        Raises:
            ClosedError: it was unloaded.
        """
        self.require()
        return self._handle

    def require(self) -> None:
        """Make sure that the library is still loaded.

        Raises:
            ClosedError: it was unloaded.
        """
        if not self.is_loaded:
            raise ClosedError("this module was closed, and its kernels and variables with it")

    @property
    def log(self) -> str:
        """What the driver's compiler and linker wrote, errors last."""
        return self._logs.text if self._logs is not None else ""

    def kernel(self, name: str) -> Any:
        """Find the ``CUkernel`` of a lowered name.

        Raises:
            ClosedError: the library was unloaded.
            DriverError: the driver refused.
        """
        status, handle = _attempt(self.context, "cuLibraryGetKernel", self.handle, name.encode())
        if status:
            raise self.context.explained(self.context.driver.error("cuLibraryGetKernel", status))
        return handle

    def kernels(self) -> list[str]:
        """List the lowered names of the kernels, in the driver's order.

        Raises:
            DriverError: the driver refused.
        """
        try:
            with self.context as driver:
                count = int(driver.call("cuLibraryGetKernelCount", self.handle))
                handles = driver.call("cuLibraryEnumerateKernels", count, self.handle) if count else []
                return [driver.call("cuKernelGetName", handle).decode() for handle in handles]
        except DriverError as e:
            raise self.context.explained(e) from None

    def close(self) -> None:
        """Unload the image through the driver. Closing again is harmless."""
        if self.is_loaded:
            self.is_loaded = False
            with suppress(Exception):  # nobody's business any more: a dead context, the process ends
                _attempt(self.context, "cuLibraryUnload", self._handle)

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        # Not at the end of the process, which gives everything back as a whole; nor where making it failed.
        if not is_ending() and "_handle" in self.__dict__:
            self.close()


def load_library(context: GpuContext, image: bytes, options: JitOptions | None = None) -> LoadedLibrary:
    """Load an image through the driver. With ``options``, the driver compiles it at once for the current GPU, with a
    log.

    Without options it is a cubin, which the driver loads when the first of its kernels is launched.

    Raises:
        DriverError: the driver refused the image; ``log`` is what its compiler wrote.
    """
    driver = context.driver
    logs = None if options is None else JitLogs()
    values = {} if options is None or logs is None else driver_options(driver, options, logs)
    arguments: tuple[Any, ...] = (image, list(values), list(values.values()), len(values), [], [], 0)
    status, handle = _attempt(context, "cuLibraryLoadData", *arguments)
    if status:
        raise context.explained(driver.error("cuLibraryLoadData", status, logs.text if logs is not None else ""))
    library = LoadedLibrary(context, handle, logs)
    if logs is not None:
        # The driver may load lazily; asking for the module makes it compile now, while its log is at hand.
        with context:
            status, _module = driver.attempt("cuLibraryGetModule", handle)
        if status:
            library.close()
            raise context.explained(driver.error("cuLibraryGetModule", status, logs.text))
    return library


def _attempt(context: GpuContext, function: str, *arguments: Any) -> tuple[Any, ...]:
    """Call what needs no context, since libraries and kernels belong to none; with ours if the driver wants one.

    Source: CUDA Driver API manual, "Library Management".
    """
    answer = context.driver.attempt(function, *arguments)
    if answer[0] == _INVALID_CONTEXT:
        with context as driver:
            answer = driver.attempt(function, *arguments)
    return answer
