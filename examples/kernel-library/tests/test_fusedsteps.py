"""The kernels compute what NumPy does: on the CPU device, and on the first GPU where there is one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import fusedsteps
import numpy as np
import numpy.typing as npt
import pytest

import cujit

Put = Callable[[npt.NDArray[Any]], Any]


@pytest.fixture(params=["numpy", "gpu"])
def put(request: pytest.FixtureRequest) -> Put:
    """Copy an array to where kernels run; NumPy's arrays stay where they are."""
    if request.param == "numpy":
        return np.copy
    try:
        return cujit.gpu().array
    except cujit.errors.MissingError as e:
        pytest.skip(e.message)


def back(array: Any) -> npt.NDArray[Any]:
    return array if isinstance(array, np.ndarray) else array.numpy()


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_step_of_adamw(put: Put, dtype: str) -> None:
    numbers = np.random.default_rng(7)
    p, g, m, v = numbers.random((4, 1000)).astype(dtype)
    on_device = [put(array) for array in (p, g, m, v)]
    fusedsteps.adamw(*on_device, step=3, rate=0.1)
    mean, square = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g * g
    wanted = p * (1 - 0.1 * 0.01) - 0.1 * (mean / (1 - 0.9**3)) / (np.sqrt(square / (1 - 0.999**3)) + 1e-8)
    tolerance = 1e-4 if dtype == "float32" else 1e-12
    for got, expected in zip(on_device, (wanted, g, mean, square), strict=True):
        np.testing.assert_allclose(back(got), expected, rtol=tolerance)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_layer_norm(put: Put, dtype: str) -> None:
    numbers = np.random.default_rng(7)
    x, (weight, bias) = numbers.random((5, 300)).astype(dtype), numbers.random((2, 300)).astype(dtype)
    out = put(np.zeros_like(x))
    fusedsteps.layer_norm(put(x), put(weight), put(bias), out)
    wanted = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5) * weight + bias
    np.testing.assert_allclose(back(out), wanted, rtol=1e-3 if dtype == "float32" else 1e-9, atol=1e-5)


def test_arrays_that_do_not_fit_are_refused() -> None:
    x, short = np.zeros(8, np.float32), np.zeros(4, np.float32)
    with pytest.raises(ValueError, match="arrays of one size"):
        fusedsteps.adamw(x, short, x, x, step=1)
    whole = np.zeros(8, np.int32)
    with pytest.raises(ValueError, match="float32 or float64"):
        fusedsteps.adamw(whole, whole, whole, whole, step=1)
