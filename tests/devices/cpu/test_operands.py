"""Operands of every instruction: those that it takes load, and all others are refused in words."""

from __future__ import annotations

import contextlib
import functools
import re
from collections.abc import Iterator

import pytest

from cujit.devices.cpu.analysis.body import Body
from cujit.devices.cpu.frontend.layout import ModuleLayout
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.pipeline import ir_of, prepare
from cujit.devices.shapes import Dim3
from cujit.errors import FormatError, PtxSyntaxError, UnsupportedError
from cujit.formats.ptx.concrete import concrete_forms
from cujit.formats.ptx.isa.table import rows
from cujit.formats.ptx.parser import parse
from toolkits.minimal import minimal, module_of

pytestmark = pytest.mark.usefixtures("unoptimised")

OTHERS = ("%r1", "%p1", "[%rd1]", "{%r1, %r2}", "7", "0f3F800000", "_")
MOST_SHAPES = 6


def prepared(statements: list[str]) -> tuple[Body, Refusals]:
    module = parse(module_of(statements, "9.5", "sm_100a"), name="x")
    refusals = Refusals()
    layout = ModuleLayout(module, refusals)
    return prepare(module.entries[0], layout, refusals), refusals


def refused(statements: list[str]) -> dict[str, str]:
    """The reasons against each statement that is refused."""
    first = module_of(["MARK"], "9.5", "sm_100a").splitlines().index("MARK") + 1
    _, refusals = prepared(statements)
    found = (*refusals.items, *(mistake[:3] for mistake in refusals.mistakes))
    return {statements[line - first]: why for line, _, why in found if 0 <= line - first < len(statements)}


@functools.cache
def statements() -> dict[str, list[str]]:
    """A statement for each opcode and shape of operands, by opcode."""
    found: dict[str, dict[str, str]] = {}
    for row in rows():
        for modifiers in list(concrete_forms(row))[:: max(1, len(list(concrete_forms(row))) - 1)][:2]:
            text = minimal(row.opcode, modifiers)
            if text is not None:
                shape = re.sub(r"\d+", "", text.partition(" ")[2])
                found.setdefault(row.opcode, {}).setdefault(shape, text)
    return {opcode: list(by_shape.values())[:MOST_SHAPES] for opcode, by_shape in found.items()}


def split(text: str) -> list[str]:
    """Operands, those in brackets and braces whole."""
    return [part.strip() for part in re.findall(r"(?:\[[^]]*\]|\{[^}]*\}|[^,\[{])+", text)]


def spoiled(statement: str) -> Iterator[str]:
    """The statement with an operand left out, doubled, taken for another, or two of them swapped."""
    name, _, text = statement.rstrip(";").partition(" ")
    operands = split(text)
    changed = []
    for k, operand in enumerate(operands):
        before, after = operands[:k], operands[k + 1 :]
        changed += [[*before, *after], [*before, operand, operand, *after]]
        changed += [[*before, other, *after] for other in OTHERS]
        if after:
            changed.append([*before, after[0], operand, *after[1:]])
    yield from (f"{name} {', '.join(each)};" for each in changed)


def ptx_among(statements: list[str]) -> list[str]:
    """Leave out what is no PTX, by halves: together, statements take hardly longer than one to parse."""
    try:
        parse(module_of(statements, "9.5", "sm_100a"), name="x")
    except PtxSyntaxError:
        middle = len(statements) // 2
        return [*ptx_among(statements[:middle]), *ptx_among(statements[middle:])] if middle else []
    return statements


@pytest.mark.parametrize("opcode", sorted(statements()))
def test_any_operands_are_refused_or_compiled(opcode: str) -> None:
    bad = ptx_among([each for statement in statements()[opcode] for each in dict.fromkeys(spoiled(statement))])
    reasons = refused(bad)
    for statement in bad:
        if statement in reasons:
            assert reasons[statement]
            continue
        body, _ = prepared([statement])
        # The registers of matrices, and coordinates, are counted when code is made.
        with contextlib.suppress(UnsupportedError, FormatError):
            ir_of(body, Dim3(32, 1, 1))


def test_every_form_has_the_operands_that_loading_expects() -> None:
    every = [text for texts in statements().values() for text in texts]
    assert {text: why for text, why in refused(every).items() if "operands" in why} == {}


@pytest.mark.parametrize(
    "statement",
    [
        "vadd2.u32.u32.u32 %r1, %r2, %r3;",
        "add.s32 %r1, %r2;",
        "add.s32 %r1, %r2, %r3, %r4;",
        "min.s32 %r1, %r2, %r3, %r4;",
        "setp.lt.s32 %p1, %r1;",
        "setp.lt.and.s32 %p1, %r1, %r2;",
        "ld.global.u32 %r1, %rd1;",
        "ld.global.v4.u32 {%r1, %r2}, [%rd1];",
        "st.global.v2.u32 [%rd1], %r1;",
        "lop3.b32 %r1, %r2, %r3, %r4, %r5;",
        "tensormap.replace.tile.box_dim.global.b1024.b32 [a], %r1;",
        "tex.2d.v4.f32.f32 {%f1, %f2}, [%rd1, {%f1, %f2}];",
        "mbarrier.try_wait.shared.b64 %p1, [mb];",
        "st.b128 [%rd1], 0f3F800000;",
        "mov.v2.f32 {%f1, %f2}, {%f3, xu32};",
        "tex.base.a2dms.v2.f16x2.s32 {%r1, %r2}, [%rd1, {%r1, xh2, %r3, %r4}];",
        "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2}, {%r3}, "
        "{1.5, 1.5, 1.5, 1.5};",
        "mbarrier.test_wait.parity.shared.b64 %p1, [mb], 2;",
        "cp.async.bulk.global.shared::cta.bulk_group [%rd1], [s], 24;",
        "createpolicy.range.L2::evict_last.b64 %rd1, [%rd2], 256, 128;",
        "tensormap.replace.tile.fill_mode.global.b1024.b32 [a], 2;",
        "mma.sp::ordered_metadata.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32 {%r1, %r2, %r3, %r4}, "
        "{%r1, %r2, %r3, %r4}, {%r1, %r2, %r3, %r4}, {%r1, %r2, %r3, %r4}, %r5, 1;",
        "bar.red.popc.u32 %r1, 0, 33, %p1;",
        "bra;",
    ],
)
def test_wrong_number_or_kind_of_operands_is_refused_at_load(statement: str) -> None:
    assert list(refused([statement])) == [statement]


@pytest.mark.parametrize(
    "statement",
    [
        "mov.v2.f32 {%f1, %f2}, {xu32, xu32};",
        "st.v2.f32 [%rd1], {xu32, xs32};",
        "bar.red.popc.u32 %r1, 0, 33;",
        "cp.async.ca.shared.global.L2::cache_hint [s], [%rd1], 4, 99;",
        "mma.sync.aligned.m8n8k16.row.col.s32.s8.s8.s32 {%r1, %r2}, {%r3}, {%r4}, {0, 0};",
        "st.L2::evict_last.volatile.global.v4.b64 [a], {%rd1, %rd2, %rd3, %rd4};",
    ],
)
def test_operands_that_the_assembler_accepts_are_accepted(statement: str) -> None:
    assert refused([statement]) == {}


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(("types", "depth", "good"), [
    ("f32.f16.f16", 16, [(-1, 1, 0, 1), (1, -1, 1, 0)]),
    ("f32.tf32.tf32", 8, [(-1, 1), (1, -1)]),
    ("f16.e4m3.e5m2", 32, [(-1, 1), (1, -1)]),
])  # fmt: skip
def test_warpgroup_matrices_scale_by_1_or_minus_1_and_transpose(
    sparse: bool, types: str, depth: int, good: list[tuple[int, ...]]
) -> None:
    """PTX ISA 9.1, "wgmma.mma_async": imm-scale-a and -b are -1 or 1, imm-trans-a and -b are 0 or 1."""
    sums = "{%r1, %r2}" if types.startswith("f16") else "{%f1, %f2, %f3, %f4}"
    name = f"wgmma.mma_async{'.sp' * sparse}.sync.aligned.m64n8k{depth * (1 + sparse)}.{types}"
    made = [
        f"{name} {sums}, %rd1, %rd2, {'%r1, 0, ' * sparse}%p1, {', '.join(map(str, numbers))};"
        for numbers in (
            *good,
            *((*good[0][:k], bad, *good[0][k + 1 :]) for k in range(len(good[0])) for bad in (-2, 2)),
        )
    ]
    assert list(refused(made)) == made[len(good) :]
