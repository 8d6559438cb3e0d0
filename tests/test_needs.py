"""What PTX uses, and what of it the CPU device refuses; and how much of the ISA's table it executes."""

from __future__ import annotations

import pytest

import cujit
from cujit.artifact import Artifact
from cujit.devices.cpu.control.rules import all_rules
from cujit.devices.cpu.implemented import Answer, implemented, total
from cujit.devices.cpu.ir.program import Op
from cujit.devices.device import Device
from cujit.errors import FormatError, PtxSyntaxError, UnsupportedError
from cujit.formats.ptx.concrete import MOST_WRITTEN_OUT, concrete_forms
from cujit.formats.ptx.isa.semantics import form_of
from cujit.formats.ptx.isa.table import InstructionRow, rows
from cujit.inspection import needs
from cujit.inspection.needs import Use, ptx_needs
from raising import raises

HEAD = ".version 8.6\n.target sm_100a\n.address_size 64\n"
GOOD = """\
.global .f32 total; .const .b32 table[4]; .extern .shared .align 16 .b8 dynamic[]; .shared .b32 fixed[8], one[1];
.visible .entry k(.param .u64 p) {
.reg .b32 a<4>; .reg .f64 d; .reg .b64 q; .reg .pred ok;
ld.param.u64 q, [p];
mov.u32 a1, %tid.x;
{ mov.u32 a2, %tid.x; add.s32 a1, a1, a2; }
mov.u32 a3, %laneid;
setp.eq.s32 ok, a1, a3;
@ok add.s32 a1, a1, 1;
cvt.rn.f64.s32 d, a1;
st.global.f64 [q], d;
ret; }
"""
BAD = """\
.visible .entry k(.param .u64 p) {
.reg .b32 a; .reg .b64 q; .reg .pred ok;
tcgen05.mma.cta_group::1.kind::f16.ashift [a], [a], q, a, ok;
tcgen05.mma.cta_group::1.kind::f16.ashift [a], [a], q, a, ok;
mov.u32 a, %tid.x;
ret; }
"""
SHIFT = "tcgen05.mma.cta_group::1.kind::f16.ashift"


def test_uses_are_counted_in_nested_scopes_too() -> None:
    needs = ptx_needs(HEAD + GOOD)
    assert needs.instructions[:2] == (Use("mov.u32", 3), Use("add.s32", 2))
    assert set(needs.special_registers) == {Use("%tid.x", 2), Use("%laneid", 1)}
    assert needs.version == (8, 6)
    assert needs.target == ("sm_100a",)
    assert (needs.oldest, needs.arch) == ((1, 3), "compute_10")


def test_features_come_from_instructions_and_variables() -> None:
    assert {use.name: use.count for use in ptx_needs(HEAD + GOOD).features} == {
        "f64": 2,
        "dynamic shared memory": 1,
        "static shared memory": 2,
        "global variables": 1,
        "constant variables": 1,
    }


def test_shared_memory_without_a_size_is_dynamic() -> None:
    """With a size, another image has to define it."""
    for declared in (".extern .shared .b32 x;", ".extern .shared .b32 x[4];"):
        (feature,) = ptx_needs(f"{HEAD}{declared} .entry k() {{ ret; }}").features
        assert feature == Use("static shared memory", 1)


USES = {
    "calls of functions": "call.uni helper, (p0);",
    "printing": "call.uni (r), vprintf, (p0, p0);",
    "assertions": "call.uni __assertfail, (p0, p0, r, p0, p0);",
    "the device heap": "call.uni (p0), malloc, (p0);",
    "barriers of a block": "bar.sync 0;",
    "barriers of a cluster": "barrier.cluster.arrive;",
    "exchange between the lanes of a warp": "shfl.sync.idx.b32 a, a, 0, 31, -1;",
    "barriers of a warp": "bar.warp.sync -1;",
    "atomics": "red.global.add.u32 [q], 1;",
    "fences": "fence.sc.gpu;",
    "ordered or volatile accesses": "ld.relaxed.gpu.global.u32 a, [q];",
    "mbarriers": "mbarrier.init.shared::cta.b64 [q], 1;",
    "asynchronous copies": "cp.async.commit_group;",
    "bulk copies": "cp.async.bulk.commit_group;",
    "tensor copies (TMA)": "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [q, {a}], [q];",
    "tensor maps": "tensormap.replace.tile.global_address.global.b1024.b64 [q], q;",
    "distributed shared memory": "mapa.shared::cluster.u64 q, q, a;",
    "textures": "tex.1d.v4.s32.s32 {a, a, a, a}, [q, {a}];",
    "surfaces": "suld.b.1d.b32.trap {a}, [q, {a}];",
    "matrices of a warp": "movmatrix.sync.aligned.m8n8.trans.b16 a, a;",
    "matrices of a warpgroup": "wgmma.fence.sync.aligned;",
    "tensor memory": "tcgen05.wait::ld.sync.aligned;",
    "multicast memory": "multimem.red.global.add.u32 [q], a;",
    "f64": "add.f64 d, d, d;",
    "f16": "add.f16 h, h, h;",
    "bf16": "add.bf16x2 a, a, a;",
    "tf32": "cvt.rna.tf32.f32 a, f;",
    "floats of 8 bits and less": "cvt.rn.satfinite.e4m3x2.f32 h, f, f;",
    "carry chains": "add.cc.u32 a, a, a;",
    "memory on the stack": "stacksave.u64 q;",
    "jump tables": "brx.idx a, places;",
    "dependent launches": "griddepcontrol.wait;",
    "traps": "trap;",
}
"""Each feature, and an instruction that is a use of it and of no other; to print or to assert is a call, too."""
CALLED = """
.extern .func (.param .b32 r) vprintf(.param .b64 p, .param .b64 a); .extern .func helper(.param .b64 p);
.extern .func __assertfail(.param .b64 m, .param .b64 f, .param .b32 l, .param .b64 n, .param .b64 s);
.extern .func (.param .b64 r) malloc(.param .b64 n);
"""


def test_every_feature_is_found_by_its_instruction() -> None:
    assert needs._FEATURES.keys() == USES.keys()
    declared = ".reg .b32 a; .reg .f32 f; .reg .b16 h; .reg .f64 d; .reg .b64 q; .param .b64 p0; .param .b32 r;"
    for feature, use in USES.items():
        body = f"{declared} places: .branchtargets end; {use} end: ret;"
        found = {each.name: each.count for each in ptx_needs(f"{HEAD}{CALLED}.entry k() {{ {body} }}").features}
        assert found == {feature: 1} | ({"calls of functions": 1} if use.startswith("call") else {}), use


@pytest.mark.parametrize("carries", ["add.cc.u32 a, a, 1;", "addc.u32 a, a, 1;", "madc.hi.cc.u32 a, a, 3, 1;"])
def test_carry_chain_sets_or_uses_a_carry(carries: str) -> None:
    needs = ptx_needs(f"{HEAD}.visible .entry k() {{ .reg .b32 a; add.u32 a, 1, 2; {carries} ret; }}")
    assert needs.features == (Use("carry chains", 1),)


def test_refused_requirements_match_the_loader(cpu: Device) -> None:
    needs = ptx_needs(HEAD + BAD)
    with pytest.raises(UnsupportedError) as caught:
        cpu.load(Artifact.of(HEAD + BAD))
    assert [(r.line, r.construct, r.why) for r in needs.refusals] == sorted(caught.value.items)
    refused = {use.name: use.why for use in needs.instructions if use.why}
    assert refused == {SHIFT: needs.refusals[0].why}
    assert not any(use.why for use in needs.special_registers)


def test_accepted_requirements_load() -> None:
    assert ptx_needs(HEAD + GOOD).refusals == ()


def test_empty_kernel_runs_on_the_first_architecture() -> None:
    nothing = ptx_needs(f"{HEAD}.visible .entry k() {{ }}")
    assert (nothing.oldest, nothing.arch) == ((1, 0), "compute_10")


def test_text_that_is_not_ptx_is_refused() -> None:
    with pytest.raises(PtxSyntaxError):
        ptx_needs("not PTX at all")


def test_image_without_ptx_is_refused() -> None:
    with raises(FormatError, "format", "PTX", "cujit.inspect(image)"):
        cujit.requirements(b"define void @k() {\n  ret void\n}\n")


# -- the table --------------------------------------------------------------------------------------------


def row_of(form: str) -> InstructionRow:
    (row,) = (row for row in rows() if row.form == form)
    return row


def test_row_is_expanded_to_all_its_combinations() -> None:
    row = row_of("shf .l|r .clamp|wrap .b32")
    assert set(concrete_forms(row)) == {
        ("l", "clamp", "b32"), ("l", "wrap", "b32"), ("r", "clamp", "b32"), ("r", "wrap", "b32"),
    }  # fmt: skip
    assert set(concrete_forms(row_of("copysign .f32|f64"))) == {("f32",), ("f64",)}


def test_long_row_is_expanded_to_all_pairs_of_choices() -> None:
    row = max(rows(), key=lambda row: len(row.modifiers) if row.opcode == "ld" else 0)
    forms = list(concrete_forms(row))
    assert len(forms) == len(set(forms)) < MOST_WRITTEN_OUT
    assert all(row.matches(form) for form in forms)
    pairs = [("L1::evict_last", "f64"), ("L2::cache_hint", "v4")]
    assert all(any(set(pair) <= set(form) for form in forms) for pair in pairs)


def test_every_expanded_form_belongs_to_its_row() -> None:
    assert all(row.matches(form) for row in rows() for form in list(concrete_forms(row))[:500])


def test_result_of_a_row_matches_the_rules() -> None:
    answers = {one.row: one for one in implemented()}
    assert answers[row_of("shf .l|r .clamp|wrap .b32")].answer is Answer.YES
    assert all(one.answer is Answer.YES for one in implemented() if one.row.opcode in ("bra", "exit", "vset4", "fns"))
    refused = next(one for one in implemented() if one.row.opcode == "multimem")
    assert refused.answer is Answer.NO
    for one in implemented():
        taken = sum(
            all_rules().find(Op(form_of(one.row.opcode, *form))) is not None for form in concrete_forms(one.row)
        )
        assert one.row.opcode in ("bra", "brx", "call", "ret", "exit", "mov") or one.taken == taken


def test_total_adds_up() -> None:
    whole = total()
    assert whole.rows == len(rows())
    assert whole.unknown == sum(row.is_open for row in rows())
    assert 0.4 < whole.share <= 1
