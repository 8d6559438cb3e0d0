"""Rows on inputs that the others seldom meet: every float instruction on NaNs, flushing at its edge, wide counts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from instructions import rows_halves, rows_packed
from instructions.table import ROWS as PLAIN
from instructions.table import Row

__all__ = ["ROWS"]

_FLOATS = frozenset({"f16", "bf16", "f16x2", "bf16x2", "f32", "f64"})
_ALIKE = frozenset({"rz", "rp"})
"""Roundings left out: what becomes of NaNs is told by ``rn`` and ``rm``."""


def _nans() -> Iterator[Row]:
    """Every row from floats to floats."""
    for row in (*PLAIN, *rows_halves.ROWS, *rows_packed.ROWS):
        sources = row.sources
        if row.name.startswith("cvt") and row.name.split(".")[-1] == "f16":
            sources = ("f16",)
        result = "f16" if row.name.startswith(("cvt.rn.f16.f", "cvt.rz.f16.f")) else row.result
        words = set(row.name.split("."))
        if result in _FLOATS and _FLOATS & set(sources) and not (words & _ALIKE and row.target == "sm_80"):
            yield replace(row, result=result, sources=sources, about="nans")


def _edges() -> Iterator[Row]:
    for mode in ("rn", "rz", "rm", "rp"):
        for name in ("add", "mul", "div"):
            yield Row(f"{name}.{mode}.ftz.f32", "f32", ("f32", "f32"))
        yield Row(f"fma.{mode}.ftz.f32", "f32", ("f32", "f32", "f32"))
        yield Row(f"rcp.{mode}.ftz.f32", "f32", ("f32",))
        yield Row(f"cvt.{mode}.ftz.f32.f64", "f32", ("f64",))
    yield Row("mul.rn.f32", "f32", ("f32", "f32"))
    yield Row("fma.rn.f32", "f32", ("f32", "f32", "f32"))
    yield Row("mul.ftz.sat.f32", "f32", ("f32", "f32"))
    yield Row("fma.rn.ftz.sat.f32", "f32", ("f32", "f32", "f32"))
    for name in ("add.ftz", "mul.ftz", "mul.rn.ftz.sat"):
        yield Row(f"{name}.f16", "f16", ("f16", "f16"), target="sm_90")
    for name in ("fma.rn.ftz", "fma.rn.ftz.sat", "fma.rn.ftz.relu"):
        yield Row(f"{name}.f16", "f16", ("f16", "f16", "f16"), target="sm_90")
    for row in PLAIN:
        if "approx" in row.name and "ftz" in row.name and row.result == "f32" and "sin" not in row.name:
            yield row


def _fields() -> Iterator[Row]:
    for bits in ("32", "64"):
        k = f"i{bits}"
        for t in ("s", "u"):
            yield Row(f"bfe.{t}{bits}", k, (k, "n", "n"))
        yield Row(f"bfi.b{bits}", k, (k, k, "n", "n"))
    for bits in ("16", "32", "64"):
        k = f"i{bits}"
        for name in (f"shl.b{bits}", f"shr.u{bits}", f"shr.s{bits}"):
            yield Row(name, k, (k, "n"))
    for mode in ("clamp", "wrap"):
        for way in "lr":
            yield Row(f"shf.{way}.{mode}.b32", "i32", ("i32", "i32", "n"))
        yield Row(f"bmsk.{mode}.b32", "i32", ("n", "n"))
        for t in ("s32", "u32"):
            yield Row(f"szext.{mode}.{t}", "i32", ("i32", "n"))
            yield Row(f"vshl.{t}.u32.u32.{mode}", "i32", ("i32", "n"))


def _all() -> Iterator[Row]:
    yield from _nans()
    yield from (replace(row, about="edges") for row in _edges())
    yield from (replace(row, about="fields") for row in _fields())


ROWS = tuple(_all())
