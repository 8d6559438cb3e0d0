"""Correct kernels are silent under all checks at once: reductions, collectives, copies, early exits, real libraries."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.devices.process import process_devices
from kernels.cases import CASES, Case
from kernels.test_kernels import assert_equals_reference, run
from sweeps import part

pytestmark = pytest.mark.usefixtures("unoptimised")

KERNELS = r"""
#include <cooperative_groups.h>
#include <cuda/barrier>
namespace cg = cooperative_groups;

extern "C" __global__ void tree(const float *x, float *out) {
    extern __shared__ float s[];
    int t = threadIdx.x;
    s[t] = x[blockIdx.x * blockDim.x + t];
    for (int half = blockDim.x / 2; half; half /= 2) {
        __syncthreads();
        if (t < half) s[t] += s[t + half];
    }
    if (t == 0) out[blockIdx.x] = s[0];
}
extern "C" __global__ void warps(const float *x, float *out) {
    __shared__ float part[32];
    float v = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int k = 16; k; k /= 2) v += __shfl_down_sync(~0u, v, k);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    if (threadIdx.x < 32) {
        v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
        for (int k = 16; k; k /= 2) v += __shfl_xor_sync(~0u, v, k);
        if (threadIdx.x == 0) out[blockIdx.x] = v;
    }
}
extern "C" __global__ void early(const int *x, int *out, int n) {
    __shared__ int s[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    s[threadIdx.x] = x[i];
    __syncthreads();
    out[i] = s[threadIdx.x ^ 1 ^ (i + 1 >= n && n % 2 ? 1 : 0)] + __popc(__ballot_sync(~0u, 1)) * 0;
}
extern "C" __global__ void transpose(const float *x, float *y, int n) {
    __shared__ float tile[16][17];
    int c = blockIdx.x * 16 + threadIdx.x, r = blockIdx.y * 16 + threadIdx.y;
    if (r < n && c < n) tile[threadIdx.y][threadIdx.x] = x[r * n + c];
    __syncthreads();
    c = blockIdx.y * 16 + threadIdx.x, r = blockIdx.x * 16 + threadIdx.y;
    if (r < n && c < n) y[r * n + c] = tile[threadIdx.x][threadIdx.y];
}
extern "C" __global__ void bins(const unsigned char *x, int *out, int n) {
    __shared__ int count[256];
    for (int k = threadIdx.x; k < 256; k += blockDim.x) count[k] = 0;
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) atomicAdd(&count[x[i]], 1);
    __syncthreads();
    for (int k = threadIdx.x; k < 256; k += blockDim.x) out[k] = count[k];
}
extern "C" __global__ void tiles(const int *x, int *out) {
    __shared__ int s[64];
    auto tile = cg::tiled_partition<8>(cg::this_thread_block());
    s[threadIdx.x] = x[threadIdx.x];
    tile.sync();
    int v = s[threadIdx.x ^ 7];
    for (int k = 4; k; k /= 2) v += tile.shfl_xor(v, k);
    if (threadIdx.x % 3) { auto some = cg::coalesced_threads(); v += some.size() * 0; }
    out[threadIdx.x] = v;
}
extern "C" __global__ void meets(const int *x, int *out) {
    __shared__ cuda::barrier<cuda::thread_scope_block> bar;
    __shared__ int s[96];
    if (threadIdx.x == 0) init(&bar, blockDim.x);
    __syncthreads();
    for (int k = 0; k < 3; k++) {
        s[threadIdx.x] = x[threadIdx.x] + k;
        bar.arrive_and_wait();
        out[threadIdx.x] = s[95 - threadIdx.x];
        bar.arrive_and_wait();
    }
}
__device__ int flag;
extern "C" __global__ void handed(int *out) {
    __shared__ int value;
    __shared__ int ready;
    if (threadIdx.x == 0) ready = 0;
    __syncthreads();
    if (threadIdx.x == 32) { value = 7; __threadfence_block(); atomicExch(&ready, 1); }
    if (threadIdx.x == 0) { while (atomicAdd(&ready, 0) == 0); __threadfence_block(); out[0] = value; }
}
extern "C" __global__ void copies(const int *x, int *out) {
    __shared__ int s[64];
    unsigned at = (unsigned)__cvta_generic_to_shared(&s[threadIdx.x]);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;\ncp.async.commit_group;\ncp.async.wait_group 0;"
                 :: "r"(at), "l"(x + threadIdx.x) : "memory");
    __syncthreads();
    out[threadIdx.x] = s[63 - threadIdx.x];
}
extern "C" __global__ void lists(int *out) {
    struct Node { int value; Node *next; };
    Node *head = nullptr;
    for (int k = 0; k < 5; k++) { Node *n = new Node; n->value = k; n->next = head; head = n; }
    int sum = 0;
    while (head) { sum += head->value; Node *next = head->next; delete head; head = next; }
    out[threadIdx.x] = sum;
}
extern "C" __global__ void again(int *out) {  // one row, read twice by what the compiler may not join
    __shared__ int s[64];
    s[threadIdx.x] = threadIdx.x;
    __syncthreads();
    int n = s[threadIdx.x];
    asm volatile("" ::: "memory");
    out[threadIdx.x] = n + s[threadIdx.x];
}
__device__ int depth(int n) { int t[4] = {n, 1, 2, 3}; return n ? depth(n - 1) + t[n & 3] : t[0]; }
extern "C" __global__ void recursive(int *out) { out[threadIdx.x] = depth(threadIdx.x % 5); }
extern "C" __global__ void same_value(int *out) {
    __shared__ int done;
    done = 0;
    __syncthreads();
    if (threadIdx.x % 5 == 0) done = 1;
    __syncthreads();
    out[threadIdx.x] = done;
}
"""


@functools.cache
def checked() -> Device:
    return process_devices().cpu(2, check="all")


@functools.cache
def module() -> cujit.Module:
    return cujit.jit(KERNELS, device=checked())


def ints(n: int) -> object:
    return checked().array(np.arange(n, dtype=np.int32))


def floats(n: int) -> object:
    return checked().array(np.ones(n, np.float32))


def empty(n: int, dtype: str = "int32") -> object:
    return checked().empty(n, dtype)


LAUNCHES: dict[str, Callable[[], tuple[Any, tuple[object, ...]]]] = {
    "tree": lambda: ((4, 128, 512), (floats(512), empty(4, "float32"))),
    "warps": lambda: ((4, 128), (floats(512), empty(4, "float32"))),
    "early": lambda: ((3, 96), (ints(200), empty(200), 200)),
    "transpose": lambda: (((3, 3), (16, 16)), (floats(1600), empty(1600, "float32"), 40)),
    "bins": lambda: ((1, 96), (checked().array(np.arange(1000, dtype=np.uint8)), empty(256), 1000)),
    "tiles": lambda: ((1, 64), (ints(64), empty(64))),
    "meets": lambda: ((1, 96), (ints(96), empty(96))),
    "handed": lambda: ((1, 64), (empty(1),)),
    "copies": lambda: ((1, 64), (ints(64), empty(64))),
    "lists": lambda: ((2, 48), (empty(48),)),
    "recursive": lambda: ((1, 40), (empty(40),)),
    "again": lambda: ((2, 64), (empty(64),)),
    "same_value": lambda: ((2, 70), (empty(70),)),
}


@pytest.mark.parametrize("kernel", LAUNCHES)
def test_correct_kernel_is_silent(kernel: str) -> None:
    shape, arguments = LAUNCHES[kernel]()
    module()[kernel][shape](*arguments)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.kernel)
def test_kernels_of_every_kind_are_silent_and_right(case: Case) -> None:
    assert_equals_reference(case, run(case, checked(), "compute_80"))


# Tests of real libraries whose kernels are silent: a thin slice of what `make checked` runs, all of them.
REAL = {
    "test_cub": (
        "test_block_radix_sort_is_stable_for_partial_keys",
        "test_blocks_scan_a_grid_by_looking_back",
    ),
    "test_groups": ("test_coalesced_threads_scan", "test_cluster_shares_a_histogram"),
    "test_std": ("test_pipeline_of_the_block_copies_ahead",),
    "test_shapes": ("test_warps_hand_buffers_over_by_named_barriers", "test_lanes_of_one_warp_contend_for_a_lock",
                    "test_barrier_in_a_called_function"),
}  # fmt: skip


@pytest.mark.parametrize(("file", "test"), part([(file, test) for file, tests in REAL.items() for test in tests], 3))
def test_kernels_of_real_libraries_are_silent(file: str, test: str) -> None:
    getattr(importlib.import_module(f"real.{file}"), test)(checked())
