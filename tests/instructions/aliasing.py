"""Instructions whose results may be among their operands, and kernels that do each with every such overlap and without.

A form is a text with ``{d0}`` … for results and ``{s0}`` … for sources. A source of the type ``a32`` or ``a64`` is an
address of memory of the thread's own, in shared or global memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from instructions.table import REGISTERS, all_rows

__all__ = ["FORMS", "INPUTS", "MODULE", "THREADS", "Form", "kernel_text", "overlaps_of"]

THREADS = 32
INPUTS = 12
"""Words of 64 bits that a thread reads: source ``k`` begins with word ``k``."""
_PLACE = 64
"""Bytes of memory that a thread has, shared and global."""


@dataclass(frozen=True)
class Form:
    """An instruction with the types of its results and sources, and what is done before it (on the same registers)."""

    text: str
    results: tuple[str, ...]
    sources: tuple[str, ...]
    before: str = ""


def _form(text: str, results: str, sources: str, before: str = "") -> Form:
    return Form(text, tuple(results.split()), tuple(sources.split()), before)


_FILL = "st.shared.v4.b32 [{s0}], {{x0, x1, x2, x3}}; bar.warp.sync -1; "
_FILL_GLOBAL = "st.global.v4.b32 [{s0}], {{x0, x1, x2, x3}}; bar.warp.sync -1; "
_MMA_F32 = "{{{d0}, {d1}, {d2}, {d3}}}, {{{s0}, {s1}}}, {{{s2}}}, {{{s3}, {s4}, {s5}, {s6}}}"
_MMA_S32 = "{{{d0}, {d1}, {d2}, {d3}}}, {{{s0}, {s1}, {s2}, {s3}}}, {{{s4}, {s5}}}, {{{s6}, {s7}, {s8}, {s9}}}"

_SEVERAL = (
    _form("setp.gt.and.u32 {d0}|{d1}, {s0}, {s1}, {s2}", "pred pred", "b32 b32 pred"),
    _form("setp.lt.xor.s64 {d0}|{d1}, {s0}, {s1}, !{s2}", "pred pred", "b64 b64 pred"),
    _form("setp.ltu.or.f32 {d0}|{d1}, {s0}, {s1}, {s2}", "pred pred", "f32 f32 pred"),
    _form("setp.eq.and.f64 {d0}|{d1}, {s0}, {s1}, {s2}", "pred pred", "f64 f64 pred"),
    _form("setp.ge.and.f16 {d0}, {s0}, {s1}, {s2}", "pred", "b16 b16 pred"),
    _form("setp.lt.or.f16x2 {d0}|{d1}, {s0}, {s1}, {s2}", "pred pred", "b32 b32 pred"),
    _form("setp.lt.xor.bf16x2 {d0}|{d1}, {s0}, {s1}, {s2}", "pred pred", "b32 b32 pred"),
    _form("lop3.or.b32 {d0}|{d1}, {s0}, {s1}, {s2}, 0x1B, {s3}", "b32 pred", "b32 b32 b32 pred"),
    _form("lop3.and.b32 {d0}|{d1}, {s0}, {s1}, {s2}, 0x96, {s3}", "b32 pred", "b32 b32 b32 pred"),
    _form("shfl.sync.idx.b32 {d0}|{d1}, {s0}, {s1}, {s2}, -1", "b32 pred", "b32 b32 b32"),
    _form("shfl.sync.down.b32 {d0}|{d1}, {s0}, 3, 31, -1", "b32 pred", "b32"),
    _form("shfl.sync.bfly.b32 {d0}|{d1}, {s0}, {s1}, 31, -1", "b32 pred", "b32 b32"),
    _form("match.all.sync.b32 {d0}|{d1}, {s0}, -1", "b32 pred", "b32"),
    _form("match.any.sync.b64 {d0}, {s0}, -1", "b32", "b64"),
    _form("elect.sync {d0}|{d1}, {s0}", "b32 pred", "b32", "mov.b32 {s0}, -1; "),
    _form("vote.sync.ballot.b32 {d0}, {s0}, {s1}", "b32", "pred b32", "mov.b32 {s1}, -1; "),
    _form("vote.sync.any.pred {d0}, {s0}, -1", "pred", "pred"),
    _form("vote.sync.uni.pred {d0}, !{s0}, -1", "pred", "pred"),
    _form("redux.sync.add.s32 {d0}, {s0}, {s1}", "b32", "b32 b32", "mov.b32 {s1}, -1; "),
    _form("barrier.cta.red.popc.u32 {d0}, {s0}, {s1}", "b32", "b32 pred", "mov.b32 {s0}, 1; "),
    _form("barrier.cta.red.and.pred {d0}, 2, {s0}", "pred", "pred"),
    *(
        _form(f"mov.v2.{t} {{{{{{d0}}, {{d1}}}}}}, {{{{{{s0}}, {{s1}}}}}}", f"{t} {t}", f"{t} {t}")
        for t in ("b16", "b32", "b64", "f32")
    ),
    *(
        _form(
            f"mov.v4.{t} {{{{{{d0}}, {{d1}}, {{d2}}, {{d3}}}}}}, {{{{{{s0}}, {{s1}}, {{s2}}, {{s3}}}}}}",
            f"{t} {t} {t} {t}",
            f"{t} {t} {t} {t}",
        )
        for t in ("b32", "f32")
    ),
    _form("ld.shared.v2.b32 {{{d0}, {d1}}}, [{s0}]", "b32 b32", "a32", _FILL),
    _form("ld.shared.v4.b32 {{{d0}, {d1}, {d2}, {d3}}}, [{s0}]", "b32 b32 b32 b32", "a32", _FILL),
    _form("ld.volatile.shared.b32 {d0}, [{s0}+4]", "b32", "a32", _FILL),
    _form("ld.global.v2.b64 {{{d0}, {d1}}}, [{s0}]", "b64 b64", "a64", _FILL_GLOBAL),
    _form("ld.acquire.gpu.global.b64 {d0}, [{s0}]", "b64", "a64", _FILL_GLOBAL),
    _form(
        "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {{{d0}, {d1}, {d2}, {d3}}}, [{s0}]", "b32 b32 b32 b32", "a32", _FILL
    ),
    _form("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {{{d0}, {d1}}}, [{s0}]", "b32 b32", "a32", _FILL),
    _form("movmatrix.sync.aligned.m8n8.trans.b16 {d0}, {s0}", "b32", "b32"),
    _form("atom.shared.add.u32 {d0}, [{s0}], {s1}", "b32", "a32 b32", _FILL),
    _form("atom.shared.exch.b32 {d0}, [{s0}+4], {s1}", "b32", "a32 b32", _FILL),
    _form("atom.shared.cas.b32 {d0}, [{s0}], {s1}, {s2}", "b32", "a32 b32 b32", _FILL + "mov.b32 {s1}, x0; "),
    _form("atom.global.add.f32 {d0}, [{s0}], {s1}", "f32", "a64 f32", _FILL_GLOBAL),
    _form("atom.global.max.s64 {d0}, [{s0}], {s1}", "b64", "a64 b64", _FILL_GLOBAL),
    _form("atom.global.cas.b64 {d0}, [{s0}], {s1}, {s2}", "b64", "a64 b64 b64", _FILL_GLOBAL),
    _form(
        "atom.global.v2.f32.add {{{d0}, {d1}}}, [{s0}], {{{s1}, {s2}}}", "f32 f32", "a64 f32 f32",
        "st.global.v4.b32 [{s0}], {{1, 2, 3, 4}}; bar.warp.sync -1; ",
    ),
    *(
        _form(f"{op}.{t} {{d0}}, {operands}; addc.{t} {{d1}}, 0, 0", f"{k} {k}", f"{k} " * operands.count("s"), start)
        for ops, operands in (
            ("add.cc sub.cc addc.cc subc.cc", "{s0}, {s1}"),
            ("mad.lo.cc mad.hi.cc madc.lo.cc madc.hi.cc", "{s0}, {s1}, {s2}"),
        )
        for op, (t, k) in zip(ops.split(), itertools.cycle((("u32", "b32"), ("s64", "b64"), ("s32", "b32"))))
        for start in ("add.cc.u32 none, x0, x1; ",)
    ),
    _form(f"mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 {_MMA_F32}", "f32 " * 4, "b32 b32 b32 f32 f32 f32 f32"),
    _form(f"mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {_MMA_S32}", "b32 b32 b32 b32", "b32 " * 10),
    _form("mapa.shared::cluster.u32 {d0}, {s0}, {s1}", "b32", "a32 b32", "mov.b32 {s1}, 0; "),
    _form("getctarank.shared::cluster.u32 {d0}, {s0}", "b32", "a32"),
    _form("isspacep.shared {d0}, {s0}", "pred", "a64"),
    _form("cvta.shared.u64 {d0}, {s0}", "b64", "b64"),
    _form("{{ .param .b32 r0, q0, q1; st.param.b32 [q0], {s0}; st.param.b32 [q1], {s1}; call (r0), down, (q0, q1);"
          "ld.param.b32 {d0}, [r0]; }}", "b32", "b32 b32", "and.b32 {s1}, {s1}, 3; "),
)  # fmt: skip
_OUTSIDE = """
.func (.param .b32 o) down(.param .b32 i, .param .b32 n) {
  .reg .pred p; .reg .b32 a, m; .param .b32 x, y, z; ld.param.b32 a, [i]; ld.param.b32 m, [n];
  st.param.b32 [o], a; setp.eq.u32 p, m, 0; @p ret; sub.u32 m, m, 1; mul.lo.u32 a, a, 3;
  st.param.b32 [x], a; st.param.b32 [y], m; call (z), down, (x, y); ld.param.b32 a, [z]; st.param.b32 [o], a; ret;
}
"""


def _single() -> Iterator[Form]:
    """One row of the table for each opcode and number of operands: those with one result."""
    seen = set()
    for row in all_rows():
        kinds = [row.result, *row.sources]
        what = (row.name.partition(".")[0], len(kinds))
        if what in seen or row.result == "pp" or "bf16" in " ".join(kinds) or any(k.startswith("=") for k in kinds):
            continue
        operands = ", ".join(f"{{s{k}}}" for k in range(len(row.sources)))
        types = [REGISTERS[k] for k in kinds]
        if types[0] in types[1:]:
            seen.add(what)
            yield Form(f"{row.name} {{d0}}, {operands}", (types[0],), tuple(types[1:]))


FORMS = (*_SEVERAL, *_single())


# -- overlaps ---------------------------------------------------------------------------------------------

_CLASS = {"a32": "b32", "a64": "b64"}


def _class(type_: str) -> str:
    return _CLASS.get(type_, type_)


def overlaps_of(form: Form) -> list[tuple[int | None, ...]]:
    """For each overlap, the source whose register each result has; None for a register of its own.

    The first and the last result with each source; of several results also all at once: in order, in reverse order
    and turned by one.
    """
    count = len(form.results)
    pairs = [
        (d, s)
        for d, s in itertools.product({0, count - 1}, range(len(form.sources)))
        if _class(form.results[d]) == _class(form.sources[s])
    ]
    found = [tuple(s if k == d else None for k in range(count)) for d, s in pairs]
    if count > 1:
        by_class = {c: [s for s, t in enumerate(form.sources) if _class(t) == c] for c in map(_class, form.results)}
        for order in (slice(None), slice(None, None, -1), slice(1, None)):
            left = {c: s[order] + s[: order.start or 0] for c, s in by_class.items()}
            found.append(tuple(left[c].pop(0) if left[c] else None for c in map(_class, form.results)))
    return [overlap for overlap in dict.fromkeys(found) if any(s is not None for s in overlap)]


# -- kernels ----------------------------------------------------------------------------------------------

_REGISTER_BYTES = {"b16": 2, "b32": 4, "f32": 4, "b64": 8, "f64": 8}


def _copy(type_: str, to: str, source: int) -> str:
    """Give a register the value that a source begins with."""
    word = f"y{source}"
    if type_ == "a32":
        return f"mov.b32 {to}, here32;"
    if type_ == "a64":
        return f"mov.b64 {to}, here;"
    if type_ == "pred":
        return f"and.b64 z, {word}, 1; setp.ne.u64 {to}, z, 0;"
    if type_ in ("b64", "f64"):
        return f"mov.b64 {to}, {word};"
    return f"cvt.u{type_[1:]}.u64 n{type_[1:]}, {word}; mov.b{type_[1:]} {to}, n{type_[1:]};"


def _stored(type_: str, register: str, at: int) -> str:
    place = f"[out+{8 * THREADS * at}]"
    if type_ == "pred":
        return f"selp.b32 n32, 1, 0, {register}; st.global.b32 {place}, n32;"
    return f"st.global.{type_} {place}, {register};"


def _once(form: Form, overlap: tuple[int | None, ...], tag: str, guard: str, at: int, *, own: bool) -> str:
    """Do a form once; results with registers of their own begin with what they would have in the overlap."""
    lines = [f"{{ // {tag}"]
    sources = [f"s{k}" for k in range(len(form.sources))]
    results = [f"d{k}" if own or source is None else f"s{source}" for k, source in enumerate(overlap)]
    lines += [f".reg .{_class(t)} s{k};" for k, t in enumerate(form.sources)]
    lines += [f".reg .{_class(t)} d{k};" for k, t in enumerate(form.results)]
    names = {**{f"s{k}": s for k, s in enumerate(sources)}, **{f"d{k}": r for k, r in enumerate(results)}}
    lines += [_copy(t, sources[k], k) for k, t in enumerate(form.sources)]
    before = form.before.format(**names)
    lines.append(before)
    for k, source in enumerate(overlap):
        if own or source is None:
            first = f"mov.{_class(form.results[k])} d{k}, s{source};" if source is not None else ""
            lines.append(first or _copy(form.results[k], f"d{k}", k + 4))
    text = form.text.format(**names)
    lines += [text] if text[0] == "{" else [f"{guard}{part};" for part in text.split("; ")]
    lines += [_stored(t, results[k], at + k) for k, t in enumerate(form.results)]
    return "\n".join([*lines, "}"])


def kernel_text(name: str, form: Form) -> tuple[str, int]:
    """Write a kernel that does a form with each overlap and without, by turns; count the words that a thread stores."""
    lines, at = [], 0
    alone = not any(word in form.text for word in ("sync", "barrier", "call"))
    guards = ["", "@odd "] if alone and len(form.results) > 1 else [""]
    for overlap, guard in itertools.product(overlaps_of(form), guards):
        for own in (True, False):
            lines.append(_once(form, overlap, f"{guard}{overlap}", guard, at, own=own))
            at += len(form.results)
    # A result that is the guard of its own instruction.
    for k, t in enumerate(form.results):
        if t == "pred" and alone:
            none = (None,) * len(form.results)
            for own in (True, False):
                text = _once(form, none, "guard", "@odd " if own else f"@d{k} ", at, own=own)
                lines.append(text.replace("\n@", f"\nand.b32 n32, lane, 1; setp.ne.u32 d{k}, n32, 0;\n@", 1))
                at += len(form.results)
    head = [
        f".visible .entry {name}(.param .u64 in, .param .u64 outs, .param .u64 mem) {{",
        ".reg .b32 lane, here32, n32, none, x<4>; .reg .b16 n16; .reg .b64 out, here, z, w; .reg .pred odd;",
        f".reg .b64 y<{INPUTS}>; .shared .align 16 .b8 own[{THREADS * _PLACE}];",
        "mov.u32 lane, %tid.x; and.b32 n32, lane, 1; setp.ne.u32 odd, n32, 0; mul.wide.u32 w, lane, 8;",
        f"mov.u32 here32, own; mad.lo.u32 here32, lane, {_PLACE}, here32;",
        f"ld.param.u64 here, [mem]; mul.wide.u32 z, lane, {_PLACE}; add.u64 here, here, z;",
        "ld.param.u64 out, [outs]; add.u64 out, out, w; ld.param.u64 z, [in]; add.u64 z, z, w;",
        *(f"ld.global.b64 y{k}, [z+{8 * THREADS * k}];" for k in range(INPUTS)),
        *(f"cvt.u32.u64 x{k}, y{k + 6};" for k in range(4)),
    ]
    return "\n".join([*head, *lines, "ret;", "}"]), at


MODULE = f".version 8.6\n.target sm_90\n.address_size 64\n{_OUTSIDE}"
