"""What measuring a launch gives: one body on every device."""

from __future__ import annotations

import time as clock
from typing import Any

import numpy as np
import pytest

from cujit import machine
from cujit.devices.device import Device
from cujit.errors import ArgumentError, LaunchError
from cujit.loading import jit
from cujit.timing import Timing, _calls, time
from emulator.programs import python
from raising import raises

FILL = """extern "C" __global__ void fill(float *x, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] = i;
}"""


def test_launch_is_timed_on_its_device(device: Device) -> None:
    fill, x = jit(FILL, device=device)["fill"], device.zeros(1 << 16, np.float32)
    timing = time(fill[16, 256], x, x.size, repeat=12, warmup=2)
    assert timing.device == device.name
    assert len(timing.samples_ms) == 12
    assert 0 < timing.min_ms <= timing.p10_ms <= timing.median_ms <= timing.p90_ms <= timing.max_ms < 1000
    assert x.numpy()[:3].tolist() == [0, 1, 2]


def test_more_work_takes_longer(device: Device) -> None:
    fill, x = jit(FILL, device=device)["fill"], device.zeros(1 << 22, np.float32)
    small, large = (time(fill[1, 32], x, n, repeat=5, warmup=1) for n in (1 << 12, 1 << 22))
    assert large.median_ms > 5 * small.median_ms  # 1,024 times the work; others may have the GPU in between
    assert small.calls > 1


def test_launch_is_timed_in_its_stream(device: Device) -> None:
    fill, x, stream = jit(FILL, device=device)["fill"], device.zeros(1 << 22, np.float32), device.stream()
    own = time(fill[1, 32, 0, stream], x, x.size, repeat=3)
    assert own.median_ms > 0.05
    assert time(fill[1, 32, 0, stream], x, x.size, repeat=3, stream=stream).median_ms > 0.05


def test_function_is_timed_on_the_device_of_the_stream(cpu: Device) -> None:
    other = machine.cpu(check="memory")
    assert time(lambda: None, stream=other.stream(), repeat=1, calls=1).device == other.name
    with raises(LaunchError, "stream", "device.stream()"):
        time(lambda: None, stream=other.stream(), device=cpu)
    with raises(LaunchError, "stream", "device.stream()"):
        time(jit(FILL, device=cpu)["fill"][1, 32], None, 0, stream=other.stream())


def test_graph_is_timed_in_its_stream(device: Device) -> None:
    x = device.zeros(1 << 24, np.float32)
    device.synchronize()
    with device.capture() as graph:
        x.fill(1.5, stream=graph.stream)
    timing = time(graph.launch, repeat=3)
    assert timing.device == device.name
    assert timing.median_ms > 0.005


def test_function_is_called_so_many_times(cpu: Device) -> None:
    seen: list[object] = []
    timing = time(seen.append, "x", repeat=4, warmup=3, calls=2, device=cpu)
    assert seen == ["x"] * (3 + 4 * 2)
    assert (timing.calls, len(timing.samples_ms), timing.device) == (2, 4, "cpu")
    seen.clear()
    timing = time(seen.append, "x", calls=1, device=cpu)
    assert (len(seen), len(timing.samples_ms)) == (3 + 50, 50), "what is in the documentation"


def test_sample_is_the_mean_over_its_calls(cpu: Device) -> None:
    timing = time(clock.sleep, 0.001, repeat=3, warmup=0, calls=50, device=cpu)
    assert 1 <= timing.min_ms < 25, "a sleep may be some ms too long, and 50 of them take 50"


def test_gpu_sample_is_the_time_between_two_events() -> None:
    said = python("""
    import cujit

    def recorded(stream, *event):
        print("event")
        return record(stream, *event)

    stream = cujit.gpu().stream()
    record, type(stream).record = type(stream).record, recorded
    timing = cujit.time(print, "call", repeat=2, warmup=1, calls=3, stream=stream)
    print(timing.device, timing.calls, len(timing.samples_ms))
    """)
    sample = ["event", "call", "call", "call", "event"]
    assert said.split() == ["call", "event", "event", *sample * 2, "cuda:0", "3", "2"]


def test_gpu_samples_follow_each_other_in_a_stream() -> None:
    said = python("""
    import time
    import cujit

    def recorded(stream, *event):
        streams.append(stream)
        return record(stream, *event)

    device, streams = cujit.gpu(), []
    x, other = device.zeros(1 << 16, "f4"), device.stream()
    with device.capture() as graph:
        x.fill(1, stream=graph.stream)
    record, type(other).record = type(other).record, recorded
    for stream in (None, other):
        streams.clear()
        began = time.perf_counter()
        timing = cujit.time(graph.launch, repeat=20, calls=5, stream=stream)
        took = 1000 * (time.perf_counter() - began)
        print({each is (stream or graph.stream) for each in streams}, timing.min_ms > 0)
        print(5 * sum(timing.samples_ms) <= took)
    code = ".version 7.0\\n.target sm_70\\n.address_size 64\\n.visible .entry nothing() { ret; }"
    nothing = cujit.load(code, device)["nothing"]
    for stream in (other, other.handle):
        streams.clear()
        cujit.time(nothing[1, 1, 0, stream], repeat=1)
        print({each.handle == other.handle for each in streams})
    """)
    assert said.splitlines() == ["{True} True", "True"] * 2 + ["{True}"] * 2


def test_single_slow_call_does_not_set_the_sample_size(cpu: Device) -> None:
    count = 0

    def hiccup() -> None:
        nonlocal count
        count += 1
        if count == 4:  # the first after the warm-up
            clock.sleep(0.003)

    assert time(hiccup, repeat=3, warmup=3, device=cpu).calls > 20


@pytest.mark.parametrize(
    ("call_ms", "calls", "asked"),
    [
        (1000.0, 1, [1]),
        (1.0, 1, [1, 1, 1]),
        (0.1, 2, [1, 1, 1]),
        (0.09, 2, [1, 4, 4, 4]),
        (0.03, 7, [1, 4, 4, 4]),
        (0.001, 200, [1, 4, 16, 64, 256, 256, 256]),
        (0.0, 4096, [1, 4, 16, 64, 256, 1024, 4096]),
    ],
)
def test_sample_of_short_calls_takes_200_microseconds(call_ms: float, calls: int, asked: list[int]) -> None:
    counts: list[int] = []

    def measure(count: int) -> float:
        counts.append(count)
        return count * call_ms

    assert _calls(measure) == calls
    assert counts == asked


def test_samples_end_with_the_time_and_are_three_at_least(cpu: Device) -> None:
    assert len(time(clock.sleep, 0.003, limit_s=1e-6, device=cpu).samples_ms) == 3
    assert 3 < len(time(clock.sleep, 0.003, limit_s=0.3, repeat=1000, device=cpu).samples_ms) < 200


def test_cache_is_filled_with_other_memory_before_each_call(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    if not device.is_gpu:
        monkeypatch.setattr(device.backend, "cache_bytes", 3 << 20)  # a server's takes a second to fill
    x = device.zeros(1 << 10, np.float32)
    timing = time(jit(FILL, device=device)["fill"][1, 32], x, 32, repeat=3, flush_cache=True)
    assert timing.calls == 1
    assert timing.min_ms > 0


@pytest.mark.parametrize(
    ("cache_bytes", "most_bytes"), [(3 << 20, 6 << 20), (0, 128 << 20)], ids=["known", "not known"]
)
def test_cache_flush_writes_twice_its_size_before_each_sample(
    cpu: Device, monkeypatch: pytest.MonkeyPatch, cache_bytes: int, most_bytes: int
) -> None:
    """Where it is not known, more than the last cache of most processors."""
    filled: list[tuple[int, int]] = []
    monkeypatch.setattr(cpu, "fill", lambda _address, size, byte=0: filled.append((size, byte)))
    monkeypatch.setattr(cpu.backend, "cache_bytes", cache_bytes)
    time(lambda: None, repeat=258, flush_cache=True, device=cpu)
    assert filled == [(most_bytes, byte) for byte in (*range(256), 0, 1)]


def test_cache_size_of_a_device_may_be_unknown(device: Device) -> None:
    assert device.cache_bytes >= (1 << 20 if device.is_gpu else 0)


@pytest.mark.parametrize(
    ("keywords", "why"),
    [
        ({"repeat": 0}, ("repeat", "0", "1")),
        ({"repeat": 1.5}, ("repeat", "float 1.5")),
        ({"warmup": -1}, ("warmup", "-1")),
        ({"calls": 0}, ("calls", "0")),
        ({"calls": 3, "flush_cache": True}, ("3", "flush_cache")),
        ({"limit_s": 0}, ("limit_s", "0")),
        ({"limit_s": float("nan")}, ("limit_s", "nan")),
        ({"limit_s": "long"}, ("limit_s",)),
    ],
    ids=str,
)
def test_number_out_of_range_is_refused(cpu: Device, keywords: dict[str, Any], why: tuple[str, ...]) -> None:
    with raises(ArgumentError, "argument", *why):
        time(lambda: None, device=cpu, **keywords)


def test_noncallable_is_refused(cpu: Device) -> None:
    with raises(ArgumentError, "argument", "3", "cujit.time"):
        time(3, device=cpu)  # type: ignore[arg-type]
    with raises(LaunchError, "grid-missing"):
        time(jit(FILL, device=cpu)["fill"])


def test_launch_of_another_device_is_refused(cpu: Device) -> None:
    from cujit.devices.cpu.backend import CpuBackend

    launch = jit(FILL, device=Device(CpuBackend(1)))["fill"][1, 32]
    with raises(ArgumentError, "device-mismatch", "cpu"):
        time(launch, device=cpu)


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0.0125, "12.5 µs (12.5 to 12.5 in 80 % of 3 samples on cpu)"),
        (1.0, "1 ms (1 to 1 in 80 % of 3 samples on cpu)"),
        (2.0, "2 ms (2 to 2 in 80 % of 3 samples on cpu)"),
        (1000.0, "1 s (1 to 1 in 80 % of 3 samples on cpu)"),
        (3456.0, "3.456 s (3.456 to 3.456 in 80 % of 3 samples on cpu)"),
    ],
)
def test_timing_prints_with_its_unit(ms: float, text: str) -> None:
    assert str(Timing((ms, ms, ms), 1, "cpu")) == text


def test_timing_has_its_spread() -> None:
    timing = Timing(tuple(float(n) for n in range(1, 12)), 4, "cuda:0")
    assert (timing.p10_ms, timing.median_ms, timing.p90_ms, timing.spread) == (2.0, 6.0, 10.0, 8 / 6)
    assert str(timing) == "6 ms (2 to 10 in 80 % of 11 samples of 4 calls on cuda:0)"
    assert str(Timing((1.0,), 2, "cpu")) == "1 ms (1 to 1 in 80 % of 1 samples of 2 calls on cpu)"
