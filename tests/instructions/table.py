"""Every instruction that the CPU device executes on plain values, as rows; what a GPU computed for them is golden data.

A row is a mnemonic, the kind of its result and the kinds of its sources. Kinds: ``i16 i32 i64`` integers, ``f32 f64``
and ``f16 bf16 f16x2 bf16x2`` floats (all in corner cases and random), ``n`` a small count, ``p`` a predicate, ``=5``
an immediate; of results alone, ``pp`` two predicates. ``within`` is the bound for instructions that the manual leaves
approximate: relative, or absolute where it says so.

More rows are in the files ``rows_<family>.py`` beside this one, each with a tuple ``ROWS``.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from instructions.corners import CORNERS

__all__ = [
    "COUNT",
    "REGISTERS",
    "ROWS",
    "Row",
    "all_rows",
    "inputs_of",
    "key_of",
    "memory_of",
    "module_text",
    "results_of",
]

COUNT = 512
"""Values a row is tried on."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Row:
    """One instruction form."""

    name: str
    result: str
    sources: tuple[str, ...]
    relative: float = 0.0
    absolute: float = 0.0
    limit: float = 0.0
    """Where not 0, inputs beyond this magnitude have no bound in the manual."""
    target: str = "sm_80"
    """The first architecture that has the form."""
    about: str = ""
    """What its inputs are about, a key of ``corners.CORNERS``; "" for all kinds of values mixed."""

    @property
    def exact(self) -> bool:
        """Whether the bits must be equal."""
        return not (self.relative or self.absolute)


def key_of(row: Row) -> str:
    """Name of a row in the golden file: the mnemonic, its immediates, and what its inputs are about."""
    parts = [row.name, *(k[1:] for k in row.sources if k.startswith("=")), row.about]
    return "_".join(part for part in parts if part)


def _rows(
    names: str, result: str, sources: str, *, relative: float = 0.0, absolute: float = 0.0, limit: float = 0.0
) -> list[Row]:
    return [Row(name, result, tuple(sources.split()), relative, absolute, limit) for name in names.split()]


def _each(template: str, types: str) -> str:
    return " ".join(template.replace("*", t) for t in types.split())


_S, _U = "s16 s32 s64", "u16 u32 u64"
_ORDERED = "eq ne lt le gt ge"
_FLOAT_COMPARE = "eq ne lt le gt ge equ neu ltu leu gtu geu num nan"


def _integer_rows() -> list[Row]:
    rows: list[Row] = []
    for t in f"{_S} {_U}".split():
        k, wide = f"i{t[1:]}", f"i{2 * int(t[1:])}"
        rows += _rows(f"add.{t} sub.{t} mul.lo.{t} mul.hi.{t} min.{t} max.{t}", k, f"{k} {k}")
        rows += _rows(f"div.{t} rem.{t}", k, f"{k} {k}")
        rows += _rows(f"mad.lo.{t} mad.hi.{t} sad.{t}", k, f"{k} {k} {k}")
        rows += _rows(f"shr.{t}", k, f"{k} n")
        rows += [r for c in _ORDERED.split() for r in _rows(f"setp.{c}.{t}", "p", f"{k} {k}")]
        if wide != "i128":
            rows += _rows(f"mul.wide.{t}", wide, f"{k} {k}") + _rows(f"mad.wide.{t}", wide, f"{k} {k} {wide}")
        if t[0] == "s":
            rows += _rows(f"abs.{t} neg.{t}", k, k)
        else:
            rows += [r for c in ("lo", "ls", "hi", "hs") for r in _rows(f"setp.{c}.{t}", "p", f"{k} {k}")]
    for t in ("s32", "u32", "s64", "u64"):
        k = f"i{t[1:]}"
        rows += _rows(f"bfe.{t}", k, f"{k} n n") + _rows(f"bfind.{t} bfind.shiftamt.{t}", "i32", k)
    rows += _rows("add.sat.s32 sub.sat.s32 mul24.lo.s32 mul24.lo.u32 mul24.hi.s32 mul24.hi.u32", "i32", "i32 i32")
    rows += _rows("mad24.lo.s32 mad24.hi.u32 dp4a.s32.s32 dp4a.u32.u32 dp4a.s32.u32", "i32", "i32 i32 i32")
    rows += _rows("dp2a.lo.s32.s32 dp2a.hi.u32.u32", "i32", "i32 i32 i32")
    return rows


def _bit_rows() -> list[Row]:
    rows: list[Row] = []
    for bits in ("16", "32", "64"):
        k = f"i{bits}"
        rows += _rows(f"and.b{bits} or.b{bits} xor.b{bits}", k, f"{k} {k}") + _rows(f"not.b{bits} cnot.b{bits}", k, k)
        rows += _rows(f"shl.b{bits} shr.b{bits}", k, f"{k} n") + _rows(f"selp.b{bits}", k, f"{k} {k} p")
    for bits in ("32", "64"):
        k = f"i{bits}"
        rows += _rows(f"popc.b{bits} clz.b{bits}", "i32", k) + _rows(f"brev.b{bits}", k, k)
        rows += _rows(f"bfi.b{bits}", k, f"{k} {k} n n")
    rows += _rows("and.pred or.pred xor.pred", "p", "p p") + _rows("not.pred", "p", "p")
    rows += _rows("shf.l.wrap.b32 shf.l.clamp.b32 shf.r.wrap.b32 shf.r.clamp.b32", "i32", "i32 i32 n")
    rows += _rows("prmt.b32", "i32", "i32 i32 i32") + _rows("slct.s32.s32 slct.f32.s32", "i32", "i32 i32 i32")
    for table in (0x00, 0x96, 0xE8, 0xCA, 0x1B, 0xFF):
        rows += _rows("lop3.b32", "i32", f"i32 i32 i32 ={table}")
    rows += _rows("bmsk.clamp.b32 bmsk.wrap.b32", "i32", "n n")
    rows += _rows(_each("szext.clamp.* szext.wrap.*", "s32 u32"), "i32", "i32 n")
    rows += _rows("set.lt.u32.s32 set.ge.s32.u32 set.eq.f32.s32", "i32", "i32 i32")
    rows += _rows("setp.lt.and.s32 setp.ge.or.u32 setp.ne.xor.b32", "p", "i32 i32 p")
    return rows


def _float_rows() -> list[Row]:
    rows: list[Row] = []
    for t in ("f32", "f64"):
        ftz = ["", ".ftz"] if t == "f32" else [""]
        for z in ftz:
            for mode in ("rn", "rz", "rm", "rp"):
                rows += _rows(f"add.{mode}{z}.{t} sub.{mode}{z}.{t} mul.{mode}{z}.{t} div.{mode}{z}.{t}", t, f"{t} {t}")
                rows += _rows(f"fma.{mode}{z}.{t}", t, f"{t} {t} {t}")
                rows += _rows(f"rcp.{mode}{z}.{t} sqrt.{mode}{z}.{t}", t, t)
            rows += _rows(f"min{z}.{t} max{z}.{t}", t, f"{t} {t}") + _rows(f"abs{z}.{t} neg{z}.{t}", t, t)
            rows += [r for c in _FLOAT_COMPARE.split() for r in _rows(f"setp.{c}{z}.{t}", "p", f"{t} {t}")]
        rows += _rows(f"copysign.{t}", t, f"{t} {t}") + _rows(f"selp.{t}", t, f"{t} {t} p")
        kinds = "finite infinite number notanumber normal subnormal"
        rows += [r for c in kinds.split() for r in _rows(f"testp.{c}.{t}", "p", t)]
    rows += _rows("add.sat.f32 mul.sat.f32 add.ftz.sat.f32", "f32", "f32 f32") + _rows(
        "fma.rn.sat.f32", "f32", "f32 f32 f32"
    )
    rows += _rows("min.NaN.f32 max.NaN.f32 min.ftz.NaN.f32", "f32", "f32 f32")
    rows += _rows("set.lt.u32.f32 set.geu.ftz.s32.f32 set.ne.f32.f32", "i32", "f32 f32")
    rows += _rows("set.gt.u32.f64", "i32", "f64 f64")
    rows += _rows("slct.s32.f32 slct.ftz.s32.f32", "i32", "i32 i32 f32")
    return rows


def _approximate_rows() -> list[Row]:
    """Bounds: PTX ISA 9.1, each instruction's notes. The GPU and the CPU device each may be off by the bound."""
    ulp = 2.0**-23
    rows: list[Row] = []
    for z in ("", ".ftz"):
        rows += _rows(f"rcp.approx{z}.f32", "f32", "f32", relative=2 * ulp)
        rows += _rows(f"sqrt.approx{z}.f32 rsqrt.approx{z}.f32", "f32", "f32", relative=2 * 2.0**-22.9)
        rows += _rows(f"div.full{z}.f32", "f32", "f32 f32", relative=4 * ulp)
        rows += _rows(f"div.approx{z}.f32", "f32", "f32 f32", relative=4 * ulp)
        rows += _rows(f"ex2.approx{z}.f32", "f32", "f32", relative=4 * ulp)
        rows += _rows(f"lg2.approx{z}.f32", "f32", "f32", relative=2 * 2.0**-22, absolute=2 * 2.0**-22)
        rows += _rows(f"sin.approx{z}.f32 cos.approx{z}.f32", "f32", "f32", absolute=2 * 2.0**-20.5, limit=6.28)
    rows += _rows("tanh.approx.f32", "f32", "f32", relative=2 * 2.0**-11)
    rows += _rows("rcp.approx.ftz.f64 rsqrt.approx.ftz.f64", "f64", "f64", relative=2 * 2.0**-20)
    return rows


def _conversion_rows() -> list[Row]:
    rows: list[Row] = []
    ints = ["s16", "s32", "s64", "u16", "u32", "u64"]
    for to in ints:
        for source in ints:
            if to != source:
                rows += _rows(f"cvt.{to}.{source}", f"i{to[1:]}", f"i{source[1:]}")
            if to != source and not _holds_all(to, source):
                rows += _rows(f"cvt.sat.{to}.{source}", f"i{to[1:]}", f"i{source[1:]}")
        for t in ("f32", "f64"):
            for mode in ("rni", "rzi", "rmi", "rpi"):
                rows += _rows(f"cvt.{mode}.{to}.{t}", f"i{to[1:]}", t)
            for mode in ("rn", "rz", "rm", "rp"):
                rows += _rows(f"cvt.{mode}.{t}.{to}", t, f"i{to[1:]}")
        rows += _rows(f"cvt.rni.ftz.{to}.f32", f"i{to[1:]}", "f32")
    for small in ("s8", "u8"):
        rows += _rows(
            f"cvt.s32.{small} cvt.u32.{small} cvt.{small}.s32 cvt.sat.{small}.s32 cvt.sat.{small}.u32", "i32", "i32"
        )
        rows += _rows(f"cvt.rzi.{small}.f32", "i32", "f32") + _rows(f"cvt.rn.f32.{small}", "f32", "i32")
    for mode in ("rn", "rz", "rm", "rp"):
        rows += _rows(f"cvt.{mode}.f32.f64 cvt.{mode}.ftz.f32.f64 cvt.{mode}.sat.f32.f64", "f32", "f64")
    rows += _rows("cvt.f64.f32 cvt.ftz.f64.f32", "f64", "f32") + _rows("cvt.sat.f32.f32 cvt.ftz.f32.f32", "f32", "f32")
    for mode in ("rni", "rzi", "rmi", "rpi"):
        rows += _rows(f"cvt.{mode}.f32.f32 cvt.{mode}.ftz.f32.f32", "f32", "f32") + _rows(
            f"cvt.{mode}.f64.f64", "f64", "f64"
        )
    rows += _rows("cvt.rn.f16.f32 cvt.rz.f16.f32", "i16", "f32") + _rows("cvt.f32.f16", "f32", "i16")
    rows += _rows("cvt.rn.f16.f64", "i16", "f64")
    return rows


def _holds_all(to: str, source: str) -> bool:
    """Whether every value of one integer type is a value of the other; then there is nothing to saturate."""
    if to[0] == source[0]:
        return int(to[1:]) >= int(source[1:])
    return to[0] == "s" and int(to[1:]) > int(source[1:])


ROWS = [*_integer_rows(), *_bit_rows(), *_float_rows(), *_approximate_rows(), *_conversion_rows()]


@functools.cache
def all_rows() -> tuple[Row, ...]:
    """Collect the rows of this file and of all families; no two may have one name."""
    rows = list(ROWS)
    for file in sorted(Path(__file__).parent.glob("rows_*.py")):
        rows += importlib.import_module(f"instructions.{file.stem}").ROWS
    names: set[str] = set()
    for row in rows:
        if key_of(row) in names:
            raise ValueError(f"two rows are called {key_of(row)}")
        names.add(key_of(row))
    return tuple(rows)


# -- inputs -----------------------------------------------------------------------------------------------

_INTEGERS = [0, 1, 2, 3, 7, 8, 15, 16, 31, 32, 33, 63, 64, 127, 128, 255, 256, 0x7FFF, 0x8000, 0xFFFF, 1 << 23, 1 << 24]
_FLOATS = [
    0.0, 1.0, 0.5, 1.5, 2.0, 2.5, 3.5, 1 / 3, 0.1, 1e-3, 127.5, 128.0, 255.5, 32767.5, 65504.0, 65519.9, 65520.0,
    2.0**23 - 0.5, 2.0**24 + 2, 2.0**31, 2.0**31 - 1, 2.0**32, 2.0**53 + 2, 2.0**63, 2.0**64, 1e10, 1e-10, 1e38,
    1e-38, 1e-40, 1.4e-45,
    3.4028234e38, 1.17549435e-38, 1.1754942e-38, 1e300, 1e-300, 5e-324, 1.7976931348623157e308, 2.2250738585072014e-308,
    6e-8, 3e-8, 6.1e-5, float("inf"), float("nan"),
]  # fmt: skip

# Bits of zero, the smallest and largest subnormal and normal numbers, 1/2, 1, 1.5 and 2 with their neighbours, numbers
# that overflow when doubled or added to, infinity, NaNs quiet and signalling, the NaN of copies beyond a tensor.
_HALVES = {
    "f16": [
        0x0000, 0x0001, 0x0002, 0x0003, 0x0200, 0x03FE, 0x03FF, 0x0400, 0x0401, 0x0402, 0x07FF, 0x0800, 0x3800, 0x3BFF,
        0x3C00, 0x3C01, 0x3E00, 0x4000, 0x4001, 0x1000, 0x1400, 0x1401, 0x6400, 0x6401, 0x7800, 0x77FF, 0x7BFE, 0x7BFF,
        0x7C00, 0x7C01, 0x7DFF, 0x7E00, 0x7E01, 0x7FF7, 0x7FFF, 0x5640, 0x57F8, 0x5800, 0x5BFC, 0x5C00,
    ],
    "bf16": [
        0x0000, 0x0001, 0x0002, 0x0003, 0x0040, 0x0060, 0x007E, 0x007F, 0x0080, 0x0081, 0x0100, 0x3F00, 0x3F7F, 0x3F80,
        0x3F81, 0x3FC0, 0x4000, 0x4001, 0x3300, 0x3B80, 0x3B81, 0x4300, 0x4301, 0x7E80, 0x7EFF, 0x7F00, 0x7F7E, 0x7F7F,
        0x7F80, 0x7F81, 0x7FBF, 0x7FC0, 0x7FC1, 0x7FF7, 0x7FFF, 0x42C8, 0x42FF, 0x4300, 0x437F, 0x2000,
    ],
}  # fmt: skip


def _halves(kind: str, rng: np.random.Generator) -> Array:
    """COUNT numbers of 16 bits: corners of both signs, random bits, and some around 1."""
    corner = np.array([sign | bits for bits in _HALVES[kind] for sign in (0, 0x8000)], np.uint16)
    wild = rng.integers(0, 1 << 16, COUNT, np.uint16)
    tame = (rng.standard_normal(COUNT) * 2.0 ** rng.integers(-6, 7, COUNT)).astype(np.float32)
    as_half = tame.astype(np.float16).view(np.uint16) if kind == "f16" else (tame.view(np.uint32) >> 16)
    return np.choose(rng.integers(0, 3, COUNT), [rng.choice(corner, COUNT), wild, as_half]).astype(np.uint16)


def _values(kind: str, rng: np.random.Generator) -> Array:
    """COUNT values of one kind: corners, random bits and tame numbers, mixed."""
    if kind in _HALVES:
        return _halves(kind, rng)
    if kind.endswith("x2"):
        low, high = (_halves(kind[:-2], rng).astype(np.uint32) for _ in range(2))
        return low | high << 16
    pick = rng.integers(0, 3, COUNT)
    if kind in ("n", "p"):
        return rng.integers(0, 72 if kind == "n" else 2, COUNT).astype(np.uint32)
    bits = int(kind[1:])
    word = np.dtype(f"u{bits // 8}")
    wild = rng.integers(0, 2**bits, COUNT, np.uint64 if bits == 64 else word, endpoint=False).astype(word)
    if kind[0] == "i":
        corner = np.array([v & (2**bits - 1) for x in _INTEGERS for v in (x, -x, (1 << (bits - 1)) - 1 - x)], word)
        tame = rng.integers(0, 100, COUNT).astype(word)
        return np.choose(pick, [rng.choice(corner, COUNT), wild, tame]).astype(word)
    real = np.dtype(f"f{bits // 8}")
    with np.errstate(over="ignore"):
        corner = np.array([s * x for x in _FLOATS for s in (1, -1)], real).view(word)
        tame = (rng.standard_normal(COUNT) * 10.0 ** rng.integers(-3, 4, COUNT)).astype(real).view(word)
    return np.choose(pick, [rng.choice(corner, COUNT), wild, tame]).astype(word)


def inputs_of(row: Row) -> list[Array]:
    """Inputs of a row, always the same; one array of unsigned words for each source that is no immediate."""
    seed = np.frombuffer(row.name.encode().ljust(64, b"\0")[:64], np.uint32)
    rng = np.random.default_rng(seed)
    kinds = [kind for kind in row.sources if not kind.startswith("=")]
    return CORNERS[row.about](row.name, kinds, COUNT, rng) if row.about else [_values(kind, rng) for kind in kinds]


# -- text -------------------------------------------------------------------------------------------------

REGISTERS = {
    "i16": "b16", "i32": "b32", "i64": "b64", "f32": "f32", "f64": "f64", "n": "b32", "p": "pred", "pp": "pred",
    "f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32",
}  # fmt: skip
_SIZE = {"pred": 4, "b16": 2, "b32": 4, "f32": 4, "b64": 8, "f64": 8}
_VERSION = {"sm_80": "8.0", "sm_86": "8.0", "sm_90": "8.6"}
"""The PTX version that rows of an architecture are written in."""


_ZERO = {
    "pred": "setp.ne.u32 {}, 0, 0;", "b16": "mov.b16 {}, 0;", "b32": "mov.b32 {}, 0;", "b64": "mov.b64 {}, 0;",
    "f32": "mov.f32 {}, 0f00000000;", "f64": "mov.f64 {}, 0d0000000000000000;",
}  # fmt: skip
_SLOT = 8 * COUNT
"""Bytes that each array of a kernel takes, in one block of memory for what it reads and one for what it leaves."""


def _size(kind: str) -> int:
    return _SIZE[REGISTERS[kind]]


def _is_read(kind: str) -> bool:
    return not kind.startswith("=")


def module_text(rows: Sequence[Row], *, odd: bool = False) -> str:
    """PTX with the kernel ``k``, which does rows one after the other: ``out[i] = op(a[i], b[i], …)``.

    Its parameters are (in, out, n), as ``memory_of`` makes them. With ``odd`` each instruction is done in odd lanes
    alone, and in the others the result is 0. All rows must be of one target.
    """
    (target,) = {row.target for row in rows}
    lines = [
        f".version {_VERSION[target]}\n.target {target}\n.address_size 64",
        ".visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n)\n{",
        ".reg .b32 %t<8>; .reg .b64 %in<9>, %out<9>; .reg .pred %q, %odd;",
        "mov.u32 %t1, %ctaid.x; mov.u32 %t2, %ntid.x; mov.u32 %t3, %tid.x; mad.lo.s32 %t4, %t1, %t2, %t3;",
        "ld.param.u32 %t5, [n]; setp.ge.u32 %q, %t4, %t5; @%q bra END;",
        "ld.param.u64 %in1, [in]; ld.param.u64 %out1, [out];",
        *(f"mad.wide.u32 %{way}{size}, %t4, {size}, %{way}1;" for way in ("in", "out") for size in (2, 4, 8)),
    ]
    if odd:
        lines.append("and.b32 %t6, %t3, 1; setp.ne.u32 %odd, %t6, 0;")
    slot = 0
    for k, row in enumerate(rows):
        lines += ["{", *_row_lines(row, slot * _SLOT, k * _SLOT, odd=odd), "}"]
        slot += sum(map(_is_read, row.sources))
    return "\n".join([*lines, "END: ret;", "}"])


def _row_lines(row: Row, first: int, result_at: int, *, odd: bool) -> Iterator[str]:
    """Write one row, whose sources begin ``first`` bytes into what is read."""
    yield f".reg .{REGISTERS[row.result]} %d, %e;"
    operands = []
    for k, kind in enumerate(row.sources):
        if not _is_read(kind):
            operands.append(kind[1:])
            continue
        place = f"[%in{_size(kind)}+{first}]"
        yield f".reg .{REGISTERS[kind]} %s{k};"
        if kind == "p":
            yield f"ld.global.u32 %t6, {place}; setp.ne.u32 %s{k}, %t6, 0;"
        else:
            yield f"ld.global.{REGISTERS[kind]} %s{k}, {place};"
        operands.append(f"%s{k}")
        first += _SLOT
    results = ("%d", "%e") if row.result == "pp" else ("%d",)
    if odd:
        yield from (_ZERO[REGISTERS[row.result]].format(register) for register in results)
    yield f"{'@%odd ' if odd else ''}{row.name} {'|'.join(results)}, {', '.join(operands)};"
    place = f"[%out{_size(row.result)}+{result_at}]"
    if row.result == "p":
        yield f"selp.u32 %t7, 1, 0, %d; st.global.u32 {place}, %t7;"
    elif row.result == "pp":
        yield f"selp.u32 %t6, 1, 0, %d; selp.u32 %t7, 2, 0, %e; or.b32 %t7, %t6, %t7; st.global.u32 {place}, %t7;"
    else:
        yield f"st.global.{REGISTERS[row.result]} {place}, %d;"


def memory_of(rows: Sequence[Row]) -> tuple[Array, Array]:
    """Make what the kernel of rows reads, and zeros for what it leaves: ``results_of`` takes them apart."""
    arrays = [a for row in rows for a in inputs_of(row)]
    inputs = np.zeros((len(arrays), _SLOT), np.uint8)
    for slot, a in zip(inputs, arrays, strict=True):
        slot[: a.nbytes] = a.view(np.uint8)
    return inputs, np.zeros((len(rows), _SLOT), np.uint8)


def results_of(rows: Sequence[Row], out: Array) -> dict[str, Array]:
    """Give what each row left, as unsigned words, by ``key_of``."""
    words = {row: np.dtype(f"u{_size(row.result)}") for row in rows}
    return {
        key_of(row): slot[: COUNT * words[row].itemsize].view(words[row]) for row, slot in zip(rows, out, strict=True)
    }
