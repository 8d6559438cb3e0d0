"""Half, bfloat16 and fp8 by the toolkit's headers, on every device present."""

from __future__ import annotations

import numpy as np

from cujit.devices.device import Device
from real.running import Array, rng, run


def middling(*shape: int, seed: int = 1) -> Array:
    """Floats from 2^-6 to 2^6 of both signs: sums and products of eleven bits are exact in doubles."""
    r = rng(seed)
    size: Array = np.ldexp(r.uniform(0.5, 1, shape), r.integers(-5, 7, shape))
    return np.asarray(size * r.choice([-1.0, 1.0], shape))


def rounded(x: Array, bits: int) -> Array:
    """Round doubles to so many significant bits, to nearest even."""
    fraction, exponent = np.frexp(x)
    whole: Array = np.rint(np.ldexp(fraction, bits))
    return np.asarray(np.ldexp(whole, exponent - bits))


def bfloats(x: Array) -> Array:
    """Give the words of bfloat16 numbers."""
    return (rounded(x, 8).astype(np.float32).view(np.uint32) >> 16).astype(np.uint16)


def of_bfloats(words: Array) -> Array:
    return (words.astype(np.uint32) << 16).view(np.float32).astype(np.float64)


def test_half_operators(device: Device) -> None:
    a, b = middling(2, 256).astype(np.float16)
    b[::5] = a[::5]
    a[7] = np.nan
    x, y = a.astype(np.float64), b.astype(np.float64)
    out = [np.zeros_like(a) for _ in range(4)]
    got = run(device, "halves.cu", "half_operators", 2, 128, a, b, *out, np.zeros(256, np.int32))
    for mine, exact in zip(got[2:6], (x + y, x * y, x * y + x, x / y), strict=True):
        np.testing.assert_array_equal(mine, exact.astype(np.float16))
    np.testing.assert_array_equal(got[6], (x < y) + 2 * (x == y) + 4 * (x >= y) + 8 * np.isnan(x))


def test_half_pairs(device: Device) -> None:
    a, b = middling(2, 128, 2).astype(np.float16)
    out = [np.zeros_like(a) for _ in range(3)]
    _, _, sum_, most, flipped = run(device, "halves.cu", "half_pairs", 1, 128, a, b, *out)
    np.testing.assert_array_equal(sum_, (a + b) - np.float16(0.5))
    np.testing.assert_array_equal(most, np.maximum(a, np.abs(b)))
    np.testing.assert_array_equal(flipped, np.clip(a * b, 0, 1)[:, ::-1])


def test_half_functions(device: Device) -> None:
    a = np.abs(middling(128)).clip(0, 9).astype(np.float16)
    out = [np.zeros_like(a) for _ in range(3)]
    _, root, exponential, up, whole = run(
        device, "halves.cu", "half_functions", 1, 128, a, *out, np.zeros(128, np.int32)
    )
    np.testing.assert_array_equal(root, np.sqrt(a))
    np.testing.assert_allclose(exponential, np.exp(a.astype(np.float64)), rtol=2.0**-10)
    np.testing.assert_array_equal(up, np.ceil(a))
    np.testing.assert_array_equal(whole, np.rint(a))


def test_bfloat_operators(device: Device) -> None:
    a, b = bfloats(middling(2, 256))
    x, y = of_bfloats(a), of_bfloats(b)
    out = [np.zeros_like(a) for _ in range(4)]
    got = run(device, "halves.cu", "bfloat_operators", 2, 128, a, b, *out)
    for mine, exact in zip(got[2:], (x + y, x * y, x * y + y, np.maximum(x, y)), strict=True):
        np.testing.assert_array_equal(of_bfloats(mine), of_bfloats(bfloats(exact)))


def test_bfloat_conversions(device: Device) -> None:
    x = middling(128).astype(np.float32)
    x[:2] = 1 + 2.0**-8, 1 + 3 * 2.0**-8  # ties
    out = np.zeros(128, np.uint16), np.zeros((128, 2), np.uint16), np.zeros_like(x)
    _, nearest, pairs, back = run(device, "halves.cu", "bfloat_conversions", 1, 128, x, *out)
    np.testing.assert_array_equal(nearest, bfloats(x.astype(np.float64)))
    np.testing.assert_array_equal(pairs, np.stack([nearest, nearest ^ 0x8000], axis=1))
    np.testing.assert_array_equal(back, (x.view(np.uint32) & np.uint32(0xFFFF0000)).view(np.float32))


def test_halves_are_added_atomically(device: Device) -> None:
    data = rng().integers(-4, 5, (256, 2)).astype(np.float16)
    _, total = run(device, "halves.cu", "half_atomics", 2, 128, data, np.zeros((4, 2), np.float16))
    np.testing.assert_array_equal(total, data.reshape(64, 4, 2).sum(axis=0))


def small_floats(exponent_bits: int, mantissa_bits: int, most: float) -> Array:
    """List the finite values of an 8-bit format from 0 up, by their codes."""
    codes = np.arange(128)
    exponent, mantissa = codes >> mantissa_bits, codes & ((1 << mantissa_bits) - 1)
    bias = (1 << (exponent_bits - 1)) - 1
    significand = np.where(exponent, mantissa + (1 << mantissa_bits), mantissa)
    values: Array = np.ldexp(significand.astype(np.float64), np.maximum(exponent, 1) - bias - mantissa_bits)
    return np.asarray(values[values <= most])


def nearest_codes(x: Array, values: Array) -> Array:
    """Round to the nearest value, ties to the even code, beyond the largest to that one."""
    size = np.abs(x)
    high = np.searchsorted(values, size).clip(1, len(values) - 1)
    low = high - 1
    down, up = size - values[low], values[high] - size
    code = np.where((down < up) | ((down == up) & (low % 2 == 0)), low, high)
    return (code | np.where(np.signbit(x), 0x80, 0)).astype(np.uint8)


def test_fp8_conversions(device: Device) -> None:
    x = (middling(256) * np.ldexp(1.0, rng(2).integers(-12, 14, 256))).astype(np.float32)
    x[:6] = 0, -0.0, 1.0625, 1.1875, 1e6, -1e6
    out = [np.zeros(256, np.uint8) for _ in range(2)] + [np.zeros_like(x) for _ in range(2)]
    _, e4m3, e5m2, back, back5 = run(device, "halves.cu", "small_floats", 2, 128, x, *out)
    for codes, again, values in ((e4m3, back, small_floats(4, 3, 448)), (e5m2, back5, small_floats(5, 2, 57344))):
        np.testing.assert_array_equal(codes, nearest_codes(x.astype(np.float64), values))
        np.testing.assert_array_equal(again, np.where(codes & 0x80, -1, 1) * values[codes & 0x7F])
