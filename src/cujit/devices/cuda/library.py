"""An image in the hands of the driver (``CUlibrary``), with what the driver's compiler wrote."""

from __future__ import annotations

import weakref
from typing import Any, TypeVar

from cujit.devices.cuda.context import Context
from cujit.devices.cuda.driver_options import JitLogs, driver_options
from cujit.devices.jit_options import JitOptions
from cujit.errors import ClosedError, DriverError

_T = TypeVar("_T")


class LoadedLibrary:
    """One loaded image in the primary context of one GPU.

    The driver unloads it when it is closed, or when no module and no kernel refers to it any more.

    Raises:
        DriverError: the driver refused the image; ``log`` is what its compiler wrote.
    """

    def __init__(self, context: Context, image: bytes, options: JitOptions | None = None) -> None:
        self.context = context
        self._logs = JitLogs()
        self._handle: Any = self._load(image, options or JitOptions())
        self._finalizer = weakref.finalize(self, context.release, "cuLibraryUnload", self._handle)
        self._finalizer.atexit = False
        # The driver may load lazily; asking for the module makes it compile now, while its log is at hand.
        status, _module = self._attempt("cuLibraryGetModule", self._handle)
        if status != context.driver.bindings.CUresult.CUDA_SUCCESS:
            self.close()
            raise context.explained(context.driver.error("cuLibraryGetModule", status, self.log))

    @property
    def handle(self) -> Any:
        """The ``CUlibrary``.

        Raises:
            ClosedError: it was unloaded.
        """
        return self.handle_of(self._handle)

    def handle_of(self, member: _T) -> _T:
        """Give a handle of something in this library, once it is known that it is still loaded.

        Raises:
            ClosedError: it was unloaded.
        """
        if not self._finalizer.alive:
            raise ClosedError("this module was closed, and its kernels and variables with it")
        return member

    @property
    def log(self) -> str:
        """What the driver's compiler and linker wrote, errors last."""
        return self._logs.text

    def kernels(self) -> dict[str, Any]:
        """Find the ``CUkernel`` handles by lowered name, in the driver's order.

        Raises:
            DriverError: the driver refused.
        """
        try:
            with self.context as driver:
                count = int(driver.call("cuLibraryGetKernelCount", self.handle))
                handles = driver.call("cuLibraryEnumerateKernels", count, self.handle) if count else []
                return {driver.call("cuKernelGetName", handle).decode(): handle for handle in handles}
        except DriverError as e:
            raise self.context.explained(e) from None

    def close(self) -> None:
        """Have the driver unload the image; again is harmless."""
        self._finalizer()

    def _load(self, image: bytes, said: JitOptions) -> Any:
        driver = self.context.driver
        options = driver_options(driver, said, self._logs)
        status, handle = self._attempt(
            "cuLibraryLoadData", image, list(options), list(options.values()), len(options), [], [], 0
        )
        if status != driver.bindings.CUresult.CUDA_SUCCESS:
            raise self.context.explained(driver.error("cuLibraryLoadData", status, self.log))
        return handle

    def _attempt(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        with self.context as driver:
            return driver.attempt(function, *arguments)
