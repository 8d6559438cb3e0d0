"""Streams: ours, and the handles of other libraries' streams."""

from __future__ import annotations

import operator
import weakref
from typing import TYPE_CHECKING

from cujit.errors import ClosedError, LaunchError

if TYPE_CHECKING:
    from cujit.devices.cuda.device import CudaDevice

__all__ = ["Stream", "stream_handle"]


class Stream:
    """A queue of a GPU's work beside the default stream, and without waiting for it.

    Other libraries take it by ``__cuda_stream__``. It is destroyed when nothing refers to it any more; the
    work in it is still done.
    """

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        flags = device.context.driver.bindings.CUstream_flags.CU_STREAM_NON_BLOCKING.value
        self._handle: int | None = int(device.context.call("cuStreamCreate", flags))
        self._finalizer = weakref.finalize(self, device.context.release, "cuStreamDestroy", self._handle)
        self._finalizer.atexit = False

    @property
    def handle(self) -> int:
        """The ``CUstream``.

        Raises:
            ClosedError: the stream was closed.
        """
        if self._handle is None:
            raise ClosedError(f"this stream of {self.device.name} was closed")
        return self._handle

    def __cuda_stream__(self) -> tuple[int, int]:
        """Give the protocol's version and the handle.

        Source: cuda.core manual, "CUDA stream protocol".
        """
        return (0, self.handle)

    def synchronize(self) -> None:
        """Wait until the work in the stream is done.

        Raises:
            DriverError: a kernel failed.
        """
        self.device.context.call("cuStreamSynchronize", self.handle)

    def close(self) -> None:
        """Destroy the stream; the work in it is still done. Again is harmless."""
        self._handle = None
        self._finalizer()

    def __repr__(self) -> str:
        return f"<Stream of {self.device.name}{'' if self._handle is not None else ' closed'}>"


def stream_handle(stream: object) -> int:
    """Read a stream: None or an int handle, or an object of any library with ``__cuda_stream__``.

    Also taken are torch's ``cuda_stream`` and CuPy's ``ptr``, for versions of them without the protocol.

    Raises:
        LaunchError: it is no stream.
        ClosedError: it was closed.
    """
    if stream is None:
        return 0
    protocol = getattr(stream, "__cuda_stream__", None)
    try:
        if callable(protocol):
            _version, handle = protocol()
        elif protocol is not None:
            _version, handle = protocol
        else:
            handle = getattr(stream, "cuda_stream", getattr(stream, "ptr", stream))
        value = operator.index(handle)
    except (TypeError, ValueError):
        raise LaunchError(
            f"stream is {type(stream).__name__} {stream!r}, which is no stream",
            help="pass a CUstream handle as an int, or an object with __cuda_stream__",
        ) from None
    if not 0 <= value < 1 << 64:
        raise LaunchError(f"stream {value} is no handle")
    return value
