"""Floating-point arithmetic against exact rational arithmetic, comparison and selection against NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.devices.cpu.codegen import rounding
from cujit.devices.jit import processor
from devices.cpu.conftest import Elementwise

Array = npt.NDArray[Any]
Exactly = Callable[..., int]

pytestmark = pytest.mark.filterwarnings("ignore::RuntimeWarning")

MODES = ("rn", "rz", "rm", "rp")
COUNT = 2500
# fmt: off
CORNERS = {
    32: [0, 1, 2, 0x7FFFFF, 0x400000, 0x800000, 0x800001, 0x33800000, 0x33000001, 0x3F000000, 0x3F7FFFFF, 0x3F800000,
         0x3F800001, 0x3FC00000, 0x40200000, 0x4B000001, 0x7E800000, 0x7E800001, 0x7F000000, 0x7F7FFFFE, 0x7F7FFFFF,
         0x7F800000, 0x7FC00000, 0x7F800001],
    64: [0, 1, 2, (1 << 52) - 1, 1 << 51, 1 << 52, (1 << 52) + 1, 0x0010000000000003, 0x00A0000000000005,
         0x0370000000000007, 0x1E00000000000003, 0x1FF0000000000000, 0x2000000000000001, 0x3FE0000000000000,
         0x3FEFFFFFFFFFFFFF, 0x3FF0000000000000, 0x3FF0000000000001, 0x4000000000000001, 0x5FE0000000000001,
         0x7CA0000000000001, 0x7FD0000000000000, 0x7FEFFFFFFFFFFFFE, 0x7FEFFFFFFFFFFFFF, 0x7FF0000000000000,
         0x7FF8000000000000, 0x7FF0000000000001],
}
# fmt: on


def floats(width: int, bits: Array | list[int]) -> Array:
    """Read bits as numbers."""
    return np.array(bits, f"u{width // 8}").view(f"f{width // 8}")


def bits_of(x: Array) -> Array:
    """Read numbers as bits."""
    return x.view(f"u{x.dtype.itemsize}")


def corners(width: int) -> Array:
    """Zeros, subnormal numbers, neighbours of powers of two, the largest, infinities and NaNs, of both signs."""
    plus = np.array(CORNERS[width], f"u{width // 8}")
    return floats(width, np.concatenate([plus, plus | np.array(1 << (width - 1), plus.dtype)]))


def numbers(width: int, count: int, seed: int) -> Array:
    """Numbers of any bits."""
    return floats(width, np.random.default_rng(seed).integers(0, 1 << width, count, f"u{width // 8}"))


def pairs(width: int) -> tuple[Array, Array]:
    """All pairs of corners; then random numbers beside near ones, and beside those whose product is at an edge."""
    some = corners(width)
    x, y = (grid.ravel() for grid in np.meshgrid(some, some))
    first, other = numbers(width, COUNT, 1), numbers(width, COUNT, 2)
    random = np.random.default_rng(3)
    near = bits_of(first) + random.integers(0, 1 << (width - 5), COUNT, f"u{width // 8}")
    edges = np.exp2(
        random.choice([-1074, -1022, -960, 1023] if width == 64 else [-149, -126, 127], COUNT).astype(np.float64)
    )
    edge = (edges.astype(first.dtype) / first).astype(first.dtype)
    return np.concatenate([x, first, first, first]), np.concatenate([y, other, floats(width, near), edge])


def triples(width: int) -> tuple[Array, Array, Array]:
    """Pairs, with addends that cancel the product wholly, in part, or hardly."""
    x, y = pairs(width)
    random = np.random.default_rng(4)
    product = (x.astype(np.float64) * y).astype(x.dtype)
    scale = np.exp2(random.choice([0, 0, 0, -1, 1, -24, -53, -54, -106, -200, 60], len(x)).astype(np.float64))
    cancels = (-(product.astype(np.float64)) * scale).astype(x.dtype)
    others = np.where(
        random.integers(0, 2, len(x)) == 0, numbers(width, len(x), 5), random.choice(corners(width), len(x))
    )
    return x, y, np.where(random.integers(0, 3, len(x)) > 0, cancels, others)


def exact_root(x: Fraction) -> Fraction:
    """A square root to far more bits than any format has, never exactly between two of its numbers."""
    scaled = (x.numerator << 2400) // x.denominator
    root = math.isqrt(scaled)
    return Fraction(2 * root + (root * root != scaled), 1 << 1201)


def exact_value(opcode: str, v: list[Fraction]) -> tuple[Fraction, bool] | None:
    """The exact result; None where there is none. Whether a zero counts as a sum (its sign depends on the mode)."""
    if opcode in ("add", "sub"):
        return v[0] + (v[1] if opcode == "add" else -v[1]), True
    if opcode == "mul":
        return v[0] * v[1], False
    if opcode == "fma":
        return v[0] * v[1] + v[2], True
    if opcode == "sqrt":
        return (exact_root(v[0]), False) if v[0] > 0 else None
    top, below = (Fraction(1), v[0]) if opcode == "rcp" else (v[0], v[1])
    return (top / below, False) if below else None


def like_numpy(opcode: str, v: list[Any]) -> Any:
    """Infinities, NaNs and zeros, where every rounding does the same as IEEE arithmetic to nearest."""
    if opcode == "fma":
        # A product of finite numbers stays finite, however large, beside an infinite addend.
        return v[2] if np.isfinite(v[0]) and np.isfinite(v[1]) else v[0] * v[1] + v[2]
    if opcode == "sqrt":
        return np.sqrt(v[0])
    if opcode == "rcp":
        return v[0].dtype.type(1) / v[0]
    return {"add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide}[opcode](*v)


def expected(opcode: str, width: int, v: list[Any], exactly: Exactly) -> list[int | None]:
    """The bits of a result in each of ``MODES``; None for NaN."""
    finite = all(np.isfinite(v))
    exact = exact_value(opcode, [Fraction(float(x)) for x in v]) if finite else None
    if exact is None:
        near = np.asarray(like_numpy(opcode, v))
        return [None if np.isnan(near) else int(bits_of(near.reshape(1))[0])] * len(MODES)
    value, is_sum = exact
    if value:
        return [exactly(value, mode, width) for mode in MODES]
    signs = [bool(np.signbit(x)) for x in v]
    if not is_sum:
        return [exactly(value, mode, width, negative_zero=sum(signs) % 2 == 1) for mode in MODES]
    terms = [signs[0] ^ signs[1], signs[2]] if opcode == "fma" else [signs[0], signs[1] ^ (opcode == "sub")]
    zeros = v[-1] == 0  # both terms are: if one is, the other cancels it only by being zero as well
    minus = {mode: (any(terms) if mode == "rm" else all(terms)) if zeros else mode == "rm" for mode in MODES}
    return [exactly(value, mode, width, negative_zero=minus[mode]) for mode in MODES]


def wrong(got: Array, want: list[int | None], sources: tuple[Array, ...]) -> list[str]:
    """Describe the first elements that are not as expected."""
    lines = []
    for k, (g, w) in enumerate(zip(bits_of(got), want, strict=True)):
        if (not np.isnan(got[k])) if w is None else int(g) != w:
            shown = ", ".join(f"{int(bits_of(s)[k]):#x}" for s in sources)
            lines.append(f"({shown}): {int(g):#x}, not {'NaN' if w is None else hex(w)}")
    return lines[:5]


@pytest.mark.gpu
@pytest.mark.parametrize("width", [32, 64])
@pytest.mark.parametrize("opcode", ["add", "sub", "mul", "div", "rcp", "sqrt", "fma"])
def test_results_are_rounded_exactly_in_every_mode(
    opcode: str, width: int, elementwise: Elementwise, exactly: Exactly
) -> None:
    sources: tuple[Array, ...] = {"fma": triples, "rcp": pairs, "sqrt": pairs}.get(opcode, pairs)(width)
    if opcode in ("rcp", "sqrt"):
        sources = (np.concatenate([corners(width), numbers(width, 3 * COUNT, 6)]),)
    want = [expected(opcode, width, list(v), exactly) for v in zip(*sources, strict=True)]
    kind = f"f{width // 8}"
    modes = elementwise.several({mode: (f"{opcode}.{mode}.f{width}", kind) for mode in MODES}, *sources)
    for k, mode in enumerate(MODES):
        assert wrong(modes[mode], [bits[k] for bits in want], sources) == [], f"{opcode}.{mode}.f{width}"


@pytest.mark.gpu
@pytest.mark.parametrize(("implied", "explicit"), [("add", "add.rn"), ("sub", "sub.rn"), ("mul", "mul.rn")])
def test_without_a_modifier_rounding_is_to_nearest(implied: str, explicit: str, elementwise: Elementwise) -> None:
    x, y = numbers(64, 500, 7), numbers(64, 500, 8)
    got = elementwise(f"{implied}.f64", np.float64, x, y)
    np.testing.assert_array_equal(got, elementwise(f"{explicit}.f64", np.float64, x, y))


@pytest.mark.gpu
@pytest.mark.parametrize("type_", ["rn.ftz.f32", "rm.f64"])
def test_mad_is_fma(type_: str, elementwise: Elementwise) -> None:
    sources = triples(int(type_[-2:]))
    kind = sources[0].dtype
    want = elementwise(f"fma.{type_}", kind, *sources)
    np.testing.assert_array_equal(elementwise(f"mad.{type_}", kind, *sources), want)


def flushed(x: Array) -> Array:
    """Make subnormal numbers zero of the same sign."""
    return np.where(np.abs(x) < np.finfo(x.dtype).tiny, np.copysign(x.dtype.type(0), x), x)


@pytest.mark.gpu
@pytest.mark.parametrize("instruction", ["add.rn", "sub.rz", "mul.rm", "div.rp", "fma.rz", "sqrt.rn", "rcp.rm"])
def test_ftz_flushes_subnormal_inputs_and_results_to_signed_zero(instruction: str, elementwise: Elementwise) -> None:
    opcode, mode = instruction.split(".")
    count = {"fma": 3, "sqrt": 1, "rcp": 1}.get(opcode, 2)
    sources = triples(32)[:count]
    got = elementwise(f"{opcode}.{mode}.ftz.f32", np.float32, *sources)
    want = flushed(elementwise(f"{opcode}.{mode}.f32", np.float32, *(flushed(s) for s in sources)))
    # What only rounding makes a normal number is a matter of taste: GPUs flush some of it.
    clear = np.abs(want) != np.finfo(np.float32).tiny
    np.testing.assert_array_equal(bits_of(got)[clear & ~np.isnan(want)], bits_of(want)[clear & ~np.isnan(want)])
    assert np.isnan(got[np.isnan(want)]).all()


@pytest.mark.gpu
@pytest.mark.parametrize("instruction", ["add.rn", "sub.rp", "mul.rz", "fma.rm"])
def test_sat_clamps_to_0_and_1_and_turns_nan_into_zero(instruction: str, elementwise: Elementwise) -> None:
    sources = triples(32)[: 3 if instruction.startswith("fma") else 2]
    plain = elementwise(f"{instruction}.f32", np.float32, *sources)
    want = np.where(plain > 0, np.minimum(plain, np.float32(1)), np.float32(0))
    got = elementwise(f"{instruction}.sat.f32", np.float32, *sources)
    np.testing.assert_array_equal(bits_of(got), bits_of(want))


@pytest.mark.gpu
@pytest.mark.parametrize("instruction", ["div.rn.f32", "rcp.rz.f32", "add.rm.f32", "max.NaN.f32"])
def test_f32_nans_match_gpus(instruction: str, elementwise: Elementwise) -> None:
    x = floats(32, [0x7F800001, 0xFFC12345] * 16)
    sources = (x,) if instruction.startswith("rcp") else (x, x)
    got = elementwise(instruction, np.float32, *sources)
    assert set(bits_of(got).tolist()) == {0x7FFFFFFF}


@pytest.mark.parametrize("has_instruction", [True, False])
@pytest.mark.parametrize(
    ("body", "expected"),
    [("neg.f32 d, a;", np.negative), ("abs.f32 d, a;", np.abs), ("add.f32 d, a, 0f80000000;", np.positive)],
    ids=["neg", "abs", "add"],
)
def test_nan_replacement_keeps_numbers_on_any_processor(
    body: str,
    expected: Callable[[Array], Array],
    has_instruction: bool,
    elementwise: Elementwise,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if has_instruction and "+avx512f" not in processor().features.split(","):
        pytest.skip("the processor has none")
    monkeypatch.setattr(rounding, "_fixes_up", lambda: has_instruction)
    monkeypatch.setenv("CUJIT_CACHE", "0")
    x = np.resize(corners(32), 256)
    want = np.where(np.isnan(x), np.uint32(0x7FFFFFFF), bits_of(expected(x)))
    np.testing.assert_array_equal(bits_of(elementwise(body, np.float32, x)), want)


# -- packed -----------------------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("instruction", ["add.rn", "sub.rz.ftz", "mul.rp", "fma.rn.ftz"])
def test_packed_pairs_are_two_single_results(instruction: str, elementwise: Elementwise) -> None:
    sources = triples(32)[: 3 if instruction.startswith("fma") else 2]
    sources = tuple(s[: len(s) // 2 * 2] for s in sources)
    want = elementwise(f"{instruction}.f32", np.float32, *sources)
    packed = (s.view(np.uint64) for s in sources)
    got = elementwise(f"{instruction}.f32x2", np.uint64, *packed, target="sm_100").view(np.float32)
    np.testing.assert_array_equal(got, want)


# -- signs and extremes -----------------------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("width", [32, 64])
def test_abs_neg_and_copysign_change_only_the_sign(width: int, elementwise: Elementwise) -> None:
    x, y = (v[~np.isnan(v)] for v in (corners(width), corners(width)[::-1]))
    kind = f"f{width // 8}"
    np.testing.assert_array_equal(bits_of(elementwise(f"abs.f{width}", kind, x)), bits_of(np.abs(x)))
    np.testing.assert_array_equal(bits_of(elementwise(f"neg.f{width}", kind, x)), bits_of(-x))
    # The first source gives the sign, the second the magnitude.
    got = elementwise(f"copysign.f{width}", kind, x, y)
    np.testing.assert_array_equal(bits_of(got), bits_of(np.copysign(y, x)))


@pytest.mark.gpu
@pytest.mark.parametrize("opcode", ["abs", "neg"])
def test_ftz_of_a_sign_change_flushes(opcode: str, elementwise: Elementwise) -> None:
    x = floats(32, [1, 0x80000001, 0x807FFFFF, 0x00800000])
    got = bits_of(elementwise(f"{opcode}.ftz.f32", np.float32, x)).tolist()
    minus = 0x80000000 if opcode == "neg" else 0
    assert got == [minus, 0, 0, minus | 0x00800000]


def extreme_of(opcode: str, x: Array, y: Array, modifiers: str) -> Array:
    """min and max as the manual writes them down, -0 below +0."""
    minus = np.signbit(x) ^ np.signbit(y)
    if "abs" in modifiers:
        x, y = np.abs(x), np.abs(y)
    smaller = (x < y) | ((x == y) & np.signbit(x))
    chosen = np.where(smaller == (opcode == "min"), x, y)
    either = np.isnan(x) | np.isnan(y)
    number = np.where(np.isnan(x), y, x)
    result = np.where(either, np.where("NaN" in modifiers, x.dtype.type(np.nan), number), chosen)
    if "xorsign" in modifiers:
        result = np.where(np.isnan(result), result, np.copysign(result, np.where(minus, -1, 1)))
    return result.astype(x.dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("modifiers", ["", ".NaN", ".ftz", ".xorsign.abs", ".NaN.xorsign.abs"])
@pytest.mark.parametrize("opcode", ["min", "max"])
def test_min_and_max_order_zeros_and_nans_as_specified(opcode: str, modifiers: str, elementwise: Elementwise) -> None:
    x, y = pairs(32)
    inputs = (flushed(x), flushed(y)) if "ftz" in modifiers else (x, y)
    want = extreme_of(opcode, *inputs, modifiers)
    got = elementwise(f"{opcode}{modifiers}.f32", np.float32, x, y)
    numbers_there = ~np.isnan(want)
    np.testing.assert_array_equal(bits_of(got)[numbers_there], bits_of(want)[numbers_there])
    assert np.isnan(got[~numbers_there]).all()


@pytest.mark.gpu
@pytest.mark.parametrize("opcode", ["min", "max"])
def test_extremes_of_f64_order_zeros(opcode: str, elementwise: Elementwise) -> None:
    x, y = pairs(64)
    want, got = extreme_of(opcode, x, y, ""), elementwise(f"{opcode}.f64", np.float64, x, y)
    numbers_there = ~np.isnan(want)
    np.testing.assert_array_equal(bits_of(got)[numbers_there], bits_of(want)[numbers_there])


@pytest.mark.gpu
@pytest.mark.parametrize("modifiers", ["", ".NaN", ".abs", ".ftz.NaN.abs"])
def test_min_and_max_of_three_equal_two_of_two(modifiers: str, elementwise: Elementwise) -> None:
    x, y = pairs(32)
    z = np.random.default_rng(9).permutation(x)
    first = elementwise(f"max{modifiers}.f32", np.float32, x, y, z, target="sm_100")
    inputs = tuple(flushed(v) if "ftz" in modifiers else v for v in (x, y, z))
    want = extreme_of("max", extreme_of("max", inputs[0], inputs[1], modifiers), inputs[2], modifiers)
    np.testing.assert_array_equal(first, want)


# -- tests, comparison and selection ----------------------------------------------------------------------


@pytest.mark.gpu
@pytest.mark.parametrize("width", [32, 64])
def test_testp_classifies_numbers(width: int, elementwise: Elementwise) -> None:
    x = np.concatenate([corners(width), numbers(width, 500, 10)])
    tiny = (np.abs(x) < np.finfo(x.dtype).tiny) & (x != 0)
    want = {
        "finite": np.isfinite(x),
        "infinite": np.isinf(x),
        "number": ~np.isnan(x),
        "notanumber": np.isnan(x),
        "normal": np.isfinite(x) & ~tiny,
        "subnormal": tiny,
    }
    bodies = {kind: (f"testp.{kind}.f{width} p, a; selp.u32 d, 1, 0, p;", np.uint32) for kind in want}
    for kind, got in elementwise.several(bodies, x).items():
        np.testing.assert_array_equal(got, want[kind], err_msg=kind)


def comparisons(x: Array, y: Array) -> dict[str, Array]:
    """Every comparison of floats: ordered ones fail on NaN, the others hold."""
    nan = np.isnan(x) | np.isnan(y)
    ordered = {"eq": x == y, "ne": (x != y) & ~nan, "lt": x < y, "le": x <= y, "gt": x > y, "ge": x >= y}
    return {**ordered, **{f"{k}u": v | nan for k, v in ordered.items()}, "num": ~nan, "nan": nan}


@pytest.mark.gpu
@pytest.mark.parametrize(("type_", "ftz"), [("f32", ""), ("f32", ".ftz"), ("f64", "")])
def test_comparisons_are_ordered_or_hold_for_nan(type_: str, ftz: str, elementwise: Elementwise) -> None:
    x, y = pairs(int(type_[1:]))
    inputs = (flushed(x), flushed(y)) if ftz else (x, y)
    want = comparisons(*inputs)
    setp = {name: (f"setp.{name}{ftz}.{type_} p, a, b; selp.u32 d, 1, 0, p;", np.uint32) for name in want}
    for name, got in elementwise.several(setp, x, y).items():
        np.testing.assert_array_equal(got, want[name], err_msg=name)
    set_ = {name: (f"set.{name}{ftz}.u32.{type_}", np.uint32) for name in want}
    for name, got in elementwise.several(set_, x, y).items():
        np.testing.assert_array_equal(got, np.where(want[name], 0xFFFFFFFF, 0), err_msg=name)


@pytest.mark.gpu
def test_set_to_f32_gives_1_or_0(elementwise: Elementwise) -> None:
    x, y = pairs(64)
    got = elementwise("set.gtu.f32.f64", np.float32, x, y)
    np.testing.assert_array_equal(got, comparisons(x, y)["gtu"])


@pytest.mark.gpu
@pytest.mark.parametrize("join", ["and", "or", "xor"])
def test_setp_joins_a_predicate_and_writes_the_complement(join: str, elementwise: Elementwise) -> None:
    x, y = pairs(32)
    body = (
        f"setp.gt.f32 q, a, 0f3F800000; setp.lt.{join}.f32 p|q, a, b, !q;"
        "selp.u32 d, 1, 0, p; selp.u32 t, 2, 0, q; or.b32 d, d, t;"
    )
    third = ~(x > 1)
    joined = {"and": np.logical_and, "or": np.logical_or, "xor": np.logical_xor}[join]
    want = joined(x < y, third) + 2 * joined(~(x < y), third)
    np.testing.assert_array_equal(elementwise(body, np.uint32, x, y), want)


@pytest.mark.gpu
@pytest.mark.parametrize("type_", ["f32", "f64"])
def test_selp_keeps_bits_unchanged(type_: str, elementwise: Elementwise) -> None:
    x, y = pairs(int(type_[1:]))
    body = f"setp.lt.{type_} p, a, b; selp.{type_} d, a, b, p;"
    np.testing.assert_array_equal(bits_of(elementwise(body, x.dtype, x, y)), bits_of(np.where(x < y, x, y)))


@pytest.mark.gpu
@pytest.mark.parametrize("ftz", ["", ".ftz"])
def test_slct_selects_the_first_unless_negative_or_nan(ftz: str, elementwise: Elementwise) -> None:
    x, y = pairs(32)
    z = np.random.default_rng(11).permutation(x)
    by = flushed(z) if ftz else z
    got = elementwise(f"slct{ftz}.u32.f32 d, a, b, c;", np.uint32, bits_of(x), bits_of(y), z)
    np.testing.assert_array_equal(got, np.where(by >= 0, bits_of(x), bits_of(y)))


_I, _Z = "0d7FF0000000000000", "0d0000000000000000"
INVALID = [
    ("sub", (_I, _I)), ("sub.rn", (_I, _I)), ("sub.rz", (_I, _I)), ("add.rn", (_I, _I.replace("d7", "dF"))),
    ("mul", (_Z, _I)), ("mul.rp", (_Z, _I)), ("fma.rn", (_Z, _I, _Z)), ("fma.rm", (_I, _I, _I.replace("d7", "dF"))),
    ("div.rn", (_Z, _Z)), ("div.rn", (_I, _I)), ("div.rm", (_I, _I)), ("sqrt.rn", ("0dBFF0000000000000",)),
]  # fmt: skip


@pytest.mark.verbatim
@pytest.mark.parametrize("optimize", ["0", "1"])
def test_nan_of_constants_equals_that_of_registers(
    optimize: str, elementwise: Elementwise, monkeypatch: pytest.MonkeyPatch
) -> None:
    """LLVM folds an invalid operation into a NaN without a sign; GPUs and processors give one with it."""
    monkeypatch.setenv("CUJIT_CPU_OPTIMIZE", optimize)
    bodies = {}
    for k, (name, numbers) in enumerate(INVALID):
        written = ", ".join(numbers)
        bodies[k, "constants"] = f"{name}.f64 d, {written};"
        moves = " ".join(f".reg .f64 v{n}; mov.f64 v{n}, {number};" for n, number in enumerate(numbers))
        bodies[k, "moved"] = f"{moves} {name}.f64 d, {', '.join(f'v{n}' for n in range(len(numbers)))};"
        bodies[k, "guarded"] = f"mov.f64 d, a; setp.eq.f64 p, a, a; @p {name}.f64 d, {written};"
    found = elementwise.several({key: (body, np.float64) for key, body in bodies.items()}, np.ones(3))
    assert {int(bits) for one in found.values() for bits in bits_of(one)} == {0xFFF8 << 48}


# -- forms of operands ------------------------------------------------------------------------------------


@pytest.mark.gpu
def test_immediates_and_uniform_registers_mix_with_varying_ones(elementwise: Elementwise) -> None:
    x = np.arange(-150, 150, dtype=np.float32)
    body = ".reg .f32 k, m; mov.f32 k, 0f3F400000; mul.rz.f32 m, k, 0f40000000; fma.rn.f32 d, a, m, 0fBF800000;"
    np.testing.assert_array_equal(elementwise(body, np.float32, x), x * np.float32(1.5) - np.float32(1))


@pytest.mark.gpu
def test_decimal_immediates_are_rounded_to_the_type(elementwise: Elementwise) -> None:
    x = np.linspace(-2, 2, 300, dtype=np.float32)
    np.testing.assert_array_equal(elementwise("add.f32 d, a, 1.5;", np.float32, x), x + np.float32(1.5))
    got = elementwise("setp.gt.f32 p, a, 0.1; selp.f32 d, 1.0, -2.25, p;", np.float32, x)
    np.testing.assert_array_equal(got, np.where(x > np.float32(0.1), 1, -2.25))


@pytest.mark.gpu
def test_predicated_operation_keeps_other_lanes(elementwise: Elementwise) -> None:
    x = np.arange(-150, 150, dtype=np.float32)
    body = "mov.f32 d, a; setp.lt.f32 p, a, 0fC2C80000; @p mul.rm.f32 d, a, a; @!p abs.f32 d, d;"
    np.testing.assert_array_equal(elementwise(body, np.float32, x), np.where(x < -100, x * x, np.abs(x)))
