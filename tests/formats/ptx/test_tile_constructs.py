"""What compilers of tiles write beside instructions: hidden parameters, and places in Tile IR, which they quote."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from cujit.artifact import Artifact
from cujit.devices.device import Device
from cujit.errors import PtxSyntaxError, UnsupportedError
from cujit.formats.cubin import is_ptx_section
from cujit.formats.elf import read_elf
from cujit.formats.ptx.heads import entry_signatures
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.printer import print_module
from cujit.formats.ptx.uses import construct_needs
from cujit.formats.ptx.validity import check_module
from cujit.loading import load
from raising import raises

Assemble = Callable[[str, str], dict[str, bytes]]
HEAD = ".version 9.5\n.target sm_90\n.address_size 64\n"
BODY = "{ .reg .b64 %r; ld.param.u64 %r, [a]; st.global.u32 [%r], 7; ret; }\n"
SOURCES = """.nv_intermediate_source_section {
.code_block {
.ir_name: "tile ir"
.sourceFileName: 1
.source_begin
entry @k(%arg0: tile<ptr<i32>>) { "}" ' ` # } .entry other( { /* $0 -> ?
.source_end
}
}
"""
PLACES = f"""{HEAD}.file 1 "k.py"
.visible .entry k(.param .u64 a)
{{ .reg .b64 %r; .loc 1 2 3
.loc_intermediate 1 4 5
ld.param.u64 %r, [a]; st.global.u32 [%r], 7; ret; }}
{SOURCES}"""
HIDDEN = f"{HEAD}.visible .entry k(.param .u64 a, .hidden .param .align 64 .b8 map[128])\n{BODY}"
MEMORY = f"{HEAD}.visible .entry k(.param .u64 a) .minperctamemory 64\n{BODY}"


@pytest.mark.parametrize("text", [PLACES, HIDDEN, MEMORY], ids=["places", "hidden", "memory"])
def test_constructs_of_tiles_are_read_printed_and_assembled(assemble: Assemble, text: str) -> None:
    module = parse(text)
    check_module(module, text, "x")
    printed = print_module(module)
    assert print_module(parse(printed)) == printed
    for each in (text, printed):
        assemble(each, "sm_90")
    assert list(entry_signatures(text.encode())) == ["k"]
    assert [p.size for p in entry_signatures(text.encode())["k"]] == [8]


def test_tileiras_output_is_parsed_unchanged(assemble: Assemble) -> None:
    cubin = (Path(__file__).parents[2] / "goldens" / "lined" / "cutile-add-sm_90.cubin").read_bytes()
    elf = read_elf(cubin)
    (section,) = filter(is_ptx_section, elf.sections)
    raw = elf.content(section).replace(b"\0", b"\n").decode()
    text = raw.replace(".visible .global", '.file 2 "x.py"\n.visible .global', 1)
    module = parse(text)
    check_module(module, text, "x")
    assert print_module(module).count(".source_begin") == raw.count(".source_begin") > 0
    assemble(print_module(module), "sm_90a")


@pytest.mark.parametrize(
    ("text", "construct", "since"),
    [
        (PLACES, ".loc_intermediate", (9, 4)),
        (PLACES, ".nv_intermediate_source_section", (9, 4)),
        (HIDDEN, ".hidden", (8, 8)),
        (MEMORY, ".minperctamemory", (9, 4)),
    ],
)
def test_tile_constructs_have_their_versions(
    assemble: Assemble, text: str, construct: str, since: tuple[int, int]
) -> None:
    (need,) = [need for need in construct_needs(parse(text)) if need.construct == construct]
    assert need.ptx == since
    major, minor = since
    assemble(text.replace("9.5", f"{major}.{minor}"), "sm_90")
    before = text.replace("9.5", f"{major}.{minor - 1}")
    with raises(PtxSyntaxError, "ptx-syntax", "PTX", major, minor):
        check_module(parse(before), before, "x")
    with pytest.raises(pytest.fail.Exception):
        assemble(before, "sm_90")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{HEAD}.func f(.hidden .param .u64 a) {{ ret; }}", "expected '.param' or '.reg', found '.hidden'"),
        (f"{HEAD}.visible .entry k(.hidden .reg .u64 a) {{ ret; }}", "expected '.param', found '.reg'"),
        (f"{HEAD}.hidden .global .u32 x;", "expected a function, a variable or a directive of a module"),
        (f"{HEAD}.visible .entry k() {{ .loc_intermediate 1 2\nret; }}", "expected a column, found 'ret'"),
        (SOURCES.join((HEAD, "")).replace(".source_end", ""), "expected '.source_end' to end this source"),
        (f"{HEAD}.nv_intermediate_source_section {{ add }}", "expected '}' to end the section, found 'add'"),
        (f"{HEAD}.nv_intermediate_source_section {{ {{ }}", "expected '}' to end the section"),
        (f"{HEAD}.visible .entry k() .minperctamemory {{ ret; }}", ".minperctamemory takes 1 number"),
    ],
)
def test_wrong_tile_constructs_are_reported(assemble: Assemble, text: str, message: str) -> None:
    with pytest.raises(PtxSyntaxError) as caught:
        check_module(parse(text), text, "x")
    assert message in str(caught.value)
    with pytest.raises(pytest.fail.Exception):
        assemble(text, "sm_90")


def test_kernel_with_places_in_tile_ir_runs(cpu: Device) -> None:
    out = cpu.zeros(1, np.uint32)
    load(Artifact.of(PLACES), cpu)["k"][1, 1](out)
    assert out.numpy()[0] == 7


@pytest.mark.parametrize(("text", "why"), [(HIDDEN, "fills"), (MEMORY, "global")])
def test_kernels_with_special_launch_needs_are_refused(cpu: Device, text: str, why: str) -> None:
    both = f"{text}.visible .entry other(.param .u64 a)\n{BODY}"
    module = load(Artifact.of(both), cpu)
    out = cpu.zeros(1, np.uint32)
    module["other"][1, 1](out)
    assert out.numpy()[0] == 7
    with raises(UnsupportedError, "unsupported", why):
        module["k"][1, 1](out)


def test_registers_of_domains_and_block_memory_are_refused(cpu: Device) -> None:
    for name, kind in (("%locality_domain_id", "u32"), ("%locality_domain_supplemental_sm", "u32")):
        text = f"{HEAD.replace('90', '100')}.visible .entry k() {{ .reg .{kind} %r; mov.{kind} %r, {name}; ret; }}\n"
        with raises(UnsupportedError, "unsupported", name, "CPU"):
            cpu.load(Artifact.of(text))
