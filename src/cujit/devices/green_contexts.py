"""Green contexts: parts of a device's SMs, and the streams whose kernels run only there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import TracebackType

from cujit.devices.options import check_priority
from cujit.devices.streams import DeviceLike, Stream
from cujit.errors import ArgumentError, ClosedError, read_int

MakeStream = Callable[[int | None], Stream]
"""Makes a stream of a priority, None for the default."""


class GreenContext:
    """A subset of a device's SMs. Launches in its streams run only on these SMs. Create green contexts with
    ``device.green_contexts()``.

    ``sm_count`` is the number of SMs, which can be higher than the number that you requested.

    Example::

        (half,) = device.green_contexts(max(device.limits.processors // 2, 1))
        with half.stream() as stream:
            kernel[4, 256, 0, stream](2.0, x, y, 1000)
            stream.synchronize()
    """

    def __init__(self, device: DeviceLike, sm_count: int, make_stream: MakeStream) -> None:
        self.device = device
        self.sm_count = sm_count
        self._make_stream: MakeStream | None = make_stream

    def stream(self, *, priority: int | None = None) -> Stream:
        """Create a stream whose launches run only on these SMs. The stream doesn't wait for the default stream.

        Args:
            priority: priority of the stream: work with a lower number runs first. Default: 0.

        Raises:
            LaunchError: the device doesn't support this priority.
            DriverError: the driver reported an error.
            ClosedError: the green context was closed.

        Example::

            (half,) = device.green_contexts(max(device.limits.processors // 2, 1))
            stream = half.stream()
        """
        if priority is not None:
            check_priority(priority)
        if self._make_stream is None:
            raise ClosedError(f"this green context of {self.device.name} is closed")
        return self._make_stream(priority)

    def close(self) -> None:
        """Close the green context. Its streams keep their SMs until they are closed. Closing the green
        context again has no effect.

        Example::

            (half,) = device.green_contexts(max(device.limits.processors // 2, 1))
            half.close()
        """
        self._make_stream = None

    def __enter__(self) -> GreenContext:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = "" if self._make_stream is not None else " closed"
        return f"<GreenContext of {self.device.name}: {self.sm_count} SMs{closed}>"


def check_sm_counts(counts: Sequence[object]) -> list[int | None]:
    """Return the numbers of SMs for green contexts. One of the numbers may be None, for the remaining SMs.

    Raises:
        ArgumentError: an item is not a number, there are no items, or several items are None.
    """
    if not counts:
        raise ArgumentError(
            "sm_counts is empty, expected a number of SMs for each green context",
            help="write device.green_contexts(16, None)",
        )
    if counts.count(None) > 1:
        raise ArgumentError(
            f"{counts.count(None)} sm_counts are None, expected one at most: None means all remaining SMs",
            help="write a number of SMs for every other green context",
        )
    return [None if count is None else read_int(count, "an SM count", ArgumentError, least=1) for count in counts]
