"""Agents of cub's device-wide algorithms are right and silent under all checks over partial tiles (``make checked``).

``test_cub_agents.py`` has two of them that run always.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt
import pytest

import cujit
from cujit.devices.arrays.array import DeviceArray
from real.running import HERE, Array, rng

pytestmark = pytest.mark.skipif("CUJIT_EFFORT" not in os.environ, reason="a minute: make checked")

BLOCK, TILE, BINS = 64, 192, 32
SIZES = (1, TILE - 1, TILE, TILE + 1, 3 * TILE + 7)

equal = np.testing.assert_array_equal


@functools.cache
def module(file: str, arch: str) -> cujit.Module:
    """Load kernels on a device with all checks, once."""
    image = cujit.compile(cujit.Source.cuda(HERE / file), arch=arch, lineinfo=True)
    return cujit.load(image, cujit.cpu(1, check="all"))


class Case:
    """Numbers ``x``, keys ``y`` in runs of one to four, and arrays that nobody wrote, on the device."""

    def __init__(self, n: int) -> None:
        self.n, self.tiles = n, -(-n // TILE)
        self.module = module("cub_device.cu", "compute_80")
        self.device = self.module.device
        self.x = rng(n).integers(-60, 61, n).astype(np.int32)
        self.y = np.repeat(np.arange(n, dtype=np.int32), rng(n + 1).integers(1, 5, n))[:n]
        self.inputs = self.device.array(self.x), self.device.array(self.y)
        self.out, self.more = self.empty(n), self.empty(2 * n + BINS)
        self.count, self.states = self.empty(BINS * self.tiles), self.device.empty(1 << 14, np.uint8)

    def empty(self, n: int) -> DeviceArray:
        """Allocate integers that nobody wrote."""
        return self.device.empty(n, np.int32)

    def run(self, name: str, states: str = "", grid: int = 0) -> None:
        """Launch a kernel over all tiles, after its states of look-back are initialized."""
        if states:
            self.module[f"prepare_{states}"][1, BLOCK](self.states, self.n)
        arrays = (*self.inputs, self.out, self.more, self.count, self.states)
        self.module[name][grid or self.tiles, BLOCK](*arrays, self.n)

    @property
    def heads(self) -> Array:
        """Where the runs of keys begin."""
        return np.flatnonzero(np.diff(self.y, prepend=-1))

    def sorted_by(self, keys: Array) -> tuple[Array, Array]:
        """Sort numbers and keys by others, in the order of equal ones."""
        order = np.argsort(keys, kind="stable")
        return self.x[order], self.y[order]

    def check_sorted(self, keys: Array, out: DeviceArray, more: DeviceArray) -> None:
        """Compare pairs with those that are sorted by ``keys``."""
        expected = self.sorted_by(keys)
        equal(out[: self.n].numpy(), expected[0])
        equal(more[: self.n].numpy(), expected[1])


Of = Callable[[Case], Array]


def check_kept(name: str, kept: Of, others: Of | None, c: Case) -> None:
    """Check what a kernel selects, in order, and what it leaves for the end, if it does."""
    c.run(name, "scan")
    expected = kept(c)
    equal(c.count[:1].numpy(), [expected.size])
    equal(c.out[: expected.size].numpy(), expected)
    if others is not None:
        equal(c.out[expected.size :].numpy(), others(c)[::-1])


def check_scan(c: Case) -> None:
    c.run("scan", "scan")
    equal(c.out.numpy(), 7 + np.cumsum(c.x) - c.x)


def check_scan_by_key(c: Case) -> None:
    c.run("scan_by_key", "keyed")
    equal(c.out.numpy(), np.concatenate([np.cumsum(part) for part in np.split(c.x, c.heads[1:])]))


def check_three_ways(c: Case) -> None:
    c.run("partition_three_ways", "ways")
    first, second, neither = (c.x[which] for which in (c.x > 0, c.x < 0, c.x == 0))
    equal(c.count[:2].numpy(), [first.size, second.size])
    equal(c.out[: first.size].numpy(), first)
    equal(c.more[: second.size].numpy(), second)
    equal(c.more[c.n : c.n + neither.size].numpy(), neither)


def check_by_key(name: str, states: str, values: Of, c: Case) -> None:
    """Check one key and one value for each run of equal keys."""
    c.run(name, states)
    count = c.heads.size
    equal(c.count[:1].numpy(), [count])
    equal(c.out[:count].numpy(), c.y[c.heads])
    equal(c.more[:count].numpy(), values(c))


def check_runs(name: str, c: Case) -> None:
    """Check begins and lengths of the runs of two keys or more."""
    c.run(name, "keyed")
    lengths = np.diff(c.heads, append=c.n)
    long = lengths > 1
    equal(c.count[:1].numpy(), [long.sum()])
    equal(c.out[: long.sum()].numpy(), c.heads[long])
    equal(c.more[: long.sum()].numpy(), lengths[long])


def check_differences(name: str, expected: Of, c: Case) -> None:
    c.run(name)
    equal(c.out.numpy(), expected(c))


def check_downsweep(name: str, c: Case) -> None:
    """Check a pass of a radix sort in three kernels."""
    c.run("upsweep")
    c.module["scan_bins"][1, BLOCK](c.count, BINS * c.tiles)
    c.run(name)
    c.check_sorted(c.x % BINS, c.out, c.more)


def check_onesweep(name: str, c: Case) -> None:
    """Check a pass of a radix sort by look-back. The last bin of cub's counts has what is missing of a tile too."""
    c.count.fill(0)
    c.states.fill(0)
    c.run("digits", grid=1)
    equal(c.count[: BINS - 1].numpy(), np.bincount(c.x % BINS, minlength=BINS)[:-1])
    c.module["scan_bins"][1, BLOCK](c.count, BINS)
    c.run(name)
    c.check_sorted(c.x % BINS, c.out, c.more)


def check_merge_sort(c: Case) -> None:
    c.run("sort_tiles")
    here, there, merged = (c.out, c.more), (c.empty(c.n), c.empty(c.n)), 2
    while merged // 2 < c.tiles:
        cuts = c.empty(c.tiles + 1)
        c.module["cut"][1, BLOCK](here[0], c.n, cuts, c.tiles + 1, merged)
        c.module["merge"][c.tiles, BLOCK](*here, *there, c.n, cuts, merged)
        here, there, merged = there, here, 2 * merged
    c.check_sorted(c.x, *here)


def check_segments_sorted(c: Case) -> None:
    for segment in (1, 17, 47, 48):
        grid = -(-c.n // (segment * 4))
        c.module["sort_segments"][grid, BLOCK](*c.inputs, c.out, c.more, segment, c.n)
        c.check_sorted(np.arange(c.n) // segment * 1000 + c.x, c.out, c.more)


def check_histogram(name: str, c: Case) -> None:
    c.count.fill(0)
    c.run(name)
    equal(c.count[:16].numpy(), np.histogram(c.x, 16, (-64, 64))[0])


def check_segments_summed(c: Case) -> None:
    for segment in (1, 23, 24, 25, 100):
        count = -(-c.n // segment)
        c.module["sum_segments"][-(-count // 8), BLOCK](c.inputs[0], c.out, segment, c.n)
        equal(c.out[:count].numpy(), np.add.reduceat(c.x, np.arange(0, c.n, segment)))


def check_segments_scanned(c: Case) -> None:
    for ends in ([0, c.n], [0, c.n // 2, c.n], [*range(0, c.n, 41), c.n]):
        places = c.device.array(np.array(ends, np.int32))
        c.module["scan_segments"][1, BLOCK](c.inputs[0], c.out, places, len(ends) - 1)
        equal(c.out.numpy(), np.concatenate([np.cumsum(part) for part in np.split(c.x, ends[1:-1])]))


def check_find(c: Case) -> None:
    c.count.fill(c.n)
    c.run("find", grid=3)
    equal(c.count[:1].numpy(), [*np.flatnonzero(c.x == 60), c.n][:1])


def check_smallest(c: Case) -> None:
    keys, n = rng(c.n).integers(0, 1000, c.n).astype(np.uint16), c.n
    for k in sorted({1, (n + 1) // 2, n}):
        counter = np.zeros(640 // 4, np.int32)
        counter[:3] = k, n, n
        found, places = c.device.empty(k, np.uint16), c.empty(k)
        pairs = c.device.array(keys), found, c.device.array(np.arange(n, dtype=np.int32)), places
        counts = c.device.array(counter), c.device.zeros(256, np.int32)
        between = c.device.empty(n, np.uint16), c.empty(n)
        c.module["top_bins"][c.tiles, BLOCK](*pairs, *counts, n, k)
        c.module["top_filter"][c.tiles, BLOCK](*pairs, *counts, *between, n, k)
        c.module["top_last"][c.tiles, BLOCK](*pairs, counts[0], *between, n, k)
        equal(np.sort(found.numpy()), np.sort(keys)[:k])
        equal(keys[places.numpy()], found.numpy())
        assert len(set(places.numpy())) == k


def check_buffers_copied(c: Case) -> None:
    sizes = rng(c.n).integers(0, 256, c.n).astype(np.int32)
    sizes[rng(c.n + 1).random(c.n) < 0.7] %= 40
    begins, order = np.cumsum(sizes) - sizes, rng(c.n + 2).permutation(c.n)
    targets = np.empty_like(begins)
    targets[order] = np.cumsum(sizes[order]) - sizes[order]
    data = rng(c.n + 3).integers(0, 256, sizes.sum() + 1).astype(np.uint8)
    source, target = c.device.array(data), c.device.zeros(data.size, np.uint8)
    places = [c.device.array((at + a.address).astype(np.uint64)) for at, a in ((begins, source), (targets, target))]
    states = [c.device.empty(1 << 14, np.uint8) for _ in range(2)]
    for each in states:
        c.module["prepare_copies"][1, BLOCK](each, c.n)
    large = [c.device.empty(c.n, dtype) for dtype in ("uint64", "uint64", "int32", "uint32")]
    c.module["copy_buffers"][c.tiles, BLOCK](*places, c.device.array(sizes), c.n, *states, *large)
    expected = np.zeros_like(data)
    for begin, to, size in zip(begins, targets, sizes, strict=True):
        expected[to : to + size] = data[begin : begin + size]
    equal(target.numpy(), expected)


of = functools.partial
CHECKS: dict[str, Callable[[Case], None]] = {
    "scan": check_scan,
    "scan by key": check_scan_by_key,
    "select if": of(check_kept, "select_if", lambda c: c.x[c.x > 0], None),
    "select flagged": of(check_kept, "select_flagged", lambda c: c.x[c.y != 0], None),
    "unique": of(check_kept, "unique", lambda c: c.y[c.heads], None),
    "partition if": of(check_kept, "partition_if", lambda c: c.x[c.x > 0], lambda c: c.x[c.x <= 0]),
    "partition three ways": check_three_ways,
    "unique by key": of(check_by_key, "unique_by_key", "scan", lambda c: c.x[c.heads]),
    "reduce by key": of(check_by_key, "reduce_by_key", "keyed", lambda c: np.add.reduceat(c.x, c.heads)),
    "runs": of(check_runs, "run_lengths"),
    "runs, a warp at a time": of(check_runs, "run_lengths_sliced"),
    "differences": of(check_differences, "difference_left", lambda c: np.diff(c.x, prepend=0)),
    "differences to the right": of(check_differences, "difference_right", lambda c: -np.diff(c.x, append=0)),
    "radix sort": of(check_downsweep, "downsweep"),
    "radix sort, match": of(check_downsweep, "downsweep_match"),
    "onesweep": of(check_onesweep, "onesweep"),
    "onesweep, atomic": of(check_onesweep, "onesweep_atomic"),
    "merge sort": check_merge_sort,
    "segmented sort": check_segments_sorted,
    "histogram": of(check_histogram, "histogram"),
    "histogram, runs": of(check_histogram, "histogram_compressed"),
    "segmented sum": check_segments_summed,
    "segmented scan": check_segments_scanned,
    "find": check_find,
    "the smallest": check_smallest,
    "copies of buffers": check_buffers_copied,
}


@pytest.mark.parametrize("name", CHECKS)
def test_agent_is_right_and_silent_over_partial_tiles(name: str) -> None:
    for n in SIZES:
        CHECKS[name](Case(n))


# -- bulk copies ------------------------------------------------------------------------------------------

HOPPER = pytest.mark.parametrize("arch", ["compute_90", "compute_100"])
PART = 384
"""Elements of a tile of all but the scan, half of which is one of the scan's."""


def ints(n: int, seed: int) -> Array:
    return rng(seed).integers(-99, 99, n).astype(np.int32)


@HOPPER
def test_scan_with_decoupled_look_back(arch: str) -> None:
    kernels = module("cub_bulk.cu", arch)
    device = kernels.device
    for n, stages in ((1, 1), (TILE - 1, 2), (TILE, 1), (TILE + 1, 3), (8 * TILE + 7, 3)):
        x, tiles = ints(n + 3, n), -(-n // TILE)
        states, counter, out = device.empty(8 * tiles, np.uint8), device.empty(1, np.uint32), device.empty(n, np.int32)
        for first in (0, 3):  # not at a multiple of 16 bytes
            kernels["prepare"][1, 128](states, counter, tiles)
            launch = kernels["scan"].prepare(tiles, 7 * 32, shared_bytes=20_000)
            launch(device.array(x)[first : first + n], out, states, counter, n, stages)
            equal(out.numpy(), 7 + np.cumsum(x[first : first + n]) - x[first : first + n])


@HOPPER
@pytest.mark.parametrize(
    ("name", "dtype", "tile"),
    [("transform", np.int32, PART), ("transform_bytes", np.int8, 512), ("transform_cp_async", np.int32, PART)],
)
def test_sums_of_arrays_at_any_place(name: str, dtype: npt.DTypeLike, tile: int, arch: str) -> None:
    kernels = module("cub_bulk.cu", arch)
    device = kernels.device
    for n in (1, PART - 1, PART, PART + 1, 5 * PART + 7):
        x, y = (ints(n + 3, n + seed).astype(dtype) for seed in (0, 1))
        for i, k in ((0, 0), (1, 2), (3, 0)):
            out = device.empty(n, dtype)
            launch = kernels[name].prepare(-(-n // tile), 128, shared_bytes=8192)
            launch(device.array(x)[i : i + n], device.array(y)[k : k + n], out, n)
            equal(out.numpy(), x[i : i + n] + y[k : k + n])


@HOPPER
@pytest.mark.parametrize("name", ["merge", "merge_bulk"])
def test_two_sorted_arrays_are_merged(name: str, arch: str) -> None:
    kernels = module("cub_bulk.cu", arch)
    device = kernels.device

    def pairs(keys: Array, first: int) -> Sequence[DeviceArray]:
        numbers = np.arange(first, first + keys.size, dtype=np.int32)
        return [device.array(each) if each.size else device.empty(1, np.int32) for each in (keys, numbers)]

    for n in (1, PART - 1, PART, PART + 1, 3 * PART + 7):
        for m in (0, 1, n // 2, n):
            both = [np.sort(ints(size, size + 1)) for size in (m, n - m)]
            (x, xs), (y, ys) = pairs(both[0], 0), pairs(both[1], m)
            tiles = -(-n // PART)
            cuts, out, more = (device.empty(size, np.int32) for size in (tiles + 1, n, n))
            kernels["cut"][1, 128](x, m, y, n - m, cuts, tiles + 1)
            kernels[name][tiles, 128](x, xs, m, y, ys, n - m, out, more, cuts)
            order = np.argsort(np.concatenate(both), kind="stable")
            equal(out.numpy(), np.concatenate(both)[order])
            equal(more.numpy(), order)
