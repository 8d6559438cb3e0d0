"""What the back end of GPUs asks the driver for, on a driver that only writes it down: for where there is no GPU."""

from __future__ import annotations

import ctypes
import gc
from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np
import pytest

from cujit.devices.cuda import copies, memory
from cujit.devices.cuda.backend import CudaBackend
from cujit.devices.device import Device
from cujit.errors import ArgumentError, DeviceNotFoundError, LaunchError
from raising import raises

bindings = pytest.importorskip("cuda.bindings.driver")
GOOD = bindings.CUresult.CUDA_SUCCESS
ACTIVE = bindings.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_ACTIVE
NOT_CAPTURED = bindings.CUstreamCaptureStatus.CU_STREAM_CAPTURE_STATUS_NONE


class WritingDriver:
    """Answers every call so that it goes on; memory is the host's. ``calls`` has the names, in order."""

    def __init__(self) -> None:
        self.bindings = bindings
        self.version = (13, 0)
        self.calls: list[str] = []
        self._captured: set[int] = set()
        self._memory: list[Any] = []
        self._answers: dict[str, Callable[..., Sequence[object]]] = {
            "cuDeviceGetName": lambda *_: [b"Writing\0"],
            "cuDeviceGetAttribute": lambda which, _: [{"MAJOR": 9, "MINOR": 0}.get(which.name.rpartition("_")[2], 512)],
            "cuDeviceTotalMem": lambda _: [1 << 30],
            "cuCtxGetStreamPriorityRange": lambda: [0, -5],
            "cuStreamGetPriority": lambda _: [-1],
            "cuThreadExchangeStreamCaptureMode": lambda mode: [mode],
            "cuMemAlloc": self._allocate,
            "cuMemAllocFromPoolAsync": self._allocate,
            "cuMemHostAlloc": self._allocate,
            "cuMemcpyHtoD": _copy,
            "cuMemcpyDtoH": _copy,
            "cuStreamIsCapturing": lambda stream: [ACTIVE if stream in self._captured else NOT_CAPTURED],
            "cuStreamBeginCapture": self._begin,
            "cuStreamEndCapture": self._end,
            "cuGraphInstantiate": lambda *_: [bindings.CUgraphExec(8)],
            "cuGraphGetNodes": lambda *_: [[], 3],
            "cuEventElapsedTime": lambda *_: [1.5],
            "cuTensorMapEncodeTiled": lambda *_: [bindings.CUtensorMap()],
        }

    is_emulated = False

    def device_count(self) -> int:
        return 2

    def call(self, function: str, *arguments: Any, log: str = "") -> Any:
        del log
        values = self.attempt(function, *arguments)[1:]
        return values[0] if len(values) == 1 else values or None

    def attempt(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        self.calls.append(function)
        if function in self._answers:
            return (GOOD, *self._answers[function](*arguments))
        makes = ("Create", "CreateWithPriority", "Retain", "cuDeviceGet")
        return (GOOD, 1000 + len(self.calls)) if function.endswith(makes) else (GOOD,)

    def _allocate(self, size: int, *_: Any) -> list[int]:
        self._memory.append(np.zeros(size + 512, np.uint8))
        return [-(-self._memory[-1].ctypes.data // 512) * 512]

    def _begin(self, stream: int, _mode: Any) -> list[object]:
        self._captured.add(stream)
        return []

    def _end(self, stream: int) -> list[object]:
        self._captured.discard(stream)
        return [bindings.CUgraph(7)]


def _copy(to: int, source: int, size: int) -> list[object]:
    ctypes.memmove(to, source, size)
    return []


def gpu_of(driver: WritingDriver, ordinal: int = 1) -> Device:
    return Device(CudaBackend(ordinal, cast(Any, driver)))


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> WritingDriver:
    for module in (memory, copies):
        monkeypatch.setattr(module, "native_memory", lambda _context: None)  # it has no addresses of functions
    return WritingDriver()


@pytest.fixture
def asked(driver: WritingDriver) -> Callable[[Callable[[], object]], list[str]]:
    """Do something, and list what the driver was asked for, but for which context is current."""

    def ask(do: Callable[[], object]) -> list[str]:
        driver.calls.clear()
        do()
        return [name for name in driver.calls if not name.startswith(("cuCtxPush", "cuCtxPop", "cuThreadExchange"))]

    return ask


def test_gpu_is_described_by_its_back_end(driver: WritingDriver) -> None:
    gpu = gpu_of(driver)
    assert repr(gpu) == "<Device cuda:1: Writing (sm_90)>"
    assert (gpu.is_gpu, gpu.ordinal, gpu.limits.processors, gpu.cache_bytes) == (True, 1, 512, 512)
    with raises(DeviceNotFoundError, "device-not-found", "GPU", "2", "cuda:0", "CUDA_VISIBLE_DEVICES"):
        gpu_of(driver, 2)


def test_arrays_are_copied_in_the_default_or_their_own_stream(driver: WritingDriver, asked: Any) -> None:
    gpu, host = gpu_of(driver), np.arange(8, dtype=np.float32)
    x = gpu.array(host)
    assert x.numpy().tolist() == host.tolist()
    assert asked(lambda: x.copy_from(host)) == ["cuMemcpyHtoD", "cuStreamSynchronize"]
    y, pinned = gpu.zeros(8, np.float32, stream=gpu.stream()), gpu.pinned(8, np.float32)
    assert asked(lambda: y.copy_from(host)) == ["cuStreamIsCapturing", "cuMemcpyHtoDAsync", "cuStreamSynchronize"]
    pinned_copy = ["cuMemcpyHtoDAsync", "cuStreamIsCapturing", "cuEventCreate", "cuEventRecord"]
    assert asked(lambda: y.copy_from(pinned)) == pinned_copy
    other = gpu_of(driver, 0).zeros(8, np.float32)
    assert asked(lambda: x.copy_from(y)) == ["cuMemcpyDtoDAsync"]
    assert asked(lambda: x.copy_from(other)) == ["cuMemcpyPeerAsync"]


def test_streams_and_events_use_the_context_of_their_gpu(driver: WritingDriver, asked: Any) -> None:
    gpu, other = gpu_of(driver), gpu_of(driver, 0)
    stream, second = gpu.stream(priority=-1), gpu.stream()
    assert (stream.priority, stream.done, gpu.stream(stream) is stream, gpu.queue(None).handle) == (-1, True, True, 0)
    event = stream.record()
    assert second.record().elapsed_ms(event) == 1.5
    assert asked(lambda: second.wait(event)) == ["cuStreamWaitEvent"]
    order = ["cuStreamIsCapturing", "cuEventCreate", "cuEventRecord", "cuStreamWaitEvent", "cuEventDestroy"]
    assert asked(lambda: gpu.order(0, second.handle)) == order
    with raises(LaunchError, "stream", "cuda:1", "cuda:0", "device.stream()"):
        other.stream(stream)
    with raises(LaunchError, "launch", "cuda:1", "-5", "0"):
        gpu.stream(priority=5)
    with raises(ArgumentError, "device-mismatch", "events"):
        other.stream().record(event)
    assert asked(stream.close) == ["cuStreamDestroy"]


def test_graph_keeps_the_pinned_memory_of_its_copies(driver: WritingDriver, asked: Any) -> None:
    gpu = gpu_of(driver)
    stream, pinned = gpu.stream(), gpu.pinned(8, np.float32)
    x = gpu.zeros(8, np.float32, stream=stream)
    with gpu.capture(stream) as graph:
        x.copy_from(pinned)
    del pinned
    assert asked(gc.collect) == []
    assert asked(graph.launch) == ["cuStreamIsCapturing", "cuGraphLaunch", "cuEventCreate", "cuEventRecord"]
    assert graph.nodes == 3
    graph.close()
    gc.collect()
    assert driver.calls.count("cuMemFreeHost") == 1


def test_textures_wait_for_kernels_unless_capturing(driver: WritingDriver, asked: Any) -> None:
    gpu = gpu_of(driver)
    texture, surface = gpu.texture(np.zeros((4, 8), np.float32)), gpu.surface(gpu.texels(np.zeros(8, np.float32)))
    assert asked(texture.close) == ["cuStreamIsCapturing", "cuCtxSynchronize", "cuTexObjectDestroy"]
    with gpu.capture():
        assert asked(surface.close) == ["cuSurfObjectDestroy"]
    in_place = gpu.array(np.zeros(16, np.float32))
    assert "cuTexObjectCreate" in asked(lambda: gpu.texture(in_place))
    plane = gpu.zeros((16, 16), np.float32)
    assert asked(lambda: gpu.tensor_map(plane, (8, 8))) == ["cuTensorMapEncodeTiled"]


def test_stream_memory_is_trimmed_if_there_is_some(driver: WritingDriver, asked: Any) -> None:
    gpu = gpu_of(driver)
    assert asked(gpu.trim) == []
    x = gpu.zeros(8, np.float32, stream=gpu.stream())
    assert asked(gpu.trim) == ["cuMemPoolTrimTo"]
    assert asked(x.close) == ["cuStreamIsCapturing", "cuMemFreeAsync", "cuStreamDestroy"]
