"""Products of matrices by wmma; the numbers are small and whole, so that every order of addition gives the same."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from cujit.devices.device import Device
from real.running import Array, rng, run


def whole(shape: tuple[int, ...], dtype: npt.DTypeLike, seed: int) -> Array:
    return rng(seed).integers(-4, 5, shape).astype(dtype)


def test_tiled_product_of_halves(device: Device) -> None:
    m, n, k = 64, 96, 64
    a, b = whole((m, k), np.float16, 1), whole((k, n), np.float16, 2)
    c = np.zeros((m, n), np.float32)
    _, _, c = run(device, "wmma.cu", "product", (n // 32, m // 32), 128, a, b, c, m, n, k)
    np.testing.assert_array_equal(c, 2 * (a.astype(np.float32) @ b.astype(np.float32)))


# Kernel; m, n, k; type of a and b, type of c and d; whether a and b lie column by column.
TILES = [
    ("half_tile", (32, 8, 16), np.float16, np.float16, True, True),
    ("byte_tile", (16, 16, 16), np.int8, np.int32, False, True),
    ("tf32_tile", (16, 16, 8), np.float32, np.float32, False, True),
    ("double_tile", (8, 8, 4), np.float64, np.float64, False, True),
    ("bfloat_tile", (8, 32, 16), np.uint16, np.float32, False, False),
]


@pytest.mark.parametrize(("kernel", "sizes", "given", "made", "left", "right"), TILES, ids=[t[0] for t in TILES])
def test_one_tile_of_every_kind(
    kernel: str,
    sizes: tuple[int, int, int],
    given: npt.DTypeLike,
    made: npt.DTypeLike,
    left: bool,
    right: bool,
    device: Device,
) -> None:
    m, n, k = sizes
    a, b, c = whole((m, k), np.float32, 1), whole((k, n), np.float32, 2), whole((m, n), made, 3)
    stored = [words_of(x.T if turned else x, given) for x, turned in ((a, left), (b, right))]
    *_, d = run(device, "wmma.cu", kernel, 1, 32, *stored, c, np.zeros_like(c))
    np.testing.assert_array_equal(d, a @ b + c)


def words_of(x: Array, dtype: npt.DTypeLike) -> Array:
    """Lay a matrix of small whole numbers out in memory; 16-bit words are bfloat16."""
    if np.dtype(dtype) == np.uint16:
        return (np.ascontiguousarray(x).view(np.uint32) >> 16).astype(np.uint16)
    return np.ascontiguousarray(x).astype(dtype)
