"""The primary context of a GPU: the one that the CUDA runtime, PyTorch, CuPy and JAX use too."""

from __future__ import annotations

from typing import Any

from cujit.toolchain.driver import Driver

__all__ = ["Context"]


class Context:
    """The primary context of one GPU, retained from the first use to the end of the process.

    As a context manager it is made current for the thread and the one before it restored, so nothing that
    another library made current is disturbed. Every thread may use it at the same time.
    """

    def __init__(self, driver: Driver, ordinal: int) -> None:
        self.driver = driver
        self.device: Any = driver.call("cuDeviceGet", ordinal)
        self.handle: Any = driver.call("cuDevicePrimaryCtxRetain", self.device)

    def __enter__(self) -> Driver:
        self.driver.call("cuCtxPushCurrent", self.handle)
        return self.driver

    def __exit__(self, *_error: object) -> None:
        # Cannot fail where the push went well, and must not hide the error of the body.
        self.driver.attempt("cuCtxPopCurrent")

    def call(self, function: str, *arguments: Any, log: str = "") -> Any:
        """Call one function of the driver with this context current.

        Raises:
            DriverError: the driver refused.
        """
        with self as driver:
            return driver.call(function, *arguments, log=log)

    def release(self, function: str, handle: Any) -> None:
        """Give a handle back; a failure is nobody's business any more (a dead context, the process ends)."""
        try:
            with self as driver:
                driver.attempt(function, handle)
        except Exception:
            return
