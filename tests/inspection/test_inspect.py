"""What ``inspect`` tells of images of every kind."""

from __future__ import annotations

import gc
import pickle
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.errors import ArchError, ArgumentError, FileError, FormatError, NameNotFoundError, OptionError
from cujit.formats.cubin import read_cubin
from cujit.formats.ptx.parser import parse
from cujit.formats.ptx.syntax import PtxModule
from cujit.inspection import content
from cujit.inspection.read import inspect
from cujit.inspection.values import Inspection, KernelInfo
from cujit.loading import load
from cujit.machine import cpu
from cujit.program import build, compile
from cujit.signature import ParameterClass
from formats.images import TWO_FILES, bundled, cubin, ltoir, ptx
from inspection.files import SOURCE, SPILLING, archive, host_elf, many, several
from raising import raises

GOLDENS = Path(__file__).parents[1] / "goldens" / "device"
FATBINS = GOLDENS.with_name("fatbins")
MADE = sorted(path.name for path in FATBINS.glob("*") if path.suffix in (".fatbin", ".o", ".so"))
FLOATS = "_Z5scaleIfEvT_PKS0_PS0_i"
OVERLOADS = """
__global__ void scale(int* p) { *p = 1; }
__global__ void scale(float* p) { *p = 1; }
extern "C" __global__ void alone() {}
"""


def shapes(inspection: Inspection) -> list[tuple[str, str]]:
    return [(image.kind.value, str(image.arch)) for image in inspection]


# -- machine code -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "shown", "rest"), [(12, 12, []), (13, 12, ["  and 1 more"]), (40, 12, ["  and 28 more"])]
)
def test_printed_inspection_lists_twelve_images_and_a_count(count: int, shown: int, rest: list[str]) -> None:
    one = inspect(cubin(SOURCE, "sm_90"))
    head, *lines = str(replace(one, images=one.images * count)).splitlines()
    assert head.startswith("cubin: cubin, ")
    assert lines[shown:] == rest
    assert {*lines[:shown]} == {"  cubin: count, scale<double>, scale<float>"}


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_90a", "sm_100f", "sm_120"])
def test_cubin_kernels_match_the_reader(arch: str) -> None:
    data = cubin(SOURCE, arch)
    found, expected = inspect(data), read_cubin(data)
    (image,) = found
    assert (found.kind, found.size, image.kind) == (ImageKind.CUBIN, len(data), ImageKind.CUBIN)
    assert (image.arch, image.toolkit, image.abi) == (Arch.parse(arch), expected.toolkit, expected.abi)
    assert image.is_relocatable is False
    assert image.commands == expected.commands
    assert [(v.name, v.size, v.space) for v in image.variables] == [("counter", 4, "global")]
    same = ("name", "registers", "stack_bytes", "shared_bytes", "reserved_shared_bytes", "constant_bytes", "barriers",
            "code_bytes", "max_threads", "max_block", "required_block", "cluster", "max_registers",
            "signature", "has_unbounded_stack", "max_cluster_blocks", "mbarriers", "virtual_resources",
            "parameter_bytes")  # fmt: skip
    for info, kernel in zip(found.kernels, expected.kernels, strict=True):
        assert [getattr(info, name) for name in same] == [getattr(kernel, name) for name in same]
        assert info.arch == image.arch
    assert found.kernel("count").max_threads == 96
    assert found.kernel("scale<float>").shared_bytes == 256


def test_relocatable_image_lists_its_missing_symbols() -> None:
    (image,) = inspect(cubin(TWO_FILES[0], "sm_80", "-rdc=true"))
    assert image.is_relocatable is True
    assert image.undefined == ("_Z5twicef",)
    (image,) = inspect(cubin(TWO_FILES[1], "sm_80", "-rdc=true"))
    assert image.functions == ("_Z5twicef",)


# -- names and signatures ---------------------------------------------------------------------------------


def test_kernels_are_shown_as_the_build_named_them() -> None:
    artifact = compile(SOURCE, arch="sm_80", names=["scale< float >", "scale<float>"])
    shown = {k.name: k.display for k in inspect(artifact).kernels}
    assert shown[FLOATS] == "scale< float >"
    assert shown["count"] == "count"


def test_kernels_have_their_source_names_without_a_build() -> None:
    assert [k.display for k in inspect(cubin(SOURCE)).kernels if k.name == FLOATS] == ["scale<float>"]
    shown = {k.display for k in inspect(cubin(OVERLOADS)).kernels}
    assert shown == {"scale(int*)", "scale(float*)", "alone"}


def test_kernel_is_found_by_each_of_its_names() -> None:
    found = inspect(many())
    for name in (FLOATS, "scale<float>", "::scale< float >", "void scale<float>(float, const float*, float*, int)"):
        assert found.kernel(name, "sm_75").name == FLOATS
        assert {kernel.name for kernel in found.kernels if kernel.is_called(name)} == {FLOATS}
    overloads = inspect(cubin(OVERLOADS))
    assert overloads.kernel("scale(float *)").name == "_Z5scalePf"
    only = inspect(compile("template <class T> __global__ void k(T* p) {}", arch="sm_80", names=["k<int>"]))
    assert only.kernel("k").display == "k<int>"


def test_sass_precedes_ptx_unless_an_architecture_is_chosen() -> None:
    found = inspect(many())
    assert found.kernel("count").arch == Arch.parse("sm_75")
    assert found.kernel("count", "compute_75").kind is ImageKind.PTX
    assert found.kernel("count", Arch.parse("sm_120")).arch == Arch.parse("sm_120")


@pytest.mark.parametrize(
    ("name", "arch", "message"),
    [
        ("cuont", None, "count"),
        ("count", "sm_80", "lto_90"),
        ("scale", "sm_75", "2"),
        (3, None, "name"),
    ],
    ids=["misspelt", "other arch", "several", "a number"],
)
def test_missing_kernel_is_reported_with_the_existing_ones(name: Any, arch: str | None, message: str) -> None:
    with raises(NameNotFoundError, "name-not-found", message):
        inspect(many()).kernel(name, arch)


def test_malformed_architecture_is_refused() -> None:
    with pytest.raises(ArchError):
        inspect(many()).kernel("count", "sm90")


def test_types_come_from_the_build_then_ptx_then_sizes() -> None:
    built = build(SOURCE, ["sm_80", "compute_80"], names=["scale<float>"])
    typed = ["float", "const float*", "float*", "int"]
    for arch in ("sm_80", "compute_80"):
        signature = inspect(built).kernel("scale<float>", arch).signature
        assert signature is not None
        assert [p.type for p in signature] == typed
    signature = inspect(compile(SOURCE, arch="sm_80", names=["scale<float>"])).kernel("scale<float>").signature
    assert signature is not None
    assert [(p.type, p.offset) for p in signature] == list(zip(typed, (0, 8, 16, 24), strict=True))
    signature = inspect(built.data).kernel("scale<float>", "sm_80").signature
    assert signature is not None
    assert [p.type for p in signature] == [".f32", ".u64", ".u64", ".u32"]
    assert [p.offset for p in signature] == [0, 8, 16, 24]
    alone = inspect(cubin(SOURCE, "sm_80")).kernel("scale<float>").signature
    assert alone is not None
    assert [(p.type, p.size) for p in alone] == [("", 4), ("", 8), ("", 8), ("", 4)]


def test_pointers_known_from_sass_stay_pointers_with_ptx() -> None:
    image = cubin(SOURCE, "sm_120")
    if all(p.kind is ParameterClass.UNKNOWN for p in read_cubin(image).kernel(FLOATS).signature):
        pytest.skip("this toolkit does not mark pointers in cubins")
    fatbin = bundled((("cubin", "120", image), ("ptx", "75", ptx(SOURCE))))
    signature = inspect(fatbin).kernel(FLOATS, "sm_120").signature
    assert signature is not None
    assert [(p.kind, p.type) for p in signature] == [
        (ParameterClass.FLOAT, ".f32"),
        (ParameterClass.POINTER, ".u64"),
        (ParameterClass.POINTER, ".u64"),
        (ParameterClass.BITS, ".u32"),
    ]


# -- spills -----------------------------------------------------------------------------------------------


def test_spills_come_from_the_log_for_each_architecture() -> None:
    built = build(SPILLING, ["sm_75", "sm_90"], verbose=True)
    spills = {str(k.arch): k.spill_bytes for k in inspect(built).kernels if k.name == "spilling"}
    assert spills["sm_75"] != spills["sm_90"]
    for arch, bytes_ in spills.items():
        assert bytes_ == inspect(compile(SPILLING, arch=arch, verbose=True)).kernel("spilling").spill_bytes
        assert (bytes_ or 0) > 200


def test_spills_without_a_log_are_unknown_if_there_is_a_stack() -> None:
    found = inspect(cubin(SPILLING))
    assert (found.kernel("spilling").stack_bytes or 0) > 0
    assert found.kernel("spilling").spill_bytes is None
    assert (found.kernel("empty").stack_bytes, found.kernel("empty").spill_bytes) == (0, 0)
    assert replace(found.kernel("empty"), spill_load_bytes=None).spill_bytes is None
    assert inspect(ptx(SPILLING)).kernel("empty").spill_bytes is None


def test_zero_for_an_unknown_stack_does_not_mean_no_spills() -> None:
    recursive = """__device__ __noinline__ int down(int n) { return n < 2 ? n : down(n - 1) + down(n - 2); }
    extern "C" __global__ void k(int* p) { *p = down(*p); }"""
    kernel = inspect(cubin(recursive)).kernel("k")
    assert (kernel.stack_bytes or 0, kernel.spill_bytes) == (0, None)
    old = replace(read_cubin(cubin(recursive)), toolkit=(13, 0))
    old = replace(old, kernels=(replace(old.kernels[0], stack_bytes=0),))
    assert content._cubin(old, content.BuildFacts(), None, {}).kernels[0].spill_bytes is None
    new = replace(old, toolkit=(13, 4))
    assert content._cubin(new, content.BuildFacts(), None, {}).kernels[0].spill_bytes == 0
    plain = replace(old, functions=())
    assert content._cubin(plain, content.BuildFacts(), None, {}).kernels[0].spill_bytes == 0


def test_spills_to_shared_memory_are_part_of_the_stack() -> None:
    pragma = 'asm volatile (".pragma \\"enable_smem_spilling\\";");\n    double a[14];'
    source = SPILLING.replace("double a[48];", pragma).replace("48", "14")
    kernel = inspect(compile(source, arch="sm_90", verbose=True)).kernel("spilling")
    assert (kernel.shared_bytes or 0) > 0, "nothing went to shared memory"
    assert (kernel.spill_bytes or 0) > 0
    assert (kernel.stack_bytes or 0) > 0


# -- PTX, LTO-IR, LLVM IR ---------------------------------------------------------------------------------


def test_ptx_inspection_leaves_assembler_results_unknown() -> None:
    found = inspect(ptx(SOURCE, "compute_80"))
    (image,) = found
    assert (found.kind, image.kind, image.arch) == (ImageKind.PTX, ImageKind.PTX, Arch.parse("compute_80"))
    assert (image.ptx_version or (0, 0)) >= (9, 0)
    assert image.target == ("sm_80",)
    assert [(v.name, v.size, v.space) for v in image.variables] == [("counter", 4, "global")]
    assert image.needs
    assert max(need.ptx for need in image.needs) < (9, 0)
    kernel = found.kernel("count")
    assert (kernel.max_block, kernel.max_threads) == ((96, 1, 1), 96)
    assert [p.type for p in kernel.signature or ()] == [".u64"]
    unknown = ("registers", "stack_bytes", "shared_bytes", "reserved_shared_bytes", "constant_bytes", "barriers",
               "code_bytes", "spill_store_bytes", "spill_load_bytes")  # fmt: skip
    assert [getattr(kernel, name) for name in unknown] == [None] * len(unknown)


def test_ptx_inspection_has_clusters_functions_and_missing_names() -> None:
    found = inspect(""".version 8.0
.target sm_90
.address_size 64
.extern .func (.param .b32 r) other (.param .b32 a);
.extern .global .b32 elsewhere;
.extern .shared .b8 dynamic[];
.global .attribute(.managed) .align 8 .b8 table[16];
.func helper () { ret; }
.entry k (.param .align 8 .b8 s[24], .param .u64 .ptr .global p)
.reqntid 32, 2 .reqnctapercluster 2 .maxnreg 40 { ret; }
.entry m () .maxclusterrank 8 { ret; }
""")
    (image,) = found
    kernel = found.kernel("k")
    assert (kernel.required_block, kernel.cluster, kernel.max_registers) == ((32, 2, 1), (2, 1, 1), 40)
    assert (kernel.max_threads, kernel.parameter_bytes) == (64, 32)
    assert found.kernel("m").max_cluster_blocks == 8
    assert [(p.kind, p.size, p.align) for p in kernel.signature or ()] == [
        (ParameterClass.AGGREGATE, 24, 8),
        (ParameterClass.POINTER, 8, 8),
    ]
    assert image.functions == ("helper",)
    assert image.undefined == ("other", "elsewhere")
    assert [(v.name, v.size, v.space) for v in image.variables] == [("table", 16, "managed")]


def test_ltoir_has_its_architecture_and_an_unreadable_body() -> None:
    (image,) = inspect(ltoir(SOURCE))
    assert (image.kind, image.arch, image.kernels) == (ImageKind.LTOIR, Arch.parse("lto_90"), ())
    assert "only nvJitLink" in image.note
    assert not image.error


def test_llvm_ir_lists_its_functions() -> None:
    found = inspect(
        'target triple = "nvptx64-nvidia-cuda"\n'
        "define void @old(ptr %p) {\n  ret void\n}\n"
        "define ptx_kernel void @new() {\n  ret void\n}\n"
        "define internal i32 @helper() {\n  ret i32 0\n}\n"
        "declare i32 @vprintf(ptr, ptr)\ndeclare i32 @llvm.nvvm.read.ptx.sreg.tid.x()\n"
        '!nvvm.annotations = !{!0}\n!0 = !{ptr @old, !"kernel", i32 1}\n'
    )
    (image,) = found
    assert (found.kind, [k.name for k in found.kernels]) == (ImageKind.NVVMIR, ["old", "new"])
    assert (image.functions, image.undefined) == (("helper",), ("vprintf",))
    (bitcode,) = inspect(b"BC\xc0\xde" + bytes(40))
    assert "bitcode" in bitcode.note
    with raises(FormatError, "format", "LLVM", "IR") as error:
        inspect(Artifact(ImageKind.NVVMIR, b"define \xff"))
    assert error.value.offset == 7


# -- containers -------------------------------------------------------------------------------------------

MANY = [
    ("cubin", "sm_75"),
    ("cubin", "sm_90a"),
    ("cubin", "sm_100f"),
    ("cubin", "sm_120"),
    ("ptx", "compute_75"),
    ("ltoir", "lto_90"),
]


@pytest.mark.parametrize("compression", ["-compress=false", "-compress-all"])
def test_fatbin_lists_every_image(compression: str) -> None:
    found = inspect(many(compression))
    assert sorted(shapes(found)) == sorted(MANY)
    assert [image.index for image in found] == list(range(len(MANY)))
    assert {image.container for image in found} == {0}
    assert set(map(str, found.arches)) == {arch for _, arch in MANY}
    assert not found.errors
    per_arch = {str(k.arch) for k in found.kernels if k.display == "scale<double>"}
    assert per_arch == {"sm_75", "sm_90a", "sm_100f", "sm_120", "compute_75"}


def test_fatbin_image_has_its_storage_format() -> None:
    images = {str(image.arch): image for image in inspect(many("-compress-all"))}
    assert images["sm_75"].identifier == "image.cubin"
    assert images["compute_75"].options == "-O3 -v"
    assert images["compute_75"].compression in ("zstd", "lz4")
    assert images["compute_75"].stored_bytes < images["compute_75"].size
    assert images["sm_90a"].flags & 0x100000
    assert images["sm_75"].payload() == cubin(SOURCE, "sm_75")


def test_compressed_ltoir_is_reported_as_unreadable() -> None:
    (image,) = (i for i in inspect(many("-compress-all")) if i.kind is ImageKind.LTOIR)
    assert image.note == "only nvJitLink can read compressed LTO-IR"
    assert not image.error
    with raises(FormatError, "format", "nvJitLink"):
        image.payload()


@pytest.mark.parametrize(
    ("code", "kind", "note", "error"),
    [(0x80, ImageKind.TILEIR, "", "not Tile IR"), (0x33, ImageKind.OTHER, "unknown kind 0x33", "")],
)
def test_unsupported_entry_kind_is_reported(code: int, kind: ImageKind, note: str, error: str) -> None:
    data = several(2)
    first, second = inspect(damaged(data, entry_offset(data, 0), bytes([code])))
    assert (first.kind, first.kernels, bool(first.error)) == (kind, (), bool(error))
    assert note in first.note
    assert error in first.error
    assert second.kernels


@pytest.mark.parametrize("kind", [1, 2, 3], ids=["object", "executable", "library"])
def test_host_files_are_read_fatbin_by_fatbin(kind: int) -> None:
    found = inspect(host_elf(several(2) + several(1), kind))
    assert found.kind is ImageKind.OBJECT
    assert [image.container for image in found] == [0, 0, 1]
    assert [k.display for k in found.kernels].count("count") == 3


def test_real_objects_and_archives_are_read() -> None:
    for name, kind in (("device.o", ImageKind.OBJECT), ("libdevice.a", ImageKind.LIBRARY)):
        found = inspect(GOLDENS / name)
        assert found.kind is kind
        assert sorted(shapes(found)) == [("cubin", "sm_80"), ("cubin", "sm_90"), ("ptx", "compute_80")]
        assert all(image.is_relocatable for image in found if image.kind is ImageKind.CUBIN)
    found = inspect(archive([host_elf(several(1), 1), host_elf(several(2), 1)]))
    assert [image.container for image in found] == [0, 1, 1]


@pytest.mark.parametrize("name", MADE)
def test_files_of_other_toolkits_are_read_whole(name: str) -> None:
    found = inspect(FATBINS / name)
    assert found.images
    assert not found.errors
    assert len({image.toolkit for image in found if image.kind is ImageKind.CUBIN}) <= 1
    for kernel in found.kernels:
        assert (kernel.registers is None) is (kernel.kind is not ImageKind.CUBIN)


def test_host_file_without_device_code_has_no_images() -> None:
    found = inspect(host_elf(b"", 3, b".data"))
    assert (found.images, found.kernels, found.arches) == ((), (), ())


def test_content_is_read_on_demand() -> None:
    found = inspect(many())
    assert str(found.images[0]) == "cubin sm_75"
    assert found.arches
    assert not any(image.is_read for image in found)
    assert found.images[0].kernels
    assert found.images[0].is_read


def test_inspection_is_pickled_unchanged() -> None:
    found = inspect(many())
    again = pickle.loads(pickle.dumps(found))
    assert shapes(again) == shapes(found)
    assert again.kernels == found.kernels


# -- what may be given ------------------------------------------------------------------------------------


def test_image_may_be_an_artifact_bytes_text_path_or_module(tmp_path: Path) -> None:
    data = cubin(SOURCE, "sm_80")
    path = tmp_path / "scale.cubin"
    path.write_bytes(data)
    artifact = Artifact.of(data)
    module = SimpleNamespace(artifact=artifact)
    forms: list[object] = [artifact, data, bytearray(data), memoryview(data), path, str(path), module]
    kernels = inspect(data).kernels
    assert all(inspect(form).kernels == kernels for form in forms)
    assert inspect(path).name == str(path)
    assert inspect(ptx(SOURCE).decode()).kind is ImageKind.PTX


def test_invalid_image_is_refused(tmp_path: Path) -> None:
    for wrong in (3, None, SimpleNamespace(artifact=3)):
        with raises(ArgumentError, "argument", "inspect"):
            inspect(wrong)
    with raises(FileError, "file", "No such file or directory"):
        inspect(tmp_path / "none.cubin")
    with raises(FileError, "file"):
        inspect(tmp_path)
    with pytest.raises(OptionError):
        inspect("a\0b")
    for wrong_bytes in (b"", b"hello", b"\x7fELF"):
        with pytest.raises(FormatError):
            inspect(wrong_bytes)


def test_unknown_is_none_and_a_single_kernel_has_its_name() -> None:
    kernel = KernelInfo("k")
    assert (kernel.display, kernel.max_threads, kernel.spill_bytes) == ("k", None, None)
    assert hash(kernel) == hash(KernelInfo("k"))
    assert str(kernel) == "k (cubin)"
    assert str(replace(kernel, display="axpy<float>", arch=Arch.parse("sm_90"))) == "axpy<float> (cubin sm_90)"


# -- damage -----------------------------------------------------------------------------------------------


def entry_offset(data: bytes, index: int) -> int:
    return inspect(data).images[index]._source.entry.offset  # type: ignore[attr-defined,no-any-return]


def damaged(data: bytes, at: int, new: bytes) -> bytes:
    return data[:at] + new + data[at + len(new) :]


def test_damaged_sass_does_not_hide_other_images() -> None:
    data = several(3)
    payload = data.index(b"\x7fELF", entry_offset(data, 1))
    found = inspect(damaged(data, payload + 40, b"\xff" * 8))
    assert [bool(image.error) for image in found] == [False, True, False]
    assert len(found.errors) == 1
    assert len(found.kernels) == 6


@pytest.mark.parametrize(
    ("at", "new"),
    [(0x1C, bytes(4)), (0x10, b"\xff" * 4), (0x24, b"\xff" * 4)],
    ids=["architecture", "packed size", "identifier"],
)
def test_damaged_entry_header_does_not_hide_other_images(at: int, new: bytes) -> None:
    data = several(3)
    offset = entry_offset(data, 1)
    found = inspect(damaged(damaged(data, offset + at, new), offset + 0x20, b"\x40\0\0\0"))
    assert [bool(image.error) for image in found] == [False, True, False]
    assert f"at byte {offset}" in found.images[1].error
    assert found.images[1].kind is ImageKind.OTHER
    with pytest.raises(FormatError):
        found.images[1].payload()


def test_truncated_file_reports_the_rest() -> None:
    for data in (several(3), host_elf(several(3), 3)):
        found = inspect(data[: len(data) // 2])
        assert [bool(image.error) for image in found].count(False) == 1
        assert found.errors


def test_other_fatbin_of_a_damaged_file_is_still_read() -> None:
    one = several(1)
    found = inspect(host_elf(damaged(one, 16 + 0x1C, bytes(4)) + one, 1))
    assert [(image.container, bool(image.error)) for image in found] == [(0, True), (1, False)]


def test_damaged_ptx_in_a_fatbin_is_an_error_of_that_image() -> None:
    text = ptx(SOURCE).replace(b".entry", b".entri")
    found = inspect(bundled((("cubin", "80", cubin(SOURCE, "sm_80")), ("ptx", "75", text)), "-compress=false"))
    assert [(image.kind, bool(image.error)) for image in found] == [(ImageKind.CUBIN, False), (ImageKind.PTX, True)]


@pytest.mark.parametrize("cut", [20, 70, 200])
def test_unreadable_file_is_an_error(cut: int) -> None:
    with pytest.raises(FormatError):
        inspect(several(1)[:cut])
    with pytest.raises(FormatError):
        inspect(cubin(SOURCE)[:cut])
    with pytest.raises(FormatError):
        inspect(ptx(SOURCE).decode().replace(".entry", ".entri"))


@given(st.data())
@settings(max_examples=100)
def test_damage_raises_only_format_errors(data: st.DataObject) -> None:
    raw = bytearray(data.draw(st.sampled_from([several(2), many(), ptx(SOURCE), cubin(SOURCE), ltoir(SOURCE)])))
    for _ in range(data.draw(st.integers(1, 8))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    try:
        found = inspect(bytes(raw))
    except FormatError:
        return
    for image in found:
        assert image.error or image.arch or image.note or image.kernels == ()


def test_loaded_module_is_inspected_by_its_image() -> None:
    module = load(compile(OVERLOADS, to="ptx", arch="compute_80"), cpu())
    (image,) = inspect(module)
    assert image.kind is ImageKind.PTX
    assert {k.display for k in image.kernels} == {"scale(int*)", "scale(float*)", "alone"}


@pytest.mark.parametrize("size", [30, 3000], ids=["header", "sections"])
def test_damaged_file_is_named(size: int, tmp_path: Path) -> None:
    path = tmp_path / "cut.cubin"
    path.write_bytes(cubin(SOURCE)[:size])
    with raises(FormatError, "format", "cut.cubin"):
        inspect(path)
    text = tmp_path / "cut.ptx"
    text.write_bytes(ptx(SOURCE)[:-30])
    with raises(FormatError, "ptx-syntax", "cut.ptx", "<ptx>"):
        inspect(text)


def test_python_looks_rarely_for_garbage_while_ptx_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = gc.get_threshold(), list[int]()

    def parsed(text: str) -> PtxModule:
        seen.append(gc.get_threshold()[0])
        return parse(text)

    monkeypatch.setattr(content, "parse", parsed)
    gc.set_threshold(700, *before[1:])
    try:
        assert inspect(ptx(SOURCE)).kernels
        assert seen == [200_000]
        assert gc.get_threshold()[0] == 700
    finally:
        gc.set_threshold(*before)
