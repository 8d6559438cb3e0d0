"""Races between blocks in global memory: each mistake is found with both lines, and what is right is silent."""

from __future__ import annotations

import functools
import re

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError

pytestmark = pytest.mark.usefixtures("unoptimised")

# Each kernel is `name(int *a, int *b, int fault)` for four blocks of 64 threads. It is right with fault 0; a line that
# a finding has to name ends in // and the number of a fault.
CODE = r"""
#include <cooperative_groups.h>
#include <cuda/atomic>
namespace cg = cooperative_groups;
#define KERNEL extern "C" __global__ void
#define B ((int)blockIdx.x)
#define LAST ((int)gridDim.x - 1)
#define AT (B * 64 + t)
__device__ unsigned count, ticket;

// The last block sums up what all wrote.
KERNEL last(int *a, int *b, int fault) {
    __shared__ bool is_last;
    int t = threadIdx.x;
    if (t < 4) a[B * 4 + t] = B + t;                                           // 1 2
    if (fault == 2) __threadfence_block();
    else if (fault != 1) __threadfence();
    if (fault == 3 && t == 0) a[B * 4] = B + 7;                                // 3
    if (t == 0) is_last = atomicAdd(&count, 1) % gridDim.x == LAST;
    __syncthreads();
    if (is_last && t < 4) b[t] = a[t] + a[4 + t] + a[8 + t] + a[12 + t];       // 1 2 3
}

// Each block adds to the sums that all have in common.
KERNEL bins(int *a, int *b, int fault) {
    int t = threadIdx.x;
    if (fault == 1 && t == 3) b[3] += 1;                                       // 1
    else if (fault == 2) atomicAdd_block(&b[t % 8], 1);                        // 2
    else atomicAdd(&b[t % 8], 1);                                              // 1 3
    if (fault == 3 && B == LAST && t == 0) a[0] = b[3];                        // 3
}

// Blocks meet at the grid's barrier, and each reads what its neighbor wrote.
KERNEL swap(int *a, int *b, int fault) {
    int t = threadIdx.x, other = (B + 1) % gridDim.x * 64 + t;
    auto grid = cg::this_grid();
    a[AT] = AT;                                                                // 1
    if (fault != 1) grid.sync();
    int v = a[other];                                                          // 1 2
    if (fault != 2) grid.sync();
    a[AT] = -v;                                                                // 2
    grid.sync();
    b[AT] = a[other];
}

// Tiles of blocks: they must not overlap, and no block may write what its neighbor reads.
KERNEL tiles(int *a, int *b, int fault) {
    int t = threadIdx.x;
    if (t < 60 || fault == 1) b[B * 60 + t] = AT;                              // 1
    if (fault == 2) a[AT] += a[(AT + 1) % 256];                                // 2
    else a[AT] += 1;
}

// A block hands work to the next one by a flag.
KERNEL flags(int *a, int *b, int fault) {
    int t = threadIdx.x;
    volatile int *ready = b;
    if (t == 0 && B > 0 && fault != 2) while (!ready[B - 1]);
    __syncthreads();
    int v = B ? a[AT - 64] : 0;                                                // 1 2
    a[AT] = v + 1;                                                             // 1 2
    if (fault != 1) __threadfence();
    __syncthreads();
    if (t == 0) ready[B] = 1;
}

// The same by acquire and release.
KERNEL released(int *a, int *b, int fault) {
    int t = threadIdx.x;
    cuda::atomic_ref<int, cuda::thread_scope_device> before(b[B ? B - 1 : 0]), own(b[B]);
    if (t == 0 && B > 0) while (!before.load(cuda::memory_order_acquire));
    __syncthreads();
    if (B) a[AT] = a[AT - 64] + 1;                                             // 1
    else a[AT] = 1;                                                            // 1
    __syncthreads();
    if (t == 0) own.store(1, fault == 1 ? cuda::memory_order_relaxed : cuda::memory_order_release);
}

// Blocks take work from a queue.
KERNEL queue(int *a, int *b, int fault) {
    __shared__ int item;
    int t = threadIdx.x;
    for (;;) {
        if (t == 0 && fault == 1) item = b[0]++;                               // 1
        if (t == 0 && fault != 1) item = atomicAdd(b, 1);
        __syncthreads();
        int at = item;
        __syncthreads();
        if (at >= 8) return;
        a[at * 32 + t % 32] = at;
    }
}

// Bytes and halves that lie side by side.
KERNEL parts(int *a, int *b, int fault) {
    int t = threadIdx.x;
    unsigned char *bytes = (unsigned char *)a;
    bytes[4 * t + B] = (unsigned char)(B + 1);                                 // 1
    if (fault == 1 && t == 9) bytes[4 * t + (B + 1) % 4] = 77;                 // 1
    ((short *)b)[4 * t + B] = (short)B;
}

// What many do that leaves everything as it is.
KERNEL same(int *a, int *b, int fault) {
    int t = threadIdx.x;
    *b = fault == 1 ? B : 1;                                                   // 1
    unsigned long long *sum = (unsigned long long *)a, old = *sum, seen;
    do { seen = old; old = atomicCAS(sum, seen, seen + t); } while (old != seen);
    if (b[1] < AT) atomicMax(&b[1], AT);
}
"""
MISTAKES = {"last": 3, "bins": 3, "swap": 2, "tiles": 2, "flags": 2, "released": 1, "queue": 1, "parts": 1, "same": 1}
CASES = [(kernel, fault) for kernel, count in MISTAKES.items() for fault in range(1, count + 1)]


@functools.cache
def checked(check: str) -> Device:
    return cujit.cpu(2, check=check)


@functools.cache
def module(check: str) -> cujit.Module:
    return cujit.jit(cujit.Source.cuda(CODE, name="blocks.cu"), device=checked(check))


def launch(kernel: str, fault: int, check: str = "race") -> None:
    a, b = (checked(check).zeros(320, np.int32) for _ in range(2))
    module(check)[kernel].prepare(4, 64, cooperative=kernel in ("swap", "flags", "released"))(a, b, fault)
    checked(check).synchronize()


def lines_of(kernel: str, fault: int) -> set[int]:
    """Find the lines that a finding has to name."""
    begin = CODE.index(f"KERNEL {kernel}(")
    first, text = CODE[:begin].count("\n") + 1, CODE[begin : CODE.index("\n}", begin)]
    marked = ((number, line.partition("  // ")[2].split()) for number, line in enumerate(text.splitlines(), first))
    return {number for number, faults in marked if str(fault) in faults}


@pytest.mark.parametrize("check", ["race", "all"])
@pytest.mark.parametrize("kernel", MISTAKES)
def test_ordered_blocks_have_no_findings(kernel: str, check: str) -> None:
    for _ in range(3):
        launch(kernel, 0, check)


@pytest.mark.parametrize(("kernel", "fault"), CASES)
def test_each_mistake_is_found_with_both_lines(kernel: str, fault: int) -> None:
    with pytest.raises(KernelFaultError) as caught:
        launch(kernel, fault)
    error = caught.value
    named = {int(line) for line in re.findall(r"from blocks\.cu:(\d+)", str(error))}
    assert error.kind == "race"
    assert "a race between blocks" in error.message
    assert named == lines_of(kernel, fault)
