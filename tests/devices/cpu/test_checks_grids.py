"""Checks where several blocks run side by side, and in tiles of several warps: silent, and each planted bug found."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.devices.process import process_devices
from cujit.errors import KernelFaultError
from groups import GROUPS

pytestmark = pytest.mark.usefixtures("unoptimised")

KERNELS = (
    GROUPS
    + r"""
namespace cg = cooperative_groups;

extern "C" __global__ void turn(int *out) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = t + blockIdx.x;
    cg::this_grid().sync();
    out[blockIdx.x * 64 + t] = s[63 - t];
}
extern "C" __global__ void steps(int *cells, int n) {
    __shared__ int s[96], total;
    auto grid = cg::this_grid();
    int t = threadIdx.x;
    for (int k = 0; k < n; k++) {
        s[t] = cells[(grid.thread_rank() + k) % grid.size()];
        grid.sync();
        if (t == 0) { total = 0; for (int i = 0; i < 96; i++) total += s[i]; }
        grid.sync();
        cells[grid.thread_rank()] = total + s[95 - t];
        grid.sync();
    }
}
extern "C" __global__ void __cluster_dims__(2) pairs(int *out, int mate) {
    __shared__ int s[64];
    auto cluster = cg::this_cluster();
    auto grid = cg::this_grid();
    int t = threadIdx.x;
    s[t] = t + 100 * blockIdx.x;
    cluster.sync();
    int v = cluster.map_shared_rank(s, cluster.block_rank() ^ mate)[63 - t];
    grid.sync();
    s[t] = v;
    grid.sync();
    out[grid.thread_rank()] = s[t ^ 1];
}
template <int width> __global__ void wide(const int *x, int *out) {
    auto tile = cg::tiled_partition<width>(cg::this_thread_block());
    __shared__ int s[256];
    int t = threadIdx.x;
    s[t] = x[t];
    tile.sync();
    out[t] = s[t ^ (width - 1)] + tile.any(x[t] == 5) + tile.shfl(x[t], 40);
}
extern "C" __global__ void races(int *out) {
    __shared__ int s[64];
    int t = threadIdx.x;
    s[t] = t;
    cg::this_grid().sync();
    if (blockIdx.x == 2) s[t] = out[t];
    int v = blockIdx.x == 2 ? s[63 - t] : 0;
    cg::this_grid().sync();
    out[blockIdx.x * 64 + t] = v;
}
extern "C" __global__ void raw(int *out) {
    __shared__ int s[64];
    int t = threadIdx.x;
    if (blockIdx.x != 2) s[t] = t;
    cg::this_grid().sync();
    if (s[63 - t] == 999) out[blockIdx.x * 64 + t] = 1;
}
"""
)
TILES = (64, 128, 256)


@functools.cache
def checked() -> Device:
    return process_devices().cpu(2, check="all")


@functools.cache
def module() -> cujit.Module:
    return cujit.jit(KERNELS, names=[f"wide<{n}>" for n in TILES], device=checked())


def zeros(n: int) -> cujit.DeviceArray:
    return checked().zeros(n, np.int32)


@pytest.mark.parametrize("blocks", [1, 4, 9])
def test_blocks_of_a_cooperative_grid_are_distinguished(blocks: int) -> None:
    out = checked().empty(64 * blocks, np.int32)
    for _ in range(2):
        module()["turn"].prepare(blocks, 64, cooperative=True)(out)
    expected = np.arange(64)[::-1] + np.arange(blocks)[:, None]
    np.testing.assert_array_equal(out.numpy().reshape(blocks, 64), expected)


def test_repeated_grid_synchronization_has_no_finding() -> None:
    cells = checked().array(np.arange(384, dtype=np.int32))
    module()["steps"].prepare(4, 96, cooperative=True)(cells, 3)
    expected = np.arange(384)
    for k in range(3):
        seen = np.roll(expected, -k).reshape(4, 96)
        expected = (seen.sum(axis=1)[:, None] + seen[:, ::-1]).ravel()
    np.testing.assert_array_equal(cells.numpy(), expected)


def test_clusters_of_a_cooperative_grid_are_silent() -> None:
    out = checked().empty(256, np.int32)
    module()["pairs"].prepare(4, 64, cooperative=True)(out, 1)
    expected = (63 - (np.arange(64) ^ 1)) + 100 * np.array([1, 0, 3, 2])[:, None]
    np.testing.assert_array_equal(out.numpy().reshape(4, 64), expected)


@pytest.mark.parametrize("blocks", [1, 3])
@pytest.mark.parametrize("width", TILES)
def test_tiles_of_several_warps_are_silent(width: int, blocks: int) -> None:
    x, out = checked().array(np.arange(256, dtype=np.int32)), checked().empty(256, np.int32)
    module()[f"wide<{width}>"].prepare(blocks, 256)(x, out)
    t = np.arange(256)
    np.testing.assert_array_equal(out.numpy(), (t ^ (width - 1)) + (t < width) + t // width * width + 40)


def found(kernel: str, *arguments: object) -> KernelFaultError:
    with pytest.raises(KernelFaultError) as caught:
        module()[kernel].prepare(4, 64, cooperative=True)(zeros(256), *arguments)
    return caught.value


def test_race_in_one_block_of_a_cooperative_grid_is_found() -> None:
    error = found("races")
    assert (error.kind, error.block) == ("race", (2, 0, 0))
    assert "no barrier in between" in error.message
    assert error.message.count("PTX line") == 2


def test_value_that_one_block_never_wrote_is_found() -> None:
    error = found("raw")
    assert (error.kind, error.block, error.thread) == ("init", (2, 0, 0), (0, 0, 0))
    assert "byte 252 of shared memory (the block has 256 bytes)" in error.message


def test_shared_memory_of_another_cluster_is_out_of_bounds() -> None:
    assert found("pairs", 2).kind == "memory"
