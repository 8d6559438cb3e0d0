"""The versions in the instruction table are those that NVIDIA's assembler demands."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from cujit.formats.ptx.isa.table import lookup, rows
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.special_registers import SPECIAL_REGISTERS
from cujit.formats.ptx.syntax import Instruction
from formats.ptx.test_uses import module, needs

Assemble = Callable[[str, str], dict[str, bytes]]

KERNEL = """.version {version}
.target sm_{sm}
.address_size 64
.global .align 16 .u32 a[16]; .shared .b64 barrier_;
.visible .entry k() {{
    .reg .b32 %r<9>; .reg .b16 %h<9>; .reg .f32 %f<9>; .reg .f64 %fd<9>; .reg .b64 %rd<9>; .reg .pred %p<9>;
    {statement}
    ret;
}}
"""

# One instruction of a form whose version is not that of its opcode's first form, or is easily mistaken.
INSTRUCTIONS = """
fns.b32 %r1, %r2, %r3, %r4;
mad.lo.cc.u32 %r1, %r2, %r3, %r4;
mad.lo.cc.u64 %rd1, %rd2, %rd3, %rd4;
add.cc.u64 %rd1, %rd2, %rd3;
copysign.f32 %f1, %f2, %f3;
testp.finite.f32 %p1, %f1;
fma.rn.oob.f16 %h1, %h2, %h3, %h4;
fma.rn.relu.f16 %h1, %h2, %h3, %h4;
fma.rn.bf16 %h1, %h2, %h3, %h4;
add.bf16 %h1, %h2, %h3;
add.f16 %h1, %h2, %h3;
neg.f16 %h1, %h2;
abs.f16 %h1, %h2;
min.f16 %h1, %h2, %h3;
min.NaN.f32 %f1, %f2, %f3;
max.xorsign.abs.f32 %f1, %f2, %f3;
tanh.approx.f32 %f1, %f2;
ex2.approx.ftz.bf16 %h1, %h2;
add.u16x2 %r1, %r2, %r3;
szext.wrap.u32 %r1, %r2, %r3;
dp4a.u32.u32 %r1, %r2, %r3, %r4;
lop3.b32 %r1, %r2, %r3, %r4, 5;
lop3.or.b32 %r1|%p1, %r2, %r3, %r4, 5, %p2;
shf.l.wrap.b32 %r1, %r2, %r3, %r4;
atom.global.add.f32 %f1, [a], %f2;
atom.global.add.f64 %fd1, [a], %fd2;
atom.global.cas.b16 %h1, [a], %h2, %h3;
atom.global.add.noftz.f16x2 %r1, [a], %r2;
atom.global.add.noftz.bf16x2 %r1, [a], %r2;
atom.global.min.s64 %rd1, [a], %rd2;
red.global.add.f64 [a], %fd1;
match.any.sync.b32 %r1, %r2, %r3;
activemask.b32 %r1;
redux.sync.add.u32 %r1, %r2, %r3;
elect.sync _|%p1, 5;
griddepcontrol.wait;
cvt.pack.sat.u16.s32 %r1, %r2, %r3;
cvt.rn.bf16.f32 %h1, %f1;
cvt.f32.bf16 %f1, %h1;
cvt.rn.bf16.s32 %h1, %r1;
cvt.rna.tf32.f32 %r1, %f1;
cvt.rn.satfinite.e4m3x2.f32 %h1, %f1, %f2;
ld.global.nc.u32 %r1, [a];
ld.weak.global.u32 %r1, [a];
ld.mmio.relaxed.sys.global.u32 %r1, [a];
ld.global.L1::no_allocate.u32 %r1, [a];
discard.global.L2 [a], 128;
cvta.param.u64 %rd1, %rd2;
mapa.u64 %rd1, %rd2, %r1;
barrier.sync 0;
barrier.cta.sync 0;
bar.cta.sync 0;
bar.warp.sync %r1;
barrier.cluster.arrive;
mbarrier.init.shared.b64 [barrier_], %r1;
mbarrier.try_wait.shared.b64 %p1, [barrier_], %rd1;
mbarrier.arrive.expect_tx.shared.b64 %rd1, [barrier_], %r1;
vadd4.u32.u32.u32 %r1, %r2, %r3, %r4;
rsqrt.approx.ftz.f64 %fd1, %fd2;
set.lt.u32.f16 %r1, %h2, %h3;
setp.lt.bf16 %p1, %h2, %h3;
""".strip().splitlines()


@pytest.mark.parametrize("statement", INSTRUCTIONS)
def test_an_instruction_assembles_from_the_version_and_architecture_in_its_row(
    assemble: Assemble, statement: str
) -> None:
    text = KERNEL.format(version="9.0", sm=90, statement=statement)
    (entry,) = parse(text).entries
    assert entry.body is not None
    instruction = next(s for s in entry.body if isinstance(s, Instruction))
    row = lookup(instruction)
    assert row is not None
    # nvJitLink takes nothing below 3.1 and sm_20; it also asks for the version of the target.
    sm = max(row.sm, 20)
    first = max(row.ptx, (3, 1), VERSION_OF_TARGET.get(sm, (3, 1)))
    version = "{}.{}".format(*first)
    assert assemble(KERNEL.format(version=version, sm=sm, statement=statement), "sm_90")
    if first == row.ptx and row.ptx > (3, 1):
        before = _before(row.ptx)
        with pytest.raises(pytest.fail.Exception, match="requires"):
            assemble(KERNEL.format(version="{}.{}".format(*before), sm=20, statement=statement), "sm_90")


def _demanded(assemble: Assemble, text: str) -> dict[str, dict[str, str]]:
    """Give the first version and the first target of each feature of a text that the assembler refuses."""
    with pytest.raises(pytest.fail.Exception) as refused:
        assemble(text, "sm_90")
    said = re.findall(r"Feature '(.*?)' requires (PTX ISA .version|.target) (\S+)", str(refused.value))
    found: dict[str, dict[str, str]] = {}
    for feature, what, least in said:
        found.setdefault(feature, {})[what[-7:]] = least
    return found


def _demands(ptx: tuple[int, int], sm: int) -> dict[str, str]:
    of_target = {".target": f"sm_{sm}"} if sm > 20 else {}
    return {"version": f"{ptx[0]}.{ptx[1]}"} | of_target


# No assembler of today takes what is older than 3.1. Source: PTX ISA manual 9.1, "Special Registers".
OF_OLD_REGISTERS = {
    ((1, 0), 10): "tid ntid ctaid nctaid gridid clock",
    ((1, 3), 10): "laneid warpid smid pm0 pm1 pm2 pm3",
    ((2, 0), 20): "nwarpid nsmid lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt clock64",
    ((2, 1), 10): " ".join(f"envreg{n}" for n in range(32)),
    ((3, 0), 20): "pm4 pm5 pm6 pm7",
    ((3, 1), 30): "globaltimer globaltimer_lo globaltimer_hi",
}


def test_a_special_register_is_there_from_the_version_and_architecture_in_its_row(assemble: Assemble) -> None:
    register = {"u32": "%r1", "b32": "%r1", "u64": "%rd1", "pred": "%p1"}
    statements = [
        f"mov.{row.type} {register[row.type]}, {row.name}{'.x' if row.components else ''};"
        for row in SPECIAL_REGISTERS.values()
    ]
    said = _demanded(assemble, KERNEL.format(version="3.1", sm=20, statement="\n".join(statements)))
    later = {row.name: _demands(row.ptx, row.sm) for row in SPECIAL_REGISTERS.values() if row.ptx > (3, 1)}
    assert said == later | {f"%globaltimer{end}": {".target": "sm_30"} for end in ("", "_lo", "_hi")}
    old = {f"%{name}": since for since, names in OF_OLD_REGISTERS.items() for name in names.split()}
    assert {row.name: (row.ptx, row.sm) for row in SPECIAL_REGISTERS.values() if row.ptx <= (3, 1)} == old


@pytest.mark.parametrize(
    ("more", "construct", "feature"),
    [
        ({"directives": ".explicitcluster"}, ".explicitcluster", ""),
        ({"directives": ".reqntid 32 .reqnctapercluster 2"}, ".reqnctapercluster", ""),
        ({"directives": ".maxclusterrank 4"}, ".maxclusterrank", ""),
        ({"directives": ".reqntid 32 .reqnctapercluster 2 .blocksareclusters"}, ".blocksareclusters", ""),
        ({"before": ".func f() .noreturn { trap; }"}, ".noreturn", ""),
        ({"before": ".func f() .abi_preserve 8 { ret; }"}, ".abi_preserve", ""),
        ({"before": ".func f() .abi_preserve_control 2 { ret; }"}, ".abi_preserve_control", ""),
        ({"before": ".func g() { ret; } .func h(); .alias h, g;"}, ".alias", ""),
        ({"before": ".common .global .u32 g;"}, ".common", ".common directive"),
        ({"before": ".global .u32 h; .global .u8 g[1] = {0xff(h)};"}, "a byte mask in an initial value",
         "mask operator in initializer"),
        ({"before": ".visible .entry q(.param .b8 p[4353]) { ret; }"}, "more than 4352 bytes of parameters",
         "Kernel parameter size larger than 4352 bytes"),
        ({"body": ".reg .b128 %q;"}, ".b128", "Type .b128"),
        ({"body": ".reg .f16x2 %q;"}, ".f16x2", ".f16x2 packed data-type"),
        ({"body": '.pragma "used_bytes_mask 0xf"; ld.global.u32 %r1, [%rd1];'}, '.pragma "used_bytes_mask"',
         "used_bytes_mask"),
        ({"body": '.pragma "enable_smem_spilling";'}, '.pragma "enable_smem_spilling"', "enable_smem_spilling"),
        ({"body": '.pragma "frequency 3";'}, '.pragma "frequency"', "frequency"),
    ],
)  # fmt: skip
def test_a_directive_is_there_from_its_version_and_architecture(
    assemble: Assemble, more: dict[str, str], construct: str, feature: str
) -> None:
    need = needs(**{"body": "", **more})[construct]
    said = _demanded(assemble, module(**{"body": "", "version": "3.1", "target": "sm_20", **more}))
    assert said[feature or construct] == _demands(need.ptx, need.sm)


# Source: PTX ISA manual 9.1, "Directives", and what no assembler of today tells.
@pytest.mark.parametrize(
    ("more", "construct", "ptx", "sm"),
    [
        ({"directives": ".maxntid 32"}, ".maxntid", (1, 3), 10),
        ({"directives": ".reqntid 32"}, ".reqntid", (2, 1), 10),
        ({"directives": ".minnctapersm 1"}, ".minnctapersm", (2, 0), 20),
        ({"directives": ".maxnctapersm 1"}, ".maxnctapersm", (1, 3), 10),
        ({"directives": ".maxnreg 32"}, ".maxnreg", (1, 3), 10),
        ({"before": ".weak .global .u32 g;"}, ".weak", (3, 1), 20),
        ({"before": ".global .attribute(.managed) .u32 g;"}, ".attribute(.managed)", (4, 0), 30),
        ({"body": '.pragma "nounroll";'}, '.pragma "nounroll"', (2, 0), 10),
    ],
)
def test_an_old_directive_is_of_the_version_that_the_manual_says(
    more: dict[str, str], construct: str, ptx: tuple[int, int], sm: int
) -> None:
    need = needs(**{"body": "", **more})[construct]
    assert (need.ptx, need.sm) == (ptx, sm)


def test_what_the_first_ptx_has_is_for_all_targets_but_doubles_and_breakpoints() -> None:
    """No assembler of today takes these targets. Source: PTX ISA manual 9.1, "Target ISA Notes" of each."""
    first = [row for row in rows() if row.ptx == (1, 0)]
    later = {row.form: row.sm for row in first if row.sm != 10}
    assert later.pop("brkpt") == 11
    assert set(later.values()) == {13}
    assert all(form.endswith(" .f64") for form in later)
    assert len(first) - len(later) >= 100


# Source: PTX ISA manual 9.1, "Release Notes": the first version with each target.
VERSION_OF_TARGET = {
    30: (3, 1),
    32: (4, 0),
    35: (3, 1),
    50: (4, 0),
    52: (4, 1),
    53: (4, 2),
    60: (5, 0),
    61: (5, 0),
    70: (6, 0),
    72: (6, 1),
    75: (6, 3),
    80: (7, 0),
    86: (7, 1),
    89: (7, 8),
    90: (7, 8),
}
LAST_OF_MAJOR = {2: 3, 3: 2, 4: 3, 5: 0, 6: 5, 7: 8, 8: 8}


def _before(version: tuple[int, int]) -> tuple[int, int]:
    """The ISA version that came before ``version``."""
    major, minor = version
    return (major, minor - 1) if minor else (major - 1, LAST_OF_MAJOR[major - 1])
