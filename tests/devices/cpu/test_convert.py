"""``cvt`` against exact arithmetic and the manual's rules for what does not fit."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from devices.cpu.conftest import Elementwise

Array = npt.NDArray[Any]
Exactly = Callable[..., int]

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::RuntimeWarning")]

INTEGERS = ("s8", "s16", "s32", "s64", "u8", "u16", "u32", "u64")
MODES = ("rn", "rz", "rm", "rp")
WHOLE: dict[str, Callable[[Array], Array]] = {"rni": np.rint, "rzi": np.trunc, "rmi": np.floor, "rpi": np.ceil}
HALF_NAN = 0x7FFF


def dtype_of(name: str) -> str:
    """NumPy's name of a PTX type; 16-bit floats are kept as their bits."""
    kind = {"s": "i", "u": "u", "f": "f"}.get(name[0], "u")
    return "u2" if name in ("f16", "bf16") else f"{kind}{int(name[1:]) // 8}"


def bounds(name: str) -> tuple[int, int]:
    """The smallest and largest integer of a type."""
    bits = int(name[1:])
    return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if name[0] == "s" else (0, (1 << bits) - 1)


def integers(name: str) -> Array:
    """Integers around powers of two and of random lengths, as far as the type holds them."""
    random = np.random.default_rng(1)
    powers = [(1 << k) + d for k in range(65) for d in (-1, 0, 1)]
    ties = [(3 << k) + d for k in range(23, 62) for d in (-1, 0, 1)]
    some = [int(random.integers(0, 1 << 63)) >> int(random.integers(0, 63)) for _ in range(1500)]
    low, high = bounds(name)
    near = {v for m in (*powers, *ties, *some, 65504, 65519, 65520) for v in (m, -m) if low <= v <= high}
    return np.array(sorted(near | {low, high}), dtype_of(name))


def singles() -> Array:
    """Corners, numbers of any bits, halves and eighths of integers, and numbers about as large as integers are."""
    random = np.random.default_rng(2)
    corners = [0, 1, 0x7FFFFF, 0x800000, 0x3EFFFFFF, 0x3F000000, 0x3F000001, 0x3F7FFFFF, 0x3F800000, 0x7F7FFFFF]
    corners += [0x477FE000, 0x477FEFFF, 0x477FF000, 0x387FFFFF, 0x33000000, 0x33000001, 0x7F7F7FFF, 0x7F7F8000]
    corners += [0x4EFFFFFF, 0x4F000000, 0x4F7FFFFF, 0x4F800000, 0x5EFFFFFF, 0x5F000000, 0x5F7FFFFF, 0x5F800000]
    corners += [0x7F800000, 0x7FC00000, 0x7F800001, 0x42FE0000, 0x42FF0000, 0x43000000, 0x437F8000, 0x3F808000]
    bits = np.array(corners, np.uint32)
    any_bits = random.integers(0, 1 << 32, 3000, np.uint32)
    scaled = (random.standard_normal(3000) * np.exp2(random.integers(-20, 66, 3000))).astype(np.float32)
    eighths = (random.integers(-4000, 4000, 3000) / 8).astype(np.float32)
    return np.concatenate(
        [bits.view(np.float32), (bits | 0x80000000).view(np.float32), any_bits.view(np.float32), scaled, eighths]
    )


def doubles() -> Array:
    """Those of f32 and their neighbours, halfway cases of f32 and f16 and their neighbours, and any bits."""
    random = np.random.default_rng(3)
    base = singles().astype(np.float64).view(np.uint64)
    steps = [0, 1, -1, 1 << 28, (1 << 28) + 1, (1 << 28) - 1, 1 << 41, (1 << 41) - 1]
    near = base[::5, None] + np.array(steps, np.int64).astype(np.uint64)
    any_bits = random.integers(0, 1 << 64, 2000, np.uint64)
    edges = np.array([2**31 - 1, 2**31 - 0.5, 2**32 - 0.5, 2.0**63, 2.0**64, 2.0**63 - 1024, 1e300])
    return np.concatenate([base, near.ravel(), any_bits, edges.view(np.uint64), (-edges).view(np.uint64)]).view(
        np.float64
    )


def half_values() -> Array:
    """Every f16, as bits."""
    return np.arange(1 << 16, dtype=np.uint16)


def value_of(name: str, x: Array) -> Array:
    """Read elements of a PTX float type as f64."""
    if name == "f16":
        return x.view(np.float16).astype(np.float64)
    if name == "bf16":
        return (x.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return x.astype(np.float64)


def floats_of(name: str) -> Array:
    """Samples of a PTX float type, to be handed to a kernel."""
    return {"f32": singles, "f64": doubles, "f16": half_values, "bf16": half_values}[name]()


def rounded_bf16(x: Fraction, mode: str, exactly: Exactly) -> int:
    """bf16 is the upper half of an f32: round in units that are 2^16 of those of f32."""
    cut = exactly(x, "rz", 32)
    low, high = cut & ~0xFFFF, (cut & ~0xFFFF) + 0x10000
    exact = abs(x)

    def magnitude(bits: int) -> Fraction:
        size = bits & 0x7FFFFFFF
        # What follows the largest number counts as 2^128.
        return Fraction(2) ** 128 if size >= 0x7F800000 else Fraction(float(np.uint32(size).view(np.float32)))

    below, above = magnitude(low), magnitude(high)
    outward = mode == ("rm" if x < 0 else "rp")
    middle = (below + above) / 2
    nearest_up = mode == "rn" and (exact > middle or (exact == middle and low >> 16 & 1 == 1))
    return (high if exact != below and (outward or nearest_up) else low) >> 16


def exact_bits(to: str, x: float | int, mode: str, exactly: Exactly) -> int:
    """The bits of a finite number rounded to a PTX float type."""
    minus = isinstance(x, float) and np.signbit(x)
    if to == "bf16":
        return rounded_bf16(Fraction(x), mode, exactly) if x else 0x8000 * bool(minus)
    return exactly(Fraction(x), mode, int(to[1:]), negative_zero=bool(minus))


def as_bits(x: Array) -> Array:
    """Read elements as unsigned integers."""
    return x.view(f"u{x.dtype.itemsize}")


# -- integers ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_wrap_and_saturate_where_specified(name: str, elementwise: Elementwise) -> None:
    x = integers(name)
    wraps = elementwise.several({to: (f"cvt.{to}.{name}", dtype_of(to)) for to in INTEGERS}, x)
    for to, got in wraps.items():
        np.testing.assert_array_equal(got, x.astype(dtype_of(to)), err_msg=to)
    narrower = [to for to in INTEGERS if bounds(name)[0] < bounds(to)[0] or bounds(name)[1] > bounds(to)[1]]
    saturates = elementwise.several({to: (f"cvt.sat.{to}.{name}", dtype_of(to)) for to in narrower}, x)
    for to, got in saturates.items():
        low, high = bounds(to)
        want = np.array([min(max(int(v), low), high) for v in x], dtype_of(to))
        np.testing.assert_array_equal(got, want, err_msg=to)


@pytest.mark.parametrize("to", ["s8", "u8", "s16", "u16"])
def test_wider_register_is_filled_by_the_result_types_sign(to: str, elementwise: Elementwise) -> None:
    x = integers("s32")
    got = elementwise(f"cvt.{to}.s32 t, a; mov.b32 d, t;", np.uint32, x)
    np.testing.assert_array_equal(got, x.astype(dtype_of(to)).astype(np.int64).astype(np.uint32))


@pytest.mark.parametrize("name", ["s8", "u8", "s16", "u16"])
def test_low_bits_of_a_wider_register_are_used(name: str, elementwise: Elementwise) -> None:
    x = integers("s32")
    got = elementwise(f"cvt.s64.{name}", np.int64, x)
    np.testing.assert_array_equal(got, x.astype(dtype_of(name)).astype(np.int64))


def test_thread_index_is_widened_and_narrowed(elementwise: Elementwise) -> None:
    x = np.arange(300, dtype=np.uint32)
    body = (
        ".reg .b64 w; .reg .b16 h; mov.u32 t, %tid.x; sub.s32 t, t, 64; cvt.s64.s32 w, t; cvt.u32.u64 u, w;"
        "add.s32 u, u, t; cvt.s8.s32 h, u; cvt.s32.s8 d, h;"
    )
    want = ((x % 128).astype(np.int64) - 64) * 2
    np.testing.assert_array_equal(elementwise(body, np.int32, x), want.astype(np.int8))


@pytest.mark.parametrize("to", ["f32", "f64", "f16", "bf16"])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_become_floats_exactly_rounded(name: str, to: str, elementwise: Elementwise, exactly: Exactly) -> None:
    if to == "bf16" and name in ("s8", "u8"):
        pytest.skip("no such instruction")
    x = integers(name)
    modes = elementwise.several({mode: (f"cvt.{mode}.{to}.{name}", dtype_of(to)) for mode in MODES}, x)
    for mode, got in modes.items():
        want = [exact_bits(to, int(v), mode, exactly) for v in x]
        np.testing.assert_array_equal(as_bits(got), np.array(want, as_bits(got).dtype), err_msg=mode)


def test_saturated_integers_become_0_or_1(elementwise: Elementwise) -> None:
    x = integers("s32")
    got = elementwise("cvt.rz.sat.f32.s32", np.float32, x)
    np.testing.assert_array_equal(got, x > 0)


@pytest.mark.parametrize(("to", "extra"), [("u16", 0), ("s16", 0), ("u8", 1), ("s8", 1)])
def test_pack_clamps_two_integers_side_by_side(to: str, extra: int, elementwise: Elementwise) -> None:
    x = integers("s32")
    y, z = x[::-1].copy(), np.arange(len(x), dtype=np.uint32) * 77
    low, high = bounds(to)
    bits = int(to[1:])
    x_part, y_part = (np.clip(v.astype(np.int64), low, high) & ((1 << bits) - 1) for v in (x, y))
    want = x_part << bits | y_part | (z.astype(np.int64) << 16) * extra
    third = ".b32" if extra else ""
    body = f"cvt.pack.sat.{to}.s32{third} d, a, b{', c' if extra else ''};"
    got = elementwise(body, np.uint32, x, y, *([z] if extra else []))
    np.testing.assert_array_equal(got, want.astype(np.uint32))


# -- floats to integers -----------------------------------------------------------------------------------


def wholes_of(x: Array, to: str, name: str) -> Array:
    """Clamp what has been rounded; NaN is 0, or the highest bit alone if a 64-bit type is there."""
    low, high = bounds(to)
    wide = name == "f64" or to[1:] == "64"
    top = 0 if not wide else low if to[0] == "s" else 1 << (int(to[1:]) - 1)
    below, above = x <= float(low), x >= float(high)  # the highest of 64 bits is no f64; the next one above it is
    inside = ~(below | above | np.isnan(x))
    want = np.full(len(x), top, dtype_of(to))
    want[below], want[above] = low, high
    want[inside] = x[inside].astype(want.dtype)
    return want


@pytest.mark.parametrize("name", ["f32", "f64", "f16", "bf16"])
def test_floats_become_integers_rounded_and_clamped(name: str, elementwise: Elementwise) -> None:
    x = floats_of(name)
    forms = {(mode, to) for mode in WHOLE for to in INTEGERS if name != "bf16" or to not in ("s8", "u8")}
    found = elementwise.several(
        {(mode, to): (f"cvt.{mode}.{to}.{name}", dtype_of(to)) for mode, to in sorted(forms)}, x
    )
    for (mode, to), got in found.items():
        np.testing.assert_array_equal(got, wholes_of(WHOLE[mode](value_of(name, x)), to, name), err_msg=f"{mode} {to}")


def test_ftz_flushes_before_rounding_to_an_integer(elementwise: Elementwise) -> None:
    x = np.array([1, 0x80000001, 0x007FFFFF, 0x807FFFFF], np.uint32).view(np.float32)
    assert elementwise("cvt.rpi.s32.f32", np.int32, x).tolist() == [1, 0, 1, 0]
    assert elementwise("cvt.rpi.ftz.s32.f32", np.int32, x).tolist() == [0, 0, 0, 0]
    assert elementwise("cvt.rmi.ftz.s32.f32", np.int32, x).tolist() == [0, 0, 0, 0]


def test_negative_result_fills_a_wider_register(elementwise: Elementwise) -> None:
    x = np.array([-1000, -3.5, 3.5, 1000], np.float32)
    got = elementwise("cvt.rzi.s8.f32 t, a; mov.b32 d, t;", np.int32, x)
    assert got.tolist() == [-128, -3, 3, 127]


# -- floats to floats -------------------------------------------------------------------------------------

NARROWING = [("f32", "f64"), ("f16", "f32"), ("f16", "f64"), ("bf16", "f64"), ("bf16", "f16"), ("f16", "bf16")]


@pytest.mark.parametrize(("to", "name"), NARROWING)
def test_narrowing_is_exactly_rounded_in_every_mode(
    to: str, name: str, elementwise: Elementwise, exactly: Exactly
) -> None:
    x = floats_of(name)[:: 3 if name == "f64" else 1]
    x = x[:: 7 if name in ("f16", "bf16") else 1]
    values = value_of(name, x)
    finite = np.isfinite(values)
    modes = elementwise.several({mode: (f"cvt.{mode}.{to}.{name}", dtype_of(to)) for mode in MODES}, x)
    for mode, got in modes.items():
        want = [exact_bits(to, v, mode, exactly) for v in values[finite].tolist()]
        np.testing.assert_array_equal(as_bits(got)[finite], np.array(want, as_bits(got).dtype), err_msg=mode)
        np.testing.assert_array_equal(value_of(to, got)[~finite], values[~finite])


@pytest.mark.parametrize("mode", ["rn", "rz"])
def test_f32_becomes_bf16(mode: str, elementwise: Elementwise, exactly: Exactly) -> None:
    x = singles()
    got = elementwise(f"cvt.{mode}.bf16.f32", np.uint16, x)
    finite, nan = np.isfinite(x), np.isnan(x)
    want = [exact_bits("bf16", v, mode, exactly) for v in x[finite].tolist()]
    np.testing.assert_array_equal(got[finite], np.array(want, np.uint16))
    np.testing.assert_array_equal(got[np.isinf(x)], (x.view(np.uint32) >> 16)[np.isinf(x)])
    assert set(got[nan].tolist()) == {HALF_NAN}


def test_nans_of_f32_and_f64_convert_as_on_hardware(elementwise: Elementwise) -> None:
    single = np.array([0x7F800001, 0xFFC12345], np.uint32).view(np.float32)
    assert elementwise("cvt.rn.f16.f32", np.uint16, single).tolist() == [HALF_NAN, HALF_NAN]
    double = np.array([0x7FF8000000000000, 0xFFF8123456789ABC], np.uint64).view(np.float64)
    assert elementwise("cvt.rn.f16.f64", np.uint16, double).tolist() == [0x7E00, 0xFE04]
    assert elementwise("cvt.rz.bf16.f64", np.uint16, double).tolist() == [0x7FC0, 0xFFC0]
    assert elementwise("cvt.rz.f32.f64", np.float32, double).view(np.uint32).tolist() == [0x7FC00000, 0xFFC091A2]


@pytest.mark.parametrize(
    ("to", "name"), [("f32", "f16"), ("f64", "f16"), ("f32", "bf16"), ("f64", "bf16"), ("f64", "f32")]
)
def test_widening_is_exact(to: str, name: str, elementwise: Elementwise) -> None:
    x = floats_of(name)
    want = value_of(name, x)
    got = elementwise(f"cvt.{to}.{name}", dtype_of(to), x)
    np.testing.assert_array_equal(got, want.astype(dtype_of(to)))
    np.testing.assert_array_equal(np.signbit(got)[want == 0], np.signbit(want)[want == 0])


@pytest.mark.parametrize(("to", "name"), [("bf16", "f16"), ("f16", "bf16"), ("bf16", "bf16")])
def test_half_conversion_rounds_to_nearest_by_default(
    to: str, name: str, elementwise: Elementwise, exactly: Exactly
) -> None:
    x = half_values()[::5]
    values = value_of(name, x)
    finite = np.isfinite(values)
    got = elementwise(f"cvt.{to}.{name}", np.uint16, x)
    want = [exact_bits(to, v, "rn", exactly) for v in values[finite].tolist()]
    np.testing.assert_array_equal(got[finite], np.array(want, np.uint16))
    np.testing.assert_array_equal(value_of(to, got)[~finite], values[~finite])


@pytest.mark.parametrize("to", ["f32", "f64"])
def test_rounding_keeps_exact_values(to: str, elementwise: Elementwise) -> None:
    x = half_values()[::5]
    want = value_of("bf16", x)
    modes = elementwise.several({mode: (f"cvt.{mode}.{to}.bf16", dtype_of(to)) for mode in MODES}, x)
    for mode, got in modes.items():
        np.testing.assert_array_equal(got, want.astype(dtype_of(to)), err_msg=mode)


def flushed(x: Array) -> Array:
    """Make subnormal f32 numbers zero of the same sign."""
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.zeros_like(x), x), x)


def test_ftz_flushes_f32_sources_and_results(elementwise: Elementwise) -> None:
    x, wide = singles(), doubles()
    x = x[~np.isnan(x)]
    got = elementwise("cvt.ftz.f64.f32", np.float64, x)
    np.testing.assert_array_equal(as_bits(got), as_bits(flushed(x).astype(np.float64)))
    got = elementwise("cvt.ftz.f32.f32", np.float32, x)
    np.testing.assert_array_equal(as_bits(got), as_bits(flushed(x)))
    plain = elementwise("cvt.rz.f32.f64", np.float32, wide)
    got = elementwise("cvt.rz.ftz.f32.f64", np.float32, wide)
    np.testing.assert_array_equal(got, flushed(plain))


@pytest.mark.parametrize("name", ["f32", "f64", "f16", "bf16"])
def test_float_is_rounded_to_an_integral_float(name: str, elementwise: Elementwise) -> None:
    x = floats_of(name)
    values = value_of(name, x)
    modes = elementwise.several({mode: (f"cvt.{mode}.{name}.{name}", dtype_of(name)) for mode in WHOLE}, x)
    for mode, left in modes.items():
        want, got = WHOLE[mode](values), value_of(name, left)
        np.testing.assert_array_equal(got, want, err_msg=mode)
        np.testing.assert_array_equal(np.signbit(got)[want == 0], np.signbit(values)[want == 0], err_msg=mode)


@pytest.mark.parametrize("form", ["sat.f32.f32", "rz.sat.f32.f64", "sat.f64.f64", "sat.f32.f16", "rm.sat.f16.f32"])
def test_sat_clamps_floats_to_0_and_1_and_nan_to_0(form: str, elementwise: Elementwise) -> None:
    to, name = form.split(".")[-2:]
    x = floats_of(name)
    plain = form.replace(".sat", "").replace("sat.", "")
    if plain in ("f32.f32", "f64.f64"):
        unlimited = value_of(name, x)
    else:
        unlimited = value_of(to, elementwise(f"cvt.{plain}", dtype_of(to), x))
    want = np.where(unlimited > 0, np.minimum(unlimited, 1), 0)
    got = value_of(to, elementwise(f"cvt.{form}", dtype_of(to), x))
    np.testing.assert_array_equal(got, want)
    assert not np.signbit(got).any()


@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_relu_and_satfinite_limit_halves(to: str, elementwise: Elementwise) -> None:
    x = singles()
    plain = elementwise(f"cvt.rn.{to}.f32", np.uint16, x)
    positive = np.isnan(x) | (x > 0)
    got = elementwise(f"cvt.rn.relu.{to}.f32", np.uint16, x)
    np.testing.assert_array_equal(got, np.where(positive, plain, 0))
    largest = 0x7BFF if to == "f16" else 0x7F7F
    infinite = np.isinf(value_of(to, plain))
    got = elementwise(f"cvt.rn.satfinite.{to}.f32", np.uint16, x)
    np.testing.assert_array_equal(got, np.where(infinite, (plain & 0x8000) | largest, plain))


@pytest.mark.parametrize("mode", ["rn", "rz", "rn.relu"])
@pytest.mark.parametrize("to", ["f16", "bf16"])
def test_pair_has_the_first_number_in_the_upper_half(to: str, mode: str, elementwise: Elementwise) -> None:
    x = singles()
    y = x[::-1].copy()
    high, low = (elementwise(f"cvt.{mode}.{to}.f32", np.uint16, v).astype(np.uint32) for v in (x, y))
    got = elementwise(f"cvt.{mode}.{to}x2.f32", np.uint32, x, y)
    np.testing.assert_array_equal(got, high << 16 | low)


def test_tf32_keeps_ten_fraction_bits_with_ties_away_from_zero(elementwise: Elementwise) -> None:
    x = np.array([0x3F800FFF, 0x3F801000, 0xBF801000, 0x3F803000, 0x7F7FFFFF, 0x7F800000], np.uint32).view(np.float32)
    want = [0x3F800000, 0x3F802000, 0xBF802000, 0x3F804000, 0x7F800000, 0x7F800000]
    assert elementwise("cvt.rna.tf32.f32", np.uint32, x).tolist() == want
    limited = elementwise("cvt.rna.satfinite.tf32.f32", np.uint32, x)
    assert limited.tolist() == [*want[:4], 0x7F7FE000, 0x7F7FE000]
