"""Instructions of several results, and of vectors: every part of each is what a GPU makes it."""

from __future__ import annotations

import functools
import itertools
import random
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import CujitError, PtxSyntaxError
from cujit.formats.ptx.concrete import concrete_forms
from cujit.formats.ptx.isa.semantics import Effect, Lanes, form_of
from cujit.formats.ptx.isa.table import rows
from cujit.loading import load
from devices.cpu.launching import Array, blank, run_ptx
from property.effort import times
from raising import raises
from toolkits.minimal import minimal

pytestmark = pytest.mark.usefixtures("unoptimised")

_NUMBERS = (0, 1, -2, 5, 0x12345678, 0x80000000, 0x1234567890ABCDEF, 0x8000000012345678, 0xFFFFFFFF00000001, -(1 << 63))
_SPLITS = [(32, 2, "b16"), (64, 2, "b32"), (64, 4, "b16"), (32, 4, "b8"), (16, 2, "b8")]


def _words(values: list[int], bits: int) -> list[int]:
    return [value & ((1 << bits) - 1) for value in values]


@pytest.mark.parametrize(("bits", "count", "type_"), _SPLITS, ids=str)
@pytest.mark.parametrize("through", ["a number", "a register"])
def test_number_is_split_into_its_parts(bits: int, count: int, type_: str, through: str, cpu: Device) -> None:
    part = bits // count
    lines, expected = [f".reg .{type_} e<{count}>; .reg .b{bits} v;"], []
    for n, number in enumerate(_NUMBERS):
        elements = ", ".join(f"e{k}" for k in range(count))
        source = str(number) if through == "a number" else "v"
        lines.append(f"mov.b{bits} v, {number}; mov.b{bits} {{{elements}}}, {source};")
        lines += [f"st.global.{type_} [p0+{8 * (n * count + k)}], e{k};" for k in range(count)]
        expected += _words([number >> part * k for k in range(count)], part)
    (out,) = run_ptx(cpu, "\n".join(lines), np.zeros(2 * len(expected), np.uint32), block=1)
    assert out[::2].tolist() == expected


def test_128_bit_immediate_is_sign_extended(cpu: Device) -> None:
    """Source: the code that ptxas 13.5 makes of it."""
    body = ".reg .b64 x, y; mov.b128 {x, y}, 7; st.global.v2.b64 [p0], {x, y};"
    (out,) = run_ptx(cpu, body, np.ones(4, np.uint32), block=1, target="sm_90")
    assert out.tolist() == [7, 0, 0, 0]


@pytest.mark.parametrize(
    ("statement", "expected"),
    [
        ("mov.b64 {r1, _}, 0x100000002;", [2, 9, 9, 9]),
        ("mov.b64 {_, r1}, 0x100000002;", [1, 9, 9, 9]),
        ("mov.b64 {r1, r2}, 0d3FF0000000000001;", [1, 0x3FF00000, 9, 9]),
        ("mov.b64 {r1, r2}, 0x100000002; @!q0 mov.b64 {r1, r2}, 0x300000004;", [2, 1, 9, 9]),
        ("mov.v2.u32 {r1, r2}, {7, 0xFFFFFFFF};", [7, 0xFFFFFFFF, 9, 9]),
        ("mov.v4.u32 {r1, r2, r3, r4}, {7, 8, -1, 6};", [7, 8, 0xFFFFFFFF, 6]),
        ("mov.v2.u32 {r1, r2}, {r2, 5};", [9, 5, 9, 9]),
        ("mov.u32 r2, 3; mov.v2.u32 {r1, r2}, {r2, r1};", [3, 9, 9, 9]),
        ("mov.v2.u32 {r1, r2}, 5;", [5, 0, 9, 9]),
        ("mov.v4.b32 {r1, _, _, r4}, 0f40000000;", [0x40000000, 9, 9, 0]),
        ("mov.u32 r5, 6; mov.v4.b32 {r1, r2, r3, r4}, r5;", [6, 0, 0, 0]),
        ("mov.v4.u32 {r1, r2, r3, r4}, %ntid;", [1, 1, 1, 0]),
        ("mov.v2.u32 {r1, r2}, %ntid.x;", [1, 0, 9, 9]),
        ("mov.b32 r1, {1, 2};", [0x20001, 9, 9, 9]),
        ("mov.b64 d1, {3, r1}; mov.b64 {r3, r2}, d1;", [9, 9, 3, 9]),
        ("mov.b64 d1, {1, 2, 3, 4}; mov.b64 {r1, r2}, d1;", [0x20001, 0x40003, 9, 9]),
    ],
)
def test_move_of_parts(statement: str, expected: list[int], cpu: Device) -> None:
    body = f"setp.eq.u32 q0, t, 0; {' '.join(f'mov.u32 r{k}, 9;' for k in range(1, 5))} {statement}"
    (out,) = run_ptx(cpu, f"{body} st.global.v4.b32 [p0], {{r1, r2, r3, r4}};", blank(4), block=1)
    assert out.tolist() == expected


@pytest.mark.parametrize(
    "statement",
    [
        "mov.b64 {r1, r2}, {r3, r4};",
        "mov.b64 {r1, r2}, {1, 2};",
        "mov.b32 {_, _}, 5;",
        "mov.v2.u32 {_, _}, {1, 2};",
        "mov.v2.u32 r1, r2;",
        "mov.v2.u32 {r1}, {r2};",
        "mov.v2.u32 {r1, r2}, {r1, r2, r3};",
        "mov.v2.u32 {r1, r2}, %tid;",
        "mov.v2.b32 {r1, r2}, {%tid.x, 5};",
        "mov.v2.u32 {r1, r2}, {d1, 2};",
        "mov.v2.f32 {r1, r2}, {1.5, 1};",
    ],
)
def test_move_of_parts_that_no_assembler_accepts_is_refused(statement: str, cpu: Device) -> None:
    with raises(PtxSyntaxError, "ptx-syntax", "mov"):
        run_ptx(cpu, statement, blank(1))


@pytest.mark.parametrize("parts", ["{s, r}", "{r, s}"])
@pytest.mark.parametrize("how", ["@!q0 mov.b64 PARTS, d0;", "@q0 bra L; mov.b64 PARTS, d0; L:"])
@pytest.mark.parametrize("moves", [0, 1])
def test_results_of_other_shapes(parts: str, how: str, moves: int, cpu: Device) -> None:
    """``r`` is the same in each row of eight lanes, ``s`` differs in each, and both are written at once."""
    body = f"""
        .reg .b32 s, r; ld.global.u32 n, [p1]; setp.eq.u32 q0, n, 0;
        ld.global.u64 d0, [p1+8]; shr.u32 r, t, 3; mul.lo.u32 s, t, t;
        {how.replace("PARTS", parts)}
        mul.wide.u32 at, t, 8; add.u64 at, at, p0; st.global.v2.b32 [at], {{s, r}};"""
    given = np.array([moves, 0, 0x90ABCDEF, 0x12345678], np.uint32)
    out, _ = run_ptx(cpu, body, blank(64), given)
    moved = [0x90ABCDEF, 0x12345678] if parts == "{s, r}" else [0x12345678, 0x90ABCDEF]
    assert out.reshape(32, 2).tolist() == [moved if moves else [k * k, k >> 3] for k in range(32)]


# -- a number does what a register does that holds it --------------------------------------------------------

_BITS = {"r": 32, "h": 16, "rd": 64, "f": 32, "fd": 64, "p": 1}
_REGISTER = re.compile(r"%(rd|fd|r|h|f|p)(\d+)")
_VALUES = (0x0000000000000001, 0x123456789ABCDEF0, 0xC0400000BF800003, 0x3FF0000080000002, 0x0000001F00000011)


def _value(number: int, bits: int) -> int:
    return _VALUES[number % len(_VALUES)] & ((1 << bits) - 1)


def _literal(kind: str, number: int) -> str:
    value = _value(number, _BITS[kind])
    return f"0{'f' if kind == 'f' else 'd'}{value:0{_BITS[kind] // 4}X}" if kind in ("f", "fd") else f"{value:#x}"


def _with_numbers(statement: str) -> Iterator[str]:
    """Give the statement with a number for each of its sources in turn, and for all of them at once."""
    mnemonic, _, operands = statement.partition(" ")
    first = re.match(r"\{[^}]*\}|[^,]*", operands)
    assert first is not None
    result, sources = first[0], operands[first.end() :]
    places = list(_REGISTER.finditer(sources))
    for chosen in [[place] for place in places] + [places]:
        text = sources
        for place in reversed(chosen):
            text = f"{text[: place.start()]}{_literal(place[1], int(place[2]))}{text[place.end() :]}"
        yield f"{mnemonic} {result}{text}"


@functools.cache
def _pure() -> dict[str, str]:
    """Give a statement of each row that only computes, and several of those with vectors."""
    rng, found = random.Random(5), {}
    for row in rows():
        forms = [m for m in concrete_forms(row) if form_of(row.opcode, *m).meaning.effect is Effect.PURE]
        for modifiers in rng.sample(forms, min(len(forms), times(1))):
            lanes = form_of(row.opcode, *modifiers).meaning.lanes
            text = minimal(row.opcode, modifiers) if lanes in (Lanes.EACH, Lanes.MEMBERS) else None
            if text is not None and "[" not in text and "%q" not in text and "%c" not in text:
                found[text] = row.form
    return found


def _kernel(pairs: list[tuple[str, str]]) -> tuple[str, int]:
    """Do both statements of each pair and store all that they write, side by side."""
    lines, at = [], 0
    for pair in pairs:
        written = _REGISTER.findall(re.match(r"\{[^}]*\}|[^,]*", pair[0].partition(" ")[2])[0])  # type: ignore[index]
        for statement in pair:
            for kind, number in dict.fromkeys(_REGISTER.findall(pair[0])):
                if kind == "p":
                    lines.append(f"ld.global.u8 %h31, [in+{8 * (int(number) % 5)}]; and.b16 %h31, %h31, 1;")
                    lines.append(f"setp.ne.u16 %p{number}, %h31, 0;")
                else:
                    lines.append(f"ld.global.b{_BITS[kind]} %{kind}{number}, [in+{8 * (int(number) % 5)}];")
            lines += ["add.cc.u32 %r39, 0, 0;", statement]
            for kind, number in written:
                if kind == "p":
                    lines.append(f"selp.b64 %rd31, 1, 0, %p{number}; st.global.b64 [out+{at}], %rd31;")
                else:
                    lines.append(f"st.global.b{_BITS[kind]} [out+{at}], %{kind}{number};")
                at += 8
    return "\n".join(lines), at


def _module(pairs: list[tuple[str, str]], target: str) -> tuple[str, int]:
    body, size = _kernel(pairs)
    return (
        f".version 9.2\n.target {target}\n.address_size 64\n.visible .entry k(.param .u64 i, .param .u64 o) {{\n"
        ".reg .b32 %r<40>; .reg .b16 %h<32>; .reg .f32 %f<40>; .reg .f64 %fd<40>; .reg .b64 %rd<32>, in, out;\n"
        f".reg .pred %p<8>; ld.param.u64 in, [i]; ld.param.u64 out, [o];\n{body}\nret; }}\n"
    ), size


@pytest.mark.parametrize("shard", range(4))
def test_immediate_acts_as_a_register_with_its_value(shard: int, cpu: Device) -> None:
    """In every place that takes one, and in every vector form: the results are the same to the last bit."""
    pairs: dict[str, list[tuple[str, str]]] = {"sm_100a": [], "sm_120a": []}
    for statement in sorted(_pure())[shard::4]:
        for other in dict.fromkeys(_with_numbers(statement)):
            for target, several in pairs.items():
                try:
                    load(_module([(statement, other)], target)[0].encode(), cpu)["k"]
                except CujitError:  # no number may stand there
                    continue
                several.append((statement, other))
                break
    assert len(pairs["sm_100a"]) > 100
    wrong = []
    for target, several in pairs.items():
        for some in (several[k : k + 100] for k in range(0, len(several), 100)):
            text, size = _module(some, target)
            out: Array = np.zeros(size, np.uint8)
            load(text.encode(), cpu)["k"][1, 1](np.array(_VALUES, np.uint64), out)
            at = 0
            for pair in some:
                step = 8 * len(_REGISTER.findall(re.match(r"\{[^}]*\}|[^,]*", pair[0].partition(" ")[2])[0]))  # type: ignore[index]
                if out[at : at + step].tolist() != out[at + step : at + 2 * step].tolist():
                    wrong.append(pair)
                at += 2 * step
    assert wrong == []


# -- no pass looks at the first result alone ------------------------------------------------------------------


def test_no_pass_reads_only_the_first_result() -> None:
    """``Op.result`` is the one register that an operation writes, and None where there are several."""
    root = Path(cujit.__file__).parent / "devices" / "cpu"
    pattern = re.compile(r"\.(results|written)\[-?\d+\]")
    found = [
        f"{p.relative_to(root)}{m[0]}" for p in sorted(root.rglob("*.py")) for m in pattern.finditer(p.read_text())
    ]
    assert found == ["ir/program.py.results[0]"]


def test_move_of_several_parts_is_not_a_copy_for_any_pass() -> None:
    """So that no rule for ``mov``, which copies one value, is asked for the parts of one."""
    for opcode, bits in itertools.product(("mov.join", "mov.split"), ("b32", "b64", "b128")):
        assert form_of(opcode, bits).meaning is not form_of("mov", bits).meaning
