"""Rows of conversions to and from halves, tf32, 8-bit floats and packed integers, and of integers in pairs."""

from __future__ import annotations

from collections.abc import Iterator

from instructions.table import Row

__all__ = ["ROWS"]

_EIGHT = ("e4m3x2", "e5m2x2")


def _rows(names: str, result: str, sources: str) -> list[Row]:
    return [Row(name, result, tuple(sources.split()), target="sm_90") for name in names.split()]


def _halves(t: str) -> Iterator[Row]:
    other = "bf16" if t == "f16" else "f16"
    for mode in ("rn", "rz"):
        for limit in (".relu", ".satfinite", ".relu.satfinite"):
            yield from _rows(f"cvt.{mode}{limit}.{t}.f32", t, "f32")
        for limit in ("", ".relu", ".satfinite", ".relu.satfinite"):
            yield from _rows(f"cvt.{mode}{limit}.{t}x2.f32", f"{t}x2", "f32 f32")
    for mode in ("rn", "rz", "rm", "rp"):
        yield from _rows(f"cvt.{mode}.{t}.f64", t, "f64") if (t, mode) != ("f16", "rn") else ()
        yield from _rows(f"cvt.{mode}.{t}.{other}", t, other)
        yield from _rows(f"cvt.{mode}.ftz.{t}.f32", t, "f32")
        if not (t == "f16" and mode in ("rn", "rz")):
            yield from _rows(f"cvt.{mode}.{t}.f32", t, "f32")
        for integer in ("s16", "u16", "s32", "u32", "s64", "u64"):
            yield from _rows(f"cvt.{mode}.{t}.{integer}", t, f"i{integer[1:]}")
    for mode in ("rni", "rzi", "rmi", "rpi"):
        yield from _rows(f"cvt.{mode}.{t}.{t}", t, t)
        for integer in ("s16", "u16", "s32", "u32", "s64", "u64"):
            yield from _rows(f"cvt.{mode}.{integer}.{t}", f"i{integer[1:]}", t)
    yield from _rows(f"cvt.f64.{t}", "f64", t) + _rows(f"cvt.ftz.f32.{t}", "f32", t)


def _small(t: str) -> Iterator[Row]:
    for limit in ("", ".relu"):
        yield from _rows(f"cvt.rn.satfinite{limit}.{t}.f32", "i16", "f32 f32")
        yield from _rows(f"cvt.rn.satfinite{limit}.{t}.f16x2", "i16", "f16x2")
        yield from _rows(f"cvt.rn{limit}.f16x2.{t}", "f16x2", "i16")


def _all() -> Iterator[Row]:
    for t in ("f16", "bf16"):
        yield from _halves(t)
    yield from _rows("cvt.f32.bf16", "f32", "bf16")
    yield from _rows("cvt.rn.sat.f16.f32 cvt.rz.sat.f16.f32", "f16", "f32") + _rows("cvt.sat.f16.f16", "f16", "f16")
    yield from _rows("cvt.rn.f16.s8 cvt.rn.f16.u8", "f16", "i32")
    yield from _rows("cvt.rzi.s8.f16 cvt.rni.u8.f16", "i32", "f16")
    yield from _rows("cvt.rna.tf32.f32 cvt.rna.satfinite.tf32.f32", "i32", "f32")
    yield from _rows("cvt.rn.tf32.f32 cvt.rz.tf32.f32 cvt.rn.relu.tf32.f32 cvt.rz.relu.tf32.f32", "i32", "f32")
    for t in _EIGHT:
        yield from _small(t)
    yield from _rows("cvt.pack.sat.u16.s32 cvt.pack.sat.s16.s32", "i32", "i32 i32")
    for t in ("u8", "s8", "u4", "s4", "u2", "s2"):
        yield from _rows(f"cvt.pack.sat.{t}.s32.b32", "i32", "i32 i32 i32")
    for t in ("u16x2", "s16x2"):
        yield from _rows(f"add.{t} min.{t} max.{t}", "i32", "i32 i32")
    yield from _rows("min.relu.s16x2 max.relu.s16x2", "i32", "i32 i32")


ROWS = tuple(_all())
