"""Options that the installed libraries take and the table lacks: every word in the libraries is given to them.

A release of the toolkit that brings an option shows here, by its name.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cuda import pathfinder
from cuda.bindings import nvfatbin, nvjitlink

import cujit
from cujit.compiler.options.values import Options, Tool
from cujit.errors import CompileError, OptionError
from cujit.toolchain.nvvm import MODULE_HEAD
from cujit.toolchain.toolset import Toolchain
from raising import raises
from sweeps import part
from tile_code import TWICE, needs_tiles
from toolkit_page import OPTION_GAPS, TAKE_NEXT, UNDOCUMENTED, option_names, options

_WORD = re.compile(rb"-(?<![\w-]-)-?([A-Za-z][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)*)")  # quick, as it begins with a byte
_HYPHENATED = re.compile(rb"\0([A-Za-z][A-Za-z0-9_]*(?:-[A-Za-z0-9_]+)+)=?(?=\0)")


def words(library: str) -> Iterator[str]:
    """What could be the name of an option: words after a hyphen, and words that have one."""
    path = pathfinder.load_nvidia_dynamic_lib(library).abs_path
    assert path is not None
    data = Path(path).read_bytes()
    yield from sorted({found.decode() for pattern in (_WORD, _HYPHENATED) for found in pattern.findall(data)})


# -- NVRTC --------------------------------------------------------------------------------------------------

_SHORT = {
    *(
        "A",
        "D",
        "G",
        "I",
        "U",
        "arch",
        "brief-diag",
        "default-device",
        "default-tile",
        "dlto",
        "dQ",
        "dc",
        "dw",
        "err-no",
        "ewp",
        "include",
    ),
    *("no-err-no", "opt-info", "rdc", "time", "w", "Werror", "Ofc"),
}
"""Other spellings of options that have a row."""


_TRY_NVRTC = """
import sys
from cuda.bindings import nvrtc
for word in sys.argv[1:]:
    _, program = nvrtc.nvrtcCreateProgram(b"", b"k.cu", 0, [], [])
    nvrtc.nvrtcCompileProgram(program, 2, [b"-arch=compute_90", f"--{word}".encode()])
    log = bytes(nvrtc.nvrtcGetProgramLogSize(program)[1])
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(program)
    if b"unrecognized option" not in log:
        print("took", word)
"""


def taken_by_nvrtc(given: list[str], folder: Path) -> set[str]:
    """Try options in a process of its own: some change all that a process compiles later."""
    command = [sys.executable, "-c", _TRY_NVRTC, *given]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=folder)
    return {line.removeprefix("took ") for line in done.stdout.splitlines() if line.startswith("took ")}


def test_every_long_nvrtc_option_has_a_row_or_a_reason(toolchain: Toolchain, tmp_path: Path) -> None:
    if toolchain.nvrtc.version < (13, 5):
        pytest.skip("the table is that of 13.5")
    found = taken_by_nvrtc([*words("nvrtc")], tmp_path)
    with_value = [f"{word}=1" for word in (*part([*words("nvrtc")], 100), "tile-preview")]
    found |= {word.removesuffix("=1") for word in taken_by_nvrtc(with_value, tmp_path)}
    assert {"brief-diagnostics", "simt-only", "warning-as-error", "device-int128", "tile-preview"} <= found
    assert found - options("NVRTC").names - _SHORT == set()


def test_reasons_are_about_existing_options(toolchain: Toolchain) -> None:
    if toolchain.nvrtc.version < (13, 5):
        pytest.skip("the table is that of 13.5")
    for tool, reasons in OPTION_GAPS.items():
        assert options(tool).ours.isdisjoint(reasons)


# -- nvJitLink ----------------------------------------------------------------------------------------------


def taken_by_nvjitlink(argument: str) -> bool:
    try:
        nvjitlink.destroy(nvjitlink.create(3, ["-arch=sm_90", "-lto", argument]))
    except nvjitlink.nvJitLinkError:
        return False
    return True


def test_every_nvjitlink_option_has_a_row_a_reason_or_an_error(toolchain: Toolchain) -> None:
    if toolchain.nvjitlink.version < (13, 5):
        pytest.skip("the table is that of 13.5")
    known = options("nvJitLink").names
    strange = set()
    for word in words("nvJitLink"):
        for argument in (f"-{word}", f"-{word}=1"):
            if word in known or not taken_by_nvjitlink(argument):
                continue
            try:
                Options(extra=[argument]).render(Tool.NVJITLINK)
            except OptionError:
                continue
            strange.add(argument)
    assert strange == set()


@pytest.mark.parametrize("argument", ["-res-usage", "-relocatable", "-lto-partial", "-ltoir", "-time-trace=x", "-ptx9"])
def test_argument_that_nvjitlink_misinterprets_is_refused(argument: str, toolchain: Toolchain) -> None:
    has_it = not argument.startswith("-r") or toolchain.nvjitlink.version >= (13, 0)
    assert taken_by_nvjitlink(argument) == has_it
    with raises(OptionError, "option-unknown", "nvJitLink", argument):
        cujit.link([".version 8.0\n.target sm_80\n"], arch="sm_90", extra=[argument])
    assert Options(extra=[argument]).render(Tool.NVRTC) == [argument]


@pytest.mark.parametrize("argument", ["-r", "-lto", "-ptx", "-time", "-verbose", "-Xptxas=-v"])
def test_nvjitlink_gets_every_option_that_it_has(argument: str) -> None:
    assert Options(extra=[argument]).render(Tool.NVJITLINK) == [argument]


def test_prefixes_match_those_that_nvjitlink_compares(toolchain: Toolchain) -> None:
    if toolchain.nvjitlink.version < (13, 5):
        pytest.skip("measured with 13.5")
    flags = [name for name in (*option_names(Tool.NVJITLINK), "ptx", "r") if taken_by_nvjitlink(f"-{name}")]
    for name in flags:
        if taken_by_nvjitlink(f"-{name}zq"):
            with raises(OptionError, "option-unknown", f"-{name}zq"):
                Options(extra=[f"-{name}zq"]).render(Tool.NVJITLINK)


def test_ofast_compile_reaches_the_linker() -> None:
    parts = [cujit.compile("__global__ void k(float* p) { *p = 1; }", to="ltoir", arch="lto_90")]
    assert cujit.link(parts, arch="sm_90", ofast_compile="min").data
    assert Options(ofast_compile="max").render(Tool.NVJITLINK) == ["-Ofc=max"]


# -- libNVVM ------------------------------------------------------------------------------------------------

_TRY = """
import sys
from cuda.bindings import nvvm
module = sys.argv[1].encode()
for word in sys.argv[2:]:
    print("try", word, flush=True)
    program = nvvm.create_program()
    nvvm.add_module_to_program(program, module, len(module), "k")
    for argument in (f"-{word}", f"-{word}=1"):
        try:
            nvvm.compile_program(program, 2, ["-arch=compute_100", argument])
        except nvvm.nvvmError as e:
            if "INVALID_OPTION" in str(e):
                continue
        print("took", word, flush=True)
    nvvm.destroy_program(program)
"""


def taken_by_nvvm(given: list[str], folder: Path) -> set[str]:
    """Try options in processes of their own: some end the process, as ``-help`` does."""
    taken: set[str] = set()
    while given:
        command = [sys.executable, "-c", _TRY, OPAQUE, *given]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
        lines = [line.split() for line in done.stdout.splitlines() if line.startswith(("try ", "took "))]
        taken |= {word for what, word in lines if what == "took"}
        last = [word for what, word in lines if what == "try"][-1]
        given = given[given.index(last) + 1 :]
    return taken


def test_every_libnvvm_option_has_a_row_or_a_reason(toolchain: Toolchain, tmp_path: Path) -> None:
    if toolchain.nvvm.release < (13, 5):
        pytest.skip("the table is that of 13.5")
    known = options("libNVVM").names
    found = taken_by_nvvm([word for word in words("nvvm") if word not in known], tmp_path)
    assert found == set()


@pytest.mark.parametrize("word", TAKE_NEXT)
def test_libnvvm_argument_without_its_value_is_refused(word: str) -> None:
    with raises(OptionError, "option-rejected", f"-{word}", "takes the argument after it"):
        cujit.compile(cujit.Source.nvvm(OPAQUE), to="ptx", arch="compute_90", extra=["-g", f"-{word}"])
    assert Options(extra=[f"-{word}", "-O3"]).render(Tool.NVVM) == [f"-{word}", "-O3"]
    assert Options(extra=[f"-{word}"]).render(Tool.NVRTC) == [f"-{word}"]


@pytest.mark.parametrize("word", ["--dopt", "--ptxas-options", "-Xcudafe", "-Xptxas", "-dopt"])
@pytest.mark.parametrize("value", ["", " "])
def test_nvrtc_argument_without_its_value_is_refused(word: str, value: str) -> None:
    with raises(OptionError, "option-rejected", f"option {word} requires a value", f"{word}=VALUE"):
        cujit.compile("__global__ void k() {}", to="ptx", arch="compute_90", extra=[f"{word}={value}"])
    assert Options(extra=[f"{word}=1", "-DA="]).render(Tool.NVRTC) == [f"{word}=1", "-DA="]


@pytest.mark.parametrize("given", ["", " ", ["-lineinfo", "\t"]])
def test_blank_arguments_are_refused(given: Any) -> None:
    for name in ("extra", "ptxas_options"):
        options: dict[str, Any] = {name: given or [""]}
        with raises(OptionError, "option", name, "list of non-blank str"):
            cujit.compile("__global__ void k() {}", to="ptx", arch="compute_90", **options)


_TRY_ALL = """
import sys
import cujit
tool = sys.argv[1]
for word in sys.argv[2:]:
    for argument in (f"-{word}", f"-{word}=", f"-{word}= ", f"--{word}="):
        print("try", word, argument, flush=True)
        try:
            if tool == "nvvm":
                cujit.compile(cujit.Source.nvvm(OPAQUE), to="ptx", arch="compute_90", extra=[argument])
            elif tool == "nvrtc":
                cujit.compile("__global__ void k() {}", to="ptx", arch="compute_90", extra=[argument])
            else:
                cujit.link([".version 8.0\\n.target sm_80\\n"], arch="sm_90", extra=[argument])
        except cujit.errors.CujitError:
            pass
"""


@pytest.mark.parametrize("tool", ["nvvm", "nvrtc", "nvJitLink"])
def test_no_argument_without_a_value_ends_the_process(tool: str, tmp_path: Path) -> None:
    """Give every word in a library to it, through cujit; pass over words that print and exit."""
    rest = part(words(tool), 24, tool)
    while rest:
        command = [sys.executable, "-c", f"OPAQUE = {OPAQUE!r}{_TRY_ALL}", tool, *rest]
        done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
        last = [line.split() for line in done.stdout.splitlines() if line.startswith("try ")][-1]
        assert done.returncode >= 0, last
        rest = rest[rest.index(last[1]) + 1 :]


# -- nvFatbin -----------------------------------------------------------------------------------------------


def test_nvfatbin_has_no_unknown_option() -> None:
    found = set()
    for word in (*words("nvfatbin"), "32", "64"):
        try:
            nvfatbin.destroy(nvfatbin.create([f"-{word}"], 1))
        except nvfatbin.nvFatbinError:
            continue
        found.add(word)
    assert found <= options("nvFatbin").names


# -- tileiras, and the manuals ------------------------------------------------------------------------------


@needs_tiles
def test_every_tileiras_option_has_a_row_or_a_reason(toolchain: Toolchain) -> None:
    if toolchain.tileiras.version < (13, 5):
        pytest.skip("the table is that of 13.5")
    text = subprocess.run([toolchain.tileiras.path, "--help"], capture_output=True, text=True, check=True).stdout
    listed = {name for name, about in re.findall(r"^ +--?([a-z][\w-]*)(.*)", text, re.M) if "Alias for" not in about}
    assert len(listed) > 20
    assert listed == options("tileiras").names


_MANUALS = {"NVRTC": "nvrtc.h", "nvJitLink": "nvJitLink.h", "libNVVM": "nvvm.h", "nvFatbin": "nvFatbin.h"}


@pytest.mark.parametrize("tool", _MANUALS)
def test_header_options_match_the_documented_ones(tool: str, toolchain: Toolchain) -> None:
    if toolchain.nvrtc.version < (13, 5):
        pytest.skip("the table is that of 13.5")
    text = next(path for each in toolchain.headers.paths if (path := Path(each, _MANUALS[tool])).is_file()).read_text()
    section = text[max(text.find("defgroup options"), 0) :].partition("*/")[0] if tool != "libNVVM" else text
    documented = {*re.findall(r"^ \* +- (?:\\c )?--?([A-Za-z0-9][\w-]*)", section, re.M)} - {"O"}  # -O<N>
    assert len(documented) > 10
    assert documented <= options(tool).names | _SHORT
    assert not {name for name, why in OPTION_GAPS[tool].items() if UNDOCUMENTED in why} & documented


# -- what the new rows do -----------------------------------------------------------------------------------

OPAQUE = f"""{MODULE_HEAD}
define ptx_kernel void @k(ptr %p) {{
  store float 1.0, ptr %p
  ret void
}}
!nvvmir.version = !{{!0}}
!0 = !{{i32 2, i32 0}}
"""


def test_newest_dialect_compiles_for_older_architectures(toolchain: Toolchain) -> None:
    source = cujit.Source.nvvm(OPAQUE)
    if toolchain.nvvm.release < (13, 5):
        with raises(OptionError, "option-rejected", "nvvm_latest came with CUDA 13.5"):
            cujit.compile(source, to="ptx", arch="compute_90", nvvm_latest=True)
        return
    made = cujit.compile(source, to="ptx", arch="compute_90", nvvm_latest=True, ptx_version_target=90)
    assert ".version 9.0" in made.text
    with raises(OptionError, "option-rejected", "9.5", "compute_100", "ptx_version_target=99"):
        cujit.compile(source, to="ptx", arch="compute_100", ptx_version_target=99)
    with raises(OptionError, "option-rejected", "ptx_version_target"):
        cujit.compile("__global__ void k() {}", to="ptx", arch="compute_90", ptx_version_target=90)


def test_floats_without_signed_zeros_give_other_code(toolchain: Toolchain) -> None:
    if toolchain.nvrtc.version < (13, 4):
        pytest.skip("it came with 13.4")
    code = "__global__ void k(float* p) { *p = (*p + 0.0f) * 3.0f; }"
    plain, loose = (cujit.compile(code, to="ptx", arch="compute_90", no_signed_zeros=on).text for on in (False, True))
    assert plain.count("add.") > loose.count("add.")


def test_warnings_become_errors(toolchain: Toolchain) -> None:
    if toolchain.nvrtc.version < (13, 4):
        pytest.skip("it came with 13.4")
    code = "__global__ void k(int* p, double d) { int unused = d; *p = 1; }"
    assert cujit.compile(code, arch="sm_90", warn_conversion=True).log
    with pytest.raises(cujit.errors.CompileError):
        cujit.compile(code, arch="sm_90", warning_as_error="all-warnings")


@needs_tiles
def test_preview_features_of_tile_code_reach_both_tools(toolchain: Toolchain) -> None:
    if toolchain.nvrtc.version < (13, 5):
        pytest.skip("it came with 13.5")
    code = f"{TWICE}\n#ifndef __CUDACC_TILE_PREVIEW_SIMT__\n#error no preview\n#endif\n"
    assert cujit.compile(code, arch="sm_90", tile_preview="simt").names.keys() == {"twice"}
    with raises(CompileError, "compile", "no preview"):
        cujit.compile(code, arch="sm_90")
    assert Options(tile_preview="simt").render(Tool.TILEIRAS) == ["--preview=simt"]
