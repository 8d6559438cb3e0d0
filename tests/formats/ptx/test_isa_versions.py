"""Special registers and directives are there from the versions that NVIDIA's assembler demands."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from cujit.formats.ptx.isa.table import rows
from cujit.formats.ptx.special_registers import SPECIAL_REGISTERS
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


def test_special_register_has_its_version_and_architecture(assemble: Assemble) -> None:
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
def test_directive_has_its_version_and_architecture(
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
def test_old_directive_has_the_version_of_the_manual(
    more: dict[str, str], construct: str, ptx: tuple[int, int], sm: int
) -> None:
    need = needs(**{"body": "", **more})[construct]
    assert (need.ptx, need.sm) == (ptx, sm)


def test_first_ptx_supports_all_targets_with_two_exceptions() -> None:
    """No assembler of today takes these targets. Source: PTX ISA manual 9.1, "Target ISA Notes" of each."""
    first = [row for row in rows() if row.ptx == (1, 0)]
    later = {row.form: row.sm for row in first if row.sm != 10}
    assert later.pop("brkpt") == 11
    assert set(later.values()) == {13}
    assert all(form.endswith(" .f64") for form in later)
    assert len(first) - len(later) >= 100
