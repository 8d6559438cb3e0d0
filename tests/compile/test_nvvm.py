"""LLVM IR through libNVVM: what comes out, and what is said of a module that is wrong."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from cujit import program
from cujit.artifact import Artifact, ImageKind
from cujit.compiler.keys.maker import Keyed, KeyMaker
from cujit.errors import ArchError, CompileError, FormatError, OptionError
from cujit.formats.cubin import read_cubin
from cujit.program import Source
from cujit.toolchain.toolset import Toolchain
from llvm_ir import ADD_TWO, SCALE, SINE, UNMARKED, VERSION, kernel_that_calls, opaque
from raising import raises

pytestmark = pytest.mark.usefixtures("toolchain", "no_handle_stays_open")
K = kernel_that_calls("f")


@pytest.fixture
def no_handle_stays_open() -> object:
    yield
    assert program.toolchain().live_handles == 0


# What comes out


@pytest.mark.parametrize("arch", ["75", "90", "100", "120"])
def test_typed_pointers_serve_every_architecture(arch: str) -> None:
    source = Source.nvvm(SCALE, name="scale.ll")
    ptx = program.compile(source, arch=f"compute_{arch}")
    assert f".target sm_{arch}" in ptx.text
    assert ".entry scale(" in ptx.text
    assert not ptx.data.endswith(b"\0")
    cubin = program.compile(source, arch=f"sm_{arch}")
    assert [k.name for k in read_cubin(cubin.data).kernels] == ["scale"]
    assert not read_cubin(cubin.data).is_relocatable
    ltoir = program.compile(source, arch=f"lto_{arch}")
    assert Artifact.of(ltoir.data).kind is ImageKind.LTOIR
    for made in (ptx, cubin, ltoir):
        assert dict(made.names) == {"scale": "scale"}
        assert made.name == "scale.ll"


def test_opaque_pointers_serve_from_compute_100() -> None:
    assert ".entry scale(" in program.compile(Source.nvvm(opaque(SCALE)), arch="compute_100").text
    assert ".entry k(" in program.compile(Source.nvvm(opaque(K), ADD_TWO), arch="compute_120").text


def test_default_is_the_lowest_architecture_of_libnvvm(toolchain: Toolchain) -> None:
    assert f".target sm_{toolchain.nvvm.arches[0]}" in program.compile(Source.nvvm(SCALE)).text


def test_both_marks_of_a_kernel_are_known() -> None:
    annotated = UNMARKED + '!nvvm.annotations = !{!0}\n!0 = !{void (float*)* @scale, !"kernel", i32 1}\n'
    for text in (annotated, SCALE):
        assert dict(program.compile(Source.nvvm(text), arch="compute_90").names) == {"scale": "scale"}


def test_modules_form_one_program() -> None:
    for arch in ("sm_90", "sm_100"):
        cubin = program.compile(Source.nvvm(K, ADD_TWO), arch=arch)
        assert [k.name for k in read_cubin(cubin.data).kernels] == ["k"]
    text = program.compile(Source.nvvm(K, ADD_TWO), arch="compute_90").text
    assert "call" not in text


@pytest.mark.parametrize("arch", ["compute_90", "compute_100"])
def test_libdevice_is_added_on_request(arch: str) -> None:
    text = program.compile(Source.nvvm(K, SINE, libdevice=True), arch=arch).text
    assert ".extern" not in text
    with raises(CompileError, "compile", "__nv_sinf") as caught:
        program.compile(Source.nvvm(K, SINE), arch=arch)
    assert "libdevice=True" in str(caught.value)


def test_module_is_text_bytes_a_file_or_an_artifact(tmp_path: Path) -> None:
    file = tmp_path / "scale.ll"
    file.write_text(SCALE)
    expected = program.compile(Source.nvvm(SCALE), arch="compute_90").data
    for given in (SCALE, SCALE.encode(), bytearray(SCALE.encode() + b"\0"), file, str(file), Artifact.open(file)):
        assert program.compile(Source.nvvm(given), arch="compute_90").data == expected
    for source in (file, str(file), Artifact.open(file)):
        assert program.compile(source, arch="compute_90").data == expected
    assert Source.nvvm(file).name == str(file)
    assert Source.nvvm([SCALE, ADD_TWO]).modules == Source.nvvm(SCALE, ADD_TWO).modules


def bitcode(text: str) -> bytes:
    import llvmlite.binding as llvm

    with llvm.create_context() as context:
        made: bytes = llvm.parse_assembly(text, context).as_bitcode()
    return made


def test_bitcode_is_accepted_and_too_new_llvm_explained() -> None:
    modern = bitcode(opaque(SCALE))
    assert ".entry scale(" in program.compile(Source.nvvm(modern), arch="compute_100").text
    with raises(CompileError, "compile", "LLVM22", "compute_100", "LLVM 7") as caught:
        program.compile(Source.nvvm(modern), arch="compute_90")
    assert "typed pointers" in str(caught.value)


def test_bitcode_with_typed_pointers_serves_every_architecture(tmp_path: Path) -> None:
    assembler = shutil.which("llvm-as")
    if assembler is None or b"version 14" not in subprocess.run([assembler, "--version"], capture_output=True).stdout:
        pytest.skip("no llvm-as 14")
    done = subprocess.run([assembler, "-", "-o", "-"], input=SCALE.encode(), capture_output=True, check=True)
    (tmp_path / "scale.bc").write_bytes(done.stdout)
    for arch in ("compute_90", "compute_100"):
        assert ".entry scale(" in program.compile(tmp_path / "scale.bc", arch=arch).text


# Options


def test_options_reach_libnvvm_or_for_a_cubin_nvjitlink() -> None:
    source = Source.nvvm(SCALE, name="scale.ll")
    request = program.request(source, arch="sm_90", ftz=True, maxrregcount=32, lineinfo=True)
    assert request.arguments() == ["-arch=compute_90", "-ftz=1", "-generate-line-info"]
    assert request.assembler_arguments() == ["-arch=sm_90", "-ftz=1", "-maxrregcount=32", "-lineinfo"]
    assert "assembler: -arch=sm_90" in str(request)
    cubin = program.compile(source, arch="sm_90", maxrregcount=32, verbose=True, opt_level=1)
    assert "Compiling entry function 'scale'" in cubin.log
    flushed = program.compile(source, arch="compute_90", ftz=True)
    assert "add.ftz.f32" in flushed.text
    with raises(OptionError, "option-rejected", "libNVVM", "maxrregcount"):
        program.compile(source, arch="compute_90", maxrregcount=32)
    with raises(OptionError, "option-rejected", "libNVVM", "std"):
        program.compile(source, arch="sm_90", std="c++17")
    with raises(OptionError, "option-rejected", "-bogus"):
        program.compile(source, arch="sm_90", extra=["-bogus"])


@pytest.mark.parametrize("option", ["fmad", "prec_div", "prec_sqrt", "use_fast_math", "lineinfo", "debug"])
@pytest.mark.parametrize("arch", ["sm_90", "lto_100"])
def test_libnvvm_accepts_every_spelling(option: str, arch: str) -> None:
    assert program.compile(Source.nvvm(SCALE), arch=arch, options={option: True}, opt_level=0).names


def test_every_part_of_the_program_is_in_its_key() -> None:
    requests = [
        program.request(source, arch="sm_90", **options)
        for source, options in (
            (Source.nvvm(SCALE), {}),
            (Source.nvvm(SCALE, libdevice=True), {}),
            (Source.nvvm(SCALE, name="other.ll"), {}),
            (Source.nvvm(SCALE, ADD_TWO), {}),
            (Source.nvvm(SCALE, SINE), {}),
            (Source.nvvm(SCALE), {"maxrregcount": 32}),
            (Source.nvvm(SCALE), {"ftz": True}),
        )
    ]
    keys = [KeyMaker(program.toolchain()).of_request(request) for request in requests]
    assert len({keyed.key for keyed in keys if isinstance(keyed, Keyed)}) == len(requests)


# What is wrong


@pytest.mark.parametrize("arch", ["compute_90", "sm_100"])
def test_module_without_a_kernel_explains_how_to_mark_one(arch: str) -> None:
    with raises(CompileError, "compile", "un.ll", "scale") as caught:
        program.compile(Source.nvvm(UNMARKED, name="un.ll"), arch=arch)
    told = str(caught.value)
    assert "define ptx_kernel void @scale" in told
    assert '!0 = !{void (float*)* @scale, !"kernel", i32 1}' in told
    assert "rdc=True" in told


def test_module_marked_as_the_message_says_compiles() -> None:
    for mark in (
        UNMARKED.replace("define void @scale(", "define ptx_kernel void @scale("),
        UNMARKED + '!nvvm.annotations = !{!0}\n!0 = !{void (float*)* @scale, !"kernel", i32 1}\n',
    ):
        assert program.compile(Source.nvvm(mark), arch="sm_90").names


def test_functions_alone_are_kept_for_a_link() -> None:
    assert ".visible .func scale(" in program.compile(Source.nvvm(UNMARKED), arch="compute_90", rdc=True).text
    assert program.compile(Source.nvvm(UNMARKED), arch="lto_90").names == {}
    with raises(OptionError, "option-rejected", "LLVM", "IR"):
        program.compile(Source.nvvm(UNMARKED), arch="sm_90", rdc=True)


def test_name_that_is_not_a_kernel_is_refused() -> None:
    with raises(CompileError, "compile", "scale"):
        program.compile(Source.nvvm(UNMARKED), arch="lto_90", names=["scale"])
    with raises(CompileError, "compile", "scal") as caught:
        program.compile(Source.nvvm(SCALE), arch="sm_90", names="scal")
    assert "did you mean scale?" in str(caught.value)


def test_wrong_dialect_is_explained_with_its_line() -> None:
    with raises(CompileError, "compile", "op.ll:4", "compute_100") as caught:
        program.compile(Source.nvvm(opaque(SCALE), name="op.ll"), arch="sm_90")
    assert "write typed pointers (float*)" in str(caught.value)


def test_dropped_libnvvm_architecture_lists_supported_ones(toolchain: Toolchain) -> None:
    if toolchain.nvvm.release < (13, 0):
        pytest.skip("CUDA 12 has compute_70")
    with raises(ArchError, "arch-unsupported", "compute_70") as caught:
        program.compile(Source.nvvm(SCALE), arch="compute_70")
    assert "compute_75, compute_80" in str(caught.value)


@pytest.mark.parametrize("arch", ["compute_90", "compute_100"])
def test_error_has_line_column_and_source(arch: str) -> None:
    with raises(CompileError, "compile", "bad.ll:7:15", "undefined value '%zz'") as caught:
        program.compile(Source.nvvm(SCALE.replace("store float %w", "store float %zz"), name="bad.ll"), arch=arch)
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.line, diagnostic.column) == (7, 15)
    assert diagnostic.source_line.strip() == "store float %zz, float* %p"


@pytest.mark.parametrize("arch", ["compute_90", "compute_100"])
def test_other_invalid_modules_are_errors(arch: str) -> None:
    with raises(CompileError, "compile", "nvvmir.version", "{!0}"):
        program.compile(Source.nvvm(SCALE.replace(VERSION, "")), arch=arch)
    with raises(CompileError, "compile", "symbol multiply defined"):
        program.compile(Source.nvvm(K, ADD_TWO, ADD_TWO), arch=arch)


def test_input_that_crashes_llvm_7_is_refused_first() -> None:
    for text, said in (
        (SCALE.replace("ret void", "%q = alloca i256\n  ret void"), "i256"),
        (SCALE.replace("e-p:64", "e-p:junk"), "p:junk:64:64"),
    ):
        with raises(CompileError, "compile", said):
            program.compile(Source.nvvm(text), arch="compute_90")


def test_undefined_function_is_named() -> None:
    with raises(CompileError, "compile", "Undefined reference", "k.ll"):
        program.compile(Source.nvvm(K, name="k.ll"), arch="sm_90")


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ((), OptionError),
        ((3,), OptionError),
        (("hello",), FormatError),
        (("",), FormatError),
        ((".version 9.0\n.target sm_90\n",), FormatError),
        ((SCALE.replace("ret", "\0ret"),), FormatError),
        ((b"\x7fELF" + bytes(100),), FormatError),
    ],
)
def test_text_that_is_not_llvm_ir_is_refused(wrong: tuple[object, ...], error: type[Exception]) -> None:
    with pytest.raises(error):
        Source.nvvm(*wrong)
    with pytest.raises(OptionError):
        Source.nvvm(SCALE, libdevice="yes")  # type: ignore[arg-type]
