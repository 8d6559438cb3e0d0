"""Several sources and images to one: LLVM IR and CUDA C++ through LTO-IR, with PTX, by link and by build."""

from __future__ import annotations

import pytest

from cujit import program
from cujit.artifact import Artifact, ImageKind
from cujit.cache.provenance import Provenance
from cujit.compiler.backends import link
from cujit.errors import CompileError, CujitError, LinkError, OptionError
from cujit.formats.cubin import read_cubin
from cujit.formats.fatbin import read_fatbin
from cujit.program import Source
from llvm_ir import ADD_TWO, HEAD, SCALE, SINE, VERSION, kernel_that_calls, opaque
from raising import raises
from releases import links_to_ltoir

pytestmark = pytest.mark.usefixtures("no_handle_stays_open")
NEEDS_RELOCATABLE = pytest.mark.skipif(
    program.toolchain().nvjitlink.version < (13, 0), reason="nvJitLink 13.0 is the first that has -r"
)
MAKES_LTOIR = pytest.mark.skipif(not links_to_ltoir(), reason="this nvJitLink does not link to LTO-IR")

CALLS_F = Source.cuda(
    'extern "C" __device__ float f(float); __global__ void k(float* p) { *p = f(*p); }', name="calls.cu"
)
HAS_F = 'extern "C" __device__ float f(float x) { return x * 3; }'
IR_F = Source.nvvm(ADD_TWO, name="f.ll")
IR_K = Source.nvvm(kernel_that_calls("f"), name="k.ll")


@pytest.fixture
def no_handle_stays_open() -> object:
    yield
    assert program.toolchain().live_handles == 0


def kernels(artifact: Artifact) -> list[str]:
    return [kernel.name for kernel in read_cubin(artifact.data).kernels]


def instructions(text: str) -> str:
    return "".join(line for line in text.splitlines() if not line.startswith("//"))


@pytest.mark.parametrize("arch", ["sm_90", "sm_100"])
def test_cuda_calls_llvm_ir_and_the_call_is_inlined(arch: str) -> None:
    cubin = program.link([CALLS_F, IR_F], arch=arch)
    assert (cubin.kind, str(cubin.arch), kernels(cubin)) == (ImageKind.CUBIN, arch, ["_Z1kPf"])
    assert dict(cubin.names) == {"k": "_Z1kPf"}
    ptx = program.link([CALLS_F, IR_F], arch=arch, to="ptx")
    assert "call" not in instructions(ptx.text)
    assert "0f40000000" in ptx.text  # the 2.0 that f adds
    assert ".func" not in ptx.text


def test_llvm_ir_calls_cuda_and_the_call_is_inlined() -> None:
    ptx = program.link([IR_K, Source.cuda(HAS_F)], arch="sm_90", to="ptx")
    assert "call" not in instructions(ptx.text)
    assert "0f40400000" in ptx.text
    assert dict(ptx.names) == {"k": "k"}


def test_kernel_stays_in_a_link_of_only_llvm_ir() -> None:
    for arch in ("sm_90", "sm_100"):
        assert kernels(program.link([IR_K, IR_F], arch=arch)) == ["k"]
        assert kernels(program.link([Source.nvvm(SCALE)], arch=arch)) == ["scale"]


def test_variables_of_llvm_ir_stay_too() -> None:
    declared = (
        "@table = addrspace(1) global [4 x float] zeroinitializer\n"
        "@factor = addrspace(4) constant i32 7\n"
        "@half = addrspace(1) global i64 0, align 16\n"
    )
    source = Source.nvvm(SCALE.replace(HEAD, HEAD + declared))
    for arch in ("sm_90", "sm_100"):
        text = program.link([source], arch=arch, to="ptx").text
        assert all(f" {name}" in text for name in ("table[16]", "factor", "half"))


def test_llvm_ir_links_with_ptx_of_cuda() -> None:
    ptx = program.compile(Source.cuda(HAS_F), arch="compute_75", rdc=True)
    assert kernels(program.link([IR_K, ptx], arch="sm_90")) == ["k"]
    assert str(program.link([IR_K, ptx]).arch) == "sm_75"  # that of the image


def test_llvm_ir_as_artifact_or_file_is_compiled_on_the_way(tmp_path: object) -> None:
    path = f"{tmp_path}/f.ll"
    Artifact.of(ADD_TWO).save(path)
    assert kernels(program.link([CALLS_F, path], arch="sm_90")) == ["_Z1kPf"]
    assert kernels(program.link([CALLS_F, Artifact.of(ADD_TWO)], arch="sm_90")) == ["_Z1kPf"]


def test_each_part_may_have_its_own_libdevice() -> None:
    parts = [CALLS_F, *(Source.nvvm(SINE.replace("@f(", f"@{name}("), libdevice=True) for name in "fg")]
    assert kernels(program.link(parts, arch="sm_90")) == ["_Z1kPf"]
    with raises(LinkError, "undefined-symbol", "__nv_sinf") as caught:
        program.link([CALLS_F, Source.nvvm(SINE)], arch="sm_90")
    assert "libdevice=True" in str(caught.value)


def test_build_links_for_every_target() -> None:
    fatbin = program.build([CALLS_F, IR_F], ["sm_80", "sm_100", "compute_90"])
    held = {str(entry.arch) for entry in read_fatbin(fatbin.data).entries}
    assert held == {"sm_80", "sm_100", "compute_90"}
    assert dict(fatbin.names) == {"k": "_Z1kPf"}


def test_build_of_one_module_accepts_all_targets() -> None:
    tools = program.toolchain()
    numbers = tools.nvvm.arches
    if tools.nvvm.release[0] != tools.nvjitlink.version[0]:
        with raises(CujitError, "compile", "libNVVM", "nvJitLink", "release"):
            program.build(Source.nvvm(SCALE), "all")
        return
    entries = read_fatbin(program.build(Source.nvvm(SCALE), "all").data).entries
    assert [str(e.arch) for e in entries] == [*(f"sm_{n}" for n in numbers), f"compute_{numbers[-1]}"]


def test_failed_build_names_the_targets_that_failed() -> None:
    with raises(CompileError, "compile", "sm_90", "sm_80", "op.ll:4") as caught:
        program.build(Source.nvvm(opaque(SCALE), name="op.ll"), ["sm_90", "sm_80", "sm_100"])
    assert "sm_100" not in str(caught.value)


def test_options_reach_every_tool_that_has_them() -> None:
    linked = program.link([CALLS_F, IR_F], arch="sm_90", std="c++20", ftz=True, verbose=True, to="ptx")
    assert "add.ftz.f32" in linked.text
    with raises(OptionError, "option-rejected", "libNVVM", "nvJitLink", "std"):
        program.link([IR_K, IR_F], arch="sm_90", std="c++20")


def test_names_belong_to_the_only_cuda_source() -> None:
    template = Source.cuda(
        'extern "C" __device__ float f(float); template <class T> __global__ void k(T* p) { *p = f(*p); }'
    )
    fatbin = program.build([template, IR_F], "sm_90", names="k<double>")
    assert list(fatbin.names) == ["k<double>"]
    with raises(OptionError, "name-expression", "to='ltoir'"):
        program.build([IR_K, IR_F], "sm_90", names=["k"])


@pytest.mark.parametrize(("parts", "targets"), [([], "sm_90"), ([IR_K, 3], "sm_90"), ([IR_K, b"junk"], "sm_90")])
def test_parts_that_cannot_be_built_are_refused(parts: list[object], targets: str) -> None:
    with pytest.raises(CujitError):
        program.build(parts, targets)


def test_link_of_only_sources_requires_an_architecture() -> None:
    with raises(LinkError, "link-input", "inputs") as caught:
        program.link([IR_K, IR_F])
    assert "arch=" in str(caught.value)


def test_ir_without_version_is_named_among_the_parts() -> None:
    with raises(CompileError, "compile", "old.ll"):
        program.link([CALLS_F, Source.nvvm(ADD_TWO.replace(VERSION, ""), name="old.ll")], arch="sm_90")


# -- in steps ---------------------------------------------------------------------------------------------------------

CALLS_IN_TWO = 'extern "C" __device__ float g(float); extern "C" __device__ float f(float x) { return g(x) + 1; }'
HAS_G = 'extern "C" __device__ float g(float x) { return x * 3; }'


def test_nvjitlink_without_ltoir_output_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(link, "LTOIR_SINCE", (program.toolchain().nvjitlink.version[0], 99))
    with raises(OptionError, "option-rejected", "99"):
        program.link([Source.cuda(HAS_G)], to="ltoir", arch="sm_80", cache=False)


@MAKES_LTOIR
def test_ltoir_links_to_ltoir_and_is_inlined_later() -> None:
    library = program.compile(CALLS_F, to="ltoir", arch="lto_80")
    open_ = program.link([library, Source.cuda(CALLS_IN_TWO)], to="ltoir")
    assert (open_.kind, str(open_.arch), dict(open_.names)) == (ImageKind.LTOIR, "lto_80", {"k": "_Z1kPf"})
    assert open_.signatures.keys() == {"_Z1kPf"}
    with raises(LinkError, "undefined-symbol"):
        program.link([open_], arch="sm_80")
    for arch in ("sm_80", "sm_100"):
        cubin = program.link([open_, Source.cuda(HAS_G)], arch=arch)
        assert (str(cubin.arch), kernels(cubin), dict(cubin.names)) == (arch, ["_Z1kPf"], {"k": "_Z1kPf"})
    text = instructions(program.link([open_, Source.cuda(HAS_G)], to="ptx").text)
    assert "call" not in text
    assert "0f40400000" in text


@MAKES_LTOIR
def test_link_to_ltoir_is_cached_by_architecture() -> None:
    parts = [Source.cuda(CALLS_IN_TWO)]
    first, again = (program.link(parts, to="ltoir", arch="sm_90") for _ in range(2))
    assert isinstance(again.provenance, Provenance)
    assert again.provenance.is_hit
    assert (str(again.arch), again.data) == ("lto_90", first.data)
    assert program.link(parts, to="ltoir", arch="sm_80").data != first.data


@MAKES_LTOIR
def test_other_images_are_not_linked_to_ltoir() -> None:
    ptx = program.compile(HAS_F, rdc=True)
    with raises(LinkError, "link-input", "LTO-IR"):
        program.link([program.compile(CALLS_F, to="ltoir"), ptx], to="ltoir")


@NEEDS_RELOCATABLE
def test_relocatable_machine_code_is_linked_in_steps() -> None:
    calls = program.compile(CALLS_F, rdc=True)
    step = program.link([calls, program.compile(CALLS_IN_TWO, rdc=True)], arch="sm_90", relocatable=True)
    assert read_cubin(step.data).is_relocatable
    cubin = program.link([step, program.compile(HAS_G, rdc=True)])
    assert not read_cubin(cubin.data).is_relocatable
    assert kernels(cubin) == ["_Z1kPf"]
    with raises(OptionError, "option", "ptx"):
        program.link([calls], to="ptx", relocatable=True)


@NEEDS_RELOCATABLE
def test_relocatable_link_defers_the_device_runtime() -> None:
    nested = "__global__ void child() {} __global__ void parent() { child<<<1, 1>>>(); }"
    step = program.link([program.compile(nested, rdc=True, arch="sm_90")], relocatable=True)
    assert b"cuda_device_runtime" not in step.data
    assert sorted(program.link([step]).names) == ["child", "parent"]


@MAKES_LTOIR
def test_several_parts_are_built_to_ltoir_too() -> None:
    fatbin = read_fatbin(program.build([CALLS_F, Source.cuda(HAS_F)], ["lto_80", "sm_80"]).data)
    assert sorted(str(entry.arch) for entry in fatbin.entries) == ["lto_80", "sm_80"]
