"""The larger example: expressions of NumPy's operators are computed by one kernel, and as NumPy computes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion
from cujit.devices.device import Device
from fusion import FUNCTIONS, OPERATORS, Lazy, compute, lazy

FLOATS = np.random.default_rng(0).uniform(-2, 2, (2, 5, 7))
FLOATS[:, 0, :4] = [[0.0, -0.0, np.nan, 1.0], [np.nan, 1.0, 0.5, np.inf]]
INTS = np.random.default_rng(1).integers(-3, 4, (2, 35))


def held_to_numpy(device: Device, ufuncs: list[np.ufunc], *given: np.ndarray, rtol: float = 0.0) -> None:
    """Compute functions of the arrays by one kernel, and compare values and dtypes."""
    expressions: list[Lazy] = [u(*(lazy(device.array(x)) for x in given[: u.nin])) for u in ufuncs]
    for ufunc, result in zip(ufuncs, compute(*expressions), strict=True):
        with np.errstate(all="ignore"):
            expected = ufunc(*given[: ufunc.nin])
        assert result.dtype == expected.dtype, ufunc
        np.testing.assert_allclose(result.numpy(), expected, rtol=rtol, atol=rtol, err_msg=ufunc.__name__)


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_floats_match_numpy(device: Device, dtype: type) -> None:
    x, y = FLOATS.astype(dtype)
    held_to_numpy(device, [*OPERATORS], x, y)
    held_to_numpy(device, [*FUNCTIONS], x, y, rtol=1e-5 if dtype is np.float32 else 1e-13)


@pytest.mark.parametrize(("left", "right"), [("i4", "i4"), ("i8", "f4"), ("u1", "u1"), ("?", "f8")])
def test_other_dtypes_and_mixtures_match_numpy(device: Device, left: str, right: str) -> None:
    x, y = INTS[0].astype(left), INTS[1].astype(right)
    not_of_bools = {np.negative, np.positive, np.square} if left == "?" else set()
    held_to_numpy(device, [ufunc for ufunc in OPERATORS if ufunc not in not_of_bools], x, y)


def test_numbers_adapt_to_dtypes_unlike_0d_arrays(device: Device) -> None:
    host = FLOATS[0].astype(np.float32)
    x = lazy(device.array(host))

    def several(x: Any) -> list[Any]:
        return [2 * x, x + 0.5, x > 0, x - True, np.float64(2) * x, x * np.array(3, np.int32), np.where(x > 0, x, 0)]

    for result, expected in zip(compute(*several(x)), several(host), strict=True):
        assert result.dtype == expected.dtype
        np.testing.assert_array_equal(result.numpy(), expected)


def test_dtype_conversions_and_empty_arrays_work(device: Device) -> None:
    x = lazy(device.array(np.array([-1.5, 0.0, 2.5])))
    assert x.astype(np.int32).compute().numpy().tolist() == [-1, 0, 2]
    assert (x.astype(bool)).compute().numpy().tolist() == [True, False, True]
    three = lazy(device.array(np.float32(3)).reshape(()))
    assert (three + 1).compute().numpy() == 4
    assert (x * three).compute().numpy().tolist() == [-4.5, 0.0, 7.5]
    assert (lazy(device.empty((0, 3), np.float32)) + 1).compute().shape == (0, 3)


def test_numpy_inputs_give_numpy_results() -> None:
    host = FLOATS[0].T  # not in C's order
    result = (host + lazy(1.0)).compute()
    assert isinstance(result, np.ndarray)
    np.testing.assert_array_equal(result, host + 1)
    assert (lazy(np.float32(2)) * 3).compute() == 6


def test_tensors_give_tensors(device: Device) -> None:
    torch = pytest.importorskip("torch")
    if device.is_gpu and not torch.cuda.is_available():
        pytest.skip("this torch has no GPU")
    a = torch.arange(12.0, device="cuda:0" if device.is_gpu else "cpu", requires_grad=True)
    b = torch.ones((3, 4), dtype=torch.int32, device=a.device).T.contiguous()
    result = (lazy(a.reshape(4, 3)) * 2 + b).compute()
    assert isinstance(result, torch.Tensor)
    assert result.device == a.device
    assert torch.equal(result, (a.reshape(4, 3) * 2 + b).double())


def test_kernel_is_one_pass_and_reused_for_other_numbers() -> None:
    x = lazy(np.ones(5, np.float32))
    square = x * x
    text, leaves, shape = fusion.write([square + 2.5, square])
    assert (text.count("*at0"), text.count("t0 * t0"), len(leaves), shape) == (1, 1, 2, (5,))
    assert fusion.write([square + 3.5, square])[0] == text
    assert fusion.write([square + np.float64(3.5), square])[0] != text


def test_chain_may_be_long() -> None:
    x = lazy(np.ones(5, np.float32))
    for _ in range(5000):
        x = x + 1
    assert fusion.write([x])[0].count(" + ") == 5001  # one is of the index


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (lambda x: x + np.ones(4), r"shapes differ: \(3,\) and \(4,\)"),
        (lambda x: x // 2, "floor_divide"),
        (lambda x: np.add.reduce(x), "add"),
        (lambda x: np.concatenate([x, x]), "concatenate"),
        (lambda x: np.sin(x.astype(int) ** 2), "power computes in int64 here"),
        (lambda x: x.astype(np.float16).compute(), "no elements of float16 here; there are float32"),
        (lambda x: x.astype(">f4").compute(), "no elements of >f4"),
        (lambda x: bool(x > 0), "neither true nor false"),
    ],
)
def test_unsupported_operation_is_reported(wrong: Any, said: str) -> None:
    with pytest.raises((TypeError, ValueError), match=said):
        wrong(lazy(np.ones(3, np.float32)))


@pytest.mark.gpu
def test_arrays_of_two_devices_are_refused(gpu: Device) -> None:
    with pytest.raises(ValueError, match="arrays lie on cuda:0 and on cpu: copy"):
        (lazy(gpu.zeros(3, np.float32)) + np.ones(3)).compute()


def test_library_has_at_most_300_lines() -> None:
    assert len(Path(fusion.__file__).read_text().splitlines()) <= 300
