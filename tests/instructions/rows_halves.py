"""Rows of f16, bf16 and their pairs: arithmetic, comparison, approximate functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from instructions.table import Row

__all__ = ["ROWS"]

_COMPARE = "eq ne lt le gt ge equ neu ltu leu gtu geu num nan"


def _rows(names: str, result: str, sources: str, *, relative: float = 0.0, absolute: float = 0.0) -> list[Row]:
    kinds = tuple(sources.split())
    return [Row(name, result, kinds, relative, absolute, target="sm_90") for name in names.split()]


def _arithmetic(t: str) -> Iterator[Row]:
    one, two, three = t, f"{t} {t}", f"{t} {t} {t}"
    yield from _rows(f"add.{t} sub.rn.{t} mul.{t} min.{t} max.{t} min.NaN.{t} max.NaN.{t}", t, two)
    yield from _rows(f"min.xorsign.abs.{t} max.xorsign.abs.{t} max.NaN.xorsign.abs.{t}", t, two)
    yield from _rows(f"fma.rn.{t} fma.rn.relu.{t} fma.rn.oob.{t} fma.rn.oob.relu.{t}", t, three)
    yield from _rows(f"neg.{t} abs.{t}", t, one)
    if t.startswith("bf16"):
        return
    yield from _rows(f"add.ftz.{t} sub.sat.{t} add.ftz.sat.{t} mul.rn.ftz.{t} mul.sat.{t} sub.ftz.{t}", t, two)
    yield from _rows(f"min.ftz.{t} max.ftz.{t} min.ftz.NaN.xorsign.abs.{t}", t, two)
    yield from _rows(f"fma.rn.ftz.{t} fma.rn.sat.{t} fma.rn.ftz.sat.{t} fma.rn.ftz.relu.{t}", t, three)
    yield from _rows(f"neg.ftz.{t} abs.ftz.{t}", t, one)


def _comparisons(t: str) -> Iterator[Row]:
    is_pair, is_f16 = t.endswith("x2"), t.startswith("f16")
    predicates = "pp" if is_pair else "p"
    for c in _COMPARE.split():
        yield from _rows(f"setp.{c}.{t}", predicates, f"{t} {t}")
    yield from _rows(f"setp.lt.and.{t} setp.geu.or.{t} setp.nan.xor.{t}", predicates, f"{t} {t} p")
    yield from _rows(f"set.lt.u32.{t} set.neu.s32.{t}", "i32", f"{t} {t}")
    yield from _rows(f"set.ge.{t}.{t} set.num.{t}.{t}", t, f"{t} {t}")
    yield from _rows(f"set.gtu.or.{t}.{t}", t, f"{t} {t} p")
    if is_f16:
        yield from _rows(f"setp.eq.ftz.{t} setp.ltu.and.ftz.{t}", predicates, f"{t} {t}")
        yield from _rows(f"set.gt.ftz.{t}.{t}", t, f"{t} {t}")
    if is_pair:
        return
    yield from _rows(f"set.le.u16.{t} set.leu.s16.{t}", "i16", f"{t} {t}")
    for source in ("s16", "u16", "b16", "s32", "u32", "b32", "s64", "u64", "b64", "f32", "f64"):
        kind = source if source[0] == "f" else f"i{source[1:]}"
        name = {"b": "ne", "u": "hs", "s": "lt", "f": "geu"}[source[0]]
        yield from _rows(f"set.{name}.{t}.{source}", t, f"{kind} {kind}")
    if is_f16:
        yield from _rows(f"set.lt.ftz.{t}.f32", t, "f32 f32")


def _approximate() -> Iterator[Row]:
    """Bounds: PTX ISA 9.1, each instruction's notes. The GPU and the CPU device each may be off by the bound."""
    for t in ("f16", "f16x2"):
        yield from _rows(f"ex2.approx.{t}", t, t, relative=2 * 2.0**-9.9)
        yield from _rows(f"tanh.approx.{t}", t, t, absolute=2 * 2.0**-10.987)
    for t in ("bf16", "bf16x2"):
        yield from _rows(f"ex2.approx.ftz.{t}", t, t, relative=2 * 2.0**-7)
        yield from _rows(f"tanh.approx.{t}", t, t, absolute=2 * 2.0**-8)


def _all() -> Iterator[Row]:
    for t in ("f16", "bf16", "f16x2", "bf16x2"):
        yield from _arithmetic(t)
        yield from _comparisons(t)
    yield from _rows("set.lt.bf16.f16", "bf16", "f16 f16")
    yield from _approximate()


def _with_predicate(row: Row) -> Row:
    """Give the rows that join a predicate one."""
    joins = {"and", "or", "xor"} & set(row.name.split("."))
    return replace(row, sources=(*row.sources, "p")) if joins and "p" not in row.sources else row


ROWS = tuple(_with_predicate(row) for row in _all())
