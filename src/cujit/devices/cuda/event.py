"""Events of a GPU's streams."""

from __future__ import annotations

import weakref

from cujit.devices.cuda.gpu import Gpu
from cujit.devices.streams import DeviceLike, Event
from cujit.errors import ClosedError

__all__ = ["CudaEvent"]


class CudaEvent(Event):
    """A moment in a stream of a GPU; destroyed when nothing refers to it any more.

    Waiting for it spins, which is what measures best.
    """

    def __init__(self, device: DeviceLike, context: Gpu, *, timing: bool = True) -> None:
        self.device = device
        self._context = context
        self.timed = timing
        flags = context.driver.bindings.CUevent_flags
        flag = flags.CU_EVENT_DEFAULT if timing else flags.CU_EVENT_DISABLE_TIMING
        self._handle: int | None = int(context.call("cuEventCreate", flag.value))
        self._finalizer = weakref.finalize(self, context.release, "cuEventDestroy", self._handle)
        self._finalizer.atexit = False

    @property
    def handle(self) -> int:
        """The ``CUevent``.

        Raises:
            ClosedError: it was closed.
        """
        if self._handle is None:
            raise ClosedError(f"this event of {self.device.name} was closed")
        return self._handle

    @property
    def done(self) -> bool:
        """Whether the work before it is done; False too where it is not reached yet.

        Raises:
            DriverError: a kernel failed.
            ClosedError: it was closed.
        """
        return self._context.is_done("cuEventQuery", self.handle)

    def synchronize(self) -> None:
        """Wait until the work before it is done.

        Raises:
            DriverError: a kernel failed, or it was recorded into a graph.
            ClosedError: it was closed.
        """
        self._context.call("cuEventSynchronize", self.handle)

    def _elapsed_ms(self, since: Event) -> float:
        assert isinstance(since, CudaEvent)  # events of one device are of one class
        return float(self._context.call("cuEventElapsedTime", since.handle, self.handle))

    def close(self) -> None:
        """Destroy it; the driver does so once it is reached. Again is harmless."""
        self._handle = None
        self._finalizer()

    def __repr__(self) -> str:
        return f"<Event of {self.device.name}{'' if self._handle is not None else ' closed'}>"
