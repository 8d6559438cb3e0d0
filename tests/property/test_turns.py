"""Kernels compute the same where the warps of a block take turns in every loop, after each turn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cujit.devices.cpu.control import warp_scheduling
from property import test_regions
from property.effort import times
from property.test_divergence import launched, random_graph, walk_alone


@pytest.fixture(autouse=True)
def every_loop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Have warps take turns wherever they may; the cache has no machine code without that."""
    monkeypatch.setattr(warp_scheduling, "_TURNS", 1)
    monkeypatch.setattr(warp_scheduling, "_goes_over_memory", lambda *_: True)
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path))


@pytest.mark.parametrize("seed", range(times(8)))
def test_random_control_flow_ends_as_each_lane_would_alone(seed: int) -> None:
    nodes, block, common = random_graph(seed), (32, 40, 64)[seed % 3], seed % 8
    expected = np.array([walk_alone(nodes, t, common) for t in range(2 * block)], np.uint32)
    np.testing.assert_array_equal(launched(nodes, block, common), expected)


LOOPS = (6, 11, 26, 41, 54, 58, 76, 97, 108, 118)
"""Kernels, by their seeds, that have loops without barriers."""


@pytest.mark.parametrize("seed", [*LOOPS, *range(300, 300 + times(8) - 8)])
def test_kernel_split_at_barriers_computes_the_same(seed: int) -> None:
    test_regions.compare(seed, test_regions.SHAPES[seed % len(test_regions.SHAPES)], seed % 4)
