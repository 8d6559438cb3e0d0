"""``clusterlaunchcontrol.try_cancel``: persistent kernels take over tiles of blocks that have not begun."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from devices.cpu.launching import Array

pytestmark = pytest.mark.usefixtures("unoptimised")

# `done` counts how often each tile was worked on, `began` which blocks ran. Each `fault` is one mistake.
CODE = r"""
#include <cstdint>
static __device__ unsigned sh(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
#define init(bar, count) asm volatile("mbarrier.init.shared.b64 [%0], %1; fence.mbarrier_init.release.cluster;" \
                                      :: "r"(sh(bar)), "r"(count) : "memory")
#define expect(bar, bytes) \
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(sh(bar)), "r"(bytes) : "memory")
#define until(bar, parity) \
    asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra L; }" \
                 :: "r"(sh(bar)), "r"(parity) : "memory")
#define try_cancel(how, answer, bar) \
    asm volatile("clusterlaunchcontrol.try_cancel.async.shared::cta" \
                 ".mbarrier::complete_tx::bytes" how ".b128 [%0], [%1];" \
                 :: "r"(sh(answer)), "r"(sh(bar)) : "memory")
#define fence() asm volatile("fence.proxy.async.shared::cta;" ::: "memory")

struct Answer { bool canceled; unsigned x, y, z; };
static __device__ Answer read(const ulonglong2 *word) {
    Answer a; unsigned canceled; unsigned long long low = word->x, high = word->y;
    asm volatile("{ .reg .b128 w; .reg .pred p; mov.b128 w, {%1, %2};"
                 "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, w; selp.u32 %0, 1, 0, p; }"
                 : "=r"(canceled) : "l"(low), "l"(high));
    a.canceled = canceled;
    asm volatile("{ .reg .b128 w; mov.b128 w, {%3, %4};"
                 "clusterlaunchcontrol.query_cancel.get_first_ctaid.v4.b32.b128 {%0, %1, %2, _}, w; }"
                 : "=r"(a.x), "=r"(a.y), "=r"(a.z) : "l"(low), "l"(high));
    return a;
}

extern "C" __global__ void tiles(const int *x, int *y, int *done, int *began, int fault) {
    __shared__ __align__(16) ulonglong2 answer;
    __shared__ uint64_t bar;
    uint3 at = make_uint3(blockIdx.x, blockIdx.y, blockIdx.z);
    int t = threadIdx.x, parity = 0;
    if (t == 0) init(&bar, 1);
    if (t == 0) began[(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] = 1;
    for (bool more = true; more; parity ^= 1) {
        if (fault != 2 || !parity) __syncthreads();
        if (t == 0) {
            expect(&bar, fault == 3 ? 32 : 16);                                // 3
            try_cancel("", &answer, &bar);                                     // 1 2
        }
        int tile = (at.z * gridDim.y + at.y) * gridDim.x + at.x;
        y[tile * 64 + t] = 3 * x[tile * 64 + t] + tile;
        if (t == 0) atomicAdd(&done[tile], 1);
        if (fault != 1) until(&bar, parity);
        Answer a = read(&answer);                                              // 1 2
        more = a.canceled;
        at = make_uint3(a.x, a.y, a.z);
        fence();
    }
}

extern "C" __global__ void __cluster_dims__(2) pairs(const int *x, int *y, int *done, int *began, int fault) {
    __shared__ __align__(16) ulonglong2 answer;
    __shared__ uint64_t bar;
    int t = threadIdx.x, parity = 0;
    unsigned rank, tile = blockIdx.x;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    if (t == 0) init(&bar, 1);
    if (t == 0) began[blockIdx.x] = 1;
    for (bool more = true; more; parity ^= 1) {
        if (t == 0) expect(&bar, 16);
        asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
        if (t == 0 && rank == 0) try_cancel(".multicast::cluster::all", &answer, &bar);
        y[tile * 64 + t] = 3 * x[tile * 64 + t] + tile;
        if (t == 0) atomicAdd(&done[tile], 1);
        until(&bar, parity);
        Answer a = read(&answer);
        more = a.canceled;
        tile = a.x + rank;
        fence();
    }
    asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}
"""
TILES = 24
GRIDS = {"tiles": (4, 3, 2), "pairs": (TILES, 1, 1)}


@functools.cache
def image() -> cujit.Artifact:
    return cujit.compile(CODE, arch="compute_100a", lineinfo=True)


def prepared(device: Device, name: str, fault: int = 0) -> tuple[cujit.Launch, tuple[Any, ...]]:
    """Prepare a kernel: the launch, and its arguments x, y, done, began, fault."""
    x = device.array(np.arange(TILES * 64, dtype=np.int32))
    outputs = (device.zeros(n, np.int32) for n in (TILES * 64, TILES, TILES))
    return cujit.load(image(), device)[name][GRIDS[name], 64], (x, *outputs, fault)


def ran(device: Device, name: str, fault: int = 0) -> Array:
    """Run a kernel, look whether it did each tile once, and return which blocks ran."""
    launch, arguments = prepared(device, name, fault)
    launch(*arguments)
    y, done, began = (array.numpy() for array in arguments[1:4])
    np.testing.assert_array_equal(done, 1)
    np.testing.assert_array_equal(y, 3 * np.arange(TILES * 64) + np.arange(TILES).repeat(64))
    found: Array = began
    return found


@pytest.mark.parametrize("name", GRIDS)
def test_try_cancel_takes_over_blocks_that_never_run(name: str) -> None:
    began = ran(cujit.cpu(1), name)
    assert began[0] == 1
    assert 0 < began.sum() < TILES


@pytest.mark.parametrize("name", GRIDS)
def test_try_cancel_does_each_tile_once_under_threads_and_checks(name: str) -> None:
    ran(cujit.cpu(4), name)
    ran(cujit.cpu(check="all"), name)


@pytest.mark.parametrize("name", GRIDS)
def test_try_cancel_is_refused_at_times_by_a_schedule(name: str) -> None:
    counts = {int(ran(cujit.cpu(schedule=seed, start_order="any"), name).sum()) for seed in range(20)}
    assert len(counts) > 1
    assert max(counts) < TILES


@pytest.mark.parametrize("name", GRIDS)
def test_try_cancel_leaves_results_equal_under_schedules(name: str) -> None:
    launch, arguments = prepared(cujit.cpu(), name)
    report = launch.under_schedules(*arguments, schedules=20)
    assert report.difference is None or report.difference.argument == 3, report  # which blocks ran may differ


@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [(1, "race", "try_cancel"), (2, "race", "try_cancel"), (3, "deadlock", "lacks 16 bytes")],
    ids=["no wait for the answer", "no barrier before the next request", "too many bytes expected"],
)
def test_try_cancel_mistakes_are_found_with_their_line(fault: int, kind: str, words: str) -> None:
    with pytest.raises(KernelFaultError) as caught:
        ran(cujit.cpu(1, check="race"), "tiles", fault)
    assert caught.value.kind == kind, str(caught.value)
    assert words in str(caught.value)
    assert ".cu:" in str(caught.value)


def test_try_cancel_leaves_the_block_that_is_traced() -> None:
    trace = cujit.Trace(block=(3, 2, 1), thread=5)
    assert ran(cujit.cpu(trace=trace), "tiles").all()
    assert len(trace.steps) > 0
