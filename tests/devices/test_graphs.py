"""Work that is captured into graphs and launched again: one body on every device."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.errors import ArgumentError, ClosedError, DriverError, LaunchError
from cujit.loading import jit
from raising import raises

ADD = """extern "C" __global__ void add(float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += a;
}"""


def test_captured_copies_and_fills_run_with_the_graph(device: Device) -> None:
    stream = device.stream()
    host = device.pinned(4, np.float32)
    x, y = device.zeros(4, np.float32, stream=stream), device.zeros(4, np.float32, stream=stream)
    stream.synchronize()
    with device.capture(stream) as graph:
        during = stream.is_capturing
        x.copy_from(host, stream=stream)
        x[1:3].fill(7, stream=stream)
        y.copy_from(x, stream=stream)
    assert (during, stream.is_capturing) == (True, False)
    assert not y.numpy().any()
    assert graph.nodes == 3
    for value in (1.0, 2.0):
        host[:] = value
        graph.launch()
        assert y.numpy().tolist() == [value, 7, 7, value]


def test_captured_launches_run_with_the_graph(device: Device) -> None:
    add = jit(ADD, device=device)["add"]
    x = device.zeros(100, np.float32)
    device.synchronize()
    with device.capture() as graph:
        add[1, 128, 0, graph.stream](x, 1.0, 100)
        add.over(50, stream=graph.stream)(x, 10.0, 50)
    assert graph.nodes == 2
    assert not x.numpy().any()
    graph.launch()
    graph.launch()
    graph.stream.synchronize()
    assert x.numpy().tolist() == [22.0] * 50 + [2.0] * 50


@pytest.mark.parametrize("mode", ["relaxed", "thread_local", "global"])
@pytest.mark.parametrize("is_preloaded", [True, False], ids=["preloaded", "not loaded yet"])
def test_first_launch_of_a_kernel_may_be_captured(device: Device, mode: str, is_preloaded: bool) -> None:
    module = jit(ADD.replace("a;", f"a + {0 if is_preloaded else 1} + {len(mode)};"), device=device)
    if is_preloaded:
        module.preload()
    x = device.zeros(4, np.float32)
    device.synchronize()
    with device.capture(mode=mode) as graph:
        module["add"][1, 32, 0, graph.stream](x, 1.0, 4)
    graph.launch()
    graph.stream.synchronize()
    assert x.numpy().tolist() == [(1.0 if is_preloaded else 2.0) + len(mode)] * 4
    module.close()
    with pytest.raises(ClosedError):
        module.preload()


def test_graph_with_a_closed_modules_kernel_is_refused(cpu: Device) -> None:
    module = jit(ADD, device=cpu)
    x = cpu.zeros(4, np.float32)
    with cpu.capture() as graph:
        module["add"][1, 32, 0, graph.stream](x, 1.0, 4)
    graph.launch()
    module.close()
    with raises(ClosedError, "closed", "add"):
        graph.launch()
    assert x.numpy().tolist() == [1.0] * 4


def test_graph_is_launched_in_other_streams_and_graphs(device: Device) -> None:
    x = device.zeros(3, np.int32)
    device.synchronize()
    with device.capture() as inner:
        x.fill(5, stream=inner.stream)
    inner.launch(device.stream())
    inner.launch(0)
    device.synchronize()
    assert x.numpy().tolist() == [5, 5, 5]
    with device.capture() as outer:
        x.fill(9, stream=outer.stream)
        inner.launch(outer.stream)
        x[:1].fill(6, stream=outer.stream)
    assert x.numpy().tolist() == [5, 5, 5]
    inner.close()
    outer.launch()
    device.synchronize()
    assert x.numpy().tolist() == [6, 5, 5]


def test_nested_graph_is_waited_for_by_other_streams(device: Device) -> None:
    x, y = device.zeros(1 << 20, np.int32), device.zeros(1 << 20, np.int32)
    device.synchronize()
    with device.capture() as inner:
        x.fill(5, stream=inner.stream)
    stream, other = device.stream(), device.stream()
    with device.capture(stream) as outer:
        inner.launch(stream)
        other.wait(stream)
        y.copy_from(x, stream=other)
        stream.wait(other)
        inner.launch(stream)
    outer.launch()
    assert (y.numpy(stream=stream) == 5).all()


def test_nested_graph_has_its_updated_arguments(device: Device) -> None:
    x = device.zeros(3, np.int32)
    device.synchronize()
    graphs = []
    for value in (3, 4, 5):
        with device.capture() as graph:
            x.fill(value, stream=graph.stream)
        graphs.append(graph)
    graphs[0].update(graphs[1])
    with device.capture() as outer:
        graphs[0].launch(outer.stream)
    graphs[0].update(graphs[2])
    for graph in graphs:
        graph.close()
    outer.launch()
    assert x.numpy(stream=outer.stream).tolist() == [4, 4, 4]


def test_graph_keeps_objects_of_nested_graphs(device: Device) -> None:
    class Held:
        pass

    held = Held()
    alive = weakref.ref(held)
    with device.capture() as inner:
        inner.keep(held)
    with device.capture() as outer:
        inner.launch(outer.stream)
    inner.close()
    del held
    gc.collect()
    assert alive() is not None
    outer.close()
    gc.collect()
    assert alive() is None


def test_streams_waiting_for_a_captured_stream_are_captured(device: Device) -> None:
    x = device.zeros(2, np.int32)
    device.synchronize()
    stream, other = device.stream(), device.stream()
    with device.capture(stream) as graph:
        x[:1].fill(1, stream=stream)
        other.wait(stream.record())
        during = other.is_capturing
        x[1:].fill(2, stream=other)
        stream.wait(other)
    assert (during, other.is_capturing) == (True, False)
    assert x.numpy().tolist() == [0, 0]
    graph.launch()
    stream.synchronize()
    assert x.numpy().tolist() == [1, 2]


def test_graph_takes_the_values_of_another_one(device: Device) -> None:
    x = device.zeros(3, np.int32)
    device.synchronize()
    graphs = []
    for value in (3, 4):
        with device.capture() as graph:
            x.fill(value, stream=graph.stream)
        graphs.append(graph)
    graphs[0].update(graphs[1])
    graphs[1].close()
    graphs[0].launch()
    graphs[0].stream.synchronize()
    assert x.numpy().tolist() == [4, 4, 4]
    with device.capture() as longer:
        x.fill(1, stream=longer.stream)
        x.fill(2, stream=longer.stream)
    with raises(LaunchError, "graph-update", "1", "2"):
        graphs[0].update(longer)
    with pytest.raises(ClosedError):
        graphs[0].update(graphs[1])
    with raises(ArgumentError, "device-mismatch", "updated"):
        graphs[0].update(None)  # type: ignore[arg-type]


def test_waiting_for_a_captured_stream_is_refused_harmlessly(device: Device) -> None:
    stream = device.stream()
    x = device.zeros(3, np.float32)
    device.synchronize()
    with device.capture(stream) as graph:
        uses: list[Any] = [
            stream.synchronize,
            lambda: stream.done,
            lambda: x.numpy(stream=stream),
            lambda: x.copy_from(np.zeros(3, np.float32), stream=stream),
            lambda: device.zeros(3, np.float32, stream=stream),
            lambda: device.capture(stream).__enter__(),
        ]
        for use in uses:
            with raises(LaunchError, "stream-capture", "captured"):
                use()
        with raises(LaunchError, "stream-capture", "graph.launch()"):
            graph.launch()
        with raises(LaunchError, "stream-capture", "captured"):
            graph.close()
        x.fill(3, stream=stream)
    graph.launch()
    assert x.numpy(stream=stream).tolist() == [3, 3, 3]


_WAITS = ("copy_from", "copy_to", "empty in a stream", "synchronize", "done", "event")
"""What waits, or needs memory of a stream: the modes of captures forbid it."""


def _calls(device: Device, x: Any, other: Any, event: Any) -> dict[str, Callable[[], object]]:
    host, pinned = np.ones(4, np.float32), device.pinned(4, np.float32)
    return {
        "upload": lambda: x.copy_from(host),
        "array": lambda: device.array(host),
        "zeros": lambda: device.zeros(4, np.float32),
        "copy_from": lambda: x.copy_from(host, stream=other),
        "copy_to": lambda: x.numpy(stream=other),
        "empty in a stream": lambda: device.empty(4, np.float32, stream=other),
        "synchronize": other.synchronize,
        "done": lambda: other.done,
        "event": event.synchronize,
        "numpy": x.numpy,
        "fill": lambda: x.fill(1.0),
        "fill in a stream": lambda: x.fill(1.0, stream=other),
        "copy of an array": lambda: x.copy_from(x),
        "pinned": lambda: x.copy_from(pinned, stream=other),
        "empty": lambda: device.empty(4, np.float32),
        "stream": device.stream,
        "record": other.record,
        "device": device.synchronize,
    }


def _told(call: Callable[[], object], *, elsewhere: bool = False) -> str:
    """Make a call, in another thread if that is asked, and say how it ended."""
    if elsewhere:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(_told, call).result()
    try:
        call()
    except DriverError as e:
        return e.result
    return ""


@pytest.mark.parametrize("elsewhere", [False, True], ids=["same thread", "other thread"])
@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_each_capture_mode_forbids_what_a_gpu_forbids(device: Device, mode: str, elsewhere: bool) -> None:
    forbids = mode == "global" or (mode == "thread_local" and not elsewhere)
    x, y, other = device.zeros(4, np.float32), device.zeros(4, np.float32), device.stream()
    event = other.record()
    for name, call in _calls(device, x, other, event).items():
        device.synchronize()
        said = ["", ""]

        def capture(call: Callable[[], object] = call, said: list[str] = said) -> None:
            with device.capture(mode=mode) as graph:
                y.fill(2.0, stream=graph.stream)
                said[0] = _told(call, elsewhere=elsewhere)
                y.fill(3.0, stream=graph.stream)

        said[1] = _told(capture)
        if name == "device" or (forbids and name in _WAITS):
            assert said == ["CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"], name
        else:
            assert said == ["", ""], name
        device.synchronize()


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_capture_ends_in_its_thread_unless_relaxed(device: Device, mode: str) -> None:
    graph = device.capture(mode=mode)
    graph.__enter__()
    ended = _told(lambda: graph.__exit__(None, None, None), elsewhere=True)
    if mode == "relaxed":
        assert ended == ""
        graph.launch()
        return
    assert ended == "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD"
    with raises(ClosedError, "closed", "capture"):
        graph.launch()


def test_graph_is_launched_during_another_capture(device: Device) -> None:
    host = device.pinned(4, np.float32)
    host[:] = 5
    x, y = device.zeros(4, np.float32), device.zeros(4, np.float32)
    device.synchronize()
    with device.capture() as first:
        x.copy_from(host, stream=first.stream)
    other = device.stream()
    with device.capture(mode="global") as graph:
        y.fill(2.0, stream=graph.stream)
        first.launch(other)
    graph.launch()
    device.synchronize()
    assert (x.numpy().tolist(), y.numpy().tolist()) == ([5] * 4, [2] * 4)


def test_arrays_freed_during_a_capture_do_not_break_it(device: Device) -> None:
    stream = device.stream()
    x, gone, queued = (
        device.zeros(3, np.int32),
        device.zeros(3, np.int32),
        device.zeros(3, np.int32, stream=stream),
    )
    device.synchronize()
    with device.capture(stream, mode="thread_local") as graph:
        x.fill(3, stream=stream)
        del gone, queued
        device.empty(5, np.int8)
        device.pinned(5, np.int8)
    graph.launch()
    assert x.numpy(stream=stream).tolist() == [3, 3, 3]
    assert device.zeros(3, np.int32, stream=stream).numpy().tolist() == [0, 0, 0]


def test_error_in_the_block_drops_the_graph(device: Device) -> None:
    stream = device.stream()
    x = device.zeros(3, np.int32)
    graph = device.capture(stream)

    def fail() -> None:
        with graph:
            x.fill(1, stream=stream)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert not stream.is_capturing
    assert graph.nodes == 0
    stream.synchronize()
    assert not x.numpy().any()
    with raises(ClosedError, "closed", "capture"):
        graph.launch()
    with raises(LaunchError, "stream-capture", "device.capture(stream)"), graph:
        pass


def test_default_stream_cannot_be_captured(device: Device) -> None:
    with raises(LaunchError, "stream-capture", "device.stream()"), device.capture(0):
        pass
    with raises(LaunchError, "stream-capture", "fast"):
        device.capture(mode="fast")


def test_graph_is_launched_between_capture_and_close(device: Device) -> None:
    graph = device.capture()
    with raises(LaunchError, "stream-capture", "graph.launch()"):
        graph.launch()
    with graph:
        pass
    assert graph.nodes == 0
    graph.launch()
    with raises(LaunchError, "stream-capture", "device.capture(stream)"), graph:
        pass
    graph.close()
    graph.close()
    assert "was closed" in repr(graph)
    with pytest.raises(ClosedError):
        graph.launch()


def test_graph_event_cannot_be_waited_for_outside(device: Device) -> None:
    with device.capture() as graph:
        event = graph.stream.record()
    with pytest.raises((LaunchError, DriverError)):
        event.synchronize()
