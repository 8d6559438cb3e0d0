"""Cooperative groups: blocks, tiles, coalesced threads, partitions, grids and clusters, on every device present."""

from __future__ import annotations

import numpy as np
import pytest

from cujit.devices.device import Device
from real.running import Array, rng, run, said


def small(*shape: int, least: int = 0, most: int = 100, seed: int = 1) -> Array:
    return rng(seed).integers(least, most, shape, np.int32)


def blank(*shape: int) -> Array:
    return np.full(shape, -99, np.int32)


# -- tiles ------------------------------------------------------------------------------------------------


def test_three_dimensional_block_ranks_its_threads_and_waits(device: Device) -> None:
    ranks, reversed_ = run(device, "cg_tiles.cu", "block_group", 3, (4, 5, 6), blank(3, 120), blank(3, 120))
    np.testing.assert_array_equal(ranks, [np.arange(120)] * 3)
    np.testing.assert_array_equal(reversed_, np.arange(120)[::-1] + 1000 * np.arange(3)[:, None])


@pytest.mark.parametrize("width", [4, 32])
def test_tiles_shuffle(width: int, device: Device) -> None:
    data = small(2, 96)
    out = [blank(2, 96) for _ in range(4)]
    _, up, down, across, first = run(device, "cg_tiles.cu", f"tile_{width}", 2, 96, data, *out)
    tiles = data.reshape(2, -1, width)
    lane, half = np.arange(width), width // 2
    np.testing.assert_array_equal(up.reshape(tiles.shape), tiles[..., np.maximum(lane - 1, 0)])
    downward = np.where(lane + half < width, lane + half, lane)
    np.testing.assert_array_equal(down.reshape(tiles.shape), tiles[..., downward])
    np.testing.assert_array_equal(across.reshape(tiles.shape), tiles[..., ::-1])
    for k in range(tiles.shape[1]):
        np.testing.assert_array_equal(first.reshape(tiles.shape)[:, k], tiles[:, k, [k % width] * width])


def test_tiles_vote_and_match(device: Device) -> None:
    data = small(64, most=9)
    data[16:24] = 3
    out = [blank(64) for _ in range(5)]
    _, ballot, any_, all_, same, agreed = run(device, "cg_tiles.cu", "tile_votes", 1, 64, data, *out)
    tiles, bit = data.reshape(8, 8), 1 << np.arange(8)
    np.testing.assert_array_equal(ballot, ((tiles & 1) @ bit).repeat(8))
    np.testing.assert_array_equal(any_ != 0, (tiles > 5).any(axis=1).repeat(8))
    np.testing.assert_array_equal(all_ != 0, (tiles < 7).all(axis=1).repeat(8))
    np.testing.assert_array_equal(same, ((tiles[:, :, None] == tiles[:, None, :]) @ bit).ravel())
    np.testing.assert_array_equal(agreed != 0, (np.ptp(tiles // 8, axis=1) == 0).repeat(8))


def test_tile_of_two_warps_waits_and_votes() -> None:
    data = small(128, most=70)
    data[100] = 77
    tiles = data.reshape(2, 64)
    expected = tiles.sum(axis=1)[:, None] + np.arange(64) + 1000 * (tiles == 77).any(axis=1)[:, None]
    made = said("cg_tiles.cu", "wide_tile", 1, 128, data, blank(128))
    assert made == f"{[data.tolist(), expected.ravel().tolist()]}\n"


def test_coalesced_lanes_append_together(device: Device) -> None:
    data = small(1000, least=-50, most=50)
    _, out, count = run(
        device, "cg_tiles.cu", "append_positive", 8, 128, data, 1000, blank(1000), np.zeros(1, np.int32)
    )
    assert count[0] == (data > 0).sum()
    np.testing.assert_array_equal(np.sort(out[: count[0]]), np.sort(data[data > 0]))


def test_coalesced_group_counts_its_lanes(device: Device) -> None:
    data = small(64)
    out = [blank(64) for _ in range(4)]
    _, size, rank, previous, votes = run(device, "cg_tiles.cu", "odd_lanes", 1, 64, data, *out)
    odd = data[1::2].reshape(2, 16)
    for got in (size, rank, previous, votes):
        np.testing.assert_array_equal(got[::2], -1)
    np.testing.assert_array_equal(size[1::2], 16)
    np.testing.assert_array_equal(rank[1::2], [*range(16)] * 2)
    shifted = odd[:, [0, 1, *range(14)]]
    np.testing.assert_array_equal(previous[1::2], shifted.ravel())
    np.testing.assert_array_equal(votes[1::2], ((odd > 50) @ (1 << np.arange(16))).repeat(16))


# -- collectives ------------------------------------------------------------------------------------------


def test_tiles_reduce(device: Device) -> None:
    data, x = small(2, 64, least=-100), rng().standard_normal((2, 64), np.float32)
    out = [blank(2, 64) for _ in range(3)]
    got = run(device, "cg_collectives.cu", "reduce_tiles", 2, 64, data, x, *out, np.zeros_like(x))
    warps, tiles = data.reshape(-1, 32), data.reshape(-1, 16)
    np.testing.assert_array_equal(got[2].ravel(), warps.sum(axis=1).repeat(32))
    np.testing.assert_array_equal(got[3].ravel(), tiles.max(axis=1).repeat(16))
    np.testing.assert_array_equal(got[4].ravel(), np.bitwise_xor.reduce(warps, axis=1).repeat(32))
    np.testing.assert_array_equal(got[5].ravel(), x.reshape(-1, 16).min(axis=1).repeat(16))


def test_coalesced_threads_reduce(device: Device) -> None:
    data = small(64)
    _, out = run(device, "cg_collectives.cu", "reduce_coalesced", 1, 64, data, blank(64))
    chosen = np.where(data % 3 == 0, data, 0)
    expected = np.where(data % 3 == 0, chosen.reshape(2, 32).sum(axis=1).repeat(32), 0)
    np.testing.assert_array_equal(out, expected)


def test_tiles_reduce_into_memory(device: Device) -> None:
    data = small(3, 64)
    _, total = run(device, "cg_collectives.cu", "reduce_into_memory", 3, 64, data, np.zeros(1, np.int32))
    assert total[0] == data.sum()


def test_tiles_scan(device: Device) -> None:
    data = small(2, 64, least=-100)
    out = [blank(2, 64) for _ in range(3)]
    _, before, with_, most = run(device, "cg_collectives.cu", "scan_tiles", 2, 64, data, *out)
    tiles = data.reshape(-1, 16)
    np.testing.assert_array_equal(before.reshape(tiles.shape), tiles.cumsum(axis=1) - tiles)
    np.testing.assert_array_equal(with_.reshape(tiles.shape), tiles.cumsum(axis=1))
    np.testing.assert_array_equal(most.reshape(tiles.shape), np.maximum.accumulate(tiles, axis=1))


def test_coalesced_threads_scan(device: Device) -> None:
    data = small(64)
    _, before = run(device, "cg_collectives.cu", "scan_coalesced", 1, 64, data, blank(64))
    chosen = (data & 2) != 0
    taken = np.where(chosen, data, 0).reshape(2, 32)
    np.testing.assert_array_equal(before, np.where(chosen, (taken.cumsum(axis=1) - taken).ravel(), -1))


def test_lanes_of_one_label_form_a_group(device: Device) -> None:
    labels, data = small(64, most=5, seed=2), small(64)
    out = [blank(64) for _ in range(3)]
    _, _, size, sum_, rank = run(device, "cg_collectives.cu", "by_label", 1, 64, labels, data, *out)
    for lane in range(64):
        warp = slice(lane // 32 * 32, lane // 32 * 32 + 32)
        alike = labels[warp] == labels[lane]
        assert size[lane] == alike.sum()
        assert sum_[lane] == data[warp][alike].sum()
        assert rank[lane] == alike[: lane % 32].sum()


def test_lanes_of_one_mind_form_a_group(device: Device) -> None:
    data = small(64)
    _, size, sum_ = run(device, "cg_collectives.cu", "by_predicate", 1, 64, data, blank(64), blank(64))
    warps = data.reshape(2, 32)
    above = warps > 40
    count, total = above.sum(axis=1)[:, None], np.where(above, warps, 0).sum(axis=1)[:, None]
    np.testing.assert_array_equal(size.reshape(2, 32), np.where(above, count, 32 - count))
    rest = warps.sum(axis=1)[:, None] - total
    np.testing.assert_array_equal(sum_.reshape(2, 32), np.where(above, total, rest))


def test_invoke_one_runs_a_function_for_its_tile(device: Device) -> None:
    calls, seen = run(device, "cg_collectives.cu", "one_of_all", 1, 64, np.zeros(1, np.int32), blank(64))
    assert calls[0] == 8
    np.testing.assert_array_equal(seen, 100 + np.arange(8).repeat(8))


# -- grids and clusters -----------------------------------------------------------------------------------


def test_grid_waits_for_all_its_blocks(device: Device) -> None:
    cells, steps = small(500, most=10), 7
    a, b = run(device, "cg_grid.cu", "ring", 4, 64, cells, np.zeros_like(cells), 500, steps, cooperative=True)
    expected = cells
    for _ in range(steps):
        expected = np.roll(expected, 1) + np.roll(expected, -1)
    np.testing.assert_array_equal(b if steps % 2 else a, expected)


def test_grid_waits_in_two_halves(device: Device) -> None:
    _, total = run(device, "cg_grid.cu", "sum_of_blocks", 5, 64, blank(5), blank(5), cooperative=True)
    np.testing.assert_array_equal(total, 100 * 5 + 10)


def test_cluster_blocks_write_into_each_others_shared_memory(device: Device) -> None:
    data = small(2, 4, 64)
    _, out, ranks = run(device, "cg_cluster.cu", "rotate", 8, 64, data, np.zeros_like(data), np.zeros_like(data))
    np.testing.assert_array_equal(out, np.roll(data, 1, axis=1))
    np.testing.assert_array_equal(ranks, np.broadcast_to(40 + np.arange(4)[:, None], (2, 4, 64)))


def test_cluster_shares_a_histogram(device: Device) -> None:
    data = small(900, most=16)
    _, bins = run(device, "cg_cluster.cu", "histogram", 2, 64, data, 900, blank(16), cluster=2)
    np.testing.assert_array_equal(bins, np.bincount(data, minlength=16))
