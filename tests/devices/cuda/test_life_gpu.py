"""Loads and first launches on a real GPU in other contexts than usual: of others, green, captured, busy, reset."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from devices.cuda.gpus import context_of
from processes import printed
from raising import raises

pytestmark = pytest.mark.gpu

driver = pytest.importorskip("cuda.bindings.driver")

ADD = """
extern "C" __global__ void add(const float* a, float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) b[i] += a[i];
}
"""
HOLD = 'extern "C" __global__ void hold(volatile int* flag) { while (!*flag) {} }\n'
N = 1000


def works(gpu: Device, n: int = N) -> None:
    """Load a new image, make arrays, launch its kernel for the first time, and look at the result."""
    add = cujit.jit(f"{ADD}// {n}", device=gpu, cache=False)["add"]
    for k in range(1, 3):
        host = np.full(n, k, np.float32)
        x, y = gpu.array(host), gpu.zeros(n, np.float32)
        add[4, 256](x, y, n)
        assert (y.numpy() == host).all()


def asked(name: str, *arguments: Any) -> Any:
    """Call the driver."""
    status, *values = getattr(driver, name)(*arguments)
    assert status == driver.CUresult.CUDA_SUCCESS, f"{name}: {status}"
    return values[0] if values else None


def test_second_context_of_the_thread_stays_current(gpu: Device) -> None:
    device = context_of(gpu).device
    second = asked("cuCtxCreate", None, 0, device)
    try:
        works(gpu, 1001)
        assert int(asked("cuCtxGetCurrent")) == int(second)
        large = np.ones(6 << 20, np.float32)
        assert (gpu.array(large).numpy() == 1).all()
        assert int(asked("cuCtxGetCurrent")) == int(second)
    finally:
        asked("cuCtxDestroy", second)
    works(gpu, 1002)


@pytest.mark.hardware
def test_stream_of_another_context_is_refused_by_name(gpu: Device) -> None:
    add = cujit.jit(f"{ADD}// 1005", device=gpu, cache=False)["add"]
    x, y = gpu.array(np.ones(N, np.float32)), gpu.zeros(N, np.float32)
    second = asked("cuCtxCreate", None, 0, context_of(gpu).device)
    try:
        stream = int(asked("cuStreamCreate", 0))
        with raises(cujit.errors.LaunchError, "launch", hex(stream), "cuda:0"):
            add[4, 256, 0, stream](x, y, N)
    finally:
        asked("cuCtxDestroy", second)
    add[4, 256](x, y, N)
    assert (y.numpy() == 1).all()


@pytest.mark.hardware
def test_green_context_of_the_thread_stays_current(gpu: Device) -> None:
    device = context_of(gpu).device
    resource = asked("cuDeviceGetDevResource", device, driver.CUdevResourceType.CU_DEV_RESOURCE_TYPE_SM)
    description = asked("cuDevResourceGenerateDesc", [resource], 1)
    flags = driver.CUgreenCtxCreate_flags.CU_GREEN_CTX_DEFAULT_STREAM
    green = asked("cuGreenCtxCreate", description, device, flags)
    context = asked("cuCtxFromGreenCtx", green)
    asked("cuCtxPushCurrent", context)
    try:
        works(gpu, 1003)
        assert int(asked("cuCtxGetCurrent")) == int(context)
    finally:
        asked("cuCtxPopCurrent")
        asked("cuGreenCtxDestroy", green)
    works(gpu, 1004)


def test_first_launches_and_new_arrays_are_captured(gpu: Device) -> None:
    """Small blocks that earlier arrays left serve in a capture, and what is new is there when the graph runs."""
    for _ in range(100):
        gpu.empty(N, np.float32)
    add = cujit.jit(f"{ADD}// captured", device=gpu, cache=False)["add"]
    stream, host = gpu.stream(), np.arange(N, dtype=np.float32)
    with gpu.capture(stream) as graph:
        x, y, z = gpu.array(host), gpu.zeros(N, np.float32), gpu.zeros(N, np.float32)
        add.prepare(4, 256, stream=stream)(x, y, N)
        add.prepare(4, 256, stream=stream)(y, z, N)
    for _ in range(2):
        graph.launch(stream)
    stream.synchronize()
    assert (y.numpy() == 2 * host).all()
    assert (z.numpy() == 3 * host).all()


@pytest.mark.hardware
def test_first_launch_waits_for_no_running_kernel(gpu: Device) -> None:
    hold = cujit.jit(HOLD, device=gpu)["hold"]
    ahead = cujit.jit(f"{ADD}// ahead", device=gpu, cache=False)["add"]
    flag = gpu.pinned(1, np.int32)
    flag[0] = 0
    busy, other = gpu.stream(), gpu.stream()
    x, y = gpu.array(np.ones(N, np.float32), stream=other), gpu.zeros(N, np.float32, stream=other)
    other.synchronize()
    end = threading.Timer(20, lambda: flag.fill(1))
    end.start()
    try:
        hold.prepare(1, 1, stream=busy)(cujit.Pointer(flag.ctypes.data))
        ahead.prepare(4, 256, stream=other)(x, y, N)
        other.synchronize()
        assert flag[0] == 0, "it waited for the kernel that runs"
    finally:
        flag[0] = 1
        end.cancel()
        busy.synchronize()
    assert (y.numpy() == 1).all()


RESET = """
import numpy as np
import cujit
from cuda.bindings import driver

gpu = cujit.gpu(0)
add = cujit.jit(CODE, device=gpu)["add"]
x = gpu.array(np.ones(1000, np.float32))
for _ in range(40):  # so that small copies have page-locked memory
    assert x.numpy()[0] == 1 and gpu.array(np.ones(1000, np.float32)).numpy()[0] == 1
large = np.ones(6 << 20, np.float32)
assert gpu.array(large).numpy()[-1] == 1
add[4, 256](x, x, 1000)
device = gpu.backend.context.device
assert driver.cuDevicePrimaryCtxReset(device)[0] == 0
for use in (
    lambda: add[4, 256](x, x, 1000), lambda: x.numpy(), lambda: gpu.zeros(1000, np.float32).numpy(),
    lambda: gpu.array(large).numpy(), lambda: cujit.jit(CODE + "// other", device=gpu)["add"][4, 256](x, x, 1000),
    lambda: driver.cuDevicePrimaryCtxRetain(device), lambda: gpu.array(np.ones(1000, np.float32)),
    lambda: gpu.zeros(1000, np.float32), lambda: gpu.array(large),
):
    try:
        use()
    except cujit.errors.CujitError as e:
        assert "CUDA_ERROR" in str(e), e
print("no crash")
"""


def test_device_reset_is_an_error_without_a_crash() -> None:
    assert printed(f"CODE = {ADD!r}\n{RESET}").splitlines()[-1] == "no crash"
