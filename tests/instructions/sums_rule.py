"""The rule by which an H200 sums, in whole numbers; slow, and independent of the code that is tested."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy.typing as npt

from instructions.sums_inputs import FORMATS

__all__ = ["aligned_sum"]

Array = npt.NDArray[Any]


class _Number(NamedTuple):
    """A float: its value, the exponent that it is aligned by, and what it is if it is no number."""

    value: Fraction
    exponent: int
    special: float | None


def _read(code: int, type_: str) -> _Number:
    f = FORMATS[type_]
    code >>= f.low
    sign = -1 if code >> (f.exponent + f.fraction) & 1 else 1
    biased, fraction = code >> f.fraction & (1 << f.exponent) - 1, code & (1 << f.fraction) - 1
    if biased > f.top or (type_ == "e4m3" and (biased, fraction) == (15, 7)):
        return _Number(Fraction(0), 0, sign * float("inf") if fraction == 0 else float("nan"))
    exponent = max(biased, 1) - f.bias
    significand = fraction + (1 << f.fraction if biased else 0)
    return _Number(sign * significand * Fraction(2) ** (exponent - f.fraction), exponent, None)


def _cut(value: Fraction, exponent: int) -> Fraction:
    """Cut toward zero to a multiple of a power of two."""
    unit = Fraction(2) ** exponent
    return int(value / unit) * unit


@dataclass(frozen=True)
class _Rule:
    d: str
    width: int
    kept: int


def _rounded(value: Fraction, rule: _Rule) -> int:
    """Code of the sum: f32 cut to ``kept`` bits, f16 to nearest even."""
    f = FORMATS[rule.d]
    size = abs(value)
    if not size:
        return 0
    exponent = size.numerator.bit_length() - size.denominator.bit_length()
    exponent -= Fraction(2) ** exponent > size
    place = max(exponent, f.least) - f.fraction
    count = size / Fraction(2) ** place
    whole = round(count) if rule.d == "f16" else int(count)
    code = whole + ((max(exponent, f.least) - f.least) << f.fraction)
    code = min(code, ((1 << f.exponent) - 1) << f.fraction) & ~((1 << (f.fraction - rule.kept)) - 1)
    return code | (value < 0) << (f.exponent + f.fraction) if code else 0


def aligned_sum(
    a: Array, b: Array, c: int, types: tuple[str, str, str, str], width: int = 25, kept: int | None = None
) -> int:
    """Code of D for a row of A, a column of B and C; ``types`` are those of A, B, C and D."""
    rule = _Rule(types[3], width, FORMATS[types[3]].fraction if kept is None else kept)
    pairs = [(_read(int(x), types[0]), _read(int(y), types[1])) for x, y in zip(a, b, strict=True)]
    last = _read(c, types[2])
    plain = 0.0 if last.special is None else last.special
    for x, y in pairs:
        if x.special is not None or y.special is not None:
            signs = [float((n.value > 0) - (n.value < 0)) if n.special is None else n.special for n in (x, y)]
            plain += signs[0] * signs[1]
    f = FORMATS[rule.d]
    if plain != plain:
        return (1 << (f.exponent + f.fraction)) - 1
    if plain:
        return ((1 << f.exponent) - 1) << f.fraction | (plain < 0) << (f.exponent + f.fraction)
    terms = [(x.value * y.value, x.exponent + y.exponent) for x, y in pairs] + [(last.value, last.exponent)]
    # A C of 0 is aligned by, too; but in wgmma of 8-bit floats, where only f16 sums could tell.
    aligning = [term for term in terms if term[0] or (term is terms[-1] and width == 25)]
    if not aligning:
        return 0
    unit = max(exponent for _, exponent in aligning) - width
    return _rounded(sum((_cut(value, unit) for value, _ in terms), Fraction(0)), rule)
