"""Operands that show how a tensor core sums: sixteen kinds, from random bits to ties, cancellation and NaN."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["FORMATS", "KINDS", "Format", "operands", "small_operands"]

Array = npt.NDArray[Any]
Range = tuple[Any, Any]


class Format(NamedTuple):
    """A float: bits of exponent and fraction, bias, bits that it is stored in, and below which bit of them it ends."""

    exponent: int
    fraction: int
    bias: int
    bits: int
    low: int = 0

    @property
    def dtype(self) -> npt.DTypeLike:
        """Unsigned integer that has its codes."""
        return np.dtype(f"u{self.bits // 8}")

    @property
    def top(self) -> int:
        """The largest biased exponent of a number; e4m3 has no infinity."""
        return (1 << self.exponent) - (1 if self is FORMATS["e4m3"] else 2)

    @property
    def least(self) -> int:
        """The least exponent of a normal number."""
        return 1 - self.bias

    @property
    def largest(self) -> int:
        """The largest exponent."""
        return self.top - self.bias


FORMATS = {
    "f16": Format(5, 10, 15, 16),
    "bf16": Format(8, 7, 127, 16),
    "tf32": Format(8, 10, 127, 32, 13),
    "f32": Format(8, 23, 127, 32),
    "f64": Format(11, 52, 1023, 64),
    "e4m3": Format(4, 3, 7, 8),
    "e5m2": Format(5, 2, 15, 8),
}


def _codes(f: Format, sign: Any, exponent: Any, fraction: Any) -> Array:
    """Codes of numbers; an exponent below the least makes a subnormal number, one above the largest is that."""
    m = np.asarray(fraction).astype(np.int64)
    biased = np.clip(np.asarray(exponent) + f.bias, -f.fraction, f.top)
    subnormal = biased <= 0
    m = np.where(subnormal, (m | 1 << f.fraction) >> np.clip(1 - biased, 0, 62), m)
    if f is FORMATS["e4m3"]:
        m = np.where((biased == 15) & (m == 7), 6, m)
    code: Array = np.asarray(sign).astype(np.uint64) << np.uint64(f.exponent + f.fraction)
    code = code | np.where(subnormal, 0, biased).astype(np.uint64) << np.uint64(f.fraction) | m.astype(np.uint64)
    return np.asarray(code << np.uint64(f.low)).astype(f.dtype)


def _signs(rng: np.random.Generator, shape: Any) -> Array:
    return np.asarray(rng.integers(0, 2, shape))


def _fractions(f: Format, rng: np.random.Generator, shape: Any) -> Array:
    """Random fractions, of every eight one 0 and one all ones."""
    m, kind = rng.integers(0, 1 << f.fraction, shape), rng.integers(0, 8, shape)
    return np.asarray(np.where(kind == 1, (1 << f.fraction) - 1, np.where(kind == 0, 0, m)))


def _between(f: Format, rng: np.random.Generator, shape: Any, low: Any, high: Any) -> Array:
    """Random numbers with exponents of a range."""
    return _codes(f, _signs(rng, shape), rng.integers(low, high + 1, shape), _fractions(f, rng, shape))


def _bits(f: Format, rng: np.random.Generator, shape: Any) -> Array:
    return np.asarray(rng.integers(0, 1 << 64, shape, dtype=np.uint64)).astype(f.dtype)


def _special(f: Format, rng: np.random.Generator, shape: Any) -> Array:
    """Infinities, NaNs quiet and not, zeros."""
    sign = _signs(rng, shape).astype(np.uint64) << np.uint64(f.exponent + f.fraction)
    inf = ((1 << f.exponent) - 1) << f.fraction
    table = [inf, inf | 1, inf | 1 << (f.fraction - 1)]
    table = [0x7F, 0, 0x38] if f is FORMATS["e4m3"] else [*table, inf | int(rng.integers(1, 1 << f.fraction)), 0]
    picked = np.array(table, np.uint64)[rng.integers(0, len(table), shape)] | sign
    return np.asarray(picked << np.uint64(f.low)).astype(f.dtype)


@dataclass(frozen=True)
class _Case:
    """A (warps, m, k), B (warps, n, k) and C (warps, m, n) of one form, and what makes them random."""

    a: Format
    b: Format
    c: Format
    shapes: tuple[tuple[int, ...], ...]
    rng: np.random.Generator

    def all_between(self, a: Range, b: Range, c: Range) -> tuple[Array, ...]:
        """Numbers with exponents of three ranges."""
        formats, ranges = (self.a, self.b, self.c), (a, b, c)
        return tuple(_between(f, self.rng, s, *r) for f, s, r in zip(formats, self.shapes, ranges, strict=True))

    @property
    def warps(self) -> int:
        """How many sums of matrices."""
        return self.shapes[0][0]

    @property
    def k(self) -> int:
        """Steps of k."""
        return self.shapes[0][2]


def _random_bits(x: _Case) -> tuple[Array, ...]:
    return tuple(_bits(f, x.rng, s) for f, s in zip((x.a, x.b, x.c), x.shapes, strict=True))


def _all_exponents(x: _Case) -> tuple[Array, ...]:
    low = max(x.c.least - 10, x.a.least + x.b.least - 6)
    high = min(x.c.largest, x.a.largest + x.b.largest + 6)
    return x.all_between((x.a.least - 3, x.a.largest), (x.b.least - 3, x.b.largest), (low, high))


def _narrow(x: _Case) -> tuple[Array, ...]:
    return x.all_between((-1, 1), (-1, 1), (-3, 5))


def _wide(x: _Case) -> tuple[Array, ...]:
    """Exponents of another range in each warp."""
    w = x.rng.integers(2, 17, (x.warps, 1, 1))
    exponents = [(x.rng.integers(0, 1 << 20, s) % (2 * w + 1)) - w for s in x.shapes[:2]]
    found = [
        _codes(f, _signs(x.rng, s), e, _fractions(f, x.rng, s))
        for f, s, e in zip((x.a, x.b), x.shapes, exponents, strict=False)
    ]
    return *found, _between(x.c, x.rng, x.shapes[2], max(x.c.least, -28), min(x.c.largest, 28))


def _one_large(x: _Case, *, powers: bool = False) -> tuple[Array, ...]:
    """One product is large, the others lie so many bits below that they are cut; ``powers`` of two make ties."""
    rng, (sa, sb, sc) = x.rng, x.shapes
    d = rng.integers(8, 31, (x.warps, 1, 1))
    large = rng.integers(0, x.k, (x.warps, 1, 1)) == np.arange(x.k)
    top_a, top_b = x.a.largest // 2, x.b.largest // 2
    ea = np.where(large, top_a, top_a - d // 2)
    eb = np.where(large, top_b, top_b - (d - d // 2))
    ea, eb = ea + rng.integers(-1, 2, sa) * ~large, eb + rng.integers(-1, 2, sb) * ~large
    ma, mb = _fractions(x.a, rng, sa), _fractions(x.b, rng, sb)
    drop = rng.integers(0, 3, sa) == 0
    a = _codes(x.a, _signs(rng, sa), ea, ma * (not powers))
    a = np.where(drop & ~large, 0, a).astype(a.dtype)
    b = _codes(x.b, _signs(rng, sb), eb, mb * (not powers))
    ec = top_a + top_b - np.where(rng.integers(0, 2, sc), rng.integers(0, 34, sc), 99)
    mc = _fractions(x.c, rng, sc) * (not powers)
    c = _codes(x.c, _signs(rng, sc), ec, mc)
    return a, b, np.where(ec < top_a + top_b - 60, 0, c).astype(c.dtype)


def _large_c(x: _Case) -> tuple[Array, ...]:
    rng, shape = x.rng, x.shapes[2]
    d = rng.integers(8, 31, (x.warps, 1, 1))
    ec = np.clip(rng.integers(-3, 4, shape) + d - 2, x.c.least, x.c.largest)
    a, b = (_between(f, rng, s, -2, 1) for f, s in zip((x.a, x.b), x.shapes, strict=False))
    return a, b, _codes(x.c, _signs(rng, shape), ec, _fractions(x.c, rng, shape))


def _small_c(x: _Case) -> tuple[Array, ...]:
    rng, shape = x.rng, x.shapes[2]
    ec = rng.integers(-40, -4, shape)
    a, b = (_between(f, rng, s, -2, 1) for f, s in zip((x.a, x.b), x.shapes, strict=False))
    return a, b, _codes(x.c, _signs(rng, shape), ec, _fractions(x.c, rng, shape))


def _cancelling(x: _Case) -> tuple[Array, ...]:
    """Most products meet their negatives; what is left is C, or little more."""
    rng, (sa, sb, sc) = x.rng, x.shapes
    order = rng.permutation(x.k)
    a, b = _between(x.a, rng, sa, -2, 2), _between(x.b, rng, sb, -2, 2)
    one, other = order[: x.k // 2], order[x.k // 2 : 2 * (x.k // 2)]
    b[:, :, other] = b[:, :, one]
    a[:, :, other] = a[:, :, one] ^ a.dtype.type(1 << (x.a.bits - 1))
    keep = rng.integers(0, 12, (x.warps, 1, x.k)) == 0
    a = np.where(keep, _between(x.a, rng, sa, -2, 2), a).astype(a.dtype)
    return a, b, _between(x.c, rng, sc, max(-40, x.c.least - 10), 2)


def _subnormal_factors(x: _Case) -> tuple[Array, ...]:
    low = max(x.c.least - 24, x.a.least + x.b.least - 10)
    return x.all_between(
        (x.a.least - x.a.fraction - 1, x.a.least + 1),
        (x.b.least - x.b.fraction - 1, x.b.largest),
        (low, min(x.c.largest, x.a.least + x.b.largest)),
    )


def _subnormal_sums(x: _Case) -> tuple[Array, ...]:
    """Products near the least normal number of C, or the least that there are."""
    middle = max(x.a.least, min(x.a.largest, x.c.least // 2))
    other = max(x.b.least, min(x.b.largest, x.c.least - middle))
    return x.all_between(
        (max(x.a.least - 4, middle - 4), middle + 3),
        (max(x.b.least - 4, other - 4), other + 3),
        (x.c.least - x.c.fraction, x.c.least + 3),
    )


def _zeros(x: _Case) -> tuple[Array, ...]:
    """Zeros of both signs and ones; a quarter of the warps has no minus in A, half of them rows of zeros."""
    rng = x.rng

    def pick(f: Format, shape: Any) -> Array:
        ones = [int(_codes(f, sign, 0, 0)) for sign in (0, 1)]
        table = np.array([0, 1 << (f.bits - 1), *ones], f.dtype)
        return np.asarray(table[rng.choice(4, shape, p=[0.4, 0.4, 0.1, 0.1])])

    a, half = pick(x.a, x.shapes[0]), x.warps // 2
    a[:half] = np.where(rng.integers(0, 2, (half, x.shapes[0][1], 1)), a[:half], 0)
    a[: x.warps // 4] &= a.dtype.type(1 << (x.a.bits - 1))
    return a, pick(x.b, x.shapes[1]), pick(x.c, x.shapes[2])


def _overflowing(x: _Case) -> tuple[Array, ...]:
    middle = min(x.a.largest, x.c.largest // 2 + 1)
    other = min(x.b.largest, x.c.largest - middle)
    return x.all_between((middle - 3, middle), (other - 3, other + 1), (x.c.largest - 3, x.c.largest))


def _few_products(x: _Case, count: int = 1) -> tuple[Array, ...]:
    rng, (sa, sb, sc) = x.rng, x.shapes
    keep = np.zeros(sa, bool)
    for _ in range(count):
        keep |= rng.integers(0, x.k, (*sa[:2], 1)) == np.arange(x.k)
    w = 12 if count == 1 else 8
    a = _between(x.a, rng, sa, max(x.a.least, -w), min(x.a.largest, w))
    b = _between(x.b, rng, sb, max(x.b.least, -w), min(x.b.largest, w))
    _signs(rng, sa)  # once the signs of zeros; drawn still, so that what follows is what was recorded
    c = _between(x.c, rng, sc, max(x.c.least, -32), min(x.c.largest, 32))
    c = np.where(rng.integers(0, 4, sc) == 0, 0, c).astype(c.dtype)
    return np.where(keep, a, 0).astype(a.dtype), b, c


def _with_special(x: _Case) -> tuple[Array, ...]:
    """Infinities and NaNs here and there."""
    rng = x.rng
    near = (max(x.a.least, -4), min(x.a.largest, 4))
    found = list(x.all_between(near, (max(x.b.least, -4), min(x.b.largest, 4)), near))
    share = rng.choice([0.005, 0.02, 0.1], (x.warps, 1, 1))
    for k, (f, shape) in enumerate(zip((x.a, x.b, x.c), x.shapes, strict=True)):
        chosen = rng.random(shape) < share
        found[k] = np.where(chosen, _special(f, rng, shape), found[k]).astype(found[k].dtype)
    return tuple(found)


KINDS: dict[str, Callable[[_Case], tuple[Array, ...]]] = {
    "random bits": _random_bits,
    "all exponents": _all_exponents,
    "narrow": _narrow,
    "wide": _wide,
    "one large": _one_large,
    "large C": _large_c,
    "small C": _small_c,
    "cancelling": _cancelling,
    "subnormal factors": _subnormal_factors,
    "subnormal sums": _subnormal_sums,
    "zeros": _zeros,
    "overflowing": _overflowing,
    "one product": _few_products,
    "two products": lambda x: _few_products(x, 2),
    "infinite and NaN": _with_special,
    "powers of two": lambda x: _one_large(x, powers=True),
}
"""What makes A, B and C of each kind. A new kind goes to the end: the seed has its place in it."""


def operands(name: str, types: tuple[str, str, str], shape: tuple[int, int, int], warps: int) -> tuple[Array, ...]:
    """Make codes of A (m by k), B (n by k) and C (m by n), ``warps`` of each kind, always the same for a name."""
    m, n, k = shape
    a, b, c = (FORMATS[t] for t in types)
    shapes = ((warps, m, k), (warps, n, k), (warps, m, n))
    parts = []
    for place, make in enumerate(KINDS.values()):
        rng = np.random.default_rng([zlib.crc32(name.encode()), place])
        with np.errstate(all="ignore"):
            parts.append(make(_Case(a, b, c, shapes, rng)))
    return tuple(np.concatenate(x) for x in zip(*parts, strict=True))


def small_operands(type_: str, shape: tuple[int, int, int]) -> tuple[Array, Array, Array]:
    """Make codes of A and B (f16 or e5m2) whose sums are near half of the least f16, and of C, a subnormal f16 or 0.

    What is there besides a tie is so small that the exponent that C is aligned by decides whether it counts.
    """
    (m, n, k), warps = shape, 16
    rng = np.random.default_rng(3)
    a, b = np.zeros((warps, m, k)), np.zeros((warps, n, k))
    a[:, :, 0], b[:, :, 0] = rng.choice([1, -1, 3, -3, 0], (warps, m)) * 2.0**-12, 2.0**-13
    if type_ == "f16":
        a[:, :, 1], b[:, :, 1] = rng.choice([1, -1], (warps, m)) * (1 + 2.0**-10) * 2.0**-14, (1 + 2.0**-10) * 2.0**-14
        a[:, :, 2], b[:, :, 2] = -np.sign(a[:, :, 1]) * (1 + 2.0**-9) * 2.0**-14, 2.0**-14
    else:
        a[:, :, 1], b[:, :, 1] = rng.choice([1, -1, 0], (warps, m)) * 2.0**-14, 2.0**-14
    c = rng.integers(0, 20, (warps, m, n)).astype(np.uint16)
    c |= (rng.integers(0, 2, (warps, m, n)) << 15).astype(np.uint16)
    codes = [x.astype(np.float16).view(np.uint16) for x in (a, b)]
    if type_ == "e5m2":
        codes = [(x >> 8).astype(np.uint8) for x in codes]
    return codes[0], codes[1], c
