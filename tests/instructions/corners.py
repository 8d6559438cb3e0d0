"""Inputs that ordinary rows seldom meet: NaNs of every kind, results at the edge of flushing, wide fields."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["CORNERS", "specials"]

Array = npt.NDArray[Any]

_FRACTIONS = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}
_EXPONENTS = {"f16": 5, "bf16": 8, "f32": 8, "f64": 11}


def _words(kind: str) -> np.dtype[Any]:
    bits = 1 + _FRACTIONS[kind] + _EXPONENTS[kind]
    return np.dtype(f"u{bits // 8}")


# -- NaNs -------------------------------------------------------------------------------------------------


def specials(kind: str) -> Array:
    """NaNs quiet and signalling, with and without payload, infinities, zeros and numbers, of both signs."""
    fraction, exponent = _FRACTIONS[kind], _EXPONENTS[kind]
    infinity, quiet = ((1 << exponent) - 1) << fraction, 1 << (fraction - 1)
    one, payload = ((1 << (exponent - 1)) - 1) << fraction, 0x5 << max(fraction - 6, 0) | 3
    sizes = [infinity | quiet, infinity | quiet | payload, infinity | (payload >> 1 or 1), infinity | 1]
    sizes += [infinity | (1 << fraction) - 1, infinity, 0, one, one + 3, 1 << fraction, 7]
    sign = 1 << (fraction + exponent)
    return np.array([s | size for size in sizes for s in (0, sign)], _words(kind))


def _nans(_name: str, kinds: Sequence[str], count: int, rng: np.random.Generator) -> list[Array]:
    """Pairs of special values: all of them where they fit, each once and then at random."""
    values = [_of_kind(kind, rng, count) for kind in kinds]
    floats = [k for k, kind in enumerate(kinds) if kind.removesuffix("x2") in _FRACTIONS]
    every = list(itertools.product(range(len(specials("f32"))), repeat=min(len(floats), 2)))
    picks = [every[k] for k in rng.permutation(len(every))][:count]
    for place, k in enumerate(floats[:2]):
        kind = kinds[k].removesuffix("x2")
        chosen = specials(kind)[[pick[place] for pick in picks]]
        low = values[k].astype(np.uint32) & 0xFFFF if kinds[k].endswith("x2") else None
        values[k][: len(picks)] = chosen if low is None else chosen.astype(np.uint32) << 16 | low[: len(picks)]
    return values


def _of_kind(kind: str, rng: np.random.Generator, count: int) -> Array:
    if kind.endswith("x2"):
        low, high = (rng.choice(specials(kind[:-2]), count).astype(np.uint32) for _ in range(2))
        return np.asarray(low | high << 16)
    if kind in _FRACTIONS:
        return rng.choice(specials(kind), count)
    return rng.integers(0, 2 if kind == "p" else 72, count).astype(f"u{int(kind[1:]) // 8}" if kind[0] == "i" else "u4")


# -- flushing ---------------------------------------------------------------------------------------------


def _edges(name: str, kinds: Sequence[str], count: int, rng: np.random.Generator) -> list[Array]:
    """Operands whose result lies within some units in the last place of the smallest normal number."""
    half = name.endswith("f16")
    real, least, fraction = ("f2", 2.0**-14, 10) if half else ("f4", 2.0**-126, 23)
    word = np.dtype(f"u{real[1]}")

    def near(x: Array) -> Array:
        """Round, and move by a few units in the last place."""
        with np.errstate(over="ignore"):
            bits = np.abs(x).astype(real).view(word).astype(np.int64) + rng.integers(-3, 4, count)
        return np.asarray(np.where(rng.integers(0, 2, count), -1.0, 1.0) * np.maximum(bits, 0).astype(word).view(real))

    steps = rng.choice([0, 1, 2, 3, -1, -2], count).astype(np.int64)
    some = np.where(rng.integers(0, 2, count), 1 + steps * 2.0**-fraction, 1 + rng.random(count))
    reach = 5 if half else 60
    x = (some * 2.0 ** rng.integers(-reach, reach + 1, count)).astype(real).astype(np.float64)
    opcode = name.partition(".")[0]
    values: list[Array]
    if opcode == "mul":
        values = [x, near(least / x)]
    elif opcode == "div":
        values = [near(least * x), x]
    elif opcode == "rcp":
        values = [near(1 / least * np.ones(count))]
    elif opcode in ("add", "sub"):
        values = [near(least * (1 + rng.random(count))), near(least * rng.random(count) + least)]
    elif opcode == "fma":
        part = rng.choice([0.0, 0.25, 0.5, 1.5, 2.0, -1.0, 2.0**-fraction, 1 - 2.0**-fraction], count)
        values = [x, near(least * (1 - part) / x), least * part]
    elif opcode == "ex2":
        values = [near(126.0 * np.ones(count)) if not half else near(14.0 * np.ones(count))]
        values[0] = -np.abs(values[0])
    elif opcode == "cvt":
        values = [least * (1 + rng.integers(-40, 41, count) * 2.0 ** -(fraction + 4))]
        values[0] *= np.where(rng.integers(0, 2, count), -1.0, 1.0)
    else:
        values = [near(np.full(count, least)) for _ in kinds]
    formats = {"f16": "f2", "f32": "f4", "f64": "f8"}
    with np.errstate(over="ignore"):
        return [v.astype(formats[k]).view(f"u{formats[k][1]}") for v, k in zip(values, kinds, strict=True)]


# -- wide counts ------------------------------------------------------------------------------------------


def _fields(_name: str, kinds: Sequence[str], count: int, rng: np.random.Generator) -> list[Array]:
    """Positions, lengths and counts over all 32 bits, many of them small in their low byte."""
    small = rng.integers(0, 72, (len(kinds), count))
    high = rng.choice([0, 0, 0, 1, 2, 0x80, 0x10000, 0x7FFFFF, 0x800000, 0xFFFFFF], (len(kinds), count)) << 8
    counts = (small | high).astype(np.uint32)
    values = []
    for k, kind in enumerate(kinds):
        word = np.dtype("u4" if kind == "n" else f"u{int(kind[1:]) // 8}")
        wild = rng.integers(0, 2 ** (8 * word.itemsize), count, np.uint64 if word.itemsize == 8 else word)
        values.append(counts[k] if kind == "n" else wild.astype(word))
    return values


CORNERS: dict[str, Callable[[str, Sequence[str], int, np.random.Generator], list[Array]]] = {
    "nans": _nans,
    "edges": _edges,
    "fields": _fields,
}
"""What makes the inputs of rows of each kind, from the mnemonic, the kinds of the sources and a count."""
