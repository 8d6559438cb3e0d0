"""Start of the driver in parallel with imports, because the driver takes longer to initialize a GPU than imports take.

A thread makes the calls that the process is about to make: ``cuInit``, and the primary context of a GPU. It ignores
their results. The process later makes the same calls, which are then fast, and gets the driver's errors. An early start
saves more, so this module imports only ``ctypes``.
"""

from __future__ import annotations

import _thread
import ctypes

# Source: CUDA Driver API manual, "Initialization" and "Primary Context Management"; the name is that of the driver's
# library on Linux, which cuda.pathfinder asks the system for too.
_LIBRARY = "libcuda.so.1"
_MOST_GPUS = 1024

_BEGUN: list[int] = []
"""The GPU that the process began with; one thread is enough, and a second GPU is rarely asked for."""


class beginning:  # noqa: N801 - a context manager, and read as a verb
    """Start the driver with a GPU once per process while the block imports modules.

    The start is complete at the end of the block. Without a driver or the GPU, nothing happens, and later calls of the
    driver raise the error.
    """

    def __init__(self, ordinal: object) -> None:
        self._ordinal = ordinal
        self._library: ctypes.CDLL | None = None
        self._device = ctypes.c_int()
        self._done = _thread.allocate_lock()

    def __enter__(self) -> None:
        if _BEGUN or type(self._ordinal) is not int or not 0 <= self._ordinal < _MOST_GPUS:
            return
        _BEGUN.append(self._ordinal)
        self._done.acquire()
        try:
            _thread.start_new_thread(self._begin, ())
        except RuntimeError:  # where the system gives no thread, nothing is begun
            self._done.release()

    def _begin(self) -> None:
        try:
            library = ctypes.CDLL(_LIBRARY)
            if library.cuInit(0) or library.cuDeviceGet(ctypes.byref(self._device), self._ordinal):
                return
            context = ctypes.c_void_p()
            if library.cuDevicePrimaryCtxRetain(ctypes.byref(context), self._device) == 0:
                self._library = library
        except (OSError, AttributeError):
            pass  # no driver, or one without these functions
        finally:
            self._done.release()

    def __exit__(self, *_: object) -> None:
        """Wait for the calls, and release the context. It remains if others have retained it."""
        with self._done:
            if self._library is not None:
                self._library.cuDevicePrimaryCtxRelease_v2(self._device)
