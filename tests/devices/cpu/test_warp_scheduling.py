"""Loops over memory: the warps of blocks take turns in them, and what each warp has is as if it ran alone."""

from __future__ import annotations

import numpy as np
import pytest

import cujit
from devices.cpu.launching import Array, as_written

SOURCE = """
#define FIRST (blockIdx.x * blockDim.x + threadIdx.x)
#define ALL (gridDim.x * blockDim.x)
#define WALK(i, n) for (int i = FIRST; i < n; i += ALL)

extern "C" __global__ void turns_of_warps(const int *x, int *y, int n) {
    __shared__ int next;
    __shared__ int log[2560];
    if (threadIdx.x == 0) next = 0;
    __syncthreads();
    WALK(i, n) log[atomicAdd(&next, 1)] = threadIdx.x / 32 + x[i];
    __syncthreads();
    for (int k = 0; k < 2560; k += 128) y[k + threadIdx.x] = log[k + threadIdx.x];
}
extern "C" __global__ void turns_of_blocks(const int *x, int *y, int n) {
    WALK(i, n) { int at = y[0]; y[0] = at + 1; y[1 + at] = blockIdx.x + x[i]; }
}
extern "C" __global__ void two_loops(const int *x, int *y, int n) {
    WALK(i, n) y[i] = 3 * x[i];
    WALK(i, n) y[i] += x[i] >> 1;
}
extern "C" __global__ void parts(const int *x, int *y, int n) {
    int odd = 0, even = 7; double sum = 0.5;
    WALK(i, n) {
        int v = x[i];
        if (v & 1) odd += v; else even ^= v;
        sum += v;
        y[i] = odd + even;
    }
    y[n + FIRST] = odd - even + (int)sum;
}
extern "C" __global__ void leaves(const int *x, int *y, int n) {
    bool found = false; int last = -1;
    WALK(i, n) { if (x[i] % 61 == 60) { found = true; break; } last = x[i]; }
    y[FIRST] = found ? last : -last;
}
extern "C" __global__ void inner(const int *x, int *y, int n) {
    int sum = 1;
    for (int turn = 0; turn < 3; turn++) { sum *= 5; WALK(i, n) sum += x[i] ^ turn; }
    y[FIRST] = sum;
}
extern "C" __global__ void own_memory(const int *x, int *y, int n) {
    int seen[4] = {1, 2, 3, 4};
    WALK(i, n) seen[x[i] & 3] += x[i];
    y[FIRST] = seen[0] ^ seen[1] ^ seen[2] ^ seen[3];
}
extern "C" __global__ void joins(const int *x, int *y, int n) {
    __shared__ int part[256];
    int mine = threadIdx.x, sum = 0;
    if (mine % 3 == 0) mine = -mine;
    WALK(i, n) sum += x[i];
    part[threadIdx.x] = sum + mine;
    __syncthreads();
    WALK(i, n) y[i] = x[i] + part[(threadIdx.x + 1) % blockDim.x];
}
extern "C" __global__ void small(const unsigned char *x, unsigned char *y, unsigned long long n) {
    for (unsigned long long i = FIRST; i < n; i += ALL) y[i] = x[i] * 3;
}
"""


@pytest.fixture(scope="module")
def module() -> cujit.Module:
    """The kernels on one thread, so that the order of warps is the same each time."""
    return cujit.jit(SOURCE, device=cujit.cpu(1))


def _launch(module: cujit.Module, name: str, x: Array, y: Array, grid: int, block: int) -> Array:
    there = module.device.array(y)
    module[name][grid, block](module.device.array(x), there, x.size)
    return there.numpy().copy()


def _runs(log: Array) -> list[tuple[int, int]]:
    """List who is in a log, and how many times in a row."""
    ends = [*np.flatnonzero(np.diff(log)), log.size - 1]
    return [(int(log[end]), int(count)) for end, count in zip(ends, np.diff([-1, *ends]), strict=True)]


@as_written
def test_warps_of_a_block_take_turns(module: cujit.Module) -> None:
    got = _launch(module, "turns_of_warps", np.zeros(2560, np.int32), np.zeros(2560, np.int32), 1, 128)
    rounds = [(warp, turns * 32) for turns in (8, 8, 4) for warp in range(4)]
    assert _runs(got) == rounds


@as_written
def test_warps_of_several_blocks_take_turns(module: cujit.Module) -> None:
    got = _launch(module, "turns_of_blocks", np.zeros(64 * 32 * 12, np.int32), np.zeros(1 + 64 * 12, np.int32), 64, 32)
    groups = [range(first, first + 8) for first in range(0, 64, 8)]
    assert _runs(got[1:]) == [(block, turns) for group in groups for turns in (8, 4) for block in group]


def _parts(x: Array, threads: int) -> Array:
    y = np.zeros(x.size + threads, np.int32)
    for first in range(threads):
        odd, even, total = 0, 7, 0
        for at in range(first, x.size, threads):
            odd, even = (odd + x[at], even) if x[at] & 1 else (odd, even ^ x[at])
            total += x[at]
            y[at] = odd + even
        y[x.size + first] = odd - even + total
    return y


def _leaves(x: Array, threads: int) -> Array:
    y = np.zeros(threads, np.int32)
    for first in range(threads):
        mine, last = x[first::threads], -1
        stops = np.flatnonzero(mine % 61 == 60)
        seen = mine[: stops[0]] if stops.size else mine
        last = seen[-1] if seen.size else -1
        y[first] = last if stops.size else -last
    return y


def _inner(x: Array, threads: int) -> Array:
    y = np.ones(threads, np.int32)
    for first in range(threads):
        for turn in range(3):
            y[first] = y[first] * 5 + (x[first::threads] ^ turn).sum()
    return y


def _own_memory(x: Array, threads: int) -> Array:
    mine = [[x[first::threads][x[first::threads] & 3 == k].sum() + k + 1 for k in range(4)] for first in range(threads)]
    return np.asarray(np.bitwise_xor.reduce(np.array(mine), axis=1), np.int32)


def _joins(x: Array, threads: int, block: int) -> Array:
    thread = np.arange(threads) % block
    part = np.array([x[first::threads].sum() for first in range(threads)]) + np.where(thread % 3 == 0, -thread, thread)
    neighbour = np.arange(threads) - thread + (thread + 1) % block
    return np.asarray(x + part[neighbour][np.arange(x.size) % threads], np.int32)


@pytest.mark.parametrize(("grid", "block"), [(2, 64), (3, 100), (40, 32), (1, 256)])
def test_each_warp_computes_what_it_would_alone(module: cujit.Module, grid: int, block: int) -> None:
    threads = grid * block
    x = np.random.default_rng(grid).integers(0, 1000, threads * 21 + threads // 2 + 5).astype(np.int32)

    def run(name: str, size: int) -> Array:
        return _launch(module, name, x, np.zeros(size, np.int32), grid, block)

    assert np.array_equal(run("two_loops", x.size), 3 * x + (x >> 1))
    assert np.array_equal(run("parts", x.size + threads), _parts(x, threads))
    assert np.array_equal(run("leaves", threads), _leaves(x, threads))
    assert np.array_equal(run("inner", threads), _inner(x, threads))
    assert np.array_equal(run("own_memory", threads), _own_memory(x, threads))
    assert np.array_equal(run("joins", x.size), _joins(x, threads, block))
    got = _launch(module, "small", x.astype(np.uint8), np.zeros(x.size, np.uint8), grid, block)
    assert np.array_equal(got, x.astype(np.uint8) * np.uint8(3))
