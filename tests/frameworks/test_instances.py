"""The kernels of an operator without its framework: one for each type and number in braces, and launches that stay."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cujit.errors import ArgumentError, CujitError, MissingError, OptionError
from cujit.operators.instances import _MOST_LAUNCHES, Instances
from raising import raises

SOURCE = """
template <class T, int N> __global__ void fill(T *x) { x[blockIdx.x * blockDim.x + threadIdx.x] = T(N); }
"""
X, D = np.zeros(4, np.float32), np.zeros(4, np.float64)


def made(kernel: str = "fill<{x}, {n}>", **sizes: Any) -> Callable[..., Any]:
    """Give what launches for arguments on the CPU device."""
    found = Instances("mine::fill", SOURCE, kernel, ["x", "n"], None, None)
    found.sized_by(*({"over": None, "grid": None, "block": None, "shared_bytes": 0} | sizes).values())
    return lambda *given, ordinal=-1: found.launch(given, given, ordinal, 0)


def test_each_type_and_number_has_its_own_kernel() -> None:
    launch = made(over=lambda x, _: len(x))
    names = [launch(*given).kernel.name for given in ((X, 1), (X, 2), (D, 2), (X, True))]
    assert names == ["fill<float, 1>", "fill<float, 2>", "fill<double, 2>", "fill<float, true>"]
    assert launch(np.ones(4, np.float32), 1) is launch(X, 1)
    filled = np.zeros(32, np.float32)
    launch(filled, 7)(filled)
    assert (filled == 7).all()


def test_nonnegative_number_selects_a_gpu() -> None:
    with contextlib.suppress(MissingError):  # there is none
        assert made(over=lambda x, _: len(x))(X, 1, ordinal=0).kernel.device.is_gpu


def test_sizes_and_memory_come_from_the_call() -> None:
    launch = made(over=lambda x, _: len(x), shared_bytes=lambda _, n: n)
    for _ in range(2):
        for size, shared in ((4, 0), (4, 16), (64, 16)):
            assert launch(np.zeros(size, np.float32), shared) is launch(np.zeros(size, np.float32), shared)
            said = str(launch(np.zeros(size, np.float32), shared))
            assert f"block ({max(size, 32)}, 1, 1)" in said
            assert ("16 bytes of shared memory" in said) is (shared == 16)


def test_launches_are_cached_up_to_a_limit() -> None:
    launch = made(over=lambda _, n: n, kernel="fill<{x}, 1>")
    launches = [launch(X, size) for size in range(_MOST_LAUNCHES)]
    assert all(launch(X, size) is one for size, one in enumerate(launches))
    launch(X, _MOST_LAUNCHES)
    assert launch(X, 0) is not launches[0]


@pytest.mark.parametrize(
    ("grid", "block", "threads"),
    [(2, None, 512), (lambda *_: 3, 32, 96), ((2, 1, 1), 4, 8), (0, 4, 0), (lambda *_: (2, 0), 4, 0)],
    ids=["a number", "a function", "a tuple", "none", "an axis of none"],
)
def test_default_grid_has_blocks_of_256_and_may_be_empty(grid: Any, block: int | None, threads: int) -> None:
    filled = np.zeros(520, np.float32)
    made(grid=grid, block=block)(filled, 3)(filled)
    assert (filled == 3).sum() == threads
    assert not filled[threads:].any()


@pytest.mark.parametrize(
    ("kernel", "given", "error", "said"),
    [
        ("fill<{x", (X, 1), OptionError, ("option", "malformed")),
        ("fill<{y}, {z}>", (X, 1), OptionError, ("option", "y", "z", "braces")),
        ("fill<{x}, {n}>", (X, 1.5), ArgumentError, ("argument", "{n}", "float", "C")),
        ("fill<{x}, 1>", (X.astype("datetime64[s]"), 1), ArgumentError, ("argument", "{x}", "datetime64[s]")),
    ],
)
def test_name_of_an_unsupported_value_is_refused(
    kernel: str, given: Any, error: type[CujitError], said: tuple[str, ...]
) -> None:
    with raises(error, *said):
        made(kernel, over=lambda x, _: len(x))(*given)
