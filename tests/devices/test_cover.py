from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cujit.devices.shapes import Dim3, Limits, cover, problem_size, spread
from cujit.errors import LaunchError
from raising import raises

LIMITS = Limits(1024, Dim3(1024, 1024, 64), Dim3(2**31 - 1, 65535, 65535), 48 << 10, 227 << 10, 132)
SIZES = st.lists(st.integers(1, 10_000), min_size=1, max_size=3).map(tuple)


@given(sizes=SIZES, threads=st.sampled_from([1, 20, 32, 96, 256, 768, 1024]))
def test_every_element_has_a_thread_and_no_block_is_unused(sizes: tuple[int, ...], threads: int) -> None:
    block = spread(threads, sizes, LIMITS)
    assert block.volume <= threads
    assert all(b <= limit for b, limit in zip(block, LIMITS.max_block, strict=True))
    shape = cover(sizes, block, 0)
    for n, blocks, size in zip((*sizes, 1, 1), shape.grid, block, strict=False):
        assert blocks * size >= n > (blocks - 1) * size


def test_small_problem_gets_only_whole_warps() -> None:
    assert spread(256, (33,), LIMITS) == (64, 1, 1)


def test_plane_and_volume_have_a_warp_along_x() -> None:
    assert spread(256, (1000, 1000), LIMITS) == (32, 8, 1)
    assert spread(256, (100, 100, 100), LIMITS) == (32, 4, 2)


def test_very_large_size_is_refused_by_its_bits() -> None:
    with raises(LaunchError, "grid-size", "k", "16610", "5"):
        problem_size((10**5000, 5), "k")


@pytest.mark.parametrize("bad", [-1, (1, -1), (), (1, 2, 3, 4), 1.5, "3", None, (1, "x"), 1 << 63])
def test_invalid_size_is_refused(bad: object) -> None:
    with pytest.raises(LaunchError) as caught:
        problem_size(bad)
    assert "kernel.over(n)" in (caught.value.help or "")
