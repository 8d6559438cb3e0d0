"""Inputs and numpy references of the kernels in ``kernels.cu``.

Floating-point contraction is off (``fmad=False``), so that every result is equal to numpy's to the last bit.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

SOURCE = Path(__file__).parent / "kernels.cu"
OPTIONS = {"fmad": False}

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """One kernel: what it is called, its launch, its inputs, and what it must write.

    ``arguments`` are arrays (copied to the device) and scalars; ``outputs`` are the positions of those that it
    writes; ``reference`` gives the expected arrays.
    """

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    arguments: tuple[Any, ...]
    outputs: tuple[int, ...]
    reference: Callable[[], tuple[Array, ...]]


def _random(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def _stencil() -> Case:
    height, width, weight = 61, 83, np.float32(0.2)
    grid = _random(1).standard_normal((height, width), np.float32)

    def reference() -> tuple[Array, ...]:
        out = grid.copy()
        inner = grid[1:-1, 1:-1]
        around = grid[1:-1, :-2] + grid[1:-1, 2:] + grid[:-2, 1:-1] + grid[2:, 1:-1]
        out[1:-1, 1:-1] = inner + weight * (around - np.float32(4) * inner)
        return (out,)

    return Case("stencil", (6, 8), (16, 8), (grid, np.zeros_like(grid), width, height, weight), (1,), reference)


def _histogram() -> Case:
    n, threads = 10_007, 192
    data = _random(2).integers(0, 256, n, np.uint8)

    def reference() -> tuple[Array, ...]:
        bins = np.zeros((threads, 16), np.uint32)
        np.add.at(bins, (np.arange(n) % threads, data >> 4), 1)
        return (bins,)

    return Case("histogram", (2,), (96,), (data, n, np.full((threads, 16), 9, np.uint32)), (2,), reference)


def _mandelbrot() -> Case:
    width, height, most = 120, 70, 60

    def reference() -> tuple[Array, ...]:
        f = np.float32
        x, y = np.meshgrid(np.arange(width, dtype=f), np.arange(height, dtype=f))
        cr, ci = f(-2) + f(3) * x / f(width), f(-1) + f(2) * y / f(height)
        zr, zi, count = np.zeros_like(cr), np.zeros_like(cr), np.zeros((height, width), np.int32)
        for _ in range(most):
            alive = zr * zr + zi * zi <= f(4)
            following = zr * zr - zi * zi + cr
            zi = np.where(alive, f(2) * zr * zi + ci, zi)
            zr = np.where(alive, following, zr)
            count += alive
        return (count,)

    out = np.full((height, width), -1, np.int32)
    return Case("mandelbrot", (4, 18), (32, 4), (out, width, height, most), (0,), reference)


def _nbody() -> Case:
    n, softening = 200, np.float32(0.01)
    body = _random(4).random((n, 4), np.float32)

    def reference() -> tuple[Array, ...]:
        total = np.zeros((n, 4), np.float32)
        for j in range(n):
            d = body[j, :3] - body[:, :3]
            square = d[:, 0] * d[:, 0] + d[:, 1] * d[:, 1] + d[:, 2] * d[:, 2] + softening
            inverse = np.float32(1) / np.sqrt(square)
            pull = body[j, 3] * (inverse * inverse * inverse)
            total[:, :3] += pull[:, None] * d
        return (total,)

    return Case("nbody", (2,), (128,), (body, np.full_like(body, 9), n, softening), (1,), reference)


def _hash() -> Case:
    n, rounds = 5_000, 3
    data = _random(5).integers(0, 2**32, n, np.uint32)

    def reference() -> tuple[Array, ...]:
        u = np.uint32
        h = data.copy()
        for k in range(rounds):
            m = h + u(k)
            m ^= m >> u(16)
            m *= u(0x85EBCA6B)
            m ^= m >> u(13)
            m *= u(0xC2B2AE35)
            m ^= m >> u(16)
            ones = np.array([int(v).bit_count() for v in h], u)
            zeros = np.array([32 - int(v).bit_length() for v in h], u)
            h = m + ones + zeros
        return (h,)

    return Case("hash<3>", (20,), (256,), (data, np.zeros(n, np.uint32), n), (1,), reference)


def _polynomial() -> Case:
    n = 3_000
    x = _random(6).standard_normal(n)
    coefficient = [1.0, -0.5, 0.25, 1.0 / 3, -2.0, 0.125, 7.0, 1e-3]

    def reference() -> tuple[Array, ...]:
        total = np.zeros(n)
        for c in reversed(coefficient):
            total = total * x + c
        return (total,)

    return Case("polynomial", (3,), (128,), (x, np.zeros(n), n), (1,), reference)


def _search() -> Case:
    text = _random(7).choice(np.frombuffer(b"ab", np.uint8), 4_000)
    pattern = np.frombuffer(b"abbab", np.uint8)

    def reference() -> tuple[Array, ...]:
        windows = np.lib.stride_tricks.sliding_window_view(text, pattern.size)
        found = np.zeros(text.size, np.uint8)
        found[: windows.shape[0]] = (windows == pattern).all(axis=1)
        return (found,)

    out = np.full(text.size, 7, np.uint8)
    return Case("search", (32,), (128,), (text, text.size, pattern, pattern.size, out), (4,), reference)


CASES = [_stencil(), _histogram(), _mandelbrot(), _nbody(), _hash(), _polynomial(), _search()]
