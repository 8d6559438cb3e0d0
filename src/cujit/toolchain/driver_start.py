"""The driver begins beside imports: on a GPU it initialises for longer than a process imports what it launches with.

A thread makes the calls that the process is about to make: ``cuInit``, and the primary context of a GPU. What comes of
them is not looked at. Whoever makes them afterwards hears what the driver says, and finds the work done.
"""

from __future__ import annotations

import contextlib
import ctypes
import threading
from collections.abc import Iterator

# Source: CUDA Driver API manual, "Initialization" and "Primary Context Management"; the name is that of the driver's
# library on Linux, which cuda.pathfinder asks the system for too.
_LIBRARY = "libcuda.so.1"
_MOST_GPUS = 1024

_BEGUN: list[int] = []
"""The GPU that the process began with; one thread is enough, and a second GPU is rarely asked for."""


class _Start:
    """The calls for one GPU, and what gives its context back that they hold."""

    def __init__(self, ordinal: int) -> None:
        self._ordinal = ordinal
        self._library: ctypes.CDLL | None = None
        self._device = ctypes.c_int()
        self._thread = threading.Thread(target=self._begin, name="cujit: cuInit", daemon=True)

    def start(self) -> None:
        """Begin; where the system gives no thread, nothing is begun."""
        with contextlib.suppress(RuntimeError):
            self._thread.start()

    def _begin(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # no driver, or one without these functions
            library = ctypes.CDLL(_LIBRARY)
            if library.cuInit(0) or library.cuDeviceGet(ctypes.byref(self._device), self._ordinal):
                return
            context = ctypes.c_void_p()
            if library.cuDevicePrimaryCtxRetain(ctypes.byref(context), self._device) == 0:
                self._library = library

    def finish(self) -> None:
        """Wait for the calls, and give the context back; it stays where others have retained it meanwhile."""
        if self._thread.ident is not None:
            self._thread.join()
        if self._library is not None:
            self._library.cuDevicePrimaryCtxRelease_v2(self._device)


@contextlib.contextmanager
def beginning(ordinal: object) -> Iterator[None]:
    """Have the driver begin with a GPU, once in a process, while the body imports; it is done when the body is left.

    Without a driver, or such a GPU, nothing happens, and whoever asks the driver gets the error.
    """
    if _BEGUN or type(ordinal) is not int or not 0 <= ordinal < _MOST_GPUS:
        yield
        return
    _BEGUN.append(ordinal)
    start = _Start(ordinal)
    start.start()
    try:
        yield
    finally:
        start.finish()
