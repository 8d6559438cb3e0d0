"""The kernels of the CPU device's benchmark: their data, their launches, what is right, and how fast they have to be.

The source of each is ``cpu/<name>.cu``, ``.c`` and ``.cl``: the same algorithm, with the same launches in CUDA and
OpenCL. A C function takes the arrays and ``sizes``; a kernel takes the arrays and the scalars of its step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["CASES", "SOURCES", "Array", "Case", "Scalars", "Step"]

Array: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = tuple[Array, ...]
Scalars: TypeAlias = tuple[int | float, ...]

SOURCES = Path(__file__).parent / "cpu"


@dataclass(frozen=True)
class Step:
    """One launch: grid in blocks, block in threads, and the kernel's arguments behind the arrays.

    A grid that is ``cooperative`` has as many blocks as run at a time.
    """

    kernel: str
    grid: tuple[int, ...]
    block: tuple[int, ...]
    scalars: Scalars
    cooperative: bool = False


@dataclass(frozen=True)
class Case:
    """One row of the table. All speeds are ratios: 2 is twice as fast.

    ``make`` makes the arrays, ``wrong`` says what is wrong with those that it made first after they ran (or nothing).
    ``floor`` is the least speed in PoCL's, ``floor_by_c`` the same in C's where there is no PoCL (measured with both
    in one run), ``aim`` the speed that is wanted, in that of ``aim_of``. ``fast`` has C compiled with ``-ffast-math``.
    """

    name: str
    what: str
    make: Callable[[], Arrays]
    steps: tuple[Step, ...]
    sizes: Scalars
    wrong: Callable[[Arrays, Arrays], str]
    floor: float
    floor_by_c: float
    aim: float
    aim_of: str = "C"
    fast: bool = False


def _random(*shape: int) -> Array:
    return np.random.default_rng(7).random(shape, np.float32)


def _far(got: Array, want: Array, share: float) -> str:
    """Say by how much ``got`` differs, if more than ``share`` of the largest value."""
    off = float(np.max(np.abs(got.astype(np.float64) - want)))
    limit = share * float(np.max(np.abs(want)))
    return "" if off <= limit else f"off by {off:.3g}, more than {limit:.3g}"


def _differ(got: Array, want: Array, share: float = 0.0) -> str:
    """Count where ``got`` differs, if at more than ``share`` of the places."""
    places = int(np.count_nonzero(got != want))
    return "" if places <= share * want.size else f"{places} of {want.size} differ"


# -- the kernels ------------------------------------------------------------------------------------------

_MANY = 1 << 24
_SIDE = 512
_LARGE = 4096
_BODIES = 4096
_KEYS = 1 << 20
_TILE = 1024
_PIXELS, _MOST = 1024, 256
_SWEEPS = 20


def _saxpy_wrong(before: Arrays, after: Arrays) -> str:
    x, y = before
    return _far(after[1], np.float32(0.5) * x + y, 1e-6)


def _matmul_wrong(before: Arrays, after: Arrays) -> str:
    a, b, _ = before
    return _far(after[2], a.astype(np.float64) @ b.astype(np.float64), 1e-5)


def _tree_wrong(before: Arrays, after: Arrays) -> str:
    return _far(after[1], before[0].reshape(-1, 256).sum(axis=1, dtype=np.float64), 1e-5)


def _stride_wrong(before: Arrays, after: Arrays) -> str:
    return _far(after[1].sum(dtype=np.float64, keepdims=True), before[0].sum(dtype=np.float64, keepdims=True), 1e-4)


def _escapes() -> Array:
    """Count each pixel's steps in NumPy, going on with those that are still inside."""
    x, y = np.arange(_PIXELS, dtype=np.float32), np.arange(_PIXELS, dtype=np.float32)[:, None]
    c = (-2 + 3 * x / _PIXELS + 1j * (-1 + 2 * y / _PIXELS)).astype(np.complex64).ravel()
    count = np.zeros(c.size, np.int32)
    inside = np.arange(c.size)
    z = np.zeros_like(c)
    for _ in range(_MOST):
        stays = z.real * z.real + z.imag * z.imag <= 4
        inside, z = inside[stays], z[stays]
        count[inside] += 1
        z = z * z + c[inside]
    return count.reshape(_PIXELS, _PIXELS)


def _mandelbrot_wrong(before: Arrays, after: Arrays) -> str:
    del before
    # Where a product and a sum are rounded once and not twice, orbits near the border escape a step sooner or later.
    return _differ(after[0], _escapes(), 0.02)


def _nbody_wrong(before: Arrays, after: Arrays) -> str:
    body = before[0].astype(np.float64)
    pull = np.zeros_like(body)
    for some in np.split(np.arange(_BODIES), 16):
        apart = body[None, :, :3] - body[some, None, :3]
        near = (apart**2).sum(axis=2) + 0.01
        pull[some, :3] = ((body[:, 3] / near**1.5)[:, :, None] * apart).sum(axis=1)
    return _far(after[1], pull, 1e-5)


def _histogram_wrong(before: Arrays, after: Arrays) -> str:
    return _differ(after[1], np.bincount(before[0].view(np.uint8), minlength=256))


def _bitonic_wrong(before: Arrays, after: Arrays) -> str:
    return _differ(after[1], np.sort(before[0]))


def _transpose_wrong(before: Arrays, after: Arrays) -> str:
    return _differ(after[1], before[0].T)


def _bitonic_steps() -> tuple[Step, ...]:
    tiles, threads = (_KEYS // _TILE,), (_TILE // 2,)
    steps = [Step("sort_tiles", tiles, threads, (_TILE, _TILE // 2))]
    size = 2 * _TILE
    while size <= _KEYS:
        stride = size // 2
        while stride >= _TILE:
            steps.append(Step("merge_far", (_KEYS // _TILE,), threads, (size, stride)))
            stride //= 2
        steps.append(Step("merge_tiles", tiles, threads, (size, stride)))
        size *= 2
    return tuple(steps)


def _sweeps_wrong(before: Arrays, after: Arrays) -> str:
    values = before[0].astype(np.float64)
    for _ in range(_SWEEPS):
        values[1:-1] = 0.25 * values[:-2] + 0.5 * values[1:-1] + 0.25 * values[2:]
    return _far(after[0], values, 1e-5)


def _words() -> Array:
    return np.random.default_rng(7).integers(0, 1 << 32, _MANY // 4, np.uint32)


def _keys() -> Array:
    return np.random.default_rng(7).integers(0, 1 << 32, _KEYS, np.uint32)


# 150 GFLOP/s, 25 and 45 GB/s were set as aims on a machine where PoCL multiplied at 5.3 GFLOP/s and C added at 65 GB/s.
_POCL_GFLOPS, _C_GBS = 5.3, 65

CASES = (
    Case(
        "saxpy", "saxpy, 16 M floats",
        lambda: (_random(_MANY), _random(_MANY)),
        (Step("saxpy", (_MANY // 256,), (256,), (0.5, _MANY)),), (0.5, _MANY), _saxpy_wrong,
        floor=1, floor_by_c=0.45, aim=0.9,
    ),
    Case(
        "matmul", "matmul 512³, 16×16 tiles",
        lambda: (_random(_SIDE, _SIDE), _random(_SIDE, _SIDE), np.zeros((_SIDE, _SIDE), np.float32)),
        (Step("matmul", (_SIDE // 16, _SIDE // 16), (16, 16), (_SIDE,)),), (_SIDE,), _matmul_wrong,
        floor=10, floor_by_c=0.8, aim=150 / _POCL_GFLOPS, aim_of="PoCL",
    ),
    Case(
        "tree", "tree reduction, 16 M floats",
        lambda: (_random(_MANY), np.zeros(_MANY // 256, np.float32)),
        (Step("tree", (_MANY // 256,), (256,), (_MANY,)),), (_MANY,), _tree_wrong,
        floor=5, floor_by_c=0.11, aim=25 / _C_GBS,
    ),
    Case(
        "stride", "grid-stride reduction",
        lambda: (_random(_MANY), np.zeros(256, np.float32)),
        (Step("stride", (256,), (256,), (_MANY,)),), (_MANY,), _stride_wrong,
        floor=7, floor_by_c=0.42, aim=45 / _C_GBS,
    ),
    Case(
        "mandelbrot", "Mandelbrot 1024²",
        lambda: (np.zeros((_PIXELS, _PIXELS), np.int32),),
        (Step("mandelbrot", (_PIXELS // 32, _PIXELS // 8), (32, 8), (_PIXELS, _PIXELS, _MOST)),),
        (_PIXELS, _PIXELS, _MOST), _mandelbrot_wrong,
        floor=1, floor_by_c=0.1, aim=1, fast=True,
    ),
    Case(
        "nbody", "n-body 4096",
        lambda: (_random(_BODIES, 4), np.zeros((_BODIES, 4), np.float32)),
        (Step("nbody", (_BODIES // 256,), (256,), (_BODIES, 0.01)),), (_BODIES, 0.01), _nbody_wrong,
        floor=1, floor_by_c=0.13, aim=1, fast=True,
    ),
    Case(
        "histogram", "histogram, 16 M bytes",
        lambda: (_words(), np.zeros(256, np.uint32)),
        (Step("clear", (1,), (256,), (_MANY // 4,)), Step("histogram", (256,), (256,), (_MANY // 4,))),
        (_MANY // 4,), _histogram_wrong,
        floor=1, floor_by_c=0.11, aim=1, fast=True,
    ),
    Case(
        "bitonic", "bitonic sort, 1 M keys",
        lambda: (_keys(), np.zeros(_KEYS, np.uint32)),
        _bitonic_steps(), (_KEYS,), _bitonic_wrong,
        floor=1, floor_by_c=0.14, aim=1, fast=True,
    ),
    Case(
        "transpose", "transpose 4096², padded",
        lambda: (_random(_LARGE, _LARGE), np.zeros((_LARGE, _LARGE), np.float32)),
        (Step("transpose", (_LARGE // 32, _LARGE // 32), (32, 8), (_LARGE,)),), (_LARGE,), _transpose_wrong,
        floor=1, floor_by_c=0.25, aim=1, fast=True,
    ),
    Case(
        "sweeps", "20 sweeps and grid.sync()",
        lambda: (_random(_KEYS), _random(_KEYS)),
        (Step("sweeps", (), (256,), (_KEYS, _SWEEPS), cooperative=True),), (_KEYS, _SWEEPS), _sweeps_wrong,
        floor=0.05, floor_by_c=0.05, aim=0.5,
    ),
)  # fmt: skip
