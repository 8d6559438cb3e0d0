"""The instruction table knows the forms of the ISA, and refuses what is none."""

from __future__ import annotations

import re

import pytest

from cujit.formats.ptx.isa.sets import SETS
from cujit.formats.ptx.isa.table import NEWEST_PTX, lookup, rows, special_register
from cujit.formats.ptx.special_registers import SPECIAL_REGISTERS
from cujit.formats.ptx.syntax import Instruction


def of(name: str) -> Instruction:
    opcode, *modifiers = name.split(".")
    return Instruction(opcode, tuple(modifiers))


@pytest.mark.parametrize(
    ("name", "section", "ptx", "sm"),
    [
        ("add.s32", "9.7.1.1", (1, 0), 10),
        ("add.sat.s32", "9.7.1.1", (1, 0), 10),
        ("add.cc.u64", "9.7.2.1", (4, 3), 20),
        ("mad.wide.u16", "9.7.1.4", (1, 0), 10),
        ("add.rn.ftz.sat.f32", "9.7.3.3", (1, 0), 10),
        ("fma.rn.f64", "9.7.3.6", (1, 4), 13),
        ("fma.rn.relu.bf16x2", "9.7.4.4", (7, 0), 80),
        ("rcp.approx.ftz.f64", "9.7.3.14", (2, 1), 20),
        ("setp.leu.and.ftz.f32", "9.7.6.2", (1, 0), 10),
        ("setp.lt.f16x2", "9.7.7.2", (4, 2), 53),
        ("lop3.b32", "9.7.8.6", (4, 3), 50),
        ("shf.l.wrap.b32", "9.7.8.7", (3, 1), 32),
        ("mov.b128", "9.7.9.4", (8, 3), 70),
        ("ld.shared::cluster.u32", "9.7.9.8", (1, 0), 10),
        ("ld.global.nc.v4.f32", "9.7.9.9", (3, 1), 32),
        ("ld.acquire.gpu.global.b32", "9.7.9.8", (5, 1), 70),
        ("ld.global.relaxed.gpu.u32", "9.7.9.8", (5, 1), 70),
        ("ld.global.L1::evict_last.L2::cache_hint.b32", "9.7.9.8", (7, 4), 70),
        ("st.release.sys.b64", "9.7.9.11", (5, 1), 70),
        ("cvta.to.global.u64", "9.7.9.20", (2, 0), 20),
        ("cvt.rn.f32.s32", "9.7.9.21", (1, 0), 10),
        ("cvt.rzi.ftz.s32.f32", "9.7.9.21", (1, 0), 10),
        ("cvt.rn.satfinite.e4m3x2.f32", "9.7.9.21", (8, 1), 89),
        ("atom.acq_rel.gpu.global.cas.b64", "9.7.13.5", (1, 2), 12),
        ("atom.global.add.noftz.f16x2", "9.7.13.5", (6, 2), 60),
        ("red.relaxed.gpu.global.add.s32", "9.7.13.6", (1, 2), 11),
        ("bar.sync", "9.7.13.1", (1, 0), 10),
        ("barrier.cluster.arrive.aligned", "9.7.13.3", (7, 8), 90),
        ("bar.warp.sync", "9.7.13.2", (5, 1), 30),
        ("shfl.sync.bfly.b32", "9.7.9.6", (5, 1), 30),
        ("vote.sync.ballot.b32", "9.7.13.9", (5, 1), 30),
        ("vadd4.s32.u32.s32.sat", "9.7.19.3", (3, 0), 30),
        ("vabsdiff.u32.u32.u32.add", "9.7.18.1", (2, 0), 20),
        ("cp.async.cg.shared.global.L2::128B", "9.7.9.25.3.1", (7, 0), 80),
        ("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", "9.7.14", (6, 4), 70),
        ("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16", "9.7.15", (8, 0), 90),
        ("nanosleep.u32", "9.7.20.2", (6, 2), 70),
        ("exit", "9.7.12.7", (1, 0), 10),
    ],
)
def test_forms_are_found_with_section_and_versions(name: str, section: str, ptx: tuple[int, int], sm: int) -> None:
    row = lookup(of(name))
    assert row is not None
    assert (row.section, row.ptx, row.sm) == (section, ptx, sm)


NO_FORMS = (
    "adds.s32 add add.s8 sub.sat.u32 add.s32.s32 mul.s32 div.rn.ftz.f64 and.s32 cvt.s32 shl.s32 popc.u32 ld.u128 "
    "ld.acquire.global.b32 bra.sync lop3.b64 ret.s32"
)


@pytest.mark.parametrize("name", NO_FORMS.split())
def test_unknown_form_is_not_found(name: str) -> None:
    assert lookup(of(name)) is None


def test_types_of_a_form_are_in_order() -> None:
    row = lookup(of("dp4a.u32.s32"))
    assert row is not None
    assert row.types == (frozenset({"u32", "s32"}), frozenset({"u32", "s32"}))


def test_types_out_of_order_are_another_form() -> None:
    assert lookup(of("dp2a.lo.s32.u32")) is not None
    assert lookup(of("dp2a.s32.lo.u32")) is None  # ".lo" is part of the name
    assert lookup(of("cvt.rn.e4m3x2.satfinite.f32")) is not None
    assert lookup(of("cvt.rn.f32.satfinite.e4m3x2")) is None


def test_every_form_of_the_table_is_well_formed() -> None:
    for row in rows():
        assert re.fullmatch(r"9\.7\.\d+(\.\d+)*", row.section), row.form
        assert (1, 0) <= row.ptx <= NEWEST_PTX
        assert 10 <= row.sm <= 120
        words = {choice for modifier in row.modifiers for choice in modifier.choices}
        assert not {word for word in words if word.isupper() and not word.startswith(("L1", "L2"))}, row.form
        assert words.isdisjoint(SETS), row.form


def test_every_form_finds_itself() -> None:
    for row in rows():
        plainest = tuple(min(m.choices) for m in row.modifiers if not m.optional)
        assert row.matches(plainest), row.form
        assert lookup(Instruction(row.opcode, plainest)) is not None, row.form


def test_special_registers_are_found_with_their_components() -> None:
    tid = special_register("%tid.x")
    assert tid is not None
    assert (tid.name, tid.type, tid.section) == ("%tid", "u32", "10.1")
    assert special_register("%envreg31") is not None
    assert special_register("%clock64") is not None
    assert special_register("%laneid.x") is None
    assert special_register("%r1") is None


def test_special_registers_are_filed_under_their_names() -> None:
    assert all(name == row.name and name.startswith("%") for name, row in SPECIAL_REGISTERS.items())
