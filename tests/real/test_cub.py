"""cub's algorithms for a warp, a block and a whole grid, on every device present."""

from __future__ import annotations

import numpy as np
import pytest

from cujit.devices.device import Device
from real.running import Array, rng, run


def ints(*shape: int, most: int = 1000, seed: int = 1) -> Array:
    return rng(seed).integers(-most, most, shape, np.int32)


# -- sums -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["sum_raking", "sum_raking_commutative", "sum_by_warps"])
def test_block_reduce_sums_its_tile(kernel: str, device: Device) -> None:
    data = ints(5, 160, 4)
    _, sums = run(device, "cub_reduce.cu", kernel, 5, 160, data, np.zeros(5, np.int32))
    np.testing.assert_array_equal(sums, data.sum(axis=(1, 2)))


@pytest.mark.parametrize("valid", [1, 33, 70, 96])
def test_block_reduce_finds_the_maximum_of_a_partial_tile(valid: int, device: Device) -> None:
    data = rng().standard_normal((4, 96), np.float32)
    value, place = np.zeros(4, np.float32), np.zeros(4, np.int32)
    _, value, place = run(device, "cub_reduce.cu", "largest", 4, 96, data, valid, value, place)
    np.testing.assert_array_equal(place, data[:, :valid].argmax(axis=1))
    np.testing.assert_array_equal(value, data[:, :valid].max(axis=1))


def test_warps_sum_groups_of_lanes_and_segments(device: Device) -> None:
    data, heads = ints(64), (rng(2).random(64) < 0.2).astype(np.int32)
    heads[[0, 32]] = 1
    out = np.zeros(8, np.int32), np.zeros(64, np.int32)
    _, _, groups, segments = run(device, "cub_reduce.cu", "warp_reduce", 1, 64, data, heads, *out)
    np.testing.assert_array_equal(groups, data.reshape(8, 8).sum(axis=1))
    begins = np.flatnonzero(heads)  # cub defines the result for the heads only
    np.testing.assert_array_equal(segments[begins], np.add.reduceat(data, begins))


def test_warps_scan_sums_and_maxima(device: Device) -> None:
    data, x = ints(64), rng(3).standard_normal(64)
    out = [np.zeros(64, np.int32) for _ in range(3)]
    got = run(device, "cub_reduce.cu", "warp_scan", 1, 64, data, x, *out, np.zeros(64))
    warps = data.reshape(2, 32)
    np.testing.assert_array_equal(got[2], (warps.cumsum(axis=1) - warps).ravel())
    np.testing.assert_array_equal(got[3], warps.cumsum(axis=1).ravel())
    np.testing.assert_array_equal(got[4], warps.sum(axis=1).repeat(32))
    np.testing.assert_array_equal(got[5], np.maximum.accumulate(x.reshape(4, 16), axis=1).ravel())


# -- scans and runs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("kernel", ["scan_raking", "scan_raking_memoized", "scan_by_warps"])
def test_block_scan_scans_its_tile(kernel: str, device: Device) -> None:
    data = ints(3, 384)
    _, out, sums = run(device, "cub_scan.cu", kernel, 3, 128, data, np.zeros_like(data), np.zeros(3, np.int32))
    np.testing.assert_array_equal(out, data.cumsum(axis=1) - data)
    np.testing.assert_array_equal(sums, data.sum(axis=1))


def test_block_scans_tile_after_tile_with_a_running_prefix(device: Device) -> None:
    data = ints(500)
    _, out = run(device, "cub_scan.cu", "scan_tiles", 1, 64, data, np.zeros_like(data), 500)
    np.testing.assert_array_equal(out, data.cumsum())


def test_block_encodes_runs(device: Device) -> None:
    data = np.sort(rng().integers(0, 60, 256, np.int32))[::-1].copy()
    out = np.zeros(256, np.int32), np.zeros(256, np.int32), np.zeros(1, np.int32)
    _, values, begins, count = run(device, "cub_scan.cu", "encode_runs", 1, 64, data, *out)
    heads = np.flatnonzero(np.diff(data, prepend=-1))
    assert count[0] == heads.size
    np.testing.assert_array_equal(begins[: heads.size], heads)
    np.testing.assert_array_equal(values[: heads.size], data[heads])


def test_block_decodes_runs_window_after_window(device: Device) -> None:
    values, lengths = ints(128), rng(2).integers(1, 9, 128, np.uint32)
    total = int(lengths.sum())
    out = np.zeros(total, np.int32), np.zeros(total, np.int32), np.zeros(1, np.int32)
    _, _, decoded, inside, size = run(device, "cub_scan.cu", "decode_runs", 1, 64, values, lengths, *out)
    assert size[0] == total
    np.testing.assert_array_equal(decoded, values.repeat(lengths))
    np.testing.assert_array_equal(inside, np.concatenate([np.arange(n) for n in lengths]))


def test_block_exchanges_blocked_for_striped_order(device: Device) -> None:
    data = ints(256)
    _, striped = run(device, "cub_scan.cu", "exchange", 1, 64, data, np.zeros_like(data))
    np.testing.assert_array_equal(striped.reshape(64, 4), data.reshape(4, 64).T)


# -- sorting and counting ---------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["int32", "float32", "float64"])
def test_block_radix_sort_sorts_its_keys(dtype: str, device: Device) -> None:
    kernel = {"int32": "sort_ints", "float32": "sort_floats", "float64": "sort_doubles"}[dtype]
    data = (rng().standard_normal((2, 512)) * 2.0**20).astype(dtype)
    if dtype != "int32":
        data[0, :4] = np.inf, -np.inf, 1e-42, -1e-42
    _, out = run(device, "cub_sort.cu", kernel, 2, 128, data, np.zeros_like(data))
    np.testing.assert_array_equal(out, np.sort(data, axis=1))


def test_block_radix_sort_is_stable_for_partial_keys(device: Device) -> None:
    keys = rng().integers(0, 2**32, 128, np.uint32) & np.uint32(0xFFFFF0FF)
    values = np.arange(128, dtype=np.int32)
    out = np.zeros_like(keys), np.zeros_like(values)
    _, _, got_keys, got_values = run(device, "cub_sort.cu", "sort_pairs", 1, 64, keys, values, *out)
    order = np.argsort(-((keys >> 4) & 0xFF).astype(np.int64), kind="stable")
    np.testing.assert_array_equal(got_values, values[order])
    np.testing.assert_array_equal(got_keys, keys[order])


def test_block_merges_by_a_comparison_of_the_user(device: Device) -> None:
    data = rng().integers(0, 1000, 192, np.int32)
    _, out = run(device, "cub_sort.cu", "merge_sort", 1, 64, data, np.zeros_like(data))
    np.testing.assert_array_equal(out, data[np.argsort(np.abs(data - 500), kind="stable")])


@pytest.mark.parametrize("kernel", ["histogram_by_atomics", "histogram_by_sorting"])
def test_block_counts_bytes(kernel: str, device: Device) -> None:
    data = (rng().standard_normal((2, 512)) * 40 + 128).clip(0, 255).astype(np.uint8)
    _, bins = run(device, "cub_sort.cu", kernel, 2, 128, data, np.zeros((2, 256), np.uint32))
    np.testing.assert_array_equal(bins, [np.bincount(row, minlength=256) for row in data])


# -- look-back --------------------------------------------------------------------------------------------

TILES, TILE = 70, 128  # more tiles than the window of one warp, twice
WIDE = np.dtype([("sum", "<i8"), ("most", "<i4"), ("count", "<i4")])


def test_blocks_scan_a_grid_by_looking_back(device: Device) -> None:
    data, states = ints(TILES * TILE), device.zeros(1 << 16, np.uint8)
    run(device, "cub_lookback.cu", "prepare_ints", 1, 128, states, TILES)
    _, out, _ = run(device, "cub_lookback.cu", "scan_ints", TILES, 64, data, np.zeros_like(data), states, TILES)
    np.testing.assert_array_equal(out, data.cumsum())


def test_blocks_look_back_at_values_wider_than_a_word(device: Device) -> None:
    data, states = np.zeros(TILES * TILE, WIDE), device.zeros(1 << 16, np.uint8)
    data["sum"] = rng().integers(-(2**40), 2**40, data.size)
    data["most"] = ints(data.size, most=10**6)
    data["count"] = 1
    run(device, "cub_lookback.cu", "prepare_wide", 1, 128, states, TILES)
    _, out, _ = run(device, "cub_lookback.cu", "scan_wide", TILES, 64, data, np.zeros_like(data), states, TILES)
    np.testing.assert_array_equal(out["sum"], data["sum"].cumsum())
    np.testing.assert_array_equal(out["most"], np.maximum.accumulate(data["most"]))
    np.testing.assert_array_equal(out["count"], np.arange(1, data.size + 1))
