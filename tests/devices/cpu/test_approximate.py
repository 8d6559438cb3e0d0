"""The approximate instructions: errors against f64 and the manual's bounds and tables of special values."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from devices.cpu.conftest import Elementwise

Array = npt.NDArray[Any]

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

INF, NAN = np.inf, np.nan
TINY = float(np.finfo(np.float32).tiny)
SUBNORMAL = 1e-40


def all_exponents(count: int = 400, *, negative: bool = False) -> Array:
    """Positive f32 of every exponent, the subnormal ones too: so many of each, the first and last among them."""
    random = np.random.default_rng(1)
    fractions = random.integers(0, 1 << 23, (255, count), np.uint32)
    fractions[:, 0], fractions[:, 1] = 0, (1 << 23) - 1
    bits = (np.arange(255, dtype=np.uint32)[:, None] << 23) + fractions
    x: Array = bits.ravel()[1:].view(np.float32)
    return np.negative(x) if negative else x


def ulps(got: Array, want: Array) -> float:
    """The worst distance in units in the last place of an f32 of the size of the exact result."""
    size = np.maximum(np.abs(want), TINY)
    unit = np.exp2(np.floor(np.log2(size)) - 23)
    limit = float(np.finfo(np.float32).max)
    inside = np.abs(want) <= limit
    return float(np.max(np.abs(got.astype(np.float64) - want)[inside] / unit[inside]))


def relative(got: Array, want: Array) -> float:
    """The worst relative error."""
    return float(np.max(np.abs(got.astype(np.float64) - want) / np.abs(want)))


@pytest.mark.parametrize("opcode", ["rcp", "sqrt", "rsqrt"])
def test_reciprocals_and_roots_are_within_their_bounds(opcode: str, elementwise: Elementwise) -> None:
    x = all_exponents()
    got = elementwise(f"{opcode}.approx.f32", np.float32, x)
    wide = x.astype(np.float64)
    if opcode == "rcp":
        assert ulps(got, 1 / wide) <= 1
    else:
        want = np.sqrt(wide) if opcode == "sqrt" else 1 / np.sqrt(wide)
        assert relative(got, want) <= (2.0**-23 if opcode == "sqrt" else 2.0**-22.9)


def test_quotients_are_within_two_ulps(elementwise: Elementwise) -> None:
    random = np.random.default_rng(2)
    y = all_exponents(200)
    x = random.permutation(y)
    want = x.astype(np.float64) / y
    inside = (np.abs(want) >= TINY) & (np.abs(want) <= 2.0**127)
    got = elementwise("div.full.f32", np.float32, x, y)
    assert ulps(got[inside], want[inside]) <= 2
    inside &= (y >= 2.0**-126) & (y <= 2.0**126)
    got = elementwise("div.approx.f32", np.float32, x, y)
    assert ulps(got[inside], want[inside]) <= 2


def test_approximate_quotient_by_a_huge_number_is_zero_or_nan(elementwise: Elementwise) -> None:
    huge = np.float32(1.5 * 2.0**126)
    x = np.array([1e38, -1e38, 1e38, INF, 0, NAN], np.float32)
    y = np.array([huge, huge, -huge, huge, -huge, huge], np.float32)
    got = elementwise("div.approx.f32", np.float32, x, y)
    np.testing.assert_array_equal(got, np.array([0, -0.0, -0.0, NAN, -0.0, NAN], np.float32))
    assert np.signbit(got).tolist()[:3] == [False, True, True]
    assert elementwise("div.approx.f32", np.float32, x[:1], np.full(1, 2.0**126, np.float32))[0] > 1


def test_ex2_is_within_two_ulps_over_the_whole_range(elementwise: Elementwise) -> None:
    small = all_exponents(40)
    x = np.concatenate([np.linspace(-152, 128.5, 200_000).astype(np.float32), small, -small])
    got = elementwise("ex2.approx.f32", np.float32, x)
    # The manual counts from the correctly rounded result.
    want = np.exp2(x.astype(np.longdouble)).astype(np.float32).astype(np.float64)
    assert ulps(got, want) <= 2
    assert (got[x >= 128] == INF).all()


def test_lg2_is_within_2_to_the_minus_22(elementwise: Elementwise) -> None:
    near_one = np.linspace(0.5, 2, 100_000).astype(np.float32)
    x = np.concatenate([all_exponents(), near_one, near_one[:20] * 0 + 1])
    got = elementwise("lg2.approx.f32", np.float32, x)
    want = np.log2(x.astype(np.longdouble)).astype(np.float64)
    inside = (x > 0.5) & (x < 2)
    assert np.max(np.abs(got - want)[inside]) <= 2.0**-22
    assert relative(got[~inside], want[~inside]) <= 2.0**-22


@pytest.mark.parametrize("opcode", ["sin", "cos"])
def test_sin_and_cos_are_within_their_absolute_bounds(opcode: str, elementwise: Elementwise) -> None:
    function = np.sin if opcode == "sin" else np.cos
    # The manual says 2^-20.5, to one decimal: an H200 reaches 2^-20.45.
    for reach, bound in ((2 * np.pi, 2.0**-20.4), (100 * np.pi, 2.0**-14.7)):
        x = np.concatenate([np.linspace(-reach, reach, 200_000), all_exponents(40, negative=True)]).astype(np.float32)
        x = x[np.abs(x) <= np.float32(reach)]
        got = elementwise(f"{opcode}.approx.f32", np.float32, x)
        assert np.max(np.abs(got - function(x.astype(np.float64)))) <= bound


@pytest.mark.parametrize("opcode", ["sin", "cos"])
def test_sin_and_cos_of_any_number_stay_between_minus_1_and_1(opcode: str, elementwise: Elementwise) -> None:
    x = np.concatenate([all_exponents(20), all_exponents(20, negative=True)])
    assert (np.abs(elementwise(f"{opcode}.approx.f32", np.float32, x)) <= 1).all()


def test_tanh_is_within_2_to_the_minus_11_and_passes_subnormals(elementwise: Elementwise) -> None:
    x = np.concatenate([all_exponents(), all_exponents(negative=True), np.linspace(-12, 12, 50_000)]).astype(np.float32)
    x = x[x != 0]
    got = elementwise("tanh.approx.f32", np.float32, x)
    normal = np.abs(x) >= TINY
    assert relative(got[normal], np.tanh(x.astype(np.float64))[normal]) <= 2.0**-11
    np.testing.assert_array_equal(got[~normal], x[~normal])


INPUTS = [-INF, -1.5, -0.0, 0.0, INF, NAN, -SUBNORMAL, SUBNORMAL]
# Source: the tables of PTX ISA 9.1; None where they say nothing.
SPECIAL: dict[str, list[float | None]] = {
    "rcp": [-0.0, None, -INF, INF, 0.0, NAN, None, None],
    "sqrt": [NAN, NAN, -0.0, 0.0, INF, NAN, NAN, None],
    "rsqrt": [NAN, NAN, -INF, INF, 0.0, NAN, NAN, None],
    "sin": [NAN, None, -0.0, 0.0, NAN, NAN, None, None],
    "cos": [NAN, None, 1.0, 1.0, NAN, NAN, 1.0, 1.0],
    "lg2": [NAN, NAN, -INF, -INF, INF, NAN, NAN, None],
    "ex2": [0.0, None, 1.0, 1.0, INF, NAN, 1.0, 1.0],
    "tanh": [-1.0, None, -0.0, 0.0, 1.0, NAN, None, None],
}
FLUSHED: dict[str, tuple[float, float]] = {
    "rcp": (-INF, INF),
    "sqrt": (-0.0, 0.0),
    "rsqrt": (-INF, INF),
    "sin": (-0.0, 0.0),
    "cos": (1.0, 1.0),
    "lg2": (-INF, -INF),
    "ex2": (1.0, 1.0),
}


def check_special(got: Array, want: list[float | None]) -> None:
    """Compare values and signs where the table has one."""
    for g, w in zip(got.tolist(), want, strict=True):
        if w is not None:
            assert (np.isnan(g) and np.isnan(w)) or (g == w and np.signbit(g) == np.signbit(w)), (got, want)


@pytest.mark.parametrize("opcode", SPECIAL)
def test_special_values_match_the_manual(opcode: str, elementwise: Elementwise) -> None:
    x = np.array(INPUTS, np.float32)
    check_special(elementwise(f"{opcode}.approx.f32", np.float32, x), SPECIAL[opcode])


@pytest.mark.parametrize("opcode", FLUSHED)
def test_ftz_treats_subnormal_numbers_as_zero(opcode: str, elementwise: Elementwise) -> None:
    x = np.array(INPUTS, np.float32)
    want = [*SPECIAL[opcode][:6], *FLUSHED[opcode]]
    check_special(elementwise(f"{opcode}.approx.ftz.f32", np.float32, x), want)


@pytest.mark.parametrize("opcode", ["rcp", "ex2"])
def test_ftz_flushes_results(opcode: str, elementwise: Elementwise) -> None:
    x = np.array([2.0**127 * 1.5, -(2.0**127) * 1.5] if opcode == "rcp" else [-130, -127.5], np.float32)
    assert (elementwise(f"{opcode}.approx.f32", np.float32, x) != 0).all()
    got = elementwise(f"{opcode}.approx.ftz.f32", np.float32, x)
    assert (got == 0).all()
    assert np.signbit(got).tolist() == ([False, True] if opcode == "rcp" else [False, False])


@pytest.mark.parametrize("opcode", ["rcp", "rsqrt"])
def test_gross_f64_approximations_use_only_the_upper_halves(opcode: str, elementwise: Elementwise) -> None:
    random = np.random.default_rng(3)
    x = np.exp2(random.uniform(-1020, 1020, 20_000))
    got = elementwise(f"{opcode}.approx.ftz.f64", np.float64, x)
    assert (got.view(np.uint64) & 0xFFFFFFFF == 0).all()
    upper = (x.view(np.uint64) & 0xFFFFFFFF00000000).view(np.float64)
    want = 1 / upper if opcode == "rcp" else 1 / np.sqrt(upper)
    # 20 bits of fraction, the last of them perhaps off.
    assert np.max(np.abs(got - want) / want) <= 2.0**-19
    special = np.array([INF, -0.0, 0.0, -1e-310, 1e-310, NAN, -INF])
    tail = -0.0 if opcode == "rcp" else NAN
    got = elementwise(f"{opcode}.approx.ftz.f64", np.float64, special)
    check_special(got, [0.0, -INF, INF, -INF, INF, NAN, tail])
    assert got.view(np.uint64)[5] == 0x7FFFFFFF00000000


def test_f64_reciprocal_roots_are_nearly_exact(elementwise: Elementwise) -> None:
    x = np.exp2(np.random.default_rng(4).uniform(-1020, 1020, 20_000))
    got = elementwise("rsqrt.approx.f64", np.float64, x)
    want = 1 / np.sqrt(x.astype(np.longdouble))
    assert float(np.max(np.abs(got - want) / want)) <= 2.0**-51
    special = np.array([-INF, -1.5, -0.0, 0.0, INF, NAN])
    check_special(elementwise("rsqrt.approx.f64", np.float64, special), [NAN, NAN, -INF, INF, 0.0, NAN])
