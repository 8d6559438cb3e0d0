"""The compile of CUDA C++: names, signatures, headers, and errors that say what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from cujit.artifact import Artifact, ImageKind
from cujit.compiler.backends.diagnostics import parse_log
from cujit.compiler.inputs.source import Source
from cujit.compiler.jobs import CompileJob
from cujit.compiler.options.values import Options
from cujit.compiler.request import Request
from cujit.errors import ArchError, CompileError, HeaderNotFoundError, OptionError
from cujit.formats.cubin import read_cubin
from cujit.signature import ParameterClass
from cujit.toolchain.toolset import Toolchain
from raising import raises

AXPY = """\
template <typename T> __global__ void axpy(T a, const T* x, T* y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
__global__ void plain(int* p) { *p = 1; }
"""


class Compiler:
    def __init__(self, toolchain: Toolchain) -> None:
        self.toolchain = toolchain

    def __call__(
        self, source: Source | str, to: str | None = None, arch: str | None = None, **more: object
    ) -> Artifact:
        names = more.pop("names", ())
        if isinstance(source, str):
            source = Source.cuda(source, name="axpy.cu")
        options = Options.of(None, more)
        request = Request.of(source, to, arch, names, options, self.toolchain)  # type: ignore[arg-type]
        job = CompileJob(request)
        job.check()
        return job.run(self.toolchain)


@pytest.fixture
def compiled(toolchain: Toolchain) -> Compiler:
    return Compiler(toolchain)


def test_default_is_ptx_of_the_lowest_architecture(compiled: Compiler) -> None:
    artifact = compiled(AXPY)
    assert artifact.kind is ImageKind.PTX
    assert str(artifact.arch) == f"compute_{compiled.toolchain.nvrtc.arches[0]}"


@pytest.mark.parametrize(
    ("to", "arch", "kind", "made"),
    [
        (None, "sm_90a", ImageKind.CUBIN, "sm_90a"),
        (None, "compute_80", ImageKind.PTX, "compute_80"),
        (None, "lto_80", ImageKind.LTOIR, "lto_80"),
        ("ptx", "sm_80", ImageKind.PTX, "compute_80"),
        ("cubin", "compute_80", ImageKind.CUBIN, "sm_80"),
        (ImageKind.LTOIR, "sm_80", ImageKind.LTOIR, "lto_80"),
    ],
)
def test_kind_and_architecture_agree(compiled: Compiler, to: str, arch: str, kind: ImageKind, made: str) -> None:
    artifact = compiled(AXPY, to, arch)
    assert (artifact.kind, str(artifact.arch)) == (kind, made)
    assert Artifact.of(artifact.data).kind is kind


def test_artifact_has_names_and_signatures(compiled: Compiler) -> None:
    artifact = compiled(AXPY, arch="sm_90", names=["axpy<float>", "plain"])
    assert dict(artifact.names) == {
        "axpy<float>": "_Z4axpyIfEvT_PKS0_PS0_m",
        "plain": "_Z5plainPi",
    }
    signature = artifact.signatures["_Z4axpyIfEvT_PKS0_PS0_m"]
    assert [p.kind for p in signature] == [
        ParameterClass.FLOAT,
        ParameterClass.POINTER,
        ParameterClass.POINTER,
        ParameterClass.UNSIGNED,
    ]
    assert {k.name for k in read_cubin(artifact.data).kernels} == set(artifact.names.values())


def test_plain_kernels_are_named_automatically(compiled: Compiler) -> None:
    artifact = compiled(AXPY)
    assert dict(artifact.names) == {"plain": "_Z5plainPi"}
    assert str(artifact.signatures["_Z5plainPi"]) == "(int*)"


def test_guessed_name_never_fails_a_compile(compiled: Compiler) -> None:
    text = "#if 0\n__global__ void gone() {}\n#endif\n__global__ void here(int) {}"
    assert dict(compiled(text).names) == {"here": "_Z4herei"}


def test_wrong_guess_shows_only_the_users_errors(compiled: Compiler) -> None:
    with pytest.raises(CompileError) as caught:
        compiled("#if 0\n__global__ void gone() {}\n#endif\n__global__ void here() { what; }", arch="sm_80")
    assert [d.message for d in caught.value.diagnostics] == ['identifier "what" is undefined']
    assert "gone" not in str(caught.value)


def test_signature_probe_keeps_the_image_unchanged(compiled: Compiler) -> None:
    text = "__global__ void plain(int* p) { *p = 1; }"
    with compiled.toolchain.nvrtc.program(text.encode(), b"/cujit-source/axpy.cu") as program:
        program.compile([b"--gpu-architecture=sm_90"])
        assert compiled(text, arch="sm_90").data == program.cubin()


def test_unknown_signature_is_accepted(compiled: Compiler) -> None:
    text = AXPY.partition("__global__ void plain")[0].replace("typename", "class")
    artifact = compiled(text, names=["axpy<float>"], std="c++03")
    assert dict(artifact.names) == {"axpy<float>": "_Z4axpyIfEvT_PKS0_PS0_m"}
    assert not artifact.signatures


def test_requested_names_keep_the_types_of_other_kernels(compiled: Compiler) -> None:
    text = """\
template <class T> __global__ void t(T*) {}
__global__ void s(short*, signed char, short) {}
#if 0
__global__ void gone() {}
#endif
__global__ void twice(int*) {}
__global__ void twice(float*) {}
"""
    artifact = compiled(text, names=["t<int>"])
    assert dict(artifact.names) == {"t<int>": "_Z1tIiEvPT_", "s": "_Z1sPsas"}
    assert str(artifact.signatures["_Z1sPsas"]) == "(short*, signed char, short)"
    with pytest.raises(CompileError) as caught:
        compiled(text, names=["t<nope>"])
    assert not any(guess in str(caught.value.diagnostics) + caught.value.log for guess in ("gone", "twice"))


def test_ambiguous_name_explains_how_to_choose_an_overload(compiled: Compiler) -> None:
    text = "__global__ void f(int*) {} __global__ void f(float*) {}"
    with pytest.raises(CompileError) as caught:
        compiled(text, names=["f"])
    assert caught.value.message == "axpy.cu has more than one f: it is overloaded"
    assert "(void(*)(int*))f" in (caught.value.help or "")
    assert "__nv_name_map" not in str(caught.value)
    assert dict(compiled(text, names=["(void(*)(int*))f"]).names) == {"(void(*)(int*))f": "_Z1fPi"}
    with raises(CompileError, "compile", "axpy.cu", "g", "f"):
        compiled(text, names=["f", "g"])


def test_warnings_of_the_toolkits_headers_are_not_in_the_log(compiled: Compiler) -> None:
    headers = ("cub/block/block_reduce.cuh", "cuda/std/complex", "cooperative_groups/reduce.h", "cuda_fp16.h")
    text = "".join(f"#include <{header}>\n" for header in headers)
    artifact = compiled(text + "__global__ void k() { int unused; }", arch="sm_90")
    assert {d.file for d in parse_log(artifact.log)} == {"axpy.cu"}
    assert compiled.toolchain.headers.paths[0] not in artifact.log


def test_deprecated_type_is_reported_at_the_users_line(compiled: Compiler) -> None:
    if compiled.toolchain.nvrtc.version < (13, 0):
        pytest.skip("CUDA 13 renamed the type")
    log = compiled("#include <cuda/std/complex>\n__global__ void k(double4* p) { p[1] = p[0]; }").log
    assert [(d.file, d.line) for d in parse_log(log)] == [("axpy.cu", 2)]
    with pytest.raises(CompileError) as caught:
        compiled("#include <cuda/std/complex>\n__global__ void k(double4*) { what; }")
    assert {d.file for d in caught.value.diagnostics} == {"axpy.cu"}


@pytest.mark.parametrize("how", ["source", "option"])
def test_invalid_include_directory_is_refused(compiled: Compiler, how: str, tmp_path: Path) -> None:
    (tmp_path / "a.h").write_text("")
    for given, what in ((tmp_path / "gone", "not there"), (tmp_path / "a.h", "no directory")):
        source = Source.cuda(AXPY, include=[given] if how == "source" else [])
        with raises(OptionError, "option", given, what):
            compiled(source, include=[given] if how == "option" else None)


def test_variables_and_overloads_are_named(compiled: Compiler) -> None:
    text = "__constant__ int v; __global__ void k(int) {} __global__ void k(float*) {}"
    artifact = compiled(text, names=["&v", "(void (*)(float*))k"])
    assert dict(artifact.names) == {"&v": "v", "(void (*)(float*))k": "_Z1kPf"}
    assert {n: str(s) for n, s in artifact.signatures.items()} == {"_Z1kPf": "(float*)"}


def test_missing_name_is_reported(compiled: Compiler) -> None:
    with pytest.raises(CompileError) as caught:
        compiled(AXPY, names=["axpy<float>", "plane"])
    assert caught.value.message == "axpy.cu has no plane"
    assert "did you mean plain?" in str(caught.value)
    assert "cujit_sig" not in str(caught.value)


def test_missing_template_argument_names_the_expression(compiled: Compiler) -> None:
    with raises(CompileError, "compile", "axpy.cu", "axpy<nope>"):
        compiled(AXPY, names=["axpy<nope>"])


def test_compile_error_has_line_column_and_source_line(compiled: Compiler) -> None:
    with pytest.raises(CompileError) as caught:
        compiled("__global__ void k() {\n    int x = what + 1;\n}", arch="sm_90")
    error = caught.value
    (wrong,) = [d for d in error.diagnostics if d.severity == "error"]
    assert (wrong.file, wrong.line, wrong.column) == ("axpy.cu", 2, 13)
    assert wrong.source_line == "    int x = what + 1;"
    assert str(wrong).splitlines()[-1].index("^") == str(wrong).splitlines()[-2].index("what")
    assert error.result == "NVRTC_ERROR_COMPILATION"
    assert error.tool == compiled.toolchain.nvrtc.tool
    assert "axpy.cu -> cubin for sm_90" in str(error.request)
    assert "cujit-source" not in str(error)
    assert str(error).count("identifier") == 1


def test_warnings_are_in_the_log_under_the_users_name(compiled: Compiler) -> None:
    artifact = compiled("__global__ void k() { int unused; }", arch="sm_80")
    assert artifact.log.startswith("axpy.cu(1): warning #177-D")
    assert compiled("__global__ void k() { int unused; }", "ptx", "sm_80", diag_suppress=177).log.strip() == ""


def test_missing_header_lists_the_searched_directories(compiled: Compiler, tmp_path: Path) -> None:
    source = Source.cuda("#include <nope.h>", name="n.cu", headers={"a.h": ""}, include=tmp_path)
    with pytest.raises(HeaderNotFoundError) as caught:
        compiled(source)
    said = str(caught.value)
    assert said.startswith("n.cu:1: header nope.h not found; searched:")
    assert "headers in memory: a.h" in said
    assert f"{tmp_path} (include=)" in said
    assert "found via" in said
    assert "hint: pass its directory" in said


@pytest.mark.parametrize("text", ['#include "loc.h"', "#include <loc.h>", '#include "b.h"', '#include "./loc.h"'])
def test_header_in_the_working_directory_is_not_picked_up(
    compiled: Compiler, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "loc.h").write_text("#define LOC 1\n")
    monkeypatch.chdir(tmp_path)
    source = Source.cuda(text, name="s.cu", headers={"b.h": '#include "loc.h"\n'})
    with raises(HeaderNotFoundError, "header-not-found", "loc.h"):
        compiled(source)


def test_toolkit_headers_that_include_their_neighbors_compile(compiled: Compiler) -> None:
    compiled("#include <mma.h>\n#include <cooperative_groups.h>\n__global__ void k() {}", arch="compute_80")


def test_source_from_a_file_finds_headers_next_to_it(
    compiled: Compiler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "value.h").write_text("#define VALUE 42\n")
    (tmp_path / "sub" / "k.cu").write_text('#include "value.h"\nstatic_assert(VALUE == 41, "no");')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(CompileError) as caught:
        compiled(Source.cuda("sub/k.cu"), arch="sm_80")
    assert caught.value.diagnostics[0].file == "sub/k.cu"


def test_in_memory_headers_precede_directories(compiled: Compiler, tmp_path: Path) -> None:
    (tmp_path / "value.h").write_text("#define VALUE 1\n")
    headers = {"value.h": "#define VALUE 2\n", "a/b.h": '#include "c.h"\n', "a/c.h": "#define C 3\n"}
    text = '#include "value.h"\n#include "a/b.h"\nstatic_assert(VALUE == 2 && C == 3);'
    compiled(Source.cuda(text, headers=headers, include=tmp_path))


@pytest.mark.parametrize("how", ["headers", "include", "beside"])
def test_users_own_header_precedes_the_standard_one(compiled: Compiler, how: str, tmp_path: Path) -> None:
    own = "#define OWN 1\n"
    text = '#include "memory.h"\n#include "cstdint"\nstatic_assert(OWN == 1);'
    (tmp_path / "k.cu").write_text(text)
    if how == "headers":
        source = Source.cuda(text, headers={"cstdint": own, "memory.h": ""})
    else:
        (tmp_path / "cstdint").write_text(own)
        (tmp_path / "memory.h").write_text("")
        source = Source.cuda(tmp_path / "k.cu") if how == "beside" else Source.cuda(text, include=tmp_path)
    compiled(source)


def test_macros_of_the_source_and_of_the_options_are_defined(compiled: Compiler) -> None:
    source = Source.cuda("static_assert(A == 1 && B == 2);\n#ifndef C\n#error C\n#endif", define={"A": 1})
    compiled(source, define={"B": 2, "C": None})


def test_dropped_architecture_names_the_last_toolkit(compiled: Compiler) -> None:
    if compiled.toolchain.nvrtc.version < (13, 0):
        pytest.skip("CUDA 12 still builds for it")
    with raises(ArchError, "arch-unsupported", "sm_70", "CUDA", "12.9"):
        compiled(AXPY, arch="sm_70")


def test_unknown_architecture_names_the_nearest(compiled: Compiler) -> None:
    with raises(ArchError, "arch", "sm_90", "mean"):
        compiled(AXPY, arch="sm_9")


def test_unknown_nvrtc_argument_is_an_option_error(compiled: Compiler) -> None:
    with raises(OptionError, "option-rejected", "--bogus"):
        compiled(AXPY, extra=["--bogus"])


@pytest.mark.parametrize("to", ["fatbin", "object", "exe", 3])
def test_impossible_image_kind_is_refused(compiled: Compiler, to: str) -> None:
    with raises(OptionError, "option", "optixir"):
        compiled(AXPY, to)


@pytest.mark.parametrize("names", [3, [3], [""], ["a\nb"], ["a\0"], [["k"]], ["\ud800"]])
def test_invalid_names_are_refused(compiled: Compiler, names: object) -> None:
    with pytest.raises(OptionError):
        compiled(AXPY, names=names)


def test_dlto_requests_ltoir(compiled: Compiler) -> None:
    with raises(OptionError, "option-conflict", "LTO-IR"):
        compiled(AXPY, "cubin", dlto=True)
    assert compiled(AXPY, "ltoir", dlto=True).kind is ImageKind.LTOIR


def test_debug_and_line_information_compile(compiled: Compiler) -> None:
    assert b".debug_info" in compiled(AXPY, arch="sm_90", debug=True).data
    assert b".loc" in compiled(AXPY, "ptx", lineinfo=True).data


def test_unfinished_source_is_reported(compiled: Compiler) -> None:
    with pytest.raises(CompileError) as caught:
        compiled("__global__ void k(int", arch="sm_80")
    assert caught.value.diagnostics[0].message == 'expected a ")"'


@pytest.mark.parametrize("header", ["cub/cub.cuh", "cub/device/device_reduce.cuh"])
def test_host_header_error_names_a_replacement(compiled: Compiler, header: str) -> None:
    with pytest.raises(CompileError) as caught:
        compiled(f"#include <{header}>\n{AXPY}")
    assert "<cub/block/block_reduce.cuh>" in (caught.value.help or "")


def test_thrust_header_error_says_that_it_is_for_hosts(compiled: Compiler) -> None:
    with pytest.raises(CompileError) as caught:
        compiled(f"#include <thrust/sort.h>\n{AXPY}")
    assert "Thrust's containers and algorithms are host code" in (caught.value.help or "")
