from __future__ import annotations

import pytest

from cujit.devices.shapes import Dim3, LaunchShape, Limits, Resources, check_launch, launch_shape
from cujit.errors import LaunchError
from raising import raises

LIMITS = Limits(1024, Dim3(1024, 1024, 64), Dim3(2**31 - 1, 65535, 65535), 48 << 10, 227 << 10, 132)
SMALL = Resources(16, 0, 0, 0, 1024)


def test_grid_and_block_are_ints_or_tuples() -> None:
    assert launch_shape(3, (4, 5)) == LaunchShape(Dim3(3), Dim3(4, 5), 0)


@pytest.mark.parametrize(
    ("grid", "block", "shared", "why"),
    [
        (0, 1, 0, "grid.x is 0, expected at least 1"),
        ((1, -2), 1, 0, "grid.y is -2"),
        (1, 0, 0, "block.x is 0"),
        (1.5, 1, 0, "grid.x is float 1.5, expected an int"),
        (1, "32", 0, "block.x is str '32'"),
        ((1, 2, 3, 4), 1, 0, "grid has 4 dimensions"),
        ((), 1, 0, "grid has 0 dimensions"),
        (1, 1, -1, "shared_bytes is -1, expected at least 0"),
        (1, 1, 1.5, "shared_bytes is float 1.5"),
    ],
)
def test_malformed_shape_names_the_wrong_part(grid: object, block: object, shared: object, why: str) -> None:
    with pytest.raises(LaunchError) as caught:
        launch_shape(grid, block, shared)
    assert why in str(caught.value)
    assert caught.value.help


def test_very_large_size_is_reported_by_its_bits() -> None:
    huge = 10**5000
    for grid, block, shared, why in (
        (1, 1, huge, "k: shared_bytes is an int of 16610 bits"),
        (1, 1, -huge, "k: shared_bytes is an int of 16610 bits, expected at least 0"),
        (huge, 1, 0, "k: grid.x is an int of 16610 bits"),
        (1, (1, -huge), 0, "k: block.y is an int of 16610 bits, expected at least 1"),
    ):
        with pytest.raises(LaunchError) as caught:
            launch_shape(grid, block, shared, "k")
        assert caught.value.message.startswith(why)


@pytest.mark.parametrize(
    ("shape", "resources", "numbers"),
    [
        (LaunchShape(Dim3(1), Dim3(1025)), SMALL, ("block.x", "1025", "1024")),
        (LaunchShape(Dim3(1), Dim3(1, 1, 65)), SMALL, ("block.z", "65", "64")),
        (LaunchShape(Dim3(1), Dim3(32, 33)), SMALL, ("32 × 33 × 1", "1056", "1024")),
        (LaunchShape(Dim3(1, 65536), Dim3(1)), SMALL, ("grid.y", "65536", "65535")),
        (LaunchShape(Dim3(2**31), Dim3(1)), SMALL, ("grid.x", "2147483648", "2147483647")),
        (LaunchShape(Dim3(1), Dim3(512)), Resources(200, 0, 0, 0, 256), ("512", "200 registers", "256")),
        (LaunchShape(Dim3(1), Dim3(1), 227 * 1024 + 1), SMALL, ("232449", "232448")),
        (LaunchShape(Dim3(1), Dim3(1), 227 * 1024), Resources(1, 16, 0, 0, 1024), ("16 static", "232448")),
    ],
)
def test_broken_limit_is_named_with_both_numbers(
    shape: LaunchShape, resources: Resources, numbers: tuple[str, ...]
) -> None:
    with pytest.raises(LaunchError) as caught:
        check_launch("k", shape, LIMITS, resources)
    assert caught.value.message.startswith("k: ")
    for number in numbers:
        assert number in str(caught.value)
    assert caught.value.help


def test_launch_at_every_limit_passes() -> None:
    check_launch("k", LaunchShape(Dim3(2**31 - 1, 65535, 65535), Dim3(1024), 227 << 10), LIMITS, SMALL)


def test_too_much_shared_memory_names_the_dynamic_limit() -> None:
    with raises(LaunchError, "shared-memory-size", "232432"):
        check_launch("k", LaunchShape(Dim3(1), Dim3(1), 227 << 10), LIMITS, Resources(1, 16, 0, 0, 1024))
