"""Instructions that others together do as well, which goldens hold: both are done on the same values.

``set.lt.and.u32.f64 d, a, b, p`` is ``setp.lt.and.f64 q, a, b, p; selp.b32 d, -1, 0, q``.

The text of a pair has ``{d}`` for the result, ``{0}`` to ``{2}`` for the sources, and registers of its own: ``h0`` to
``h3`` of 16 bits, ``w0`` to ``w5`` of 32, ``l0`` to ``l3`` of 64, ``q0`` and ``q1``.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from cujit.formats.ptx.concrete import concrete_forms
from cujit.formats.ptx.isa.table import lookup, rows
from cujit.formats.ptx.syntax import Instruction
from instructions.table import COUNT, REGISTERS, Array, Row, inputs_of

__all__ = ["KINDS", "Pair", "inputs", "kernel_text", "pairs"]

KINDS = ("i16", "i32", "i64", "f32", "f64", "f16", "bf16", "f16x2", "bf16x2", "p")
_SOURCES = 3


@dataclass(frozen=True)
class Pair:
    """An instruction, what does the same, the kind of the result, and those of the sources."""

    text: str
    other: str
    result: str
    sources: tuple[str, ...]


def _pair(text: str, other: str, result: str, sources: str) -> Pair:
    operands = ", ".join(["{d}", *(f"{{{k}}}" for k in range(len(sources.split())))])
    return Pair(f"{text} {operands};", other, result, tuple(sources.split()))


@functools.cache
def pairs() -> tuple[Pair, ...]:
    """Collect the pairs of all families."""
    return (*_set(), *_select(), *_integers(), *_conversions(), *_floats(), *_packed())


# -- comparisons ------------------------------------------------------------------------------------------

_TRUE = {"u16": -1, "s16": -1, "u32": -1, "s32": -1, "f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}


def _few(opcode: str) -> Iterator[tuple[str, ...]]:
    """Give forms of an opcode that have every word of every row of the instruction table, and each pair of types."""
    for row in rows():
        if row.opcode != opcode:
            continue
        have: set[object] = set()
        for form in reversed(list(concrete_forms(row))):
            if not have.issuperset({*form, form[-2:]}):
                have.update({*form, form[-2:]})
                yield form


def _kind(type_: str) -> str:
    return f"i{type_[1:]}" if type_[0] in "usb" and type_[1:].isdigit() else type_


def _set() -> Iterator[Pair]:
    """``set``: a comparison whose outcome is a number."""
    for form in _few("set"):
        to, source = form[-2:]
        if to.removesuffix("x2") not in _TRUE:  # of packed integers: devices/cpu/test_newest_forms.py
            continue
        compare = ".".join(("setp", *form[:-2], source))
        joins = {"and", "or", "xor"} & set(form)
        last = ", {2}" if joins else ""
        sources = f"{_kind(source)} {_kind(source)}{' p' if joins else ''}"
        true = _TRUE[to.removesuffix("x2")] if not source.endswith("x2") else _TRUE.get(to.removesuffix("x2"), -1)
        if source.endswith("x2"):
            true = true if to.endswith("x2") else -1
            both = f"{compare} q0|q1, {{0}}, {{1}}{last}; selp.b16 h0, {true}, 0, q0; selp.b16 h1, {true}, 0, q1;"
            yield _pair(".".join(("set", *form)), f"{both} mov.b32 {{d}}, {{{{h0, h1}}}};", "i32", sources)
        else:
            bits = 16 if to.endswith("16") else 32
            one = f"{compare} q0, {{0}}, {{1}}{last}; selp.b{bits} {{d}}, {true}, 0, q0;"
            yield _pair(".".join(("set", *form)), one, f"i{bits}", sources)


def _select() -> Iterator[Pair]:
    """``slct`` by a comparison with zero; ``setp`` with a predicate by an operation of predicates."""
    for type_ in ("s16", "u16", "s64", "u64"):
        kind, bits = _kind(type_), type_[1:]
        yield _pair(f"mov.{type_}", f"mov.b{bits} {{d}}, {{0}};", kind, kind)
        yield _pair(f"selp.{type_}", f"selp.b{bits} {{d}}, {{0}}, {{1}}, {{2}};", kind, f"{kind} {kind} p")
    for type_ in ("b16", "u16", "s16", "b32", "u32", "s32", "f32", "b64", "u64", "s64", "f64"):
        bits, kind = type_[1:], _kind(type_)
        by_int = f"setp.ge.s32 q0, {{2}}, 0; selp.b{bits} {{d}}, {{0}}, {{1}}, q0;"
        yield _pair(f"slct.{type_}.s32", by_int, kind, f"{kind} {kind} i32")
        for flush in ("", ".ftz"):
            by_float = f"setp.ge{flush}.f32 q0, {{2}}, 0f00000000; selp.b{bits} {{d}}, {{0}}, {{1}}, q0;"
            yield _pair(f"slct{flush}.{type_}.f32", by_float, kind, f"{kind} {kind} f32")
    for type_, compares in (("b16", "eq ne"), ("b32", "ne"), ("b64", "eq"), ("f32", "geu num"), ("f64", "ltu nan")):
        for compare in compares.split():
            for join in ("and", "or", "xor"):
                other = f"setp.{compare}.{type_} q0, {{0}}, {{1}}; {join}.pred {{d}}, q0, {{2}};"
                yield _pair(f"setp.{compare}.{join}.{type_}", other, "p", f"{_kind(type_)} {_kind(type_)} p")


# -- numbers ----------------------------------------------------------------------------------------------


def _integers() -> Iterator[Pair]:
    yield _pair(
        "add.sat.u32",
        "cvt.u64.u32 l0, {0}; cvt.u64.u32 l1, {1}; add.u64 l0, l0, l1; "
        "min.u64 l0, l0, 0xffffffff; cvt.u32.u64 {d}, l0;",
        "i32", "i32 i32",
    )  # fmt: skip
    for opcode in ("min", "max"):
        yield _pair(f"{opcode}.relu.s32", f"{opcode}.s32 w0, {{0}}, {{1}}; max.s32 {{d}}, w0, 0;", "i32", "i32 i32")
        for sign, relu in (("u", ""), ("s", ""), ("s", ".relu")):
            yield _pair(f"{opcode}{relu}.{sign}8x4", _bytes(opcode, sign, relu), "i32", "i32 i32")
    for opcode in ("add", "sub"):
        for sign, saturate in (("u", ""), ("s", ""), ("u", ".sat"), ("s", ".sat")):
            yield _pair(f"{opcode}{saturate}.{sign}8x4", _bytes(opcode, sign, saturate), "i32", "i32 i32")


def _bytes(opcode: str, sign: str, more: str) -> str:
    """Do an operation on each of four bytes."""
    lines = ["mov.b32 w3, 0;"]
    low, high = (0, 255) if sign == "u" else (-128, 127)
    for at in (0, 8, 16, 24):
        lines += [f"bfe.{sign}32 w{k}, {{{k}}}, {at}, 8;" for k in (0, 1)]
        lines.append(f"{opcode}.s32 w2, w0, w1;")
        if more == ".sat":
            lines.append(f"max.s32 w2, w2, {low}; min.s32 w2, w2, {high};")
        if more == ".relu":
            lines.append("max.s32 w2, w2, 0;")
        lines.append(f"bfi.b32 w3, w2, w3, {at}, 8;")
    return " ".join([*lines, "mov.b32 {d}, w3;"])


def _floats() -> Iterator[Pair]:
    for mode in ("rn", "rz", "rm", "rp"):
        for more in ("", ".ftz", ".sat", ".ftz.sat"):
            yield _pair(f"mad.{mode}{more}.f32", f"fma.{mode}{more}.f32 {{d}}, {{0}}, {{1}}, {{2}};", "f32", "f32 " * 3)
        yield _pair(f"mad.{mode}.f64", f"fma.{mode}.f64 {{d}}, {{0}}, {{1}}, {{2}};", "f64", "f64 " * 3)
        for half in ("f16", "bf16"):
            for more in ("", ".sat"):
                wide = f"cvt.f32.{half} w0, {{0}};"
                for opcode in ("add", "sub"):
                    other = f"{wide} {opcode}.{mode}{more}.f32 {{d}}, w0, {{1}};"
                    yield _pair(f"{opcode}.{mode}{more}.f32.{half}", other, "f32", f"{half} f32")
                other = f"{wide} cvt.f32.{half} w1, {{1}}; fma.{mode}{more}.f32 {{d}}, w0, w1, {{2}};"
                yield _pair(f"fma.{mode}{more}.f32.{half}", other, "f32", f"{half} {half} f32")
    for opcode, more in itertools.product(("min", "max"), ("", ".ftz", ".NaN", ".ftz.NaN")):
        sizes = "abs.f32 w0, {0}; abs.f32 w1, {1};"
        three = f"{sizes} abs.f32 w2, {{2}}; {opcode}{more}.f32 {{d}}, w0, w1, w2;"
        sign = "mov.b32 w0, {0}; mov.b32 w1, {1}; xor.b32 w0, w0, w1; and.b32 w0, w0, 0x80000000;"
        joined = "mov.b32 w2, {d}; or.b32 w2, w2, w0; mov.b32 {d}, w2;"
        signed = f"{sizes} {opcode}{more}.f32 {{d}}, w0, w1; {sign} {joined}"
        yield _pair(f"{opcode}{more}.abs.f32", three, "f32", "f32 f32 f32")
        if "NaN" not in more:  # No source says which NaN that gives.
            yield _pair(f"{opcode}{more}.xorsign.abs.f32", signed, "f32", "f32 f32")
    for flush in ("", ".ftz"):
        yield _pair(f"sub{flush}.sat.f32", f"neg.f32 w0, {{1}}; add{flush}.sat.f32 {{d}}, {{0}}, w0;", "f32", "f32 f32")
    for half in ("f16", "bf16"):
        for kind in (half, f"{half}x2"):
            for opcode in ("add", "sub", "mul"):
                yield _pair(f"{opcode}.rn.{kind}", f"{opcode}.{kind} {{d}}, {{0}}, {{1}};", kind, f"{kind} {kind}")


def _packed() -> Iterator[Pair]:
    """Two f32 at once."""
    for opcode, count in (("add", 2), ("sub", 2), ("mul", 2), ("fma", 3)):
        for mode in ("rn", "rz", "rm", "rp"):
            for flush in ("", ".ftz"):
                halves = "".join(f"mov.b64 {{{{w{k}, w{k + 3}}}}}, {{{k}}}; " for k in range(count))
                ones = [
                    f"{opcode}.{mode}{flush}.f32 w{at}, " + ", ".join(f"w{at + k}" for k in range(count))
                    for at in (0, 3)
                ]
                other = f"{halves}{'; '.join(ones)}; mov.b64 {{d}}, {{{{w0, w3}}}};"
                yield _pair(f"{opcode}.{mode}{flush}.f32x2", other, "i64", "i64 " * count)


# -- conversions ------------------------------------------------------------------------------------------

_WHOLE = tuple(f"{sign}{bits}" for sign in "us" for bits in (8, 16, 32, 64))
_OWN = {16: "h", 32: "w", 64: "l"}


def _register(type_: str) -> tuple[str, str]:
    """The kind of the register that holds a type, and the type of all of its bits: bytes are held in 32."""
    bits = max(int(type_[1:]), 32) if type_[1:] == "8" else int(type_[1:])
    return f"i{bits}", f"{type_[0]}{bits}"


_ONES = {"f16": "0x3C00", "f32": "0f3F800000", "f64": "0d3FF0000000000000"}
_ZEROS = {"f16": "0", "f32": "0f00000000", "f64": "0d0000000000000000"}


def _clamped(real: str) -> str:
    """Saturate the result: to 0 what is less or no number, to 1 what is more."""
    if real == "f16":
        return "mov.b16 h0, 0; mov.b16 h1, 0x3C00; max.f16 {d}, {d}, h0; min.f16 {d}, {d}, h1;"
    return f"max.{real} {{d}}, {{d}}, {_ZEROS[real]}; min.{real} {{d}}, {{d}}, {_ONES[real]};"


def _conversions() -> Iterator[Pair]:
    yield from _whole_conversions()
    for real in ("f16", "f32", "f64"):
        for whole in _WHOLE:
            kind, _ = _register(whole)
            plain = f"cvt.rn.{real}.{whole} {{d}}, {{0}}; {_clamped(real)}"
            yield _pair(f"cvt.rn.sat.{real}.{whole}", plain, real, kind)
            yield _pair(f"cvt.rzi.sat.{whole}.{real}", f"cvt.rzi.{whole}.{real} {{d}}, {{0}};", kind, real)
    for to, source in (("f32", "f16"), ("f64", "f16"), ("f64", "f32"), ("f64", "f64")):
        plain = f"cvt.{to}.{source} {{d}}, {{0}};" if to != source else "mov.b64 {d}, {0};"
        yield _pair(f"cvt.sat.{to}.{source}", f"{plain} {_clamped(to)}", to, source)
    for mode in ("rn", "rz", "rm", "rp"):
        yield _pair(f"cvt.{mode}.sat.f16.f64", f"cvt.{mode}.f16.f64 {{d}}, {{0}}; {_clamped('f16')}", "f16", "f64")
        yield _pair(f"cvt.{mode}.f32.bf16", "cvt.f32.bf16 {d}, {0};", "f32", "bf16")
        yield _pair(f"cvt.{mode}.ftz.f32.bf16", "cvt.f32.bf16 w0, {0}; cvt.ftz.f32.f32 {d}, w0;", "f32", "bf16")


def _whole_conversions() -> Iterator[Pair]:
    """Integers to integers, through 64 bits with the sign of the source."""
    for to in _WHOLE:
        for source in _WHOLE:
            kind, _ = _register(source)
            result, _ = _register(to)
            sign, bits = source[0], int(source[1:])
            wide = f"cvt.{sign}64.{sign}{bits} l0, {{0}};" if bits < 64 else "mov.b64 l0, {0};"
            low, high = (
                (0, 2 ** int(to[1:]) - 1) if to[0] == "u" else (-(2 ** (int(to[1:]) - 1)), 2 ** (int(to[1:]) - 1) - 1)
            )
            cut = f"max.{sign}64 l0, l0, {low if sign == 's' else 0};" if sign == "s" else ""
            if high < 2**63:
                cut += f"min.{sign}64 l0, l0, {high};"
            narrow = f"bfe.{to[0]}64 l1, l0, 0, {to[1:]}; cvt.u{result[1:]}.u64 {{d}}, l1;"
            if result == "i64":
                narrow = f"bfe.{to[0]}64 {{d}}, l0, 0, {to[1:]};"
            yield _pair(f"cvt.{to}.{source}", f"{wide} {narrow}", result, kind)
            if lookup(Instruction("cvt", ("sat", to, source))) is not None:
                yield _pair(f"cvt.sat.{to}.{source}", f"{wide} {cut} {narrow}", result, kind)


# -- kernels ----------------------------------------------------------------------------------------------


def inputs() -> Array:
    """COUNT values for each kind and source, each in 64 bits."""
    words = np.zeros((len(KINDS), _SOURCES, COUNT), np.uint64)
    for k, kind in enumerate(KINDS):
        for at, values in enumerate(inputs_of(Row(f"alike.{kind}", kind, (kind,) * _SOURCES))):
            words[k, at] = values
    return words


def kernel_text(name: str, several: tuple[Pair, ...]) -> str:
    """Write a kernel that does pairs and stores two words of 64 bits for each in each thread."""
    lines = [
        f".visible .entry {name}(.param .u64 in, .param .u64 outs) {{",
        ".reg .b32 lane, n; .reg .b64 from, to, off, z;",
        "mov.u32 lane, %ctaid.x; mov.u32 n, %ntid.x; mul.lo.u32 lane, lane, n; mov.u32 n, %tid.x;",
        "add.u32 lane, lane, n; mul.wide.u32 off, lane, 8; ld.param.u64 from, [in]; add.u64 from, from, off;",
        "ld.param.u64 to, [outs]; add.u64 to, to, off;",
    ]
    for number, pair in enumerate(several):
        lines += ["{ .reg .b16 h<4>; .reg .b32 w<6>; .reg .b64 l<4>; .reg .pred q<2>;"]
        for k, kind in enumerate(pair.sources):
            at = 8 * COUNT * (KINDS.index(kind) * _SOURCES + k)
            lines.append(f".reg .{REGISTERS[kind]} s{k}; ")
            if kind == "p":
                lines.append(f"ld.global.b32 n, [from+{at}]; setp.ne.u32 s{k}, n, 0;")
            else:
                lines.append(f"ld.global.{REGISTERS[kind]} s{k}, [from+{at}];")
        for k, text in enumerate((pair.text, pair.other)):
            at = 8 * COUNT * (2 * number + k)
            type_ = REGISTERS[pair.result]
            lines.append(f".reg .{type_} d{k}; " + text.format("s0", "s1", "s2", d=f"d{k}"))
            if pair.result == "p":
                lines.append(f"selp.b32 n, 1, 0, d{k}; st.global.b32 [to+{at}], n;")
            else:
                lines.append(f"st.global.{type_} [to+{at}], d{k};")
        lines.append("}")
    return "\n".join([*lines, "ret;", "}"])
