"""Many threads: blocks over cores, launches from several Python threads, and the interpreter left free."""

from __future__ import annotations

import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from cujit.errors import CujitError, LoadError
from cujit.loading import jit, load
from cujit.machine import cpu
from processes import printed
from raising import raises

SPIN = """extern "C" __global__ void spin(unsigned *out, int rounds) {
    unsigned h = blockIdx.x * blockDim.x + threadIdx.x;
    for (int i = 0; i < rounds; i++) h = h * 1664525u + 1013904223u;
    out[blockIdx.x * blockDim.x + threadIdx.x] = h;
}"""


def spun(count: int, rounds: int) -> np.ndarray:
    h = np.arange(count, dtype=np.uint32)
    for _ in range(rounds):
        h = h * np.uint32(1664525) + np.uint32(1013904223)
    return h


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_thread_count_keeps_results_unchanged(threads: int) -> None:
    device = cpu(threads)
    out = device.array(np.zeros(200 * 64, np.uint32))
    jit(SPIN, device=device)["spin"][200, 64](out, 5)
    np.testing.assert_array_equal(out.numpy(), spun(200 * 64, 5))
    assert device.limits.processors == threads


def test_idle_worker_threads_sleep_soon() -> None:
    took = printed(
        """
        import sys, time
        import numpy as np
        from cujit.loading import jit
        from cujit.machine import cpu

        device = cpu(4)
        out = device.array(np.zeros(200 * 64, np.uint32))
        jit(sys.argv[1], device=device)["spin"][200, 64](out, 100_000)  # long enough for all threads to come
        begin = time.process_time()
        time.sleep(0.5)
        print(time.process_time() - begin)
        """,
        SPIN,
    )
    assert float(took) < 0.05  # threads that look all the time take more, however many share a core


def test_zero_threads_are_refused() -> None:
    with raises(LoadError, "load", "1024"):
        cpu(0)


def test_kernels_are_launched_from_many_python_threads_at_once() -> None:
    device = cpu()
    kernel = jit(SPIN, device=device)["spin"]

    def work(rounds: int) -> bool:
        out = device.array(np.zeros(100 * 96, np.uint32))
        for _ in range(5):
            kernel[100, 96](out, rounds)
        return bool((out.numpy() == spun(100 * 96, rounds)).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(1, 25)))


def test_local_memory_above_the_machines_memory_is_an_error() -> None:
    ptx = """.version 8.0\n.target sm_80\n.address_size 64
    .visible .entry huge() { .local .b8 mine[70368744177664]; st.local.u8 [mine], 1; ret; }"""
    with raises(CujitError, "out-of-memory"):
        load(ptx.encode(), cpu())["huge"][1, 1]()


def test_python_runs_on_while_a_kernel_runs() -> None:
    device = cpu(1)
    kernel = jit(SPIN, device=device)["spin"]
    out = device.array(np.zeros(64 * 64, np.uint32))
    kernel[64, 64](out, 1)
    done = threading.Event()

    def launch() -> None:
        kernel[64, 64](out, 3_000_000)
        done.set()

    thread = threading.Thread(target=launch)
    thread.start()
    ticks = 0
    while not done.is_set():
        ticks += 1
        time.sleep(0.001)
    thread.join()
    assert ticks > 5


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_forked_child_runs_kernels_too() -> None:
    device = cpu(2)
    kernel = jit(SPIN, device=device)["spin"]
    out = device.array(np.zeros(200 * 64, np.uint32))
    kernel[200, 64](out, 2)
    child = os.fork()
    if child == 0:
        kernel[200, 64](out, 3)
        os._exit(0 if (out.numpy() == spun(200 * 64, 3)).all() else 1)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
