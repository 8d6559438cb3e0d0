"""Products with ``.kind`` sum as Blackwell does by the published rule: every result bit for bit, by slow arithmetic."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.devices.device import Device
from instructions.scene import run_scene
from instructions.scenes_matrix import Mma, bundle, pack_sums, thinned, values_of
from property.effort import times

Array = npt.NDArray[Any]
_ORDERED = "sp::ordered_metadata"
_LEAST = {"e4m3": -6, "e5m2": -14, "e3m2": -2, "e2m3": 0, "fp4": 0, "e2m1": 0, "f32": -126, "f16": -14}
_LEAST_OF_SCALES = {"ue4m3": -6, "ue8m0": -127}


@dataclass(frozen=True)
class _Wild(Mma):
    """A form with operands of every size: of all codes, C and scales of exponents far apart."""

    seed: int = 0
    specials: bool = False

    def operands(self) -> dict[str, Array]:
        rng = np.random.default_rng([self.seed, *self.title.encode()])
        m, n, k = self.shape
        bits = 16 if self.a == "fp4" else 256
        found: dict[str, Array] = {x: rng.integers(0, bits, (s, k), dtype=np.uint64) for x, s in (("a", m), ("b", n))}
        if not self.specials:
            for x, type_ in (("a", self.a), ("b", self.b)):
                found[x] = np.where(np.isfinite(_numbers(found[x], type_)), found[x], np.uint64(0))
        low, high = (-20, 24) if self.d == "f32" else (-18, 12)
        c = rng.standard_normal((m, n)) * 2.0 ** rng.integers(low, high, (m, n))
        found["c"] = np.where(rng.random((m, n)) < 0.2, 0, c)
        found["c"] = found["c"].astype(np.float16 if self.c == "f16" else np.float32).astype(np.float64)
        if self.sparse:
            found |= thinned(self.a, self.selector, found["a"], rng)
        if self.scale:
            least, most = (0, 127) if self.scale[0] == "ue4m3" else (117, 138)
            for x, size in (("sa", m), ("sb", n)):
                found[x] = rng.integers(least, most, (size, self.chunks), dtype=np.uint64)
                if self.specials:
                    odd = np.array([0, 1, 0x7F, 0xFE, 0xFF] if self.scale[0] == "ue8m0" else [0, 1, 0x7F], np.uint64)
                    chosen = rng.random((size, self.chunks)) < 0.1
                    found[x] = np.where(chosen, rng.choice(odd, (size, self.chunks)), found[x])
        return found


def _numbers(codes: Array, type_: str) -> Array:
    """Values, with the codes that are none, or infinite."""
    values, size = values_of(codes, type_), codes & np.uint64(0x7F)
    if type_ in ("e4m3", "ue4m3"):
        return np.where(size == 0x7F, np.nan, values)
    if type_ == "e5m2":
        return np.where(size > 0x7C, np.nan, np.where(size == 0x7C, np.copysign(np.inf, values), values))
    return np.where(codes == 0xFF, np.nan, values) if type_ == "ue8m0" else np.asarray(values)


def _exponent(value: float, least: int) -> int:
    return max(math.frexp(value)[1] - 1, least)


def _terms(form: Mma, o: dict[str, Array], row: int, column: int) -> list[tuple[float | Fraction, int]]:
    """The terms beside C, each with the exponent that it is aligned by."""
    a, b = _numbers(o["a"][row], form.a), _numbers(o["b"][column], form.b)
    scales, least = [(1.0, 1.0)] * form.chunks, 0
    if form.scale:
        kind, least = form.scale[0], _LEAST_OF_SCALES[form.scale[0]]
        scales = list(zip(_numbers(o["sa"][row], kind), _numbers(o["sb"][column], kind), strict=True))
    found: list[tuple[float | Fraction, int]] = []
    size = len(a) // form.chunks
    step = (32 if form.sparse else 16) if form.a == "fp4" else 1
    for at in range(0, len(a), step):
        x, y = scales[at // size]
        factors = [(float(a[k]), float(b[k])) for k in range(at, at + step)]
        if not all(math.isfinite(v) for v in (x, y, *(v for pair in factors for v in pair))):
            found.append((sum(p * q for p, q in factors) * x * y, 0))
            continue
        value = sum((Fraction(p) * Fraction(q) for p, q in factors), Fraction(0)) * Fraction(x) * Fraction(y)
        exponent = _exponent(x, least) + _exponent(y, least) if form.scale and value else 0
        if step == 1 and value:
            exponent += _exponent(factors[0][0], _LEAST[form.a]) + _exponent(factors[0][1], _LEAST[form.b])
        found.append((value, exponent))
    return found


def _expected(form: Mma, o: dict[str, Array], row: int, column: int) -> float:
    """Sum as the rule says, in whole numbers."""
    width = 35 if form.a == "fp4" else 25
    c = float(o["c"][row, column])
    terms = _terms(form, o, row, column)
    special = [value for value, _ in terms if isinstance(value, float)]
    if special:
        return float(sum(special) + 0.0)
    least = _exponent(c, _LEAST[form.c]) if c else _LEAST[form.c]
    top = max([least, *(exponent for value, exponent in terms if value)])
    unit = Fraction(2) ** (top - width)
    total = sum(int(Fraction(value) / unit) for value, _ in [*terms, (Fraction(c), 0)]) * unit
    if form.d == "f16":
        return float(np.float16(_odd(total)))
    return _cut(total)


def _odd(value: Fraction) -> float:
    """Round to odd in f64, so that rounding on to f16 is right."""
    size = abs(value)
    near = float(size)
    if Fraction(near) > size:
        near = math.nextafter(near, 0.0)
    if Fraction(near) != size:
        bits = np.float64(near).view(np.uint64) | np.uint64(1)
        near = float(bits.view(np.float64))
    return math.copysign(near, value)


def _cut(value: Fraction) -> float:
    """Round to f32 toward zero; at 2 ** 128 begins infinity."""
    if not value:
        return 0.0
    exponent = max(math.floor(math.log2(abs(value))) if abs(value) < 2**1000 else 1001, -126)
    while Fraction(2) ** exponent > abs(value) and exponent > -126:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= abs(value):
        exponent += 1
    if exponent > 127:
        return math.copysign(math.inf, value)
    unit = Fraction(2) ** (exponent - 23)
    return float(int(value / unit) * unit)


def _forms() -> list[tuple[tuple[int, int, int], dict[str, Any]]]:
    found: list[tuple[tuple[int, int, int], dict[str, Any]]] = []
    for sparse, times_k in (("", 1), (_ORDERED, 2)):
        for a, b, d in (
            ("e4m3", "e5m2", "f32"), ("e2m3", "e3m2", "f32"), ("e2m1", "e4m3", "f32"), ("e5m2", "e2m1", "f32"),
            ("e4m3", "e3m2", "f16"), ("e2m3", "e2m1", "f16"),
        ):  # fmt: skip
            more: dict[str, Any] = {"d": d, "a": a, "b": b, "c": d, "sparse": sparse, "target": "sm_120a"}
            found.append(((16, 8, 32 * times_k), more | {"words": "kind::f8f6f4"}))
            if d == "f32":
                scale = ("ue8m0", 1, (1, 0), (1, 1))
                found.append(((16, 8, 32 * times_k), more | {"words": "kind::mxf8f6f4.block_scale", "scale": scale}))
        for words, scaled in (
            ("kind::mxf4.block_scale.scale_vec::2X", "ue8m0"),
            ("kind::mxf4nvf4.block_scale.scale_vec::2X", "ue8m0"),
            ("kind::mxf4nvf4.block_scale.scale_vec::4X", "ue4m3"),
            ("kind::mxf4nvf4.block_scale.scale_vec::4X", "ue8m0"),
        ):
            byte = 0 if "4X" in words else 2
            more = {"d": "f32", "a": "fp4", "b": "fp4", "c": "f32", "sparse": sparse, "target": "sm_120a"}
            more |= {"scale": (scaled, byte, (byte, 0), (byte, 3)), "words": words}
            found.append(((16, 8, 64 * times_k), more))
    return found


def _titled(value: object) -> str:
    return "-".join(str(value[key]) for key in ("words", "a", "b", "d", "sparse")) if isinstance(value, dict) else ""


@pytest.mark.parametrize(("shape", "more"), _forms(), ids=_titled)
def test_products_of_a_kind_are_summed_by_the_published_rule(
    shape: tuple[int, int, int], more: dict[str, Any], cpu: Device
) -> None:
    for seed in range(times(2)):
        form = _Wild(shape, **more, seed=seed, specials=bool(seed % 2) and not more["sparse"])
        o = form.operands()
        with np.errstate(all="ignore"):  # what Mma.exact makes of such numbers is not looked at
            sums = np.array([[_expected(form, o, row, column) for column in range(8)] for row in range(16)])
            expected = pack_sums(sums.astype(np.float32), form.d).view(np.uint32)
            scene = bundle("one", [form])
        got = run_scene(cpu, replace(scene, ptx=scene.ptx.replace(".version 8.8", ".version 9.1")))[-1].view(np.uint32)
        number = got.view(np.float16 if form.d == "f16" else np.float32)
        same = (got == expected) if form.d == "f32" else (number == expected.view(np.float16))
        nans = np.isnan(number) & np.isnan(expected.view(number.dtype))
        assert (same | nans).all(), form.name
