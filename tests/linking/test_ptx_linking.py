"""PTX linked with PTX: what resolves to what, what is refused and how it is told, and that nvJitLink says the same."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from elftools.elf.elffile import ELFFile

from cujit.artifact import Artifact, ImageKind
from cujit.devices.device import Device
from cujit.errors import FormatError, LinkError, OptionError, PtxSyntaxError, UnsupportedError
from cujit.formats.cubin import read_cubin
from cujit.formats.fatbin import find_fatbins
from cujit.loading import load
from cujit.program import Options, Source, build, compile, link, toolchain
from linking.pairs import ALIAS, CALLS, EXTERN, HEAD, PAIRS, READ, images, kernel, shared
from raising import raises


@pytest.mark.parametrize("pair", list(PAIRS))
def test_two_modules_link_or_the_reason_is_reported(pair: str, cpu: Device) -> None:
    modules, expected = PAIRS[pair]
    if isinstance(expected, str):
        with raises(LinkError, "link", expected):
            link(images(modules), to="ptx")
        return
    linked = link(images(modules), to="ptx")
    if expected is None:
        return
    p = np.zeros(1, np.uint32)
    load(linked, cpu)["k"][1, 1, 64](p)
    assert p.tolist() == [expected]


@pytest.mark.parametrize("pair", ["extern, larger", "function, float", "common, smaller", "weak twice, spaces"])
def test_link_to_a_cubin_refuses_mismatches_too(pair: str) -> None:
    modules, expected = PAIRS[pair]
    with raises(LinkError, "link", expected):
        link(images(modules), arch="sm_90")


def test_nvjitlink_links_and_refuses_the_same() -> None:
    """In a process of its own: release 13.5 says on standard error what it does not like, succeeds, and may crash."""
    path = os.pathsep.join((str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])))
    command = [sys.executable, "-m", "linking.by_nvjitlink"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path})
    verdicts = dict(line.rsplit(": ", 1) for line in done.stdout.splitlines())
    expected = {name: "refused" if isinstance(value, str) else "linked" for name, (_, value) in PAIRS.items()}
    if toolchain().nvjitlink.version == (
        13,
        0,
    ):  # its builds differ about an alias beside its definition
        verdicts.pop("alias, again")
        del expected["alias, again"]
    assert verdicts == expected


def test_all_errors_are_reported_with_input_and_line() -> None:
    a = EXTERN + ".extern .global .u32 x;\n" + kernel(READ) + kernel(CALLS, "again")
    b = ".visible .global .u64 y;\n" + kernel(name="again")
    c = ".extern .global .u32 y;\n" + kernel("ld.global.u32 %r1, [y];", "c")
    with pytest.raises(LinkError) as caught:
        link(
            [
                Artifact(ImageKind.PTX, (HEAD + text).encode(), name=f"{n}.ptx")
                for n, text in zip("abc", (a, b, c), strict=True)
            ],
            to="ptx",
        )
    told = caught.value.message.splitlines()[1:]
    assert [line.split(" ")[2] for line in told] == ["1:a.ptx:9:", "1:a.ptx:15:", "2:b.ptx:5:", "3:c.ptx:4:"]
    assert "x is used" in told[0]
    assert "f is used" in told[1]
    assert "again is defined again; first in 1:a.ptx:12" in told[2]
    assert "y is declared as 4 bytes; 2:b.ptx:4 has 8 bytes" in told[3]


def test_functions_that_only_nvidia_has_stay_unresolved() -> None:
    names = ("vprintf", "__assertfail", "malloc", "cudaGraphSetConditional", "__cudaCDP2GetLastError")
    head = "".join(f".extern .func {name}();\n" for name in names)
    linked = link([HEAD + head + kernel(" ".join(f"call {name};" for name in names)), HEAD + head], to="ptx")
    assert [linked.text.count(f".extern .func {name}(") for name in names] == [1] * len(names)


def test_names_are_spelled_as_in_the_source() -> None:
    caller = compile("__device__ int twice(int); __global__ void k(int *p) { *p = twice(*p); }", rdc=True)
    with raises(LinkError, "link", "twice(int) (_Z5twicei)"):
        link([caller], to="ptx")


def test_text_that_is_not_ptx_is_reported_with_its_input() -> None:
    with raises(PtxSyntaxError, "ptx-syntax", "2:ptx"):
        link([HEAD + kernel(), HEAD + "nonsense"], to="ptx")
    binary = Artifact(ImageKind.PTX, HEAD.encode() + b"// \xff\n", name="odd.ptx")
    with raises(FormatError, "format", "2:odd.ptx"):
        link([HEAD + kernel(), binary], to="ptx")


TARGETS = [
    ("sm_80", "sm_90", "sm_90"),
    ("sm_90a", "sm_80", "sm_90a"),
    ("sm_90a", "sm_100", ""),
    ("sm_100f", "sm_103", "sm_103f"),
    ("sm_100a", "sm_100f", "sm_100a"),
    ("sm_120a", "sm_100a", ""),
]


@pytest.mark.parametrize(("first", "second", "fits"), TARGETS)
def test_target_is_the_highest_of_all_inputs(first: str, second: str, fits: str) -> None:
    head = ".version 8.8\n.target {}\n.address_size 64\n"
    pair = [head.format(first) + kernel(), head.format(second) + kernel(name="other")]
    if not fits:
        with raises(LinkError, "link", "run"):
            link(pair, to="ptx")
        return
    assert f".target {fits}\n" in link(pair, to="ptx").text


def test_ltoir_becomes_ptx_for_the_highest_target_too() -> None:
    parts = [
        compile('extern "C" __global__ void k(int *p) { p[0] = p[1]; }', to="ltoir", arch="lto_80"),
        compile('extern "C" __global__ void other() {}', arch="compute_100", rdc=True),
    ]
    assert link(parts, to="ptx").text == link(parts, to="ptx", arch="sm_100").text


def test_lower_target_than_an_input_is_refused() -> None:
    with raises(LinkError, "link", "sm_80", "sm_75"):
        link([HEAD + kernel()], to="ptx", arch="compute_75")
    assert ".target sm_90" in link([HEAD + kernel()], to="ptx", arch="sm_90").text


def test_addresses_of_another_size_are_refused() -> None:
    with raises(LinkError, "link", "2:ptx", "32", "1:ptx", "64"):
        link([HEAD + kernel(), HEAD.replace("64", "32") + ".visible .entry other() { ret; }"], to="ptx")


def test_feature_removed_since_an_older_version_has_its_line() -> None:
    old = ".version 6.0\n.target sm_60\n.address_size 64\n" + kernel("shfl.down.b32 %r1, %r2, 1, 31;")
    with raises(LinkError, "link", "1:ptx:7", "shfl.down.b32", "PTX", "6.4"):
        link([old, HEAD + kernel(name="other")], to="ptx")


def test_option_that_no_tool_uses_is_refused() -> None:
    with raises(OptionError, "option-rejected", "Options(lineinfo=True)"):
        link([HEAD + kernel()], to="ptx", lineinfo=True)


# -- as people write it -----------------------------------------------------------------------------------

OFFLINE = Source.cuda(
    "__device__ float bias = 0.5f; static __device__ int calls = 10;"
    "__device__ float weigh(float x) { calls++; return 2 * x + bias; }"
    "__device__ int called() { return calls; }",
    name="offline.cu",
)  # fmt: skip
ONLINE = Source.cuda(
    "extern __device__ float bias; static __device__ int calls = 100; __device__ float weigh(float);"
    "__device__ int called(); __global__ void run(float *x, int *n) {"
    "x[0] = weigh(x[0]) + bias; calls++; n[0] = called() + calls; }",
    name="online.cu",
)  # fmt: skip


@pytest.mark.parametrize("options", [Options(), Options(lineinfo=True), Options(debug=True)], ids=repr)
def test_two_translation_units_run_on_every_device(device: Device, options: Options) -> None:
    units = [compile(unit, to="ptx", arch="compute_75", names=names, options=options, rdc=True)
             for unit, names in ((ONLINE, ["run"]), (OFFLINE, []))]  # fmt: skip
    linked = link(units, device=device)
    assert linked.kind is (ImageKind.CUBIN if device.is_gpu else ImageKind.PTX)
    x, n = device.array(np.array([3], np.float32)), device.array(np.zeros(1, np.int32))
    load(linked, device)["run"][1, 1](x, n)
    assert (x.numpy().tolist(), n.numpy().tolist()) == ([7.0], [112])


HEADER = "inline __device__ int common(int x) { return x + 1; }"
UNITS = {
    "a.cu": '#include "common.h"\n__device__ int f(int); __global__ void k(int *p) { *p = f(common(*p)); }',
    "b.cu": '#include "common.h"\n\n__device__ float unused; __device__ int f(int x) { return common(2 * x); }',
}


def linked_units(options: Options) -> Artifact:
    sources = [Source.cuda(text, name=name, headers={"common.h": HEADER}) for name, text in UNITS.items()]
    return link([compile(unit, to="ptx", arch="compute_80", rdc=True, options=options) for unit in sources], to="ptx")


def test_debug_data_of_every_unit_survive() -> None:
    linked = linked_units(Options(debug=True))
    cubin = link([linked], arch="sm_90", debug=True)
    dwarf = ELFFile(io.BytesIO(cubin.data)).get_dwarf_info(relocate_dwarf_sections=False)
    tops = [unit.get_top_DIE() for unit in dwarf.iter_CUs()]
    assert [Path(top.attributes["DW_AT_name"].value.decode()).name for top in tops] == ["a.cu", "b.cu"]
    functions = [
        [die.attributes["DW_AT_name"].value for die in top.iter_children() if die.tag == "DW_TAG_subprogram"]
        for top in tops
    ]
    assert functions == [[b"common", b"k"], [b"common", b"f"]]


def test_every_label_of_the_debug_data_exists_once() -> None:
    text = linked_units(Options(debug=True)).text
    sections = text.partition(".section")[2]
    told = set(re.findall(r"\$[Ld]\w[\w$]*", sections))
    there = re.findall(r"^([\w$]+):", text, re.MULTILINE)
    assert told
    assert {label: there.count(label) for label in told} == dict.fromkeys(told, 1)
    # The abbreviations of the second unit begin where those of the first end.
    begins = re.findall(r"\.b32 (\.debug_abbrev|\$debug_debug_abbrev\$2)", sections)
    assert begins == [".debug_abbrev", "$debug_debug_abbrev$2"]


def test_lines_keep_their_files() -> None:
    text = linked_units(Options(lineinfo=True)).text
    files = {Path(name).name: number for number, name in re.findall(r'^\.file (\d+) "([^"]+)"', text, re.MULTILINE)}
    assert sorted(files) == ["a.cu", "b.cu", "common.h"]
    assert sorted(files.values()) == ["1", "2", "3"]
    kernel_, f = text[text.index(".entry") :].split(".visible .func", 1)
    assert set(re.findall(r"(?:\.loc|inlined_at) (\d+)", kernel_)) == {files["a.cu"], files["common.h"]}
    assert set(re.findall(r"(?:\.loc|inlined_at) (\d+)", f)) == {files["b.cu"], files["common.h"]}


def test_dynamic_shared_memory_has_the_largest_alignment() -> None:
    texts = [
        shared(f".extern .shared .align {align} .b8 s[];", name) for align, name in ((4, "k"), (16, "m"), (8, "n"))
    ]
    assert re.findall(r"\.extern \.shared.*", link([HEAD + text for text in texts], to="ptx").text) == [
        ".extern .shared .align 16 .b8 s[];"
    ]


def test_unused_alias_is_omitted() -> None:
    assert ".alias" in link([HEAD + ALIAS, HEAD + EXTERN + kernel(CALLS)], to="ptx").text
    assert ".alias" not in link([HEAD + ALIAS, HEAD + kernel()], to="ptx").text


def test_source_links_with_ptx_and_ltoir(cpu: Device) -> None:
    has = compile('__device__ int ext = 7; extern "C" __device__ int twice(int x) { return 2 * x; }', rdc=True)
    uses = 'extern __device__ int ext; extern "C" __device__ int twice(int);'
    uses += 'extern "C" __global__ void k(int *p) { *p = twice(*p) + ext; }'
    for given in (Source.cuda(uses), compile(uses, to="ltoir", arch="lto_75")):
        p = np.array([4], np.int32)
        load(link([given, has], to="ptx"), cpu)["k"][1, 1](p)
        assert p.tolist() == [15]
    with raises(LinkError, "link", "twice", "LTO-IR", "PTX"):
        link(
            [
                compile(uses, rdc=True),
                compile(
                    Source.cuda('extern "C" __device__ int twice(int x) { return 2 * x; }'), to="ltoir", arch="lto_75"
                ),
            ],
            to="ptx",
        )


def test_fatbin_of_parts_holds_linked_ptx() -> None:
    parts = [compile(unit, to="ptx", arch="compute_75", rdc=True) for unit in (ONLINE, OFFLINE)]
    kinds = [(e.kind.name, str(e.arch)) for e in find_fatbins(build(parts, ["compute_80", "sm_90"]).data)[0].entries]
    assert sorted(kinds) == [("CUBIN", "sm_90"), ("PTX", "compute_80")]


def test_cubin_alone_cannot_become_ptx() -> None:
    cubin = compile(OFFLINE, arch="sm_90", rdc=True)
    with raises(LinkError, "link-input", "to='ptx'"):
        link([cubin], to="ptx")


def test_linked_ptx_builds_into_the_same_kernels() -> None:
    units = [compile(unit, to="ptx", arch="compute_75", rdc=True) for unit in (ONLINE, OFFLINE)]
    both = [link(units, arch="sm_90"), link([link(units, to="ptx")], arch="sm_90")]
    assert [[k.name for k in read_cubin(image.data).kernels] for image in both] == [["_Z3runPfPi"]] * 2


UNLINKED = {
    "a variable": (".extern .global .u32 x;\n", READ),
    "a function": (EXTERN, CALLS),
    "the address of a function": (EXTERN, "mov.u64 %rd2, f; st.global.u64 [%rd1], %rd2;"),
    "an address in a table": (".extern .global .u32 x;\n.visible .global .u64 t = x;\n", READ.replace("[x]", "[t]")),
}


@pytest.mark.parametrize("what", list(UNLINKED))
def test_kernel_with_an_external_symbol_explains_linking(what: str, cpu: Device) -> None:
    declaration, body = UNLINKED[what]
    with raises(UnsupportedError, "unsupported", "cujit.link"):
        load(HEAD + declaration + kernel(body), cpu)["k"][1, 1](np.zeros(2, np.uint32))
