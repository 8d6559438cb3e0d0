"""Pipelines of Hopper in CUDA C++: tensor maps, mbarriers, warps that specialise, wgmma, clusters.

The numbers are small and whole, so that every order of addition gives the same.
"""

from __future__ import annotations

import functools

import numpy as np
import numpy.typing as npt
import pytest

from cujit.devices.device import Device
from cujit.loading import Module, load
from cujit.program import Source, compile
from real.running import HERE, Array, rng


@functools.cache
def kernels(device: Device, file: str) -> Module:
    """Load a file for Hopper, or skip where it does not run."""
    if device.is_gpu and device.arch.number < 90:
        pytest.skip(f"{device} is not a Hopper")
    return load(compile(Source.cuda(HERE / file), arch="compute_90a"), device)


def whole(shape: tuple[int, ...], dtype: npt.DTypeLike, seed: int) -> Array:
    return rng(seed).integers(-4, 5, shape).astype(dtype)


def test_a_transposition_by_tensor_maps(device: Device) -> None:
    data = rng(1).normal(size=(76, 40)).astype(np.float32)
    x, y = device.array(data), device.zeros((40, 76), np.float32)
    from_, to = device.tensor_map(x, (32, 32), swizzle=128), device.tensor_map(y, (32, 32))
    kernels(device, "transpose.cu")["transpose"][(2, 3), 32](from_, to)
    np.testing.assert_array_equal(y.numpy(), data.T)


@pytest.mark.parametrize("rows", [1, 3, 11])
def test_a_warp_group_brings_rows_and_two_others_add_them_up(device: Device, rows: int) -> None:
    data = whole((2, rows, 256), np.float32, rows)
    x, out = device.array(data), device.zeros((2, 256), np.float32)
    kernels(device, "pipelines.cu")["specialised"][2, 384](x, out, rows)
    weights = np.arange(1, rows + 1, dtype=np.float32)
    np.testing.assert_array_equal(out.numpy(), np.einsum("brk,r->bk", data, weights)[:, ::-1])


@pytest.mark.parametrize("steps", [1, 4])
def test_a_product_in_three_stages_of_copies(device: Device, steps: int) -> None:
    m, n, k = 128, 64, 32 * steps
    a, b = whole((m, k), np.float16, 1), whole((k, n), np.float16, 2)
    x, y, c = device.array(a), device.array(b), device.zeros((m, n), np.float32)
    kernels(device, "pipelines.cu")["multistage"][(n // 64, m // 64), 128](x, y, c, m, n, k)
    np.testing.assert_array_equal(c.numpy(), a.astype(np.float32) @ b.astype(np.float32))


@pytest.mark.parametrize("sizes", [(64, 64, 64), (100, 72, 200)], ids=str)
def test_a_product_by_wgmma_that_tensor_maps_feed(device: Device, sizes: tuple[int, int, int]) -> None:
    m, n, k = sizes
    a, b = whole((m, k), np.float16, 1), whole((n, k), np.float16, 2)
    x, y, c = device.array(a), device.array(b), device.zeros((m, n), np.float32)
    maps = [device.tensor_map(z, (64, 64), swizzle=128) for z in (x, y)]
    grid = (-(-n // 64), -(-m // 64))
    kernels(device, "pipelines.cu")["fed_by_tma"][grid, 160](*maps, c, m, n, k)
    np.testing.assert_array_equal(c.numpy(), a.astype(np.float32) @ b.astype(np.float32).T)


def test_each_block_of_a_cluster_loads_a_part_for_all(device: Device) -> None:
    data = rng(3).integers(0, 1000, (32, 32)).astype(np.int32)
    x, out = device.array(data), device.zeros((8, 16, 32), np.int32)
    kernels(device, "pipelines.cu")["shared_out"][8, 64](device.tensor_map(x, (4, 32)), out)
    expected = [data[b // 4 * 16 : b // 4 * 16 + 16][::-1] + b % 4 for b in range(8)]
    np.testing.assert_array_equal(out.numpy(), np.array(expected))
