"""Launch times: measured by events on a GPU, and by the clock on the CPU device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from time import perf_counter_ns

import numpy as np

from cujit.devices.arrays.array import DeviceArray
from cujit.devices.device import Device
from cujit.devices.process import process_devices
from cujit.devices.streams import DeviceLike, Event, Graph, Stream
from cujit.errors import ArgumentError, read_int, spell
from cujit.kernel import Launch
from cujit.values import dataclass

_SAMPLE_MS = 0.2
"""How long a sample of short calls is made. Events resolve half a microsecond, and the clock 0.1 on a busy machine; 0.2
milliseconds makes that less than half a percent."""

_LONG_MS = 1000.0
"""A call that is as long as this is not made again to see whether it was slow by chance."""

_MOST_CALLS = 10_000
_CACHE_BYTES = 64 << 20
"""Bytes that empty a cache whose size is not known; more than the last cache of most processors."""


@dataclass(frozen=True)
class Timing:
    """Time per call, in milliseconds. Each sample is the mean over ``calls`` calls. Samples are in measurement order.

    Example::

        timing = cujit.time(kernel[4, 256], 2.0, x, y, 1000, repeat=3)
        print(timing.median_ms, timing.spread, timing.samples_ms)
    """

    samples_ms: tuple[float, ...]
    calls: int
    device: str

    @property
    def median_ms(self) -> float:
        """The median of the samples."""
        return self.percentile_ms(50)

    @property
    def p10_ms(self) -> float:
        """The 10th percentile of the samples."""
        return self.percentile_ms(10)

    @property
    def p90_ms(self) -> float:
        """The 90th percentile of the samples."""
        return self.percentile_ms(90)

    @property
    def min_ms(self) -> float:
        """The shortest sample."""
        return min(self.samples_ms)

    @property
    def max_ms(self) -> float:
        """The longest sample."""
        return max(self.samples_ms)

    @property
    def spread(self) -> float:
        """The spread of the samples: the difference between the 90th and 10th percentiles, relative to the median."""
        return (self.p90_ms - self.p10_ms) / self.median_ms if self.median_ms else 0.0

    def percentile_ms(self, percent: float) -> float:
        """Return a percentile of the samples, interpolated between adjacent samples.

        Args:
            percent: percentile, from 0 to 100.

        Example::

            timing = cujit.time(kernel[4, 256], 2.0, x, y, 1000, repeat=3)
            assert timing.percentile_ms(0) == timing.min_ms
        """
        return float(np.percentile(self.samples_ms, percent))

    def __repr__(self) -> str:
        return f"<Timing {self}>"

    def __str__(self) -> str:
        scale, unit = _unit(self.median_ms)
        low, middle, high = (f"{value * scale:.4g}" for value in (self.p10_ms, self.median_ms, self.p90_ms))
        each = f" of {self.calls} calls" if self.calls > 1 else ""
        count = len(self.samples_ms)
        return f"{middle} {unit} ({low} to {high} in 80 % of {count} samples{each} on {self.device})"


def _unit(ms: float) -> tuple[float, str]:
    """Choose the unit that a time is written in, and how many of it a millisecond is."""
    if ms >= 1000:
        return 1e-3, "s"
    return (1.0, "ms") if ms >= 1 else (1e3, "µs")


def time(
    call: Callable[..., object],
    *arguments: object,
    repeat: int = 50,
    warmup: int = 3,
    calls: int | None = None,
    flush_cache: bool = False,
    limit_s: float = 5.0,
    device: DeviceLike | str | None = None,
    stream: object = None,
) -> Timing:
    """Measure the time of ``call(*arguments)``. ``call`` is a launch, a graph's ``launch``, or a function that launches
    kernels.

    On a GPU, cujit measures the time between two events in ``stream``, without the work in other streams. On the CPU
    device, cujit measures elapsed time.

    Args:
        call: function to time.
        arguments: arguments for ``call``.
        repeat: number of samples.
        warmup: calls before the first sample.
        calls: calls per sample. Default: enough calls for 0.2 ms, so that event resolution and launch latency don't
            affect the result.
        flush_cache: whether to flush the L2 cache (on the CPU device, the last-level cache) before each call. If True,
            ``calls`` is 1.
        limit_s: seconds after which sampling stops, with at least three samples.
        device: device to measure. Default: the device of the launch or graph, otherwise the first GPU, or the CPU
            device if there is no GPU.
        stream: stream to measure. Default: the stream of the launch or graph, otherwise the default stream.

    Raises:
        ArgumentError: ``call`` isn't callable, or a number is out of range.
        DriverError: a kernel failed.

    Example::

        timing = cujit.time(kernel[4, 256], 2.0, x, y, 1000, repeat=10)
        print(f"{timing.median_ms:.3f} ms")
    """
    plan = _plan(call, repeat, warmup, calls, limit_s, flush_cache)
    place, queue = _place(call, device, stream)

    def run(count: int) -> None:
        for _ in range(count):
            call(*arguments)

    run(plan.warmup)
    queue.synchronize()
    measure = _by_events(queue, run) if place.is_gpu else _by_clock(run)
    cold = _cold(place) if flush_cache else None
    count = plan.calls or (1 if flush_cache else _calls(measure))
    samples: list[float] = []
    start = perf_counter_ns()
    while len(samples) < plan.repeat and (len(samples) < 3 or perf_counter_ns() - start < plan.limit_s * 1e9):
        if cold is not None:
            cold.fill(len(samples) & 0xFF, stream=queue)
        samples.append(measure(count) / count)
    return Timing(tuple(samples), count, place.name)


@dataclass(frozen=True)
class _Plan:
    repeat: int
    warmup: int
    calls: int | None
    limit_s: float


def _plan(call: object, repeat: object, warmup: object, calls: object, limit_s: object, flush_cache: object) -> _Plan:
    if not callable(call):
        raise ArgumentError(
            f"{type(call).__name__} {spell(call)} is not callable"[:200],
            help="write cujit.time(kernel[grid, block], x, y, n), or pass a function that launches",
        )
    if calls is not None and flush_cache and calls != 1:
        raise ArgumentError(
            f"with flush_cache, a sample must consist of one call, not {spell(calls)}", help="remove calls"
        )
    try:
        seconds = float(limit_s)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise ArgumentError(f"limit_s must be a number of seconds, not {spell(limit_s)}") from None
    if not seconds > 0:
        raise ArgumentError(f"limit_s is {spell(limit_s)}, expected more than 0 seconds")
    return _Plan(
        read_int(repeat, "repeat", ArgumentError, least=1),
        read_int(warmup, "warmup", ArgumentError, least=0),
        None if calls is None else read_int(calls, "calls", ArgumentError, least=1),
        seconds,
    )


def _place(call: object, device: DeviceLike | str | None, stream: object) -> tuple[Device, Stream]:
    """Return the device and the stream to measure on. Default: those of the launch."""
    if isinstance(call, Launch):
        place = call.kernel.device
        if device is not None and process_devices().named(device) is not place:
            raise ArgumentError(
                f"the launch runs on {place.name}, not on {spell(device)}",
                help="remove device",
                code="device-mismatch",
            )
        own = call.stream if call.stream_owner is None else call.stream_owner
        return place, place.queue(own if stream is None else stream)
    graph = getattr(call, "__self__", None)
    if isinstance(graph, Graph):
        place = process_devices().named(graph.device)
        return place, graph.stream if stream is None else place.queue(stream)
    if device is None and isinstance(stream, Stream):
        place = process_devices().named(stream.device)
    else:
        place = process_devices().default() if device is None else process_devices().named(device)
    return place, place.queue(stream)


def _by_events(queue: Stream, run: Callable[[int], None]) -> Callable[[int], float]:
    """Return the time of several calls between two events, in milliseconds."""
    events: list[Event] = [queue.record(), queue.record()]

    def measure(count: int) -> float:
        queue.record(events[0])
        run(count)
        queue.record(events[1])
        return events[1].elapsed_ms(events[0])

    return measure


def _by_clock(run: Callable[[int], None]) -> Callable[[int], float]:
    """Return the time of several calls by the clock, in milliseconds."""

    def measure(count: int) -> float:
        start = perf_counter_ns()
        run(count)
        return (perf_counter_ns() - start) / 1e6

    return measure


def _calls(measure: Callable[[int], float]) -> int:
    """Return the number of calls per sample, so that a sample takes ``_SAMPLE_MS``. A single slow call
    doesn't decide.
    """
    count = 1
    for count in _powers():
        took = measure(count)
        if _SAMPLE_MS / 2 <= took < _LONG_MS:
            took = min(took, measure(count), measure(count))
        if took >= _SAMPLE_MS / 2:
            return max(1, round(count * _SAMPLE_MS / took))
    return count


def _powers() -> Iterator[int]:
    count = 1
    while count < _MOST_CALLS:
        yield count
        count *= 4


def _cold(place: Device) -> DeviceArray:
    """Memory that fills the cache when it is written: twice its size."""
    return place.empty(2 * (place.cache_bytes or _CACHE_BYTES), np.uint8)
