"""Events of a GPU's streams."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

from cujit.devices import streams
from cujit.errors import ClosedError

if TYPE_CHECKING:
    from cujit.devices.cuda.device import CudaDevice

__all__ = ["Event"]


class Event(streams.Event):
    """A moment in a stream of a GPU; destroyed when nothing refers to it any more.

    Waiting for it spins, which is what measures best.
    """

    def __init__(self, device: CudaDevice, *, timing: bool = True) -> None:
        self.device: CudaDevice = device
        self.timed = timing
        flags = device.driver.bindings.CUevent_flags
        flag = flags.CU_EVENT_DEFAULT if timing else flags.CU_EVENT_DISABLE_TIMING
        self._handle: int | None = int(device.context.call("cuEventCreate", flag.value))
        self._finalizer = weakref.finalize(self, device.context.release, "cuEventDestroy", self._handle)
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
        return self.device.context.is_done("cuEventQuery", self.handle)

    def synchronize(self) -> None:
        """Wait until the work before it is done.

        Raises:
            DriverError: a kernel failed, or it was recorded into a graph.
            ClosedError: it was closed.
        """
        self.device.context.call("cuEventSynchronize", self.handle)

    def _elapsed_ms(self, since: streams.Event) -> float:
        assert isinstance(since, Event)  # events of one device are of one class
        return float(self.device.context.call("cuEventElapsedTime", since.handle, self.handle))

    def close(self) -> None:
        """Destroy it; the driver does so once it is reached. Again is harmless."""
        self._handle = None
        self._finalizer()

    def __repr__(self) -> str:
        return f"<Event of {self.device.name}{'' if self._handle is not None else ' closed'}>"
