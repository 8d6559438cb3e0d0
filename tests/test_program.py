"""The façade: bundle, build and what all four share."""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from cujit import program
from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.cli.build import command
from cujit.compiler.backends import bundle as bundling
from cujit.compiler.inputs.entry import COMPRESSIONS, Entry
from cujit.devices.device import Device
from cujit.devices.process import process_devices
from cujit.errors import (
    ArchError,
    BundleError,
    CompileError,
    DeviceNotFoundError,
    FormatError,
    HeaderNotFoundError,
    OptionError,
)
from cujit.formats.fatbin import EntryKind, read_fatbin
from cujit.loading import Module, load
from cujit.program import Source
from formats.hosts import host_object
from llvm_ir import SCALE
from processes import printed
from raising import raises

AXPY = Source.cuda(
    """\
template <typename T> __global__ void axpy(T a, const T* x, T* y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
""",
    name="axpy.cu",
)
LOWERED = "_Z4axpyIfEvT_PKS0_PS0_m"


@pytest.fixture(autouse=True)
def no_handle_stays_open() -> Iterator[None]:
    yield
    gc.collect()  # an error that a test has caught keeps the frames that made handles
    assert program.toolchain().live_handles == 0


def held(artifact: Artifact) -> list[str]:
    return [str(entry) for entry in read_fatbin(artifact.data).entries]


def test_build_has_every_target_in_order_with_signatures() -> None:
    targets = ["sm_80", "sm_90a", "compute_80", "lto_80"]
    fatbin = program.build(AXPY, targets, names=["axpy<float>"])
    assert held(fatbin) == ["cubin sm_80", "cubin sm_90a", "ptx compute_80", "ltoir lto_80"]
    assert (fatbin.kind, fatbin.arch) == (ImageKind.FATBIN, None)
    assert dict(fatbin.names) == {"axpy<float>": LOWERED}
    assert len(fatbin.signatures[LOWERED]) == 4


def test_every_artifact_names_its_tool_and_version() -> None:
    cuda = program.Source.cuda('extern "C" __global__ void k(int* p) { *p = 1; }')
    ltoir = program.compile(cuda, arch="lto_90")
    assert re.fullmatch(r"NVRTC \d+\.\d+", ltoir.tool)
    assert re.fullmatch(r"nvJitLink \d+\.\d+", program.link([ltoir], arch="sm_90").tool)
    assert re.fullmatch(r"nvFatbin \d+\.\d+", program.build(cuda, targets=["sm_90"]).tool)


def test_target_named_twice_is_built_once() -> None:
    assert held(program.build(AXPY, ["sm_80", "sm_80"], names="axpy<float>")) == ["cubin sm_80"]


def test_all_is_every_architecture_and_the_newest_ptx() -> None:
    arches = program.toolchain().nvrtc.arches
    expected = [f"cubin sm_{n}" for n in arches] + [f"ptx compute_{arches[-1]}"]
    assert held(program.build(AXPY, "all")) == expected


def test_portable_is_the_oldest_ptx() -> None:
    lowest = program.toolchain().nvrtc.arches[0]
    assert held(program.build(AXPY, "portable")) == [f"ptx compute_{lowest}"]


def test_native_calls_only_the_given_function() -> None:
    fatbin = program.build(AXPY, "native", native=lambda: [Arch.parse("sm_90"), Arch.parse("sm_90")])
    assert held(fatbin) == ["cubin sm_90"]


def test_native_without_a_gpu_is_an_error() -> None:
    if process_devices().gpus():
        pytest.skip("there is a GPU")
    with raises(DeviceNotFoundError, "device-not-found", "'native'"):
        program.build(AXPY, "native")
    with raises(DeviceNotFoundError, "device-not-found", "'native'"):
        program.compile(AXPY, arch="native")


@pytest.mark.gpu
def test_native_builds_for_the_gpus_of_this_machine(gpu: Device) -> None:
    assert program.compile(AXPY, arch="native").arch == gpu.arch
    fatbin = program.build(AXPY, "native")
    assert str(gpu.arch) in {str(e.arch) for e in read_fatbin(fatbin.data)}


def test_progress_is_called_after_every_target() -> None:
    calls: list[tuple[int, int, str]] = []
    program.build(AXPY, ["sm_80", "compute_90"], progress=lambda *told: calls.append(told))
    assert [(done, total) for done, total, _ in calls] == [(1, 2), (2, 2)]
    assert {target for _, _, target in calls} == {"sm_80", "compute_90"}


def test_exception_of_progress_stops_the_build() -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        program.build(AXPY, ["sm_80", "sm_90"], progress=stop, jobs=1)
    assert not [t for t in threading.enumerate() if t.name.startswith("cujit-build")]


def test_one_job_and_many_build_equal_fatbins() -> None:
    targets = ["sm_80", "sm_90", "compute_90"]
    assert program.build(AXPY, targets, jobs=1).data == program.build(AXPY, targets, jobs=8).data


def test_errors_of_several_targets_are_listed_once() -> None:
    text = "#if __CUDA_ARCH__ < 900\n#error too old\n#endif\n__global__ void k() { what; }"
    with pytest.raises(CompileError) as caught:
        program.build(Source.cuda(text, name="k.cu"), ["sm_80", "sm_86", "sm_90"], jobs=1)
    said = str(caught.value)
    assert said.startswith("k.cu does not compile for 3 targets\nfor sm_80, sm_86:\n")
    assert "for sm_90:" in said
    assert said.count("too old") == 2  # the message, and the line that it points at
    assert {d.line for d in caught.value.diagnostics} == {2, 4}


def test_wrong_name_is_reported_for_several_targets_as_for_one() -> None:
    text = "__global__ void plain(int* p) { *p = 1; }"
    for targets in ("sm_90", ["sm_80", "sm_90"]):
        with raises(CompileError, "compile", "x.cu", "plian") as caught:
            program.build(Source.cuda(text, name="x.cu"), targets, names=["plian"])
        assert caught.value.help == "did you mean plain?"
        assert "__nv_name_map" not in str(caught.value)
    with raises(HeaderNotFoundError, "header-not-found", "nope.h", "none"):
        program.build(Source.cuda("#include <nope.h>\n"), ["sm_80", "sm_90"])


@pytest.mark.parametrize("targets", [[], "sm_9", ["sm_90", "sm_1000"], "everything", None, 1, b"sm_90", [None]])
def test_wrong_targets_are_refused(targets: list[str]) -> None:
    with pytest.raises((OptionError, ArchError)):
        program.build(AXPY, targets)


def test_results_of_native_may_be_names_and_are_checked() -> None:
    assert held(program.build(AXPY, "native", native=lambda: ["sm_90"])) == ["cubin sm_90"]
    with pytest.raises(DeviceNotFoundError):
        program.build(AXPY, "native", native=list)
    for native in (1, lambda: None, lambda: [None]):
        with pytest.raises((OptionError, ArchError)):
            program.build(AXPY, "native", native=native)  # type: ignore[arg-type]


@pytest.mark.parametrize("wrong", [{"progress": 1}, {"compress": []}, {"compress": "zip"}])
def test_wrong_build_argument_is_refused_before_compiling(wrong: dict[str, object]) -> None:
    with raises(OptionError, "option", next(iter(wrong))):
        program.build(Source.cuda("this does not compile"), "sm_90", **wrong)  # type: ignore[arg-type]


def test_any_integer_is_a_number_of_jobs() -> None:
    assert held(program.build(AXPY, "portable", jobs=np.int64(2)))  # type: ignore[arg-type]


@pytest.mark.parametrize("jobs", [0, -1, "two", True, 1.0])
def test_wrong_number_of_jobs_is_refused(jobs: int) -> None:
    with raises(OptionError, "option", "jobs"):
        program.build(AXPY, "portable", jobs=jobs)


@pytest.mark.parametrize("compress", [None, True, False, *COMPRESSIONS])
def test_bundle_can_be_compressed(compress: str | bool | None) -> None:
    images = [program.compile(AXPY, arch=arch, names="axpy<float>") for arch in ("sm_90", "compute_90")]
    if compress == "concat" and program.toolchain().nvfatbin.version < (13, 5):
        pytest.skip("13.5 is the first that is known to take it")
    fatbin = program.bundle(images, compress=compress)
    first, second = sorted(read_fatbin(fatbin.data).entries, key=lambda entry: entry.kind is EntryKind.PTX)
    assert first.payload() == images[0].data
    assert LOWERED.encode() in second.payload()
    if compress in (False, "none"):
        assert not first.is_compressed
    if compress in (None, True, "size", "speed", "balance", "concat"):
        assert first.is_compressed
        assert second.is_compressed


def test_default_compression_is_balance() -> None:
    images = [program.compile(AXPY, arch=arch, names="axpy<float>") for arch in ("sm_90", "compute_90")]
    usual, balance, size = (program.bundle(images, compress=how).data for how in (None, "balance", "size"))
    assert usual == balance
    assert (size != balance) == (program.toolchain().nvfatbin.version >= (13, 0))  # 12.9 has one mode
    assert program.bundle(images, compress=True).data == balance
    has_ltoir = program.bundle([*images, program.compile(AXPY, arch="lto_90", names="axpy<float>")])
    assert not any(entry.is_compressed for entry in read_fatbin(has_ltoir.data)), "LTO-IR could not be taken out again"


def test_images_compressed_together_are_smaller() -> None:
    if program.toolchain().nvfatbin.version < (13, 5):
        pytest.skip("13.5 is the first that is known to take it")
    images = [program.compile(AXPY, arch=f"sm_{number}", names="axpy<float>") for number in (80, 86, 90)]
    balance, concat = (program.bundle(images, compress=how) for how in ("balance", "concat"))
    assert len(concat.data) < len(balance.data)
    again = program.bundle([concat, program.compile(AXPY, arch="sm_100", names="axpy<float>")], compress="none")
    kept = {str(entry.arch): entry.payload() for entry in read_fatbin(again.data)}
    assert {str(image.arch): image.data for image in images}.items() <= kept.items()
    with_ptx = program.bundle([concat, program.compile(AXPY, names="axpy<float>")], compress="concat")
    with load(with_ptx, "cpu") as module:
        assert isinstance(module, Module)
        assert module["axpy<float>"].name == "axpy<float>"


def test_packer_without_joint_compression_names_its_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundling, "_compression", lambda *_: ["-concatenate"])
    with raises(OptionError, "option-rejected", "-concatenate"):
        program.bundle([program.compile(AXPY, arch="sm_90", names="axpy<float>")], compress="concat", cache=False)


def test_one_image_is_bundled_without_a_list_too(tmp_path: Path) -> None:
    image = program.compile(AXPY, arch="sm_90", names="axpy<float>").save(tmp_path / "axpy.cubin")
    for given in (str(image), image.read_bytes()):
        assert program.bundle(given).data == program.bundle([given]).data


def test_entry_carries_options_and_a_name() -> None:
    fatbin = program.bundle([Entry(program.compile(AXPY, arch="compute_90"), "-O1", "axpy.ptx")])
    (entry,) = read_fatbin(fatbin.data).entries
    assert (entry.options.strip(), entry.identifier) == ("-O1", "axpy.ptx")


@pytest.mark.parametrize(
    "wrong",
    [
        {"image": b"x"},
        {"image": None},
        {"options": 1},
        {"options": "\0"},
        {"identifier": "\ud800"},
        {"identifier": "a\0"},
    ],
)
def test_entry_of_the_wrong_type_is_refused(wrong: dict[str, object]) -> None:
    image = Artifact.of(".version 8.0\n.target sm_80\n")
    with raises(OptionError, "option", "Entry"):
        Entry(**{"image": image, **wrong})  # type: ignore[arg-type]


def test_two_images_for_the_same_architecture_are_refused() -> None:
    cubin = program.compile(AXPY, arch="sm_90")
    with raises(BundleError, "bundle-conflict", "sm_90"):
        program.bundle([cubin, cubin])


def test_host_object_is_an_entry_without_an_architecture() -> None:
    cubin = program.compile(AXPY, arch="sm_90")
    data = host_object(program.bundle([cubin]).data)
    plain, said = (Artifact(ImageKind.OBJECT, data, arch) for arch in (None, Arch.parse("sm_90")))
    assert program.bundle([cubin, said]).data == program.bundle([cubin, plain]).data


def test_image_with_a_contradicting_architecture_is_refused() -> None:
    ptx = program.compile(AXPY, arch="compute_90")
    with raises(BundleError, "bundle", "compute_80", "compute_90"):
        program.bundle([Artifact(ImageKind.PTX, ptx.data, Arch.parse("compute_80"))])


def test_input_that_a_fatbin_cannot_contain_is_refused() -> None:
    good = Artifact.of(".version 8.0\n.target sm_80\n.address_size 64\n")
    others = [
        kind
        for kind in ImageKind
        if kind
        not in (ImageKind.PTX, ImageKind.CUBIN, ImageKind.LTOIR, ImageKind.FATBIN, ImageKind.OBJECT, ImageKind.TILEIR)
    ]
    for wrong, error, values in (
        ([], BundleError, ("bundle",)),
        ([b"garbage"], FormatError, ("format", "PTX")),
        ([3], OptionError, ("option", "int")),
        (
            [Artifact(ImageKind.PTX, b".version 8.0\n.address_size 64\n")],
            BundleError,
            ("bundle", "1:ptx"),
        ),
        *(([good, Artifact(k, b"x")], BundleError, ("bundle", "2", k.value)) for k in others),
    ):
        with raises(error, *values):
            program.bundle(wrong)  # type: ignore[arg-type]
    for compress in ("zip", ["size"], 1):
        with raises(OptionError, "option", "compress"):
            program.bundle([program.compile(AXPY)], compress=compress)  # type: ignore[arg-type]


def test_options_are_keywords_or_a_mapping() -> None:
    one = program.compile(AXPY, names="axpy<float>", options={"lineinfo": True})
    other = program.compile(AXPY, names="axpy<float>", lineinfo=True)
    assert one.data == other.data
    assert b".loc" in one.data


def test_request_is_described_without_compiling() -> None:
    described = program.request(Source.cuda("no C++ at all", name="x.cu"), arch="sm_90", ftz=True)
    assert str(described).endswith("arguments: --gpu-architecture=sm_90 --ftz=true")
    assert described == program.request(described.source, arch="sm_90", ftz=True)


def test_toolchain_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    plain = program.toolchain()
    assert program.toolchain() is plain
    monkeypatch.setenv("CUDA_HOME", "/elsewhere")
    assert program.toolchain().settings.cuda_homes == (("CUDA_HOME", "/elsewhere"),)


_HIDDEN = """\
import sys

class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {hidden!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Hide())
from cujit import program
from cujit.errors import ToolchainNotFoundError
try:
    print(program.compile("__global__ void k() {{}}").arch)
except ToolchainNotFoundError as e:
    print(e)
"""


def test_missing_wheels_are_reported_with_their_extra() -> None:
    for hidden, said in ((("cuda", "nvidia"), "pip install 'cujit[cu13]'"), (("nvidia",), "compute_")):
        assert said in printed(_HIDDEN.format(hidden=hidden))


def test_command_builds_llvm_ir_too(tmp_path: Path) -> None:
    file = tmp_path / "scale.ll"
    file.write_text(SCALE)
    made = tmp_path / "scale.fatbin"
    result = CliRunner().invoke(command, [str(file), "--target", "sm_90", "-o", str(made)])
    assert result.exit_code == 0, result.output
    assert held(Artifact.open(made)) == ["cubin sm_90"]
