"""What only a GPU can show: grids that wait, clusters, overlap, large shared memory, and other libraries' arrays."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.devices.process import process_devices
from cujit.errors import ArgumentError, LaunchError
from cujit.loading import Module, jit
from raising import raises

pytestmark = pytest.mark.gpu

WAITING = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void ring(int* values, int rounds) {
    cg::grid_group grid = cg::this_grid();
    int blocks = gridDim.x, me = blockIdx.x;
    for (int i = 0; i < rounds; ++i) {
        int* from = values + (i & 1) * blocks;
        int* to = values + (~i & 1) * blocks;
        if (threadIdx.x == 0) to[me] = from[(me + 1) % blocks] + 1;
        grid.sync();
    }
}
"""
CLUSTERS = """
#include <cooperative_groups.h>
namespace cg = cooperative_groups;
extern "C" __global__ void neighbours(int* out) {
    __shared__ int mine;
    cg::cluster_group cluster = cg::this_cluster();
    if (threadIdx.x == 0) mine = 100 * blockIdx.x;
    cluster.sync();
    int next = (cluster.block_rank() + 1) % cluster.num_blocks();
    if (threadIdx.x == 0) out[blockIdx.x] = *cluster.map_shared_rank(&mine, next) + (int)cluster.num_blocks();
    cluster.sync();
}
extern "C" __global__ void __cluster_dims__(2, 1, 1) pairs(int* out) {
    if (threadIdx.x == 0) out[blockIdx.x] = (int)cg::this_cluster().num_blocks();
}
"""
OVERLAPPING = """
extern "C" __global__ void first(volatile int* x, int n) {
    asm volatile("griddepcontrol.launch_dependents;");
    long long start = clock64();
    while (clock64() - start < 2000000) { }
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] = i;
}
extern "C" __global__ void second(const volatile int* x, int* y, int n) {
    asm volatile("griddepcontrol.wait;" ::: "memory");
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[n - 1 - i] + 1;
}
"""
LARGE = """
extern "C" __global__ void reverse(const int* from, int* to, int n) {
    extern __shared__ int room[];
    for (int i = threadIdx.x; i < n; i += blockDim.x) room[i] = from[i];
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) to[i] = room[n - 1 - i];
}
"""
AXPY = """
extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
N = 1000


def require_clusters(gpu: Device) -> None:
    if gpu.arch.number < 90:
        pytest.skip("clusters came with sm_90")


# -- grids, clusters, overlap, shared memory --------------------------------------------------------------


def test_blocks_of_a_cooperative_grid_wait_for_each_other(gpu: Device) -> None:
    launch = jit(WAITING, device=gpu)["ring"].cooperative()
    assert launch.shape is not None
    blocks = launch.shape.grid.volume
    assert blocks >= gpu.limits.processors
    for _ in range(3):
        values = gpu.zeros(2 * blocks, np.int32)
        launch(values, 20)
        assert values.numpy()[:blocks].tolist() == [20] * blocks


def test_cooperative_grid_that_does_not_fit_names_both_numbers(gpu: Device) -> None:
    kernel = jit(WAITING, device=gpu)["ring"]
    most = kernel.cooperative_limit(256)
    kernel.prepare(most, 256, cooperative=True)
    with raises(LaunchError, "cooperative-size", most + 1, most):
        kernel.prepare(most + 1, 256, cooperative=True)


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16])
def test_cluster_blocks_read_each_others_shared_memory(gpu: Device, size: int) -> None:
    require_clusters(gpu)
    launch = jit(CLUSTERS, device=gpu)["neighbours"].prepare(32, 32, cluster=size)
    out = gpu.zeros(32, np.int32)
    for _ in range(3):
        out.fill(0)
        launch(out)
        expected = [100 * (b // size * size + (b + 1) % size) + size for b in range(32)]
        assert out.numpy().tolist() == expected


def test_cluster_errors_are_named(gpu: Device) -> None:
    require_clusters(gpu)
    module = jit(CLUSTERS, device=gpu)
    with raises(LaunchError, "cluster-size", 32, 16):
        module["neighbours"].prepare(32, 32, cluster=32)
    with raises(LaunchError, "cluster-size", 9, 2):
        module["neighbours"].prepare(9, 32, cluster=2)
    with raises(LaunchError, "cluster-size", 9, 2):
        module["pairs"][9, 32](gpu.zeros(9, np.int32))
    with raises(LaunchError, "cluster-size", (4, 1, 1), (2, 1, 1)):
        module["pairs"].prepare(8, 32, cluster=4)


def test_kernel_compiled_for_clusters_needs_no_cluster_option(gpu: Device) -> None:
    require_clusters(gpu)
    kernel, out = jit(CLUSTERS, device=gpu)["pairs"], gpu.zeros(8, np.int32)
    for launch in (kernel[8, 32], kernel.prepare(8, 32, cluster=2), kernel.cooperative(8 * 32, block=32)):
        for _ in range(2):
            out.fill(0)
            launch(out)
            assert out.numpy().tolist() == [2] * 8


def test_cooperative_clusters_are_counted_whole(gpu: Device) -> None:
    require_clusters(gpu)
    kernel = jit(CLUSTERS, device=gpu)["neighbours"]
    launch = kernel.cooperative(block=1024, cluster=4)
    assert launch.shape is not None
    blocks = launch.shape.grid.volume
    assert 4 <= blocks <= kernel.cooperative_limit(1024)
    assert blocks % 4 == 0
    out = gpu.zeros(blocks, np.int32)
    launch(out)
    assert set((out.numpy() % 100).tolist()) == {4}
    with raises(LaunchError, "cooperative-size", blocks + 4, blocks):
        kernel.prepare(blocks + 4, 1024, cluster=4, cooperative=True)


def test_overlapping_kernel_waits_where_it_says(gpu: Device) -> None:
    require_clusters(gpu)
    module, stream = jit(OVERLAPPING, device=gpu), gpu.stream()
    x, y = gpu.zeros(N, np.int32), gpu.zeros(N, np.int32)
    first = module["first"].prepare(8, 128, stream=stream)
    second = module["second"].prepare(8, 128, stream=stream, overlap=True)
    for _ in range(4):
        x.fill(-1)
        gpu.synchronize()
        first(x, N)
        second(x, y, N)
        stream.synchronize()
        assert y.numpy().tolist() == list(range(N, 0, -1))


def test_priorities_match_those_of_the_device(gpu: Device) -> None:
    module, x = jit(AXPY, device=gpu), gpu.zeros(N, np.float32)
    for priority in (0, -1):
        launch = module["axpy"].prepare(8, 128, priority=priority)
        for _ in range(2):
            launch(1.0, x, x, N)
    gpu.synchronize()
    with raises(LaunchError, "launch", 100, "cuda:0"):
        module["axpy"].prepare(8, 128, priority=100)


def test_200_kb_of_shared_memory_need_no_setting(gpu: Device) -> None:
    size = 200 << 10
    if gpu.limits.shared_bytes_optin < size:
        pytest.skip(f"this GPU has {gpu.limits.shared_bytes_optin} bytes")
    n = size // 4
    kernel = jit(LARGE, device=gpu)["reverse"]
    x, y = gpu.array(np.arange(n, dtype=np.int32)), gpu.zeros(n, np.int32)
    launch = kernel[1, 1024, size]
    for _ in range(3):
        y.fill(0)
        launch(x, y, n)
        assert np.array_equal(y.numpy(), np.arange(n, dtype=np.int32)[::-1])
    with raises(LaunchError, "shared-memory-size", gpu.limits.shared_bytes_optin):
        kernel[1, 1024, gpu.limits.shared_bytes_optin + 4]


def test_two_threads_launch_equal_and_different_kernels(gpu: Device) -> None:
    module = jit(AXPY, device=gpu)
    wrong: list[object] = []

    def work(which: int) -> None:
        try:
            stream = gpu.stream()
            x = gpu.array(np.ones(N, np.float32))
            y = gpu.zeros(N, np.float32)
            gpu.synchronize()
            for i in range(500):
                module["axpy"][8 + i % 3, 128, 0, stream](1.0, x, y, N)
            stream.synchronize()
            if y.numpy().tolist() != [500.0] * N:
                wrong.append(y.numpy())
        except BaseException as e:
            wrong.append((which, e))

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


# -- arrays of other libraries ----------------------------------------------------------------------------


def torch_arrays() -> tuple[Any, Any, Any]:
    torch: Any = pytest.importorskip("torch")
    x = torch.arange(N, dtype=torch.float32, device="cuda")
    return x, torch.ones(N, dtype=torch.float32, device="cuda"), lambda y: y.cpu().numpy()


def cupy_arrays() -> tuple[Any, Any, Any]:
    cupy: Any = pytest.importorskip("cupy")
    return cupy.arange(N, dtype=cupy.float32), cupy.ones(N, dtype=cupy.float32), lambda y: y.get()


def numba_arrays() -> tuple[Any, Any, Any]:
    if not hasattr(np, "row_stack"):  # numba-cuda 0.30 asks for it; NumPy 2.4 no longer has it
        np.row_stack = np.vstack
    cuda: Any = pytest.importorskip("numba.cuda")
    x, y = np.arange(N, dtype=np.float32), np.ones(N, np.float32)
    return cuda.to_device(x), cuda.to_device(y), lambda y: y.copy_to_host()


def jax_arrays() -> tuple[Any, Any, Any]:
    jax: Any = pytest.importorskip("jax")
    if jax.default_backend() != "gpu":
        pytest.skip("this JAX has no GPU")
    x = jax.numpy.arange(N, dtype="float32")
    y = process_devices().gpu().array(np.ones(N, np.float32))  # JAX's own are not written to
    return x, y, lambda y: y.numpy()


ARRAYS = {"torch": torch_arrays, "cupy": cupy_arrays, "numba": numba_arrays, "jax": jax_arrays}


@pytest.fixture
def module(gpu: Device) -> Module:
    return jit(AXPY, device=gpu)


@pytest.mark.parametrize("library", list(ARRAYS))
def test_library_arrays_give_the_right_result(module: Module, library: str) -> None:
    x, y, back = ARRAYS[library]()
    launch = module["axpy"][8, 128]
    for i in range(1, 6):
        launch(2.0, x, y, N)
        module.device.synchronize()
        assert back(y).tolist() == [1 + i * 2.0 * k for k in range(N)]


def test_jax_arrays_are_not_written_to(module: Module) -> None:
    x, _y, _back = jax_arrays()
    with raises(ArgumentError, "argument-type", "read-only"):
        module["axpy"][8, 128](1.0, x, x, N)


def test_kernel_waits_for_cupys_stream(module: Module) -> None:
    cupy: Any = pytest.importorskip("cupy")
    ours, a = module.device.stream(), cupy.ones((4000, 4000), cupy.float32)
    launch = module["axpy"][8, 128, 0, ours]
    with cupy.cuda.Stream(non_blocking=True):
        for _ in range(5):
            x = (a @ a).ravel()[:N] - 3000  # takes a while; the elements are 1000
            y = cupy.zeros(N, cupy.float32)
            launch(2.0, x, y, N)
            ours.synchronize()
            assert y.get().tolist() == [2000.0] * N


@pytest.mark.parametrize("library", ["torch", "cupy", "numba"])
def test_array_of_another_gpu_is_refused(library: str) -> None:
    gpus = process_devices().gpus()
    if len(gpus) < 2:
        pytest.skip("there is one GPU")
    x, y, _back = ARRAYS[library]()
    launch = jit(AXPY, device=gpus[1])["axpy"][8, 128]
    mine = gpus[1].zeros(N, np.float32)
    for _ in range(3):
        launch(1.0, mine, mine, N)
        with raises(ArgumentError, "argument-type", 0, "cuda:1"):
            launch(1.0, x, y, N)
    with raises(ArgumentError, "argument-type", "cuda:1"):
        launch(1.0, gpus[0].zeros(N, np.float32), mine, N)


# -- graphs -----------------------------------------------------------------------------------------------


def test_prepared_launches_are_captured_in_a_graph_of_torch(module: Module) -> None:
    torch: Any = pytest.importorskip("torch")
    x, y, back = torch_arrays()
    stream = torch.cuda.Stream()
    launch = module["axpy"].prepare(8, 128, stream=stream)
    launch(0.0, x, y, N)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        launch(1.0, x, y, N)
        launch(2.0, x, y, N)
    assert back(y).tolist() == [1.0] * N
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    assert back(y).tolist() == [1 + 6.0 * k for k in range(N)]


def test_prepared_launches_are_captured_in_a_graph_of_cupy(module: Module) -> None:
    cupy: Any = pytest.importorskip("cupy")
    x, y, back = cupy_arrays()
    stream = cupy.cuda.Stream(non_blocking=True)
    launch = module["axpy"].prepare(8, 128, stream=stream)
    cupy.cuda.Device().synchronize()
    with stream:
        launch(0.0, x, y, N)
        stream.synchronize()
        stream.begin_capture()
        launch(1.0, x, y, N)
        launch(2.0, x, y, N)
        graph = stream.end_capture()
        for _ in range(2):
            graph.launch(stream)
        stream.synchronize()
    assert back(y).tolist() == [1 + 6.0 * k for k in range(N)]
