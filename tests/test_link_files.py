"""Linking files of every kind, told apart by their content: objects and archives of nvcc, and images of ours."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from cujit.artifact import Artifact, ImageKind
from cujit.compiler import linking
from cujit.devices.device import Device
from cujit.devices.process import process_devices
from cujit.errors import CujitError, FormatError, LinkError, OptionError, ToolchainNotFoundError
from cujit.formats.cubin import read_cubin
from cujit.formats.ptx.retarget import retarget
from cujit.loading import load
from cujit.program import Source, build, bundle, compile, link
from emulator.programs import python
from raising import raises

FILES = Path(__file__).parent / "goldens" / "device"
CALLER = Source.cuda(
    'extern "C" __device__ int twice(int); extern "C" __global__ void k(int *p) { *p = twice(*p); }', name="caller.cu"
)
CALLEE = Source.cuda('extern "C" __device__ int twice(int x) { return 2 * x; }', name="callee.cu")
TARGETS = {"ptx": "compute_80", "cubin": "sm_90", "ltoir": "lto_80"}


def caller(to: str) -> Artifact:
    return compile(CALLER, to=to, arch=TARGETS[to], rdc=True)


def assert_links(*inputs: object) -> Artifact:
    linked = link(inputs, arch="sm_90")
    cubin = read_cubin(linked.data)
    assert [k.name for k in cubin.kernels] == ["k"]
    assert cubin.undefined == ()
    if isinstance(inputs[0], Artifact):
        assert linked.names["k"] == "k"
    return linked


@pytest.mark.parametrize("to", list(TARGETS))
@pytest.mark.parametrize("file", ["device.o", "libdevice.a"])
def test_nvcc_objects_and_archives_link_with_cujits(to: str, file: str) -> None:
    assert_links(caller(to), FILES / file)


@pytest.mark.parametrize("to", list(TARGETS))
def test_file_kind_depends_only_on_its_contents(to: str, tmp_path: Path) -> None:
    mine = caller(to).save(tmp_path / "caller.jpg")
    theirs = shutil.copy(FILES / "device.o", tmp_path / "device.cubin")
    assert_links(mine, str(theirs))


def test_fatbin_links_too(tmp_path: Path) -> None:
    images = [compile(CALLEE, to="cubin", arch=arch, rdc=True) for arch in ("sm_80", "sm_90")]
    path = bundle(images).save(tmp_path / "callee.fatbin")
    assert_links(caller("cubin"), path)


def test_bytes_link_without_a_file() -> None:
    assert_links(caller("ltoir").data, (FILES / "device.o").read_bytes())


@pytest.mark.gpu
@pytest.mark.parametrize("file", ["device.o", "libdevice.a"])
def test_linked_image_runs(gpu: Device, file: str) -> None:
    p = gpu.array(np.array([21], np.int32))
    load(assert_links(caller("ptx"), FILES / file), gpu)["k"][1, 1](p)
    assert p.numpy().tolist() == [42]


def test_log_of_the_linker_is_in_the_result() -> None:
    linked = link([caller("ltoir"), FILES / "device.o"], arch="sm_90", verbose=True)
    assert linked.kind is ImageKind.CUBIN
    assert "registers" in linked.log


def test_unlinkable_files_each_say_why(tmp_path: Path) -> None:
    empty, text, cut = tmp_path / "empty.o", tmp_path / "text.cubin", tmp_path / "cut.cubin"
    empty.touch()
    text.write_text("int main() {}")
    cut.write_bytes(caller("cubin").data[:200])
    with pytest.raises(OSError, match=r"missing\.ptx"):
        link([tmp_path / "missing.ptx"], arch="sm_90")
    with pytest.raises(OSError, match=str(tmp_path)):
        link([tmp_path], arch="sm_90")
    with raises(FormatError, "format", "empty.o"):
        link([empty], arch="sm_90")
    with raises(FormatError, "format", "text.cubin", "PTX"):
        link([text], arch="sm_90")
    with raises(FormatError, "format", "cut.cubin"):
        link([cut], arch="sm_90")


def test_host_object_without_device_code_is_reported(tmp_path: Path) -> None:
    elf = (FILES / "device.o").read_bytes()
    path = tmp_path / "host.o"
    path.write_bytes(elf[:40].ljust(64, b"\0"))
    with raises(CujitError, "link-input", "host.o"):
        link([caller("cubin"), path], arch="sm_90")


def test_fatbin_without_the_architecture_is_refused() -> None:
    fatbin = build(CALLEE, ["sm_80"], rdc=True)
    with raises(LinkError, "link-input", "sm_80"):
        link([caller("cubin"), fatbin], arch="sm_90")


def test_link_for_the_cpu_device_creates_no_sass() -> None:
    for to in ("cubin", ImageKind.CUBIN):
        with raises(OptionError, "option", "CPU", "to='ptx'"):
            link([caller("ptx"), compile(CALLEE, rdc=True)], to=to, device="cpu")


def _hide_the_linker(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: object) -> Artifact:
        raise ToolchainNotFoundError("nvJitLink is not installed", help="pip install 'cujit[cu13]'")

    monkeypatch.setattr(linking, "link_parts", absent)


@pytest.mark.gpu
def test_driver_links_if_nvjitlink_is_missing(gpu: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    image = retarget(caller("ptx"), version="8.0")
    _hide_the_linker(monkeypatch)
    linked = link([image, FILES / "libdevice.a"])
    assert linked.names["k"] == "k"
    p = gpu.array(np.array([21], np.int32))
    load(linked, gpu)["k"][1, 1](p)
    assert p.numpy().tolist() == [42]


def test_without_linker_and_gpu_the_missing_wheel_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    if process_devices().gpus():
        pytest.skip("there is a GPU")
    image = caller("ptx")
    _hide_the_linker(monkeypatch)
    with raises(ToolchainNotFoundError, "toolchain-not-found", "nvJitLink"):
        link([image, FILES / "libdevice.a"], arch="sm_90")


def test_driver_links_only_for_its_own_gpu_and_not_to_ptx() -> None:
    said = python("""
    import cujit
    from cujit.compiler import linking
    from cujit.errors import ToolchainNotFoundError
    from cujit.events import Fallback, subscribe

    link_parts = linking.link_parts

    def absent(*_):
        linking.link_parts = link_parts  # the driver of cujit emulate links by it
        raise ToolchainNotFoundError("nvJitLink is not installed")

    image = cujit.compile('extern "C" __global__ void k() {}', arch="compute_80")
    for more in ({}, {"to": "ptx"}, {"arch": "sm_80"}):
        linking.link_parts = absent
        try:
            with subscribe(print, Fallback):
                print(cujit.link([image], **more).provenance.reason)
        except ToolchainNotFoundError as e:
            print(e.message)
    """)
    assert said.splitlines() == [
        "a link: the driver of cuda:0, because nvJitLink is not installed",
        "the GPU's driver linked it, and no build of that is known",
        *["nvJitLink is not installed"] * 2,
    ]
