"""Every construct of a text is named once, with its line and what introduced it."""

from __future__ import annotations

import pytest

from cujit.formats.ptx import uses
from cujit.formats.ptx.isa.table import InstructionRow, earliest
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.syntax import Instruction
from cujit.formats.ptx.uses import Need, construct_needs, removed_constructs


def module(body: str, *, version: str = "9.4", target: str = "sm_100", before: str = "", directives: str = "") -> str:
    registers = ".reg .b32 %r<9>; .reg .f32 %f<9>; .reg .b64 %rd<9>; .reg .b16 %h<9>; .reg .pred %p<9>;"
    return (
        f".version {version}\n.target {target}\n.address_size 64\n{before}\n"
        f".visible .entry k(.param .u64 p) {directives}\n{{\n{registers}\n{body}\nret;\n}}\n"
    )


def needs(body: str, **more: str) -> dict[str, Need]:
    return {need.construct: need for need in construct_needs(parse(module(body, **more)))}


FOUR_BITS = "mma.sync.aligned.m16n8k64.row.col.kind::mxf4nvf4.block_scale.scale_vec::4X.f32.e2m1.e2m1.f32"
OF_FOUR_BITS = "{%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, {%r5, %r6}, {%f1, %f2, %f3, %f4}, %r7, {0, 0}, %r8, {0, 0};"


@pytest.mark.parametrize(
    ("statement", "ptx", "sm"),
    [
        ("add.s32 %r1, %r2, %r3;", (1, 0), 10),
        ("ld.global.f32 %f1, [%rd1];", (1, 0), 10),
        ("ld.global.L2::cache_hint.f32 %f1, [%rd1], %rd2;", (7, 4), 80),
        ("ld.shared::cta.f32 %f1, [%r1];", (1, 0), 10),
        ("ld.global.v8.b32 {%r1, %r2, %r3, %r4, %r5, %r6, %r7, %r8}, [%rd1];", (8, 8), 100),
        ("ld.global.v4.b64 {%rd1, %rd2, %rd3, %rd4}, [%rd5];", (8, 8), 100),
        ("ld.volatile.local.u32 %r1, [%r2];", (9, 1), 10),
        ("atom.relaxed.gpu.global.add.u32 %r1, [%rd1], %r2;", (5, 1), 70),
        ("atom.sys.add.u32 %r1, [%rd1], %r2;", (5, 0), 60),
        ("add.rn.f32x2 %rd1, %rd2, %rd3;", (8, 6), 100),
        ("cvt.rn.satfinite.f16.f32 %h1, %f1;", (8, 1), 70),
        ("mbarrier.arrive.relaxed.cta.shared::cta.b64 %rd1, [%r1];", (8, 6), 90),
        ("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%f1, %f2, %f3, %f4}, {%r1, %r2, %r3, %r4}, "
         "{%r5, %r6}, {%f1, %f2, %f3, %f4};", (8, 4), 89),
        (f"{FOUR_BITS}.ue4m3 {OF_FOUR_BITS}", (8, 7), 120),
        (f"{FOUR_BITS}.ue8m0 {OF_FOUR_BITS}", (9, 1), 120),
        ("fence.proxy.async;", (8, 0), 90),
    ],
)  # fmt: skip
def test_instruction_requires_what_its_newest_modifier_does(statement: str, ptx: tuple[int, int], sm: int) -> None:
    found = needs(statement)
    name = statement.split(" ")[0].rstrip(";")
    assert (found[name].ptx, found[name].sm, found[name].line) == (ptx, sm, 8)


def test_third_operand_of_min_is_newer_than_min() -> None:
    assert needs("min.f32 %f1, %f2, %f3;")["min.f32"].ptx == (1, 0)
    assert needs("min.f32 %f1, %f2, %f3, %f4;")["min.f32 of 4 operands"].ptx == (8, 8)


def test_some_instructions_need_specific_targets() -> None:
    assert needs("wgmma.fence.sync.aligned;")["wgmma.fence.sync.aligned"].suffix == "a"
    assert needs("redux.sync.min.f32 %f1, %f2, %r3;")["redux.sync.min.f32"].suffix == "f"
    assert needs("redux.sync.min.s32 %r1, %r2, %r3;")["redux.sync.min.s32"].suffix == ""


def test_special_registers_are_found_in_any_position() -> None:
    found = needs("mov.u32 %r1, %aggr_smem_size;\nmov.u32 %r2, %clusterid.x;\nmov.u32 %r3, %tid.x;")
    assert (found["%aggr_smem_size"].ptx, found["%aggr_smem_size"].line) == ((8, 1), 8)
    assert (found["%clusterid"].ptx, found["%clusterid"].sm) == ((7, 8), 90)
    assert found["%tid"].ptx == (1, 0)


def test_declared_registers_are_not_constructs() -> None:
    text = "add.s32 %r1, %r2, %r3; { .reg .b32 %v1<9>; mov.u32 %v10, %v18; }"
    assert [name for name in needs(text) if name.startswith("%")] == []
    assert [name for name in needs("mov.u32 %r1, %r;") if name.startswith("%")] == ["%r"], "only numbered ones are"


@pytest.mark.parametrize(
    ("more", "construct", "ptx", "sm"),
    [
        ({"directives": ".maxclusterrank 4"}, ".maxclusterrank", (7, 8), 90),
        ({"directives": ".reqntid 32 .reqnctapercluster 2 .blocksareclusters"}, ".blocksareclusters", (9, 0), 90),
        ({"before": ".func f() .noreturn { trap; }"}, ".noreturn", (6, 4), 30),
        ({"before": ".func f() .abi_preserve 8 { ret; }"}, ".abi_preserve", (9, 0), 80),
        ({"before": ".func g(); .alias g, k;"}, ".alias", (6, 3), 30),
        ({"before": ".global .attribute(.managed) .u32 g;"}, ".attribute(.managed)", (4, 0), 30),
        (
            {"before": ".global .u8 g[2] = {0xff(h), 0xff00(h)};"}, "a byte mask in an initial value", (7, 1), 10
        ),
        ({"before": ".common .global .u32 g;"}, ".common", (5, 0), 20),
        ({"before": ".visible .entry q(.param .b8 p[4353]) {}"}, "more than 4352 bytes of parameters", (8, 1), 70),
        ({"body": '.pragma "used_bytes_mask 0xf";'}, '.pragma "used_bytes_mask"', (8, 3), 50),
        ({"body": ".reg .b128 %q;"}, ".b128", (8, 3), 70),
        ({"body": "{ .reg .b128 %q; }"}, ".b128", (8, 3), 70),
        ({"body": '.loc 1 2 3, function_name $L_1, inlined_at 1 2 3'}, ".loc with inlined_at", (7, 2), 10),
    ],
)  # fmt: skip
def test_directives_types_and_pragmas_count_too(
    more: dict[str, str], construct: str, ptx: tuple[int, int], sm: int
) -> None:
    found = needs(**{"body": "", **more})
    assert (found[construct].ptx, found[construct].sm, found[construct].is_known) == (ptx, sm, True)


@pytest.mark.parametrize(
    ("body", "construct"),
    [
        ("add.rn.f128 %r1, %r2, %r3;", "add.rn.f128"),
        ("frobnicate.b32 %r1;", "frobnicate.b32"),
        ("mma.sync.aligned.m99n8k16.row.col.f32.f16.f16.f32 {%f1}, {%r1}, {%r2}, {%f1};", "mma.sync.aligned.m99n8k16"),
        ("mov.u32 %r1, %from_the_future;", "%from_the_future"),
        ('.pragma "from_the_future 3";', '.pragma "from_the_future"'),
    ],
)
def test_unknown_construct_requires_the_declared_version(body: str, construct: str) -> None:
    (found,) = (need for name, need in needs(body, version="9.3").items() if name.startswith(construct))
    assert (found.ptx, found.sm, found.is_known) == ((9, 3), 100, False)


def test_each_construct_is_listed_once_at_its_first_line() -> None:
    found = construct_needs(parse(module("exit;\nbar.sync 0;\nexit;\nbar.sync 0;")))
    assert [(n.line, n.construct) for n in found if n.construct in ("exit", "bar.sync")] == [
        (8, "exit"),
        (9, "bar.sync"),
    ]


def test_votes_and_shuffles_without_sync_are_gone() -> None:
    text = parse(module("vote.all.pred %p1, %p2;\nshfl.up.b32 %r1, %r2, %r3, %r4;\nvote.sync.all.pred %p1, %p2, 1;"))
    assert removed_constructs(text, (6, 4), 70) == [(8, "vote.all.pred", (6, 4)), (9, "shfl.up.b32", (6, 4))]
    assert removed_constructs(text, (6, 4), 60) == removed_constructs(text, (6, 3), 70) == []


def test_instruction_is_looked_up_once_per_operand_kinds(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def counted(instruction: Instruction) -> InstructionRow | None:
        asked.append(instruction.name)
        return earliest(instruction)

    monkeypatch.setattr(uses, "earliest", counted)
    kinds = "min.f32 %f1, %f2, %f3; min.f32 %f1, %f2, %f3, %f4; min.f32 %f1, %f2, 0f00000000; min.s32 %r1, %r2, %r3;"
    found = needs(9 * kinds)
    assert asked == ["min.f32"] * 3 + ["min.s32", "ret"]
    assert found["min.f32 of 4 operands"].ptx == (8, 8)


def test_register_pair_requires_a_newer_version() -> None:
    one = "tex.2d.v4.f32.f32 {%f1, %f2, %f3, %f4}, [%rd1, {%f5, %f6}];"
    two = one.replace("}, [", "}|%p1, [")
    found = needs(one + "\n" + two)
    name = "tex.2d.v4.f32.f32"
    assert found[name].line < found[f"{name} with a predicate"].line


def test_register_in_an_address_is_looked_at_each_time() -> None:
    found = needs(
        "ld.shared.u32 %r1, [%r2];\nld.shared.u32 %r1, [%r2+4];\nld.shared.u32 %r1, [%reserved_smem_offset_0];"
    )
    assert "%reserved_smem_offset_0" in found
