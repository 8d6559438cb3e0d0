"""Rows of the integer instructions that are not in ``table.py``: bits, bytes, saturation, comparisons, video."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from instructions.table import Row

__all__ = ["ROWS"]


def _rows(names: str, result: str, sources: str) -> list[Row]:
    return [Row(name, result, tuple(sources.split())) for name in names.split()]


def _each(names: str, result: str, sources: str, types: Sequence[tuple[str, ...]]) -> list[Row]:
    """A row for each name, with one of the lists of types after it, in turn."""
    return [
        row
        for name, kinds in zip(names.split(), itertools.cycle(types))
        for row in _rows(name.replace("*", ".".join(kinds)), result, sources)
    ]


def _bits() -> list[Row]:
    # A base beyond 31 is undefined, so the base is an immediate.
    rows = [
        row
        for base, offset in zip((0, 3, 17, 31) * 3, (0, 1, 2, 5, -1, -2, -5, 33, 31, -31, 0, -32), strict=True)
        for row in _rows("fns.b32", "i32", f"i32 ={base} ={offset}")
    ]
    modes = " ".join(f"prmt.b32.{mode}" for mode in ("f4e", "b4e", "rc8", "ecl", "ecr", "rc16"))
    rows += _rows(modes, "i32", "i32 i32 i32")
    rows += _rows("mad.hi.sat.s32 mad24.hi.sat.s32 mad24.hi.s32 mad24.lo.u32", "i32", "i32 i32 i32")
    rows += _rows("dp4a.u32.s32 dp2a.lo.s32.u32 dp2a.lo.u32.s32 dp2a.lo.u32.u32", "i32", "i32 i32 i32")
    return rows + _rows("dp2a.hi.s32.s32 dp2a.hi.s32.u32 dp2a.hi.u32.s32", "i32", "i32 i32 i32")


def _comparisons() -> list[Row]:
    rows: list[Row] = []
    joins = itertools.cycle(("and", "or", "xor"))
    types = ("s16", "u16", "s64", "u64", "u32")
    for compare, type_ in itertools.product(("eq", "ne", "lt", "le", "gt", "ge"), types):
        kind, join = f"i{type_[1:]}", next(joins)
        rows += _rows(f"setp.{compare}.{join}.{type_}", "p", f"{kind} {kind} p") if compare != "ne" else []
        rows += _rows(f"set.{compare}.{join}.u32.{type_}", "i32", f"{kind} {kind} p")
    rows += _rows("set.lt.s32.u16 set.gt.u32.s16", "i32", "i16 i16") + _rows("set.le.f32.u64", "f32", "i64 i64")
    for type_ in ("b16", "u64", "s64"):
        kind = f"i{type_[1:]}"
        rows += _rows(f"slct.{type_}.s32", kind, f"{kind} {kind} i32")
        rows += _rows(f"slct.{type_}.f32", kind, f"{kind} {kind} f32")
    return rows + _rows("slct.f64.s32", "f64", "f64 f64 i32") + _rows("slct.f32.f32", "f32", "f32 f32 f32")


def _scalar_video() -> list[Row]:
    three = list(itertools.product(("u32", "s32"), repeat=3))
    rows: list[Row] = []
    for name in ("vadd", "vsub", "vabsdiff", "vmin", "vmax"):
        rows += _each(f"{name}.* " * 4 + f"{name}.*.sat " * 4, "i32", "i32 i32", three)
        for second in ("add", "min", "max"):
            rows += _each(f"{name}.*.{second} {name}.*.sat.{second}", "i32", "i32 i32 i32", three[::3])
            rows += _each(f"{name}.*.{second} {name}.*.sat.{second}", "i32", "i32 i32 i32", three[1::4])
        rows += _each(f"{name}.*.sat " * 4, "i32", "i32 i32 i32", three[:4])
    for name in ("vshl", "vshr"):
        shifts = [(*two, "u32") for two in itertools.product(("u32", "s32"), repeat=2)]
        for mode in ("clamp", "wrap"):
            rows += _each(f"{name}.*.{mode} " * 4 + f"{name}.*.sat.{mode} " * 4, "i32", "i32 n", shifts)
        seconds = " ".join(f"{name}.*.clamp.{second}" for second in ("add", "min", "max", "min"))
        rows += _each(seconds, "i32", "i32 n i32", shifts)
    scales = " ".join(
        f"vmad.*{sat}{scale}" for scale in ("", ".shr7", ".shr15") for sat in ("", ".sat", ".po", ".po.sat")
    )
    rows += _each(scales, "i32", "i32 i32 i32", three[::2]) + _each(scales, "i32", "i32 i32 i32", three[5:])
    for compare, two in zip(("eq", "ne", "lt", "le", "gt", "ge"), itertools.cycle(three[2:6])):
        rows += _each(f"vset.*.{compare}", "i32", "i32 i32", [two[:2]])
        rows += _each(f"vset.*.{compare}.max", "i32", "i32 i32 i32", [two[1:]])
    return rows


def _lanewise_video() -> list[Row]:
    three = list(itertools.product(("u32", "s32"), repeat=3))
    rows: list[Row] = []
    for name, count in itertools.product(("vadd", "vsub", "vavrg", "vabsdiff", "vmin", "vmax"), (2, 4)):
        forms = " ".join(f"{name}{count}.*{mode}" for mode in ("", ".sat", ".add", "", ".sat"))
        rows += _each(forms, "i32", "i32 i32 i32", three[count % 4 :])
    for compare, count in itertools.product(("eq", "ne", "lt", "le", "gt", "ge"), (2, 4)):
        rows += _each(
            f"vset{count}.*.{compare} vset{count}.*.{compare}.add",
            "i32",
            "i32 i32 i32",
            [("s32", "u32"), ("u32", "u32")],
        )
    return rows


ROWS: tuple[Row, ...] = tuple(dict.fromkeys((*_bits(), *_comparisons(), *_scalar_video(), *_lanewise_video())))
