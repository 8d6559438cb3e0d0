"""What only a real GPU can show. The bodies that a CPU device shares are in ``tests/test_kernel.py``."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from cujit.artifact import Artifact
from cujit.devices.arguments.packer import Packer
from cujit.devices.cuda.backend import CudaBackend
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3, LaunchShape
from cujit.errors import (
    ClosedError,
    DeviceNotFoundError,
    DriverError,
    LoadError,
    NameNotFoundError,
)
from cujit.loading import jit
from cujit.program import build, compile
from devices.cuda.gpus import context_of
from processes import python
from raising import raises

pytestmark = pytest.mark.gpu

CODE = """
extern "C" __global__ void scale(float* x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= a;
}
extern "C" __global__ void mixed(char a, double b, short c, float* p) { *p = a + b + c; }
extern "C" __global__ void __launch_bounds__(128) fixed() {
    __shared__ volatile int s[100];
    s[threadIdx.x % 100] = 1;
}
extern "C" __global__ void trap() { __trap(); }
extern "C" __global__ void slow(long long* out, long long cycles) {
    long long start = clock64();
    while (clock64() - start < cycles) {}
    *out = 1;
}
__constant__ int table[4] = {1, 2, 3, 4};
extern "C" __global__ void look(int* p) { p[threadIdx.x] = table[threadIdx.x]; }
"""


@pytest.fixture
def module(gpu: Device) -> Iterator[Any]:
    loaded = gpu.load(compile(CODE, arch=gpu.arch))
    yield loaded
    loaded.close()


def current_context(gpu: Device) -> int:
    return int(context_of(gpu).driver.call("cuCtxGetCurrent"))


def test_gpu_has_its_name_and_limits(gpu: Device) -> None:
    assert gpu.product
    assert gpu.name == "cuda:0"
    assert gpu.limits.max_threads == 1024
    assert gpu.limits.warp_size == 32
    assert gpu.limits.shared_bytes_optin >= gpu.limits.shared_bytes >= 48 << 10
    assert gpu.limits.threads_per_processor >= 1024
    assert gpu.limits.processors > 0
    assert str(gpu.arch) in repr(gpu)


def test_gpu_past_the_last_reports_the_count(gpu: Device) -> None:
    with raises(DeviceNotFoundError, "device-not-found", context_of(gpu).driver.device_count()):
        CudaBackend(context_of(gpu).driver.device_count())


def test_kernels_are_found_with_layout_and_resources(module: Any) -> None:
    assert set(module.kernels) == {"scale", "mixed", "fixed", "trap", "slow", "look"}
    assert module.kernels["mixed"].signature.offsets == (0, 8, 16, 24)
    assert [p.size for p in module.kernels["mixed"].signature] == [1, 8, 2, 8]
    assert len(module.kernels["fixed"].signature) == 0
    fixed = module.kernels["fixed"].resources
    assert fixed.max_threads == 128
    assert fixed.shared_bytes == 400
    assert module.kernels["scale"].resources.registers > 0


def test_parameters_arrive_at_their_offsets(gpu: Device, module: Any) -> None:
    kernel, p = module.kernels["mixed"], gpu.zeros(1, np.float32)
    packer = Packer(kernel.signature, gpu)
    kernel.launch(LaunchShape(Dim3(1), Dim3(1)), packer.pack([1, np.float64(0.5), 2, p]))
    assert p.numpy().tolist() == [3.5]


def test_constants_are_found_and_read(gpu: Device, module: Any) -> None:
    address, size = module.variable("table")
    assert size == 16
    gpu.upload(address, np.array([9, 8, 7, 6], np.int32).data)
    p = gpu.zeros(4, np.int32)
    module.kernels["look"].launch(LaunchShape(Dim3(1), Dim3(4)), p.address.to_bytes(8, "little"))
    assert p.numpy().tolist() == [9, 8, 7, 6]
    with pytest.raises(NameNotFoundError):
        module.variable("tables")


def test_occupancy_is_the_drivers(module: Any, gpu: Device) -> None:
    kernel = module.kernels["scale"]
    assert kernel.active_blocks(256) == gpu.limits.threads_per_processor // 256
    assert kernel.active_blocks(32, gpu.limits.shared_bytes_optin) == 1
    assert kernel.best_block() % 32 == 0


def test_thread_keeps_its_current_context(gpu: Device) -> None:
    before = current_context(gpu)
    loaded = gpu.load(compile(CODE, arch=gpu.arch))
    array = gpu.zeros(10, np.float32)
    array.numpy()
    loaded.kernels["fixed"].launch(LaunchShape(Dim3(1), Dim3(1)), b"")
    gpu.synchronize()
    with pytest.raises(DriverError):
        gpu.allocate(1 << 60)
    assert current_context(gpu) == before


def test_ptx_is_compiled_by_the_driver_with_its_log(gpu: Device) -> None:
    text = "\n".join([".version 7.0", ".target sm_75", ".address_size 64", ".visible .entry k() {", "ret;", "}"])
    loaded = gpu.load(Artifact.of(text))
    assert list(loaded.kernels) == ["k"]
    assert loaded.route == "PTX compute_75 through the driver's JIT"
    assert isinstance(loaded.log, str)


@pytest.mark.hardware
def test_invalid_ptx_returns_the_compilers_log(gpu: Device) -> None:
    text = ".version 7.0\n.target sm_75\n.address_size 64\n.visible .entry k() { nonsense.f32 %r1; }\n"
    with pytest.raises(DriverError) as caught:
        gpu.load(Artifact.of(text))
    assert "line" in caught.value.log
    assert caught.value.result == "CUDA_ERROR_INVALID_PTX"


@pytest.mark.hardware
def test_driver_selects_the_same_image_of_a_fatbin(gpu: Device) -> None:
    loaded = gpu.load(build(CODE, [gpu.arch, "compute_75"]))
    assert loaded.route == f"cubin {gpu.arch} of the fatbin"
    assert "scale" in loaded.kernels
    with pytest.raises(LoadError):
        gpu.load(build(CODE, ["sm_75"] if gpu.arch.number >= 80 else ["sm_120"]))


def test_closed_module_refuses_and_closing_again_is_harmless(gpu: Device) -> None:
    loaded = gpu.load(compile(CODE, arch=gpu.arch))
    kernel = loaded.kernels["fixed"]
    loaded.close()
    loaded.close()
    with pytest.raises(ClosedError):
        kernel.launch(LaunchShape(Dim3(1), Dim3(1)), b"")
    with pytest.raises(ClosedError):
        loaded.variable("table")


def test_allocation_above_the_gpus_memory_is_an_error(gpu: Device) -> None:
    with pytest.raises(DriverError) as caught:
        gpu.empty(1 << 50, np.float32)
    assert caught.value.result == "CUDA_ERROR_OUT_OF_MEMORY"


def test_memory_is_freed_with_its_array(gpu: Device) -> None:
    def memory() -> tuple[int, int]:
        with context_of(gpu) as driver:
            free, total = driver.call("cuMemGetInfo")
            return int(free), int(total)

    gpu.synchronize()
    before, total = memory()
    size = total // 32  # much, because other processes of the tests use the same GPU
    arrays = [gpu.empty(size, np.uint8) for _ in range(4)]
    assert arrays[0].address % 256 == 0
    assert before - memory()[0] >= 3 * size
    del arrays
    gc.collect()
    assert before - memory()[0] < size


def test_work_on_a_stream_is_waited_for_by_the_stream(gpu: Device, module: Any) -> None:
    stream, out = gpu.stream(), gpu.zeros(1, np.int64)
    gpu.synchronize()
    packer = Packer(module.kernels["slow"].signature, gpu)
    module.kernels["slow"].launch(LaunchShape(Dim3(1), Dim3(1)), packer.pack([out, 50_000_000]), stream.handle)
    stream.synchronize()
    assert out.numpy().tolist() == [1]


@pytest.mark.hardware
@pytest.mark.usefixtures("gpu")
def test_crashed_kernel_is_reported_and_the_process_exits() -> None:
    code = (
        "import cujit.machine as c\nimport cujit.loading as k\n"
        "from cujit.errors import DriverError\n"
        "gpu = c.gpu(); x = gpu.zeros(4, 'f4')\n"
        "k.jit('extern \"C\" __global__ void die() { __trap(); }', device=gpu)['die'][1, 1]()\n"
        "try:\n    x.numpy()\n"
        "except DriverError as e:\n    print(e.call, e.result, bool(e.help))\n"
    )
    done = python(code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("cuMemcpyDtoH CUDA_ERROR_")
    assert done.stdout.strip().endswith("True")
    assert done.stderr == ""


def test_torch_tensors_are_arguments_and_arrays_become_tensors(gpu: Device) -> None:
    torch = pytest.importorskip("torch")
    scale = jit(CODE, device=gpu)["scale"]
    tensor = torch.ones(1000, device="cuda:0")
    scale.over(1000, stream=torch.cuda.current_stream())(tensor, 3.0, 1000)
    assert bool((tensor == 3).all())
    array = gpu.array(np.arange(6, dtype=np.float32).reshape(2, 3))
    shared = torch.from_dlpack(array)
    assert shared.data_ptr() == array.address
    assert shared.shape == (2, 3)
    scale.over(6)(array, 2.0, 6)
    torch.cuda.synchronize()
    assert shared.cpu().tolist() == [[0, 2, 4], [6, 8, 10]]
    del array
    gc.collect()
    assert float(shared.sum()) == 30


def test_cupy_arrays_are_arguments_and_arrays_become_cupys(gpu: Device) -> None:
    cupy = pytest.importorskip("cupy")
    scale = jit(CODE, device=gpu)["scale"]
    other = cupy.ones(1000, cupy.float32)
    scale.over(1000)(other, 3.0, 1000)
    assert bool((other == 3).all())
    array = gpu.array(np.arange(6, dtype=np.float32))
    assert cupy.asarray(array).data.ptr == array.address
    assert cupy.from_dlpack(array).data.ptr == array.address
