"""Two GPUs in one process: the same module on both, arrays and streams of the other one, threads on each."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.devices.launcher.cpython import is_supported
from cujit.devices.launcher.launch import attach
from cujit.errors import ArgumentError, CujitError, LaunchError

pytestmark = pytest.mark.gpu

CODE = """
__device__ int seen;
extern "C" __global__ void add(float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += a;
}
extern "C" __global__ void mark(int value) { seen = value; }
extern "C" __global__ void read(int *out) { *out = seen; }
extern "C" __global__ void large(int *out) { extern __shared__ int s[]; s[0] = 3; *out = s[0]; }
"""
N = 1000

Gpus = tuple[Device, Device]


@pytest.fixture(scope="module")
def modules(two_gpus: Gpus) -> tuple[cujit.Module, cujit.Module]:
    """One artifact, loaded on each."""
    artifact = cujit.compile(CODE, arch=str(two_gpus[0].arch))
    first, second = (cujit.load(artifact, gpu) for gpu in two_gpus)
    return first, second


@pytest.mark.parametrize("to", ["ptx", "cubin", "fatbin"])
def test_one_image_runs_on_both(two_gpus: Gpus, to: str) -> None:
    arch = two_gpus[0].arch
    artifact = cujit.build(CODE, targets=[str(arch)]) if to == "fatbin" else cujit.compile(CODE, arch=str(arch), to=to)
    arrays = [gpu.zeros(N, np.float32) for gpu in two_gpus]
    launches = [cujit.load(artifact, gpu)["add"].over(N) for gpu in two_gpus]
    for k in range(20):  # by turns: the context that is current changes with each
        for launch, x, a in zip(launches, arrays, (1.0, 10.0), strict=True):
            launch(x, a * k, N)
    assert [x.numpy().tolist() for x in arrays] == [[190.0] * N, [1900.0] * N]


def test_variables_of_a_module_are_apart(two_gpus: Gpus, modules: tuple[cujit.Module, cujit.Module]) -> None:
    outs = [gpu.zeros(1, np.int32) for gpu in two_gpus]
    for value, module in enumerate(modules, 7):
        module["mark"][1, 1](value)
    for module, out in zip(modules, outs, strict=True):
        module["read"][1, 1](out)
    assert [out.numpy().tolist() for out in outs] == [[7], [8]]


def test_each_opts_in_to_large_shared_memory(two_gpus: Gpus, modules: tuple[cujit.Module, cujit.Module]) -> None:
    for gpu, module in zip(two_gpus, modules, strict=True):
        out = gpu.zeros(1, np.int32)
        module["large"].prepare(1, 1, shared_bytes=200 << 10)(out)
        assert out.numpy().tolist() == [3]


def refused(call: Callable[[], object], error: type[CujitError], *words: str) -> None:
    with pytest.raises(error) as caught:
        call()
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize("swapped", [False, True])
def test_array_of_the_other_gpu_is_refused(
    two_gpus: Gpus, modules: tuple[cujit.Module, cujit.Module], swapped: bool
) -> None:
    here, there = two_gpus[::-1] if swapped else two_gpus
    module = modules[1] if swapped else modules[0]
    launch = module["add"][8, 128]
    mine, other = here.zeros(N, np.float32), there.zeros(N, np.float32)
    refused(lambda: launch(other, 1.0, N), ArgumentError, f"not on {here.name}")
    if is_supported():
        launch(mine, 0.0, N)
        assert attach(launch)
        refused(lambda: launch(other, 1.0, N), ArgumentError, f"not on {here.name}")  # by machine code
    launch(mine, 1.0, N)
    assert mine.numpy().tolist() == [1.0] * N
    assert other.numpy().tolist() == [0.0] * N


def test_copy_of_an_array_of_the_other_gpu_is_accepted(
    two_gpus: Gpus, modules: tuple[cujit.Module, cujit.Module]
) -> None:
    first, second = two_gpus
    x = first.array(np.arange(N, dtype=np.float32))
    modules[0]["add"].over(N)(x, 1.0, N)
    y = second.zeros(N, np.float32)
    y.copy_from(x)
    modules[1]["add"].over(N)(y, 1.0, N)
    assert y.numpy().tolist() == [2.0 + k for k in range(N)]
    assert second.array(x.numpy()).numpy().tolist() == [1.0 + k for k in range(N)]


@pytest.mark.parametrize("library", ["torch", "cupy"])
def test_arrays_on_the_second_gpu_are_accepted_only_there(
    modules: tuple[cujit.Module, cujit.Module], library: str
) -> None:
    other: Any = pytest.importorskip(library)
    if library == "torch":
        x = other.zeros(N, device="cuda:1")
    else:
        with other.cuda.Device(1):
            x = other.zeros(N, other.float32)
    for _ in range(3):
        modules[1]["add"].over(N)(x, 1.0, N)
        refused(lambda: modules[0]["add"].over(N)(x, 1.0, N), ArgumentError, "memory of GPU 1, not of cuda:0")
    modules[1].device.synchronize()
    assert x.tolist() == [3.0] * N


def test_streams_and_maps_of_the_other_gpu_are_refused(
    two_gpus: Gpus, modules: tuple[cujit.Module, cujit.Module]
) -> None:
    first, second = two_gpus
    refused(lambda: modules[0]["add"].prepare(1, 32, stream=second.stream()), LaunchError, "cuda:1", "cuda:0")
    x = second.zeros((16, 32), np.float32)
    refused(lambda: first.tensor_map(x, (4, 8)), ArgumentError, "another device than cuda:0")


def test_threads_launch_on_both_gpus_at_once(two_gpus: Gpus, modules: tuple[cujit.Module, cujit.Module]) -> None:
    failures: list[BaseException] = []

    def work(gpu: Device, module: cujit.Module) -> None:
        try:
            stream = gpu.stream()
            x = gpu.zeros(N, np.float32)
            gpu.synchronize()
            launch = module["add"].prepare(8, 128, stream=stream)
            for _ in range(500):
                launch(x, 1.0, N)
            stream.synchronize()
            assert x.numpy().tolist() == [500.0] * N
        except BaseException as e:  # told by the thread that waits
            failures.append(e)

    threads = [threading.Thread(target=work, args=pair) for pair in zip(two_gpus, modules, strict=True) for _ in "abc"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def test_thread_using_two_gpus_keeps_torchs_current_device(
    two_gpus: Gpus, modules: tuple[cujit.Module, cujit.Module]
) -> None:
    torch: Any = pytest.importorskip("torch")
    for current in (0, 1):
        with torch.cuda.device(current):
            for gpu, module in zip(two_gpus, modules, strict=True):
                module["add"].over(N)(gpu.zeros(N, np.float32), 1.0, N)
                assert torch.cuda.current_device() == current
                assert torch.zeros(1, device="cuda").device.index == current
