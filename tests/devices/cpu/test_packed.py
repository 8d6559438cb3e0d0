"""Conversions of pairs and fours, and of formats of 8, 6 and 4 bits, against exact arithmetic; integers in pairs."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.devices.shapes import Dim3, LaunchShape
from devices.cpu.conftest import Elementwise
from devices.cpu.halves_exactly import BF16, F16, FORMATS, Format
from instructions.scene import Scene, entry, run_scene

Array = npt.NDArray[Any]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

LARGEST = {"e4m3": 0x7E, "e5m2": 0x7B, "e2m3": 0x1F, "e3m2": 0x1F, "e2m1": 0x7, "f16": 0x7BFF, "bf16": 0x7F7F}
FROM_NAN = {"e4m3": 0x7F, "e5m2": 0x7F, "e2m3": 0x1F, "e3m2": 0x1F, "e2m1": 0x7, "f16": 0x7FFF, "bf16": 0x7FFF}
SMALL = ("e4m3", "e5m2", "e2m3", "e3m2", "e2m1")
EIGHT = SMALL[:2]


def blackwell(cpu: Device, body: str, result: npt.DTypeLike, *sources: Array) -> Array:
    """Do statements for every element on the CPU device: ``d`` from 32-bit ``a``, ``b``, ``c``, ``e``, ``f``."""
    names = "abcef"[: len(sources)]
    lines = [".version 9.2\n.target sm_100a\n.address_size 64\n.visible .entry k(.param .u64 n, .param .u64 pd"]
    lines += [f", .param .u64 p{x}" for x in names]
    lines.append(") {.reg .pred out; .reg .b8 q, r; .reg .b16 h, s; .reg .b32 t, u, d; .reg .b64 i, count, at;")
    lines.append("mov.u32 t, %ctaid.x; mov.u32 u, %tid.x; mad.lo.u32 t, t, 128, u; cvt.u64.u32 i, t;")
    lines.append("ld.param.u64 count, [n]; setp.ge.u64 out, i, count; @out bra DONE;")
    for x in names:
        lines.append(f".reg .b32 {x}; ld.param.u64 at, [p{x}]; mad.lo.u64 at, i, 4, at; ld.global.b32 {x}, [at];")
    lines.append(f"{body} ld.param.u64 at, [pd]; mad.lo.u64 at, i, 4, at; st.global.b32 [at], d; DONE: ret; }}")
    module = cpu.load(Artifact.of("\n".join(lines)))
    count = len(sources[0])
    inputs = [cpu.array(s.view(np.uint32)) for s in sources]
    out = cpu.zeros(count, np.uint32)
    parameters = struct.pack(f"<{2 + len(inputs)}Q", count, out.address, *(x.address for x in inputs))
    module.kernels["k"].launch(LaunchShape(Dim3(-(-count // 128)), Dim3(128)), parameters)
    return np.asarray(out.numpy()).astype(result)


def singles(f: Format) -> Array:
    """Every number of a format, those in the middle of two and their neighbours in f32; overflow, NaN, any bits."""
    random = np.random.default_rng(5)
    codes = range(f.sign if f.fraction_bits < 4 else 0)
    numbers = [float(f.value(c)) for c in codes] + [65504.0, 65520.0, 1e30, math.inf, math.nan]
    exact = np.array(numbers, np.float32)
    middle = (exact[1:] + exact[:-1]) / 2
    bits = np.concatenate([exact, middle]).astype(np.float32).view(np.uint32)
    any_bits = random.integers(0, 1 << 32, 300, np.uint32)
    tame = (random.standard_normal(700) * np.exp2(random.integers(-18, 12, 700))).astype(np.float32).view(np.uint32)
    all_bits = np.concatenate([bits, np.maximum(bits, 1) - 1, bits + 1, any_bits, tame])
    return np.concatenate([all_bits, all_bits ^ 0x80000000]).view(np.float32)


def code(name: str, x: float, *, relu: bool = False) -> int:
    """The code of a number with ``.satfinite``."""
    f = FORMATS[name]
    if math.isnan(x):
        return FROM_NAN[name]
    if relu and math.copysign(1, x) < 0:
        return 0
    sign = f.sign if math.copysign(1, x) < 0 else 0
    if math.isinf(x):
        return sign | LARGEST[name]
    return sign | min(f.nearest(abs(Fraction(x))), LARGEST[name])


def codes(name: str, x: Array, *, relu: bool = False) -> Array:
    """The codes of numbers, each as a field of its own."""
    return np.array([code(name, v, relu=relu) for v in x.tolist()], np.uint32)


def field(name: str) -> int:
    """Bits from one member to the next."""
    return 4 if name == "e2m1" else 8


@pytest.mark.gpu
@pytest.mark.parametrize("name", EIGHT)
@pytest.mark.parametrize("relu", ["", ".relu"])
def test_8_bit_floats_are_rounded_once_and_saturate(name: str, relu: str, elementwise: Elementwise) -> None:
    x = singles(FORMATS[name])
    y = x[::-1].copy()
    want = codes(name, x, relu=bool(relu))
    got = elementwise(f"cvt.rn.satfinite{relu}.{name}x2.f32", np.uint16, x, y)
    np.testing.assert_array_equal(got, want << 8 | want[::-1])


@pytest.mark.gpu
@pytest.mark.parametrize("name", EIGHT)
def test_8_bit_floats_from_pairs_of_halves(name: str, elementwise: Elementwise) -> None:
    x = np.arange(0, 1 << 16, 7, dtype=np.uint16)
    want = codes(name, x.view(np.float16))
    pairs = x.astype(np.uint32) << 16 | x[::-1]
    got = elementwise(f"cvt.rn.satfinite.{name}x2.f16x2", np.uint16, pairs)
    np.testing.assert_array_equal(got, want << 8 | want[::-1])


def half_of(name: str, bits: int, *, relu: bool = False) -> int:
    """The f16 of a code."""
    f = FORMATS[name]
    size = bits & (f.sign - 1)
    if (name == "e4m3" and size == 0x7F) or (name == "e5m2" and size > 0x7C):
        return 0x7FFF
    if bits & f.sign and relu:
        return 0
    sign = 0x8000 if bits & f.sign else 0
    return sign | (0x7C00 if name == "e5m2" and size == 0x7C else F16.nearest(f.value(size)))


@pytest.mark.gpu
@pytest.mark.parametrize("name", EIGHT)
@pytest.mark.parametrize("relu", [False, True])
def test_8_bit_floats_become_halves(name: str, relu: bool, elementwise: Elementwise) -> None:
    x = np.arange(1 << 16, dtype=np.uint16)
    table = np.array([half_of(name, c, relu=relu) for c in range(256)], np.uint32)
    got = elementwise(f"cvt.rn{'.relu' if relu else ''}.f16x2.{name}x2", np.uint32, x)
    np.testing.assert_array_equal(got, table[x >> 8] << 16 | table[x & 0xFF])


# -- what only architectures after sm_100 have: on the CPU device alone -----------------------------------


@pytest.mark.parametrize("name", SMALL)
def test_small_floats_are_rounded_once_and_saturate(name: str, cpu: Device) -> None:
    x = singles(FORMATS[name])
    y = x[::-1].copy()
    register, widen = ("q", "cvt.u32.u8 d, q;") if name == "e2m1" else ("h", "cvt.u32.u16 d, h;")
    for relu in ("", ".relu"):
        want = codes(name, x, relu=bool(relu))
        got = blackwell(cpu, f"cvt.rn.satfinite{relu}.{name}x2.f32 {register}, a, b; {widen}", np.uint32, x, y)
        np.testing.assert_array_equal(got, want << field(name) | want[::-1])


@pytest.mark.parametrize("name", SMALL)
def test_small_floats_become_halves(name: str, cpu: Device) -> None:
    bits = field(name)
    x = np.arange(1 << (2 * bits), dtype=np.uint32)
    table = np.array([half_of(name, c & (2 * FORMATS[name].sign - 1)) for c in range(1 << bits)], np.uint32)
    body = (
        f"cvt.u8.u32 q, a; cvt.rn.f16x2.{name}x2 d, q;"
        if bits == 4
        else f"cvt.u16.u32 h, a; cvt.rn.f16x2.{name}x2 d, h;"
    )
    got = blackwell(cpu, body, np.uint32, x)
    np.testing.assert_array_equal(got, table[x >> bits] << 16 | table[x & ((1 << bits) - 1)])


@pytest.mark.parametrize("pairs", ["bf16x2", "f16x2"])
@pytest.mark.parametrize("name", SMALL)
def test_small_floats_from_pairs_of_halves(name: str, pairs: str, cpu: Device) -> None:
    x = np.arange(0, 1 << 16, 23, dtype=np.uint32)
    want = codes(name, (x << 16).view(np.float32) if pairs == "bf16x2" else x.astype(np.uint16).view(np.float16))
    register, widen = ("q", "cvt.u32.u8 d, q;") if name == "e2m1" else ("h", "cvt.u32.u16 d, h;")
    body = f"cvt.rn.satfinite.{name}x2.{pairs} {register}, a; {widen}"
    got = blackwell(cpu, body, np.uint32, x << 16 | x[::-1])
    np.testing.assert_array_equal(got, want << field(name) | want[::-1])


def bf16_of(value: float, words: str) -> int:
    """The bf16 of a number after ``.relu`` and ``.satfinite``."""
    if math.isnan(value):
        return FROM_NAN["bf16"]
    if "relu" in words and math.copysign(1, value) < 0:
        return 0
    sign = BF16.sign if math.copysign(1, value) < 0 else 0
    code = BF16.infinity if math.isinf(value) else BF16.nearest(abs(Fraction(value)))
    return sign | (min(code, LARGEST["bf16"]) if "satfinite" in words else code)


def value_of(name: str, bits: int) -> float:
    """The number that a code stands for."""
    f = FORMATS[name]
    size = bits & (f.sign - 1)
    if (name == "e4m3" and size == 0x7F) or (name == "e5m2" and size > 0x7C):
        return math.nan
    value = math.inf if name == "e5m2" and size == 0x7C else float(f.value(size))
    return -value if bits & f.sign else value


@pytest.mark.parametrize("name", [*SMALL, "s2f6"])
def test_small_floats_and_fixed_point_become_bf16(name: str, cpu: Device) -> None:
    bits = field(name)
    x = np.arange(1 << (2 * bits), dtype=np.uint32)[:: 1 if bits == 4 else 7]
    if name == "s2f6":
        values = [k / 64 for k in (*range(128), *range(-128, 0))]
    else:
        values = [value_of(name, c & (2 * FORMATS[name].sign - 1)) for c in range(1 << bits)]
    read = "cvt.u8.u32 q, a;" if bits == 4 else "cvt.u16.u32 h, a;"
    # The scale of the upper number is 2^100, that of the lower one 2^-127.
    for words in ("", ".relu", ".satfinite.scaled::n2::ue8m0"):
        scales, operand = ((2.0**100, 2.0**-127), ", s") if "scaled" in words else ((1.0, 1.0), "")
        high, low = (np.array([bf16_of(v * scale, words) for v in values], np.uint32) for scale in scales)
        body = f"{read} mov.b16 s, {227 << 8}; cvt.rn{words}.bf16x2.{name}x2 d, {'q' if bits == 4 else 'h'}{operand};"
        got = blackwell(cpu, body, np.uint32, x)
        np.testing.assert_array_equal(got, high[x >> bits] << 16 | low[x & ((1 << bits) - 1)], words)


def stochastic(name: str, x: float, random: int, bits: int, words: str) -> int:
    """Round away from zero where the share of the step that is left, and the random bits, make a whole step."""
    f, saturates = FORMATS[name], "satfinite" in words
    if math.isnan(x):
        return FROM_NAN[name]
    if "relu" in words and math.copysign(1, x) < 0:
        return 0
    sign = f.sign if math.copysign(1, x) < 0 else 0
    if math.isinf(x):
        return sign | (LARGEST[name] if saturates else f.infinity)
    size, rest = f.units(abs(Fraction(x)))
    if size >= LARGEST[name] and saturates:
        return sign | LARGEST[name]
    return sign | min(size + int(rest + Fraction(random, 1 << bits) >= 1), f.infinity if f.special else LARGEST[name])


@pytest.mark.parametrize("limit", ["", ".satfinite", ".relu"])
@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_random_bits_round_pairs_of_halves(name: str, limit: str, cpu: Device) -> None:
    x = np.concatenate([singles(FORMATS[name]), np.array([65519.9, 3.4028234e38, 6e-8, 1e-41], np.float32)])
    random = np.random.default_rng(7).integers(0, 1 << 32, len(x), np.uint32)
    kept = 13 if name == "f16" else 16
    got = blackwell(cpu, f"cvt.rs{limit}.{name}x2.f32 d, a, b, c;", np.uint32, x, x, random)
    for shift in (16, 0):
        part = (random >> shift & ((1 << kept) - 1)).tolist()
        want = [stochastic(name, v, r, kept, limit) for v, r in zip(x.tolist(), part, strict=True)]
        np.testing.assert_array_equal(got >> shift & 0xFFFF, want)


@pytest.mark.parametrize("words", [".satfinite", ".relu.satfinite"])
@pytest.mark.parametrize("name", SMALL)
def test_random_bits_round_fours_of_small_floats(name: str, words: str, cpu: Device) -> None:
    x = singles(FORMATS[name])[:: 7 if "relu" in words else 1]
    sources = [np.roll(x, k) for k in range(4)]
    random = np.random.default_rng(9).integers(0, 1 << 32, len(x), np.uint32)
    narrow = name == "e2m1"
    body = f"cvt.rs{words}.{name}x4.f32 {'h' if narrow else 'd'}, {{a, b, c, e}}, f;"
    got = blackwell(cpu, f"{body} {'cvt.u32.u16 d, h;' if narrow else ''}", np.uint32, *sources, random)
    shares = [random >> 16, random & 0xFFFF]
    if narrow:
        shares = [random >> 24 << 8 | random >> 8 & 0xFF, (random >> 16 & 0xFF) << 8 | random & 0xFF]
    for k, source in enumerate(sources):
        bits = shares[k // 2].tolist()
        if k % 2 == 0:
            bits = [int(f"{r:016b}"[::-1], 2) for r in bits]
        want = [stochastic(name, v, r, 16, words) for v, r in zip(source.tolist(), bits, strict=True)]
        part = got >> field(name) * (3 - k) & ((1 << field(name)) - 1)
        np.testing.assert_array_equal(part, want)


def exponent(x: float, *, up: bool, saturates: bool) -> int:
    """The ue8m0 of a number."""
    if math.isnan(x):
        return 0xFF
    size = abs(x)
    if math.isinf(x):
        return 0xFE if saturates else 0xFF
    fraction, power = math.frexp(size)
    result = max(power - 1 + 127, 0) if size else 0
    if up and size > 2.0**-127 and fraction != 0.5:
        result = max(power + 127, 1)
    return min(result, 0xFE) if saturates else result


@pytest.mark.parametrize("mode", ["rz", "rp", "rz.satfinite", "rp.satfinite"])
def test_values_with_only_an_exponent(mode: str, cpu: Device) -> None:
    edges = [0, 1, 0x3FFFFF, 0x400000, 0x400001, 0x7FFFFF, 0x800000, 0x800001, 0x7F000000, 0x7F7FFFFF, 0x7F800000]
    bits = np.concatenate([np.array([*edges, 0x7FC00000], np.uint32), np.arange(0, 1 << 32, 9999991).astype(np.uint32)])
    x = np.concatenate([bits, bits ^ 0x80000000]).view(np.float32)
    rules = {"up": "rp" in mode, "saturates": "satfinite" in mode}
    want = np.array([exponent(v, **rules) for v in x.tolist()], np.uint32)
    got = blackwell(cpu, f"cvt.{mode}.ue8m0x2.f32 h, a, b; cvt.u32.u16 d, h;", np.uint32, x, x[::-1].copy())
    np.testing.assert_array_equal(got, want << 8 | want[::-1])
    cut = x.view(np.uint32) & 0xFFFF0000
    want = np.array([exponent(v, **rules) for v in cut.view(np.float32).tolist()], np.uint32)
    got = blackwell(cpu, f"cvt.{mode}.ue8m0x2.bf16x2 h, a; cvt.u32.u16 d, h;", np.uint32, cut | cut >> 16)
    np.testing.assert_array_equal(got, want << 8 | want)


def test_exponents_become_bf16(cpu: Device) -> None:
    x = np.arange(1 << 16, dtype=np.uint32)
    got = blackwell(cpu, "cvt.u16.u32 h, a; cvt.rn.bf16x2.ue8m0x2 d, h;", np.uint32, x)
    table = np.array([0x40, *(k << 7 for k in range(1, 255)), 0x7FFF], np.uint32)
    np.testing.assert_array_equal(got, table[x >> 8] << 16 | table[x & 0xFF])


def test_fixed_point_of_6_bits_with_scale_factors(cpu: Device) -> None:
    x = np.array(
        [0.0, 1.0, -1.0, 1.984375, 1.9921875, -2.0, -2.1, 0.0078125, 0.0234375, math.inf, -math.inf, math.nan],
        np.float32,
    )
    want = np.array([0, 64, -64, 127, 127, -128, -128, 0, 2, 127, -128, 127]) & 0xFF
    got = blackwell(cpu, "cvt.rn.satfinite.s2f6x2.f32 h, a, b; cvt.u32.u16 d, h;", np.uint32, x, x[::-1].copy())
    np.testing.assert_array_equal(got, want << 8 | want[::-1])
    pairs = "cvt.rn.satfinite.s2f6x2.bf16x2 h, a; cvt.u32.u16 d, h;"
    halves = np.array([bf16_of(v, "") for v in x.tolist()], np.uint32)
    exact = halves << 16 == x.view(np.uint32)
    np.testing.assert_array_equal(blackwell(cpu, pairs, np.uint32, halves << 16)[exact] >> 8, want[exact])
    got = blackwell(cpu, "cvt.rn.satfinite.relu.s2f6x2.f32 h, a, b; cvt.u32.u16 d, h;", np.uint32, x, x)
    np.testing.assert_array_equal(got >> 8, np.where(want > 127, 0, want))
    scaled = "mov.b16 s, 0x8081; cvt.rn.satfinite.scaled::n2::ue8m0.s2f6x2.f32 h, a, b, s; cvt.u32.u16 d, h;"
    got = blackwell(cpu, scaled, np.uint32, np.array([1.0], np.float32), np.array([2.0], np.float32))
    assert got.tolist() == [32 << 8 | 32]
    codes_ = np.arange(256, dtype=np.uint32)
    got = blackwell(cpu, "cvt.u16.u32 h, a; cvt.rn.bf16x2.s2f6x2 d, h;", np.uint32, codes_ << 8 | codes_)
    value = (codes_.astype(np.uint8).view(np.int8) / 64).tolist()
    halves = np.array([BF16.nearest(Fraction(v)) for v in value], np.uint32)
    np.testing.assert_array_equal(got, halves << 16 | halves)


# -- integers ---------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("to", ["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"])
def test_packed_integers_saturate_and_move_the_third_up(to: str, elementwise: Elementwise) -> None:
    random = np.random.default_rng(3)
    edges = np.array([0, 1, -1, 2, -2, 3, 7, 8, -8, -9, 15, 16, 127, 128, -129, 255, 256, 32768, 65536, -(1 << 31)])
    x, y = (random.choice(edges, 500).astype(np.int32) for _ in range(2))
    z = random.integers(0, 1 << 32, 500, np.uint32)
    bits = int(to[1:])
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if to[0] == "s" else (0, (1 << bits) - 1)
    parts = [np.clip(v, low, high).astype(np.int64) & ((1 << bits) - 1) for v in (x, y)]
    want = parts[0] << bits | parts[1]
    if bits == 16:
        got = elementwise(f"cvt.pack.sat.{to}.s32", np.uint32, x, y)
    else:
        got = elementwise(f"cvt.pack.sat.{to}.s32.b32", np.uint32, x, y, z)
        want = (want | z.astype(np.int64) << 2 * bits) & 0xFFFFFFFF
    np.testing.assert_array_equal(got, want)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "form", ["add.u16x2", "add.s16x2", "min.u16x2", "max.s16x2", "min.relu.s16x2", "max.relu.s16x2"]
)
def test_integers_in_pairs(form: str, elementwise: Elementwise) -> None:
    random = np.random.default_rng(4)
    edges = np.array([0, 1, 0x7FFF, 0x8000, 0xFFFF, 0x1234, 0xFEDC])
    x, y = (random.choice(edges, (400, 2)).astype(np.uint16) for _ in range(2))
    kind = np.int16 if form.endswith("s16x2") else np.uint16
    operation = {"add": np.add, "min": np.minimum, "max": np.maximum}[form[:3]]
    want = operation(x.view(kind), y.view(kind))
    if "relu" in form:
        want = np.maximum(want, 0)
    got = elementwise(form, np.uint32, *(v.view(np.uint32)[:, 0] for v in (x, y)))
    np.testing.assert_array_equal(got, want.view(np.uint32)[:, 0])


# -- tf32 -------------------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_tf32_rounds_in_every_mode_with_nans_of_the_gpu(elementwise: Elementwise) -> None:
    x = singles(F16)
    bits = x.view(np.uint32).astype(np.int64)
    finite, size = np.isfinite(x), bits & 0x7FFFFFFF
    cut = bits & ~0x1FFF
    ties_away = np.where(finite, (bits + 0x1000) & ~0x1FFF, cut)
    np.testing.assert_array_equal(elementwise("cvt.rna.tf32.f32", np.uint32, x), ties_away)
    beyond = ties_away & 0x7FFFFFFF >= 0x7F800000
    lowered = np.where(beyond, ties_away - 0x2000, ties_away)
    np.testing.assert_array_equal(elementwise("cvt.rna.satfinite.tf32.f32", np.uint32, x), lowered)
    even = (bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFF
    for mode, number in (("rn", even), ("rz", cut)):
        want = np.where(size > 0x7F800000, 0x7FFFE000, number)
        np.testing.assert_array_equal(elementwise(f"cvt.{mode}.tf32.f32", np.uint32, x), want)
        positive = np.where((bits >> 31 == 1) & (size <= 0x7F800000), 0, want)
        np.testing.assert_array_equal(elementwise(f"cvt.{mode}.relu.tf32.f32", np.uint32, x), positive)


def test_tf32_saturates_in_every_mode(elementwise: Elementwise) -> None:
    x = singles(F16)
    bits = x.view(np.uint32).astype(np.int64)
    size = bits & 0x7FFFFFFF
    for mode, number in (("rn", (bits + 0xFFF + (bits >> 13 & 1)) & ~0x1FFF), ("rz", bits & ~0x1FFF)):
        want = np.where(size > 0x7F800000, 0x7FFFE000, number)
        within = np.where((size <= 0x7F800000) & (want & 0x7FFFFFFF > 0x7F7FE000), want & 0x80000000 | 0x7F7FE000, want)
        got = elementwise(f"cvt.{mode}.satfinite.tf32.f32", np.uint32, x, target="sm_100")
        np.testing.assert_array_equal(got, within)


PACKED_OF_LANES: dict[str, tuple[str, str, Callable[..., Array]]] = {
    "u16x2": (
        "add.u32 a, t, 0xFFF0; add.u16x2 c, a, t;",
        "sm_90",
        lambda t: (t + 0xFFF0).view(np.uint16) + t.view(np.uint16),
    ),
    "u8x4": (
        "add.u32 a, t, 0xF0; add.u8x4 c, a, t;",
        "sm_120f",
        lambda t: (t + 0xF0).view(np.uint8) + t.view(np.uint8),
    ),
    "s8x4": ("neg.s8x4 c, t;", "sm_120f", lambda t: -t.view(np.int8)),
    "bf16x2": (
        "shl.b32 a, t, 7; add.u32 a, a, 0x1000; add.rn.bf16x2 c, a, a;",
        "sm_90",
        lambda t: (t << 7) + 0x1080,  # a power of two, doubled
    ),
}
"""Statements that make ``c`` of the number ``t`` of the lane, and what they make."""


@pytest.mark.parametrize("name", PACKED_OF_LANES)
def test_elements_of_lane_counts_are_added_individually(cpu: Device, name: str) -> None:
    body, target, made = PACKED_OF_LANES[name]
    registers = ".reg .b32 t, a, c; .reg .b64 at; mov.u32 t, %tid.x;"
    text = f"{registers} {body} mad.wide.u32 at, t, 4, p0; st.global.b32 [at], c;"
    version = "9.2" if target == "sm_120f" else "8.6"
    lanes = np.arange(32, dtype=np.uint32)
    scene = Scene(name, entry(text, 1, target=target, version=version), (np.zeros(32, np.uint32),), 1, 32)
    (got,) = run_scene(cpu, scene)
    assert got.tolist() == made(lanes).view(np.uint32).tolist()
