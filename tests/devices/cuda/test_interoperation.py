"""Arrays of other libraries go into kernels as they are, and ours go to them without a copy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from cujit.devices.arguments.cupy_arrays import cupy_interface
from cujit.devices.device import Device
from cujit.devices.launcher import launch as launches
from cujit.loading import jit

pytestmark = pytest.mark.gpu

SCALE = 'extern "C" __global__ void scale(float *x, float a, int n) { int i = threadIdx.x; if (i < n) x[i] *= a; }'


def library(name: str) -> Any:
    return pytest.importorskip(name)


def test_torch_tensors_are_passed_directly(gpu: Device) -> None:
    torch = library("torch")
    x = torch.arange(20, dtype=torch.float32, device="cuda")
    jit(SCALE, device=gpu)["scale"][1, 32](x, 3.0, 20)
    assert x.cpu().tolist() == [3.0 * k for k in range(20)]


def test_cupy_arrays_are_passed_directly(gpu: Device) -> None:
    cupy = library("cupy")
    x = cupy.arange(20, dtype=cupy.float32)
    jit(SCALE, device=gpu)["scale"][1, 32](x, 3.0, 20)
    assert x.get().tolist() == [3.0 * k for k in range(20)]


def test_numba_arrays_are_passed_directly(gpu: Device) -> None:
    cuda = library("numba.cuda")
    launch = jit(SCALE, device=gpu)["scale"][1, 32]
    launches.attach(launch)
    for a in (3.0, 5.0, 7.0):
        x = cuda.to_device(np.arange(20, dtype=np.float32))
        launch(x, a, 20)
        assert x.copy_to_host().tolist() == [a * k for k in range(20)]
    with pytest.raises(TypeError, match="float64, not float32"):
        launch(cuda.to_device(np.zeros(20)), 3.0, 20)


def test_cupy_arrays_are_read_by_native_code(gpu: Device) -> None:
    cupy = library("cupy")
    launch = jit(SCALE, device=gpu)["scale"][1, 32]
    launches.attach(launch)
    interface = cupy_interface(gpu.ordinal)
    assert interface is not None
    assert interface.stream_of
    for a in (3.0, 5.0, 7.0):
        x = cupy.arange(20, dtype=cupy.float32)
        launch(x, a, 20)
        assert x.get().tolist() == [a * k for k in range(20)]
        with cupy.cuda.Stream(non_blocking=True):
            x = cupy.full(1 << 26, 3, cupy.float32)[-20:]  # still in the making
            launch(x, a, 20)
        assert x.get().tolist() == [3 * a] * 20
    with pytest.raises(TypeError, match="float64, not float32"):
        launch(cupy.zeros(20), 3.0, 20)
    with pytest.raises(TypeError, match="not C-contiguous"):
        launch(cupy.zeros(20, cupy.float32)[::2], 3.0, 20)


def test_jax_arrays_are_passed_to_const_pointers(gpu: Device) -> None:
    jax = library("jax")
    text = """extern "C" __global__ void copy(const float *x, float *y, int n) {
        if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x];
    }"""
    y, launch = gpu.array(np.zeros(20, np.float32)), jit(text, device=gpu)["copy"][1, 32]
    launches.attach(launch)
    for n in range(4):
        x = jax.numpy.arange(n, n + 20, dtype="float32")
        launch(x, y, 20)
        assert y.numpy().tolist() == list(range(n, n + 20))
    x.delete()
    for bad in (x, jax.numpy.zeros(20, dtype="int32")):
        with pytest.raises(TypeError):
            launch(bad, y, 20)
    with pytest.raises(TypeError, match="read-only"):
        jit(SCALE, device=gpu)["scale"][1, 32](jax.numpy.zeros(20, dtype="float32"), 3.0, 20)


@pytest.mark.parametrize("by_machine_code", [False, True])
def test_pending_jax_array_is_waited_for(gpu: Device, by_machine_code: bool) -> None:
    jax = library("jax")
    text = """extern "C" __global__ void copy(const float *x, float *y, int n) {
        if (threadIdx.x < n) y[threadIdx.x] = x[threadIdx.x];
    }"""
    slow = jax.jit(lambda a, n: (a @ a @ a)[0, :20] * 0 + n)  # many milliseconds
    large = jax.numpy.zeros((8192, 8192), dtype="float32")
    slow(large, 0.0).block_until_ready()
    y, launch = gpu.array(np.zeros(20, np.float32)), jit(text, device=gpu)["copy"][1, 32]
    for n in range(1, 5):
        launch(slow(large, float(n)), y, 20)
        assert y.numpy().tolist() == [n] * 20
        if by_machine_code:
            launches.attach(launch)


@pytest.mark.parametrize("name", ["torch", "cupy"])
def test_device_arrays_are_shared_without_a_copy(gpu: Device, name: str) -> None:
    x = gpu.array(np.arange(20, dtype=np.float32))
    seen = library(name).from_dlpack(x)
    jit(SCALE, device=gpu)["scale"][1, 32](x, 3.0, 20)
    gpu.synchronize()
    assert [float(v) for v in seen] == [3.0 * k for k in range(20)]


def test_torch_tensor_of_the_wrong_type_is_refused(gpu: Device) -> None:
    torch = library("torch")
    with pytest.raises(TypeError, match="float"):
        jit(SCALE, device=gpu)["scale"][1, 32](torch.zeros(20, dtype=torch.float64, device="cuda"), 3.0, 20)


def test_host_array_for_a_kernel_on_a_gpu_is_refused(gpu: Device) -> None:
    with pytest.raises(TypeError, match=r"host|memory of"):
        jit(SCALE, device=gpu)["scale"][1, 32](np.zeros(20, np.float32), 3.0, 20)
