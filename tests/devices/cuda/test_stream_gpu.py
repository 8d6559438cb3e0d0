"""Streams, events and graphs with those of other libraries, and what only a real GPU can show of them."""

from __future__ import annotations

import gc
import threading
from typing import Any

import numpy as np
import pytest

from cujit.devices.cuda.backend import CudaBackend
from cujit.devices.device import Device
from cujit.devices.launcher.launch import attach
from cujit.devices.process import process_devices
from cujit.devices.streams import stream_handle
from cujit.errors import DriverError, LaunchError
from cujit.kernel import Launch
from cujit.loading import Module, jit
from cujit.timing import time
from devices.cuda.gpus import context_of
from raising import raises

pytestmark = pytest.mark.gpu

CODE = """
extern "C" __global__ void add(float *x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += a;
}
extern "C" __global__ void sum(float *x, const float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] += y[i];
}
extern "C" __global__ void spin(long long cycles) { long long s = clock64(); while (clock64() - s < cycles) {} }
"""
LONG = 200_000_000  # cycles: about 0.1 s


@pytest.fixture(scope="module")
def module(gpu: Device) -> Module:
    return jit(CODE, device=gpu)


def library(name: str) -> Any:
    return pytest.importorskip(name)


def prepared(module: Module, x: Any, stream: object) -> Launch:
    """A launch that machine code starts from here on."""
    launch = module["add"][1, 32, 0, stream]
    assert attach(launch)
    launch(x, 0.0, 32)  # bound by this one
    return launch


@pytest.mark.hardware
def test_stream_runs_in_parallel_with_python(gpu: Device, module: Module) -> None:
    stream = gpu.stream()
    start = stream.record()
    module["spin"][1, 1, 0, stream](LONG)
    end = stream.record()
    before = (stream.done, end.done)
    stream.synchronize()
    assert (before, (stream.done, end.done)) == ((False, False), (True, True))
    assert end.elapsed_ms(start) > 20


def test_stream_waits_for_the_work_of_another_one(gpu: Device, module: Module) -> None:
    first, second, x = gpu.stream(), gpu.stream(), gpu.zeros(32, np.float32)
    gpu.synchronize()
    module["spin"][1, 1, 0, first](LONG)
    module["add"][1, 32, 0, first](x, 1.0, 32)
    second.wait(first)
    assert (x.numpy(stream=second) == 1).all()


def test_priorities_match_those_of_the_gpu(gpu: Device) -> None:
    assert gpu.stream().priority == 0
    assert gpu.stream(priority=-1).priority == -1
    with raises(LaunchError, "launch", -100, "cuda:0"):
        gpu.stream(priority=-100)


@pytest.mark.hardware
def test_pinned_copy_is_asynchronous_and_outlives_its_array(gpu: Device, module: Module) -> None:
    stream = gpu.stream()
    host = gpu.pinned(1 << 20, np.float32)
    host[:] = 4
    x = gpu.empty(1 << 20, np.float32, stream=stream)
    module["spin"][1, 1, 0, stream](LONG)
    x.copy_from(host, stream=stream)
    assert not stream.done
    del host
    gc.collect()
    assert (x.numpy() == 4).all()


@pytest.mark.hardware
def test_stream_memory_is_reused_in_stream_order(gpu: Device, module: Module) -> None:
    stream = gpu.stream()
    assert context_of(gpu).has_pools
    x = gpu.zeros(1 << 20, np.float32, stream=stream)
    module["spin"][1, 1, 0, stream](LONG)
    module["add"].over(1 << 20, stream=stream)(x, 1.0, 1 << 20)
    y = gpu.empty(1 << 20, np.float32, stream=stream)
    y.copy_from(x, stream=stream)
    del x
    assert not stream.done  # nothing waited
    z = gpu.zeros(1 << 20, np.float32, stream=stream)
    stream.close()
    assert (y.numpy() == 1).all()
    assert not z.numpy().any()


def test_memory_of_streams_is_right_under_load(gpu: Device, module: Module) -> None:
    wrong: list[str] = []

    def work(thread: int) -> None:
        stream, size = gpu.stream(), 1 << 16
        total = gpu.zeros(size, np.float32, stream=stream)
        for i in range(60):
            x = gpu.zeros(size + 1024 * (i % 7), np.float32, stream=stream)
            y = gpu.empty(size, np.float32, stream=stream)
            module["spin"][1, 1, 0, stream](200_000)
            module["add"].over(size, stream=stream)(x, float(thread), size)
            y.copy_from(x[:size], stream=stream)
            x.fill(-1, stream=stream)
            del x
            module["sum"].over(size, stream=stream)(total, y, size)
            if i % 20 == 19:
                stream.synchronize()
        found = total.numpy()
        if not (found == 60 * thread).all():
            wrong.append(f"thread {thread}: {found.min()} to {found.max()}")

    threads = [threading.Thread(target=work, args=(n,)) for n in range(1, 9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.hardware
def test_stream_memory_is_kept_until_it_is_trimmed(gpu: Device) -> None:
    bindings = context_of(gpu).driver.bindings

    def told(pool: object, name: str) -> int:
        which = getattr(bindings.CUmemPool_attribute, f"CU_MEMPOOL_ATTR_{name}")
        return int(context_of(gpu).call("cuMemPoolGetAttribute", pool, which))

    stream = gpu.stream()
    gpu.empty(64 << 20, np.uint8, stream=stream)
    gc.collect()
    stream.synchronize()
    gpu.synchronize()
    assert told(context_of(gpu).pool.handle, "RESERVED_MEM_CURRENT") >= 64 << 20
    again = time(lambda: gpu.empty(64 << 20, np.uint8, stream=stream), repeat=20, stream=stream)
    assert again.median_ms < 1
    stream.synchronize()
    gpu.trim(1 << 40)
    assert told(context_of(gpu).pool.handle, "RESERVED_MEM_CURRENT") >= 64 << 20
    gpu.synchronize()
    gpu.trim()
    context = context_of(gpu)
    kept = told(context.pool.handle, "RESERVED_MEM_CURRENT") - told(context.pool.handle, "USED_MEM_CURRENT")
    assert kept < 64 << 20
    default = context.driver.call("cuDeviceGetDefaultMemPool", context.device)
    assert int(default) != int(context.pool.handle)


@pytest.mark.usefixtures("gpu")
def test_array_outlives_its_memory_pool() -> None:
    mine = Device(CudaBackend(0))
    x = mine.array(np.arange(1 << 20, dtype=np.int32), stream=mine.stream())
    pool = context_of(mine).__dict__.pop("pool")
    del pool
    gc.collect()
    y = mine.array(np.arange(1 << 20, dtype=np.int32), stream=mine.stream())
    np.testing.assert_array_equal(x.numpy(), y.numpy())


def test_stream_memory_is_shared_with_other_libraries(gpu: Device) -> None:
    torch, stream = library("torch"), gpu.stream()
    x = gpu.array(np.arange(1 << 10, dtype=np.float32), stream=stream)
    seen = torch.from_dlpack(x)
    seen += 1
    torch.cuda.synchronize()
    assert seen.sum().item() == x.numpy().sum() == sum(range(1 << 10)) + (1 << 10)


def test_array_exposes_its_stream_to_other_libraries(gpu: Device, module: Module) -> None:
    stream = gpu.stream()
    x = gpu.zeros(1 << 10, np.float32, stream=stream)
    assert x.__cuda_array_interface__["stream"] == stream.handle
    assert gpu.zeros(1, np.float32).__cuda_array_interface__["stream"] is None
    cupy = library("cupy")
    module["spin"][1, 1, 0, stream](LONG)
    module["add"].over(x.size, stream=stream)(x, 1.0, x.size)
    assert (cupy.asarray(x).get() == 1).all()


def test_torch_streams_are_streams(gpu: Device, module: Module) -> None:
    torch = library("torch")
    theirs = torch.cuda.Stream()
    stream = gpu.stream(theirs)
    assert stream.handle == stream_handle(theirs) == theirs.cuda_stream
    with torch.cuda.stream(theirs):
        x = torch.zeros(32, device="cuda")
        torch.cuda._sleep(LONG)
        x += 1
    start = stream.record()
    module["add"][1, 32, 0, theirs](x, 1.0, 32)
    assert stream.record().elapsed_ms(start) >= 0
    ours = gpu.stream()
    ours.wait(theirs)
    ours.synchronize()
    assert x.cpu().tolist() == [2.0] * 32
    with torch.cuda.stream(torch.cuda.ExternalStream(ours.handle)):
        x += 1
    ours.synchronize()
    assert x.cpu().tolist() == [3.0] * 32


def test_cupy_streams_are_streams(gpu: Device, module: Module) -> None:
    cupy = library("cupy")
    theirs = cupy.cuda.Stream(non_blocking=True)
    x = cupy.zeros(32, cupy.float32)
    cupy.cuda.Device().synchronize()
    module["spin"][1, 1, 0, theirs](LONG)
    module["add"][1, 32, 0, theirs](x, 1.0, 32)
    stream = gpu.stream(theirs)
    assert not stream.done
    stream.synchronize()
    assert x.get().tolist() == [1.0] * 32
    from_external = getattr(cupy.cuda.Stream, "from_external", None)  # CuPy 14; before it ExternalStream
    with cupy.cuda.ExternalStream(stream.handle) if from_external is None else from_external(stream):
        x += 1
    stream.synchronize()
    assert x.get().tolist() == [2.0] * 32


def test_numba_streams_are_streams(gpu: Device, module: Module) -> None:
    cuda = library("numba.cuda")
    theirs = cuda.stream()
    handle = int(getattr(theirs.handle, "value", theirs.handle))
    x = cuda.to_device(np.zeros(32, np.float32))
    module["add"][1, 32, 0, handle](x, 1.0, 32)
    gpu.stream(handle).synchronize()
    assert x.copy_to_host().tolist() == [1.0] * 32


def test_cuda_core_streams_are_accepted_in_both_directions(gpu: Device, module: Module) -> None:
    core = library("cuda.core")
    there = core.Device(0)
    there.set_current()
    theirs, x = there.create_stream(), gpu.zeros(32, np.float32)
    gpu.synchronize()
    module["add"][1, 32, 0, theirs](x, 1.0, 32)
    gpu.stream().wait(theirs)
    theirs.sync()
    assert x.numpy().tolist() == [1.0] * 32
    ours = gpu.stream()
    assert int(there.create_stream(ours).handle) == ours.handle


def test_jax_arrays_are_passed_in_a_stream(gpu: Device) -> None:
    jax = library("jax")
    text = 'extern "C" __global__ void copy(const float *x, float *y) { y[threadIdx.x] = x[threadIdx.x]; }'
    stream, x = gpu.stream(), jax.numpy.arange(32, dtype="float32")
    y = gpu.zeros(32, np.float32, stream=stream)
    jit(text, device=gpu)["copy"][1, 32, 0, stream](x, y)
    assert y.numpy().tolist() == list(range(32))


# -- graphs -----------------------------------------------------------------------------------------------


def test_launches_are_captured_on_streams_of_other_libraries(gpu: Device, module: Module) -> None:
    torch = library("torch")
    theirs, x = torch.cuda.Stream(), torch.zeros(32, device="cuda")
    torch.cuda.synchronize()
    add = prepared(module, x, theirs)
    with gpu.capture(theirs) as graph:
        add(x, 1.0, 32)
        add(x, 2.0, 32)
    assert x.cpu().tolist() == [0.0] * 32
    graph.launch()
    graph.launch(torch.cuda.Stream())
    torch.cuda.synchronize()
    assert x.cpu().tolist() == [6.0] * 32


def test_launches_are_captured_on_our_stream(gpu: Device, module: Module) -> None:
    stream, x = gpu.stream(), gpu.zeros(32, np.float32)
    gpu.synchronize()
    add = prepared(module, x, stream)
    with gpu.capture(stream) as inner:
        add(x, 1.0, 32)
        add(x, 2.0, 32)
    with gpu.capture(stream) as outer:
        add(x, 10.0, 32)
        inner.launch(stream)
        add(x, 20.0, 32)
    assert (inner.nodes, outer.nodes) == (2, 3)
    assert x.numpy(stream=stream).tolist() == [0.0] * 32
    outer.launch()
    inner.launch()
    assert x.numpy(stream=stream).tolist() == [36.0] * 32


def test_graph_is_added_to_a_torch_graph(gpu: Device, module: Module) -> None:
    torch = library("torch")
    x = torch.zeros(32, device="cuda")
    torch.cuda.synchronize()
    with gpu.capture() as inner:
        module["add"][1, 32, 0, inner.stream](x, 1.0, 32)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x *= 2
        inner.launch(torch.cuda.current_stream())
        x *= 2
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    assert x.cpu().tolist() == [10.0] * 32


def test_graph_is_not_added_to_a_failed_capture(gpu: Device) -> None:
    stream, x = gpu.stream(), gpu.zeros(4, np.int32)
    gpu.synchronize()
    with gpu.capture() as inner:
        x.fill(1, stream=inner.stream)

    def spoil() -> None:
        with gpu.capture(stream):
            context_of(gpu).driver.attempt("cuStreamSynchronize", stream.handle)
            with pytest.raises((LaunchError, DriverError)):
                inner.launch(stream)

    with raises(DriverError, "stream-capture"):
        spoil()
    inner.launch(stream)
    assert x.numpy(stream=stream).tolist() == [1] * 4


def test_launches_are_captured_in_a_torch_graph(gpu: Device, module: Module) -> None:
    torch = library("torch")
    x = torch.zeros(32, device="cuda")
    torch.cuda.synchronize()
    theirs = torch.cuda.Stream()
    add = prepared(module, x, theirs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=theirs):
        stream = torch.cuda.current_stream()
        assert stream.cuda_stream == theirs.cuda_stream
        add(x, 0.25, 32)
        module["add"][1, 32, 0, stream](x, 0.75, 32)
        x *= 2
        with raises(LaunchError, "stream-capture"):
            gpu.stream(stream).synchronize()
    for _ in range(2):
        graph.replay()
    torch.cuda.synchronize()
    assert x.cpu().tolist() == [6.0] * 32


def test_launches_are_captured_in_a_cupy_graph(module: Module) -> None:
    cupy = library("cupy")
    x, stream = cupy.zeros(32, cupy.float32), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    with stream:
        x *= 2  # compiled before the capture
        add = prepared(module, x, stream)
        stream.begin_capture()
        add(x, 0.25, 32)
        add(x, 0.75, 32)
        x *= 2
        graph = stream.end_capture()
    graph.launch(stream)
    graph.launch(stream)
    stream.synchronize()
    assert x.get().tolist() == [6.0] * 32


def test_work_that_breaks_a_capture_is_reported_at_its_end(gpu: Device) -> None:
    stream = gpu.stream()
    with raises(DriverError, "stream-capture") as caught, gpu.capture(stream):
        context_of(gpu).driver.attempt("cuStreamSynchronize", stream.handle)
    assert caught.value.result == "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED"
    assert "can't be captured" in (caught.value.help or "")
    stream.synchronize()


def test_unjoined_stream_is_reported_at_the_end_of_a_capture(gpu: Device) -> None:
    stream, other = gpu.stream(), gpu.stream()
    x = gpu.zeros(4, np.int32)
    gpu.synchronize()

    def forget() -> None:
        with gpu.capture(stream):
            other.wait(stream.record())
            x.fill(1, stream=other)

    with raises(DriverError, "stream-capture") as caught:
        forget()
    assert "stream.wait(other)" in (caught.value.help or "")


def test_graph_of_many_launches_is_faster_than_the_launches(quiet_gpu: Device, module: Module) -> None:
    stream, x = quiet_gpu.stream(), quiet_gpu.zeros(32, np.float32)
    add = module["add"][1, 32, 0, stream]
    quiet_gpu.synchronize()
    with quiet_gpu.capture(stream) as graph:
        for _ in range(100):
            add(x, 1.0, 32)
    assert graph.nodes == 100
    replayed = time(graph.launch, repeat=20)
    assert replayed.median_ms < 1
    before = float(x.numpy(stream=stream)[0])
    graph.launch()
    assert float(x.numpy(stream=stream)[0]) == before + 100


def test_short_kernel_is_timed_without_launch_overhead(quiet_gpu: Device, module: Module) -> None:
    x = quiet_gpu.zeros(32, np.float32)
    timing = time(module["add"][1, 32], x, 1.0, 32)
    assert timing.calls > 10
    assert timing.median_ms < 0.02
    cold = time(module["add"][1, 32], x, 1.0, 32, flush_cache=True)
    assert cold.calls == 1
    assert cold.median_ms < 0.1
    spin = time(module["spin"][1, 1], 2_000_000, repeat=5)
    assert 0.5 < spin.median_ms < 5
    assert spin.spread < 0.2


def test_arrays_are_copied_between_gpus(gpu: Device) -> None:
    if context_of(gpu).driver.device_count() < 2:
        pytest.skip("there is one GPU")
    other = process_devices().gpu(1)
    x = gpu.array(np.arange(1 << 16, dtype=np.int32))
    y = other.zeros(1 << 16, np.int32)
    y.copy_from(x)
    np.testing.assert_array_equal(y.numpy(), np.arange(1 << 16))
    stream = other.stream()
    z = other.zeros(1 << 16, np.int32, stream=stream)
    z.copy_from(x)
    np.testing.assert_array_equal(z.numpy(), np.arange(1 << 16))
    mine = gpu.stream()
    mine.wait(stream)
    mine.wait(stream.record())
    with raises(LaunchError, "device-mismatch", "cuda:1", "cuda:0"):
        x.numpy(stream=stream)


def test_streamless_array_is_complete_before_a_stream_writes_it(gpu: Device) -> None:
    stream = gpu.stream()
    for _ in range(20):
        x = gpu.zeros(64 << 20, np.uint8)  # long enough to be under way still if nobody waited
        x.fill(7, stream=stream)
        stream.synchronize()
        gpu.synchronize()
        assert x[:4].numpy().tolist() == [7] * 4
        assert x[-4:].numpy().tolist() == [7] * 4
