"""What is told of the launches in flight after a kernel failed."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from cujit.artifact import Artifact, ImageKind
from cujit.devices.cuda import driver_module
from cujit.devices.cuda.driver_module import DriverModule, load_module
from cujit.devices.cuda.gpu import Gpu
from cujit.devices.cuda.kernel import CudaKernel
from cujit.devices.cuda.module import CudaModule
from cujit.devices.cuda.ring import RING_SIZE, LaunchRing
from cujit.devices.device import Device
from cujit.devices.jit_options import JitOptions
from cujit.devices.launcher.cpython import is_supported
from cujit.devices.launcher.entry import LaunchEntry, LoadedImage
from cujit.devices.launcher.launch import PreparedLaunch, attach, make_launch
from cujit.devices.options import PLAIN, LaunchOptions
from cujit.devices.shapes import Dim3, LaunchShape
from cujit.errors import ArgumentError, DriverError
from cujit.loading import jit
from cujit.signature import Parameter, ParameterClass, Signature
from raising import raises

RESULTS = SimpleNamespace(CUDA_SUCCESS=0, CUDA_ERROR_NOT_READY=600)


class FailingDriver:
    """A driver whose every call gives one result."""

    bindings = SimpleNamespace(CUresult=RESULTS)

    def __init__(self, result: str) -> None:
        self.result = result

    def call(self, function: str, *_arguments: object, log: str = "") -> object:
        if function in ("cuDeviceGet", "cuDevicePrimaryCtxRetain", "cuCtxPushCurrent") or not self.result:
            return 0
        raise self.error(function, 700, log)

    def attempt(self, function: str, *_arguments: object) -> tuple[object, ...]:
        return (RESULTS.CUDA_SUCCESS if function == "cuCtxPopCurrent" or not self.result else 700,)

    def error(self, function: str, _status: object, log: str = "") -> DriverError:
        return DriverError("a bad thing", tool="driver", call=function, result=self.result, help="do better", log=log)


def context_of(result: str) -> Gpu:
    return Gpu(cast(Any, FailingDriver(result)), 0)


def test_launches_in_flight_are_listed_newest_first() -> None:
    ring = LaunchRing()
    for name in ("a", "b", "a"):
        ring.note(ring.label(name))
    assert ring.in_flight() == ["a", "b", "a"]
    assert ring.count == 3


def test_completed_launches_are_not_listed() -> None:
    context = context_of("")
    first, second = context.ring.label("first"), context.ring.label("second")
    context.ring.note(first)
    context.synchronize()
    context.ring.note(second, LaunchShape(Dim3(2, 3, 4), Dim3(5, 6, 7)), 0x70)
    assert context.ring.in_flight() == ["second: grid (2, 3, 4), block (5, 6, 7), stream 0x70"]


def test_ring_keeps_the_last_launches() -> None:
    ring = LaunchRing()
    for i in range(RING_SIZE + 5):
        ring.note(ring.label(f"k{i}"))
    assert ring.in_flight() == [f"k{i}" for i in reversed(range(5, RING_SIZE + 5))]


class IdleDriver:
    """A driver that takes every launch and runs none; ``launches`` counts those of machine code."""

    capturing = SimpleNamespace(CU_STREAM_CAPTURE_STATUS_NONE=7)
    bindings = SimpleNamespace(CUresult=RESULTS, CUstreamCaptureStatus=capturing)
    name = "idle"

    def __init__(self) -> None:
        self.launches = 0
        kind = ctypes.PYFUNCTYPE(ctypes.c_int)
        self._launch, self._other = kind(self._count), kind(lambda: 0)

    def _count(self) -> int:
        self.launches += 1
        return 0

    def call(self, function: str, *arguments: Any, log: str = "") -> object:
        assert not log
        if function != "cuGetProcAddress":
            return 7
        code = self._launch if arguments[0].startswith(b"cuLaunchKernel") else self._other
        return ctypes.cast(code, ctypes.c_void_p).value, 0

    def attempt(self, *_arguments: object) -> tuple[object, ...]:
        return (RESULTS.CUDA_SUCCESS,)


def launch_of(
    context: Gpu, device: Device, name: str, stream: int = 0, options: LaunchOptions = PLAIN
) -> PreparedLaunch:
    """A launch of a kernel of the driver's, which takes an int; machine code makes it from the second call on."""
    module = SimpleNamespace(context=context, require=lambda: None, function=lambda _name: 3)
    kernel = CudaKernel(cast(Any, module), device.limits, name)
    signature = Signature((Parameter(ParameterClass.SIGNED, 4, 4),))
    image = LoadedImage(device, SimpleNamespace(close=lambda: None, kernels={}), Artifact(ImageKind.PTX, b""))  # type: ignore[arg-type]
    entry = LaunchEntry(image, kernel, name, signature)
    shape = LaunchShape(Dim3(2, 3), Dim3(32))
    launch = make_launch(PreparedLaunch, entry, Owner(entry), shape, stream, options)
    assert attach(launch)
    return launch


class Owner:
    def __init__(self, entry: LaunchEntry) -> None:
        self.entry = entry


@pytest.mark.skipif(not is_supported(), reason="this interpreter takes no machine code")
@pytest.mark.parametrize("options", [PLAIN, LaunchOptions(overlap=True)], ids=["plain", "extended"])
def test_native_code_records_its_launches(gpu_memory: Device, options: LaunchOptions) -> None:
    driver = IdleDriver()
    context = Gpu(cast(Any, driver), 0)
    launches = [
        launch_of(context, gpu_memory, "a", options=options),
        launch_of(context, gpu_memory, "b", 0x55, options),
    ]
    for launch in launches:
        launch(1)
    context.synchronize()
    assert (context.ring.in_flight(), driver.launches) == ([], 0 if options == PLAIN else 2)
    driver.launches = 0
    for launch in (*launches, launches[0]):
        launch(1)
    a, b = (f"{name}: grid (2, 3, 1), block (32, 1, 1), {where}" for name, where in NAMED)
    assert context.ring.in_flight() == [a, b, a]
    assert driver.launches == 3
    with pytest.raises(ArgumentError):
        launches[1](1, 2)
    assert context.ring.count == 5
    for _ in range(RING_SIZE):
        launches[1](2)
    assert context.ring.in_flight() == [b] * RING_SIZE


NAMED = (("a", "the default stream"), ("b", "stream 0x55"))


def test_labels_are_created_once_and_the_oldest_dropped() -> None:
    ring = LaunchRing(most_labels=2)
    a = ring.label("a")
    assert ring.label("a") == a
    ring.note(a)
    ring.label("b")
    ring.label("c")
    assert ring.in_flight() == ["a launch whose name is forgotten"]
    assert ring.label("a") != a


def test_labels_of_many_threads_are_all_different() -> None:
    ring = LaunchRing()
    labels: list[int] = []

    def make(thread: int) -> None:
        labels.extend(ring.label(f"{thread}.{i}") for i in range(100))

    threads = [threading.Thread(target=make, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(labels)) == 400


def test_error_of_a_failed_kernel_names_the_launches() -> None:
    context = context_of("CUDA_ERROR_ILLEGAL_ADDRESS")
    for name in ("fill: grid (1, 1, 1)", *["scale: grid (2, 1, 1)"] * 3):
        context.ring.note(context.ring.label(name))
    for ask in (lambda: context.call("cuStreamSynchronize", 0), lambda: context.is_done("cuEventQuery", 0)):
        with pytest.raises(DriverError) as caught:
            ask()
        text = str(caught.value)
        assert "one of these was running, the newest first:" in text
        assert text.index("scale: grid (2, 1, 1), 3 times") < text.index("fill: grid (1, 1, 1)")
        assert "do better" in text
        assert "compute-sanitizer" in text
        assert caught.value.result == "CUDA_ERROR_ILLEGAL_ADDRESS"


class StatusDriver(FailingDriver):
    """A driver that a fault makes fail whoever looks something up in it."""

    bindings = SimpleNamespace(
        CUresult=SimpleNamespace(**vars(RESULTS), CUDA_ERROR_NOT_FOUND=500, CUDA_ERROR_INVALID_VALUE=1),
        CUevent_flags=SimpleNamespace(CU_EVENT_DISABLE_TIMING=SimpleNamespace(value=2)),
    )

    def call(self, function: str, *_arguments: object, log: str = "") -> object:
        if function.startswith("cuModule") or function == "cuEventRecord":
            raise self.error(function, 700, log)
        return 0

    def attempt(self, function: str, *_arguments: object) -> tuple[object, ...]:
        return (0 if function in ("cuCtxPopCurrent", "cuModuleUnload") else 700, 0)


def told_by(ask: Callable[[Gpu], object]) -> str:
    context = Gpu(cast(Any, StatusDriver("CUDA_ERROR_ILLEGAL_ADDRESS")), 0)
    context.ring.note(context.ring.label("stray: grid (1, 1, 1)"))
    with pytest.raises(DriverError) as caught:
        ask(context)
    return str(caught.value)


def bare(kind: Any, **members: object) -> Any:
    """An object that nobody initialised, with these members."""
    made = kind.__new__(kind)
    for name, value in members.items():
        setattr(made, name, value)
    return made


LATE: dict[str, Callable[[Any, Device], object]] = {
    "load": lambda c, _: load_module(c, b"", JitOptions()),
    "kernels": lambda c, _: DriverModule(c, 1).kernels(),
    "variable": lambda c, _: bare(CudaModule, _module=SimpleNamespace(context=c, handle=1)).variable("x"),
    "signature": lambda c, d: (
        CudaKernel(cast(Any, SimpleNamespace(context=c, require=int, function=lambda _: 3)), d.limits, "k").signature
    ),
    "order": lambda c, _: c.order(0, 1),
}


@pytest.mark.parametrize("late", list(LATE))
def test_fault_found_by_a_look_up_names_the_launches(
    late: str, gpu_memory: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver_module, "driver_options", lambda *_: {})
    text = told_by(lambda context: LATE[late](context, gpu_memory))
    assert "this was running, the newest first:\n    stray: grid (1, 1, 1)" in text


def test_listed_launches_are_bounded() -> None:
    context = context_of("CUDA_ERROR_LAUNCH_FAILED")
    for i in range(20):
        context.ring.note(context.ring.label(f"k{i}"))
    with raises(DriverError, "driver", "12", "launch.replay_on_cpu"):
        context.synchronize()


@pytest.mark.parametrize("result", ["CUDA_ERROR_OUT_OF_MEMORY", "CUDA_ERROR_INVALID_VALUE"])
def test_error_of_a_call_does_not_mention_launches(result: str) -> None:
    context = context_of(result)
    context.ring.note(context.ring.label("k"))
    with pytest.raises(DriverError) as caught:
        context.call("cuMemAlloc", 1)
    assert "running" not in str(caught.value)


def test_error_without_launches_is_unchanged() -> None:
    with pytest.raises(DriverError) as caught:
        context_of("CUDA_ERROR_ILLEGAL_ADDRESS").call("cuCtxSynchronize")
    assert "running" not in str(caught.value)


def test_completed_and_pending_launches_are_distinguished() -> None:
    context = context_of("")
    assert context.is_done("cuEventQuery", 0)
    cast(Any, context.driver).attempt = lambda *_: (RESULTS.CUDA_ERROR_NOT_READY,)
    assert not context.is_done("cuEventQuery", 0)


STRAY = """extern "C" __global__ void good(int *p) { *p = 1; }
extern "C" __global__ void stray(int *p, long long i) { p[i] = 1; }"""


@pytest.mark.gpu
@pytest.mark.ends_context
def test_stray_write_is_reported_with_the_launches_in_flight(gpu: Device) -> None:
    module = jit(STRAY, device=gpu)
    p, stream = gpu.zeros(1, np.int32), gpu.stream()
    good, stray = module["good"][2, 1], module["stray"][3, 64, 0, stream]
    for _ in range(3):
        good(p)
    stray(p, 0)
    assert attach(good)
    assert attach(stray)
    good(p)
    stray(p, 0)
    gpu.synchronize()
    for _ in range(3):  # by machine code from here on
        good(p)
    stray(p, 1 << 44)
    with pytest.raises(DriverError) as caught:
        stream.synchronize()
    said = str(caught.value)
    told = said.partition("one of these was running, the newest first:\n")[2]
    lines = [line.strip() for line in told.splitlines()]
    assert lines[0].startswith("stray: grid (3, 1, 1), block (64, 1, 1), stream 0x"), said
    assert lines[1] == "good: grid (2, 1, 1), block (1, 1, 1), the default stream, 3 times", said
    assert "stray" not in "".join(lines[2:]), said
    assert "compute-sanitizer" in said
