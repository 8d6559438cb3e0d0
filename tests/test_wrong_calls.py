"""What the doors say to people who make a mistake, and how fatbins are made, extended and taken apart."""

from __future__ import annotations

import array
import ctypes
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import BundleError, CompileError, CujitError, FormatError, HeaderNotFoundError, OptionError
from cujit.profile import Profile
from cujit.toolchain import nvfatbin, nvjitlink
from llvm_ir import HEAD, VERSION
from raising import raises

SAXPY = 'extern "C" __global__ void saxpy(float* x) { x[0] = 1; }'
NV = 'extern "C" __global__ void nv(float* x) { x[0] = 2; }'
BOTH = SAXPY + NV


# Fatbins


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ((NV, "sm_90"), (SAXPY, "compute_75")),
        ((NV, "sm_90"), (BOTH, "compute_75")),
        ((NV, "sm_89"), (BOTH, "sm_80")),
        ((SAXPY, "compute_90"), (BOTH, "compute_80")),
    ],
)
def test_image_that_hides_a_kernel_of_another_is_refused(first: tuple[str, str], second: tuple[str, str]) -> None:
    images = [cujit.compile(cujit.Source.cuda(text, name=f"{arch}.cu"), arch=arch) for text, arch in (first, second)]
    for order in (images, images[::-1]):
        with raises(BundleError, "bundle-conflict", first[1], "cu", second[1]):
            cujit.bundle(order)


def test_image_may_have_kernels_for_only_its_gpus() -> None:
    images = [
        cujit.compile(BOTH, arch="sm_90a"),
        cujit.compile(SAXPY, arch="compute_80"),
        cujit.compile(NV, arch="sm_80"),
    ]
    with pytest.raises(BundleError):  # on sm_80, saxpy is hidden by nv
        cujit.bundle(images)
    assert len(cujit.inspect(cujit.bundle(images[:2]))) == 2
    functions = cujit.compile("__device__ int f() { return 1; }", arch="sm_90", rdc=True)
    assert len(cujit.inspect(cujit.bundle([functions, images[1]]))) == 2


def test_fatbin_gets_one_more_architecture(device: Device) -> None:
    old = cujit.build(BOTH, ["sm_80", "compute_80"])
    new = cujit.bundle([old, cujit.Entry(cujit.compile(BOTH, arch="compute_90"), options="-O1", identifier="new")])
    assert [str(image) for image in cujit.inspect(new)] == ["cubin sm_80", "ptx compute_80", "ptx compute_90"]
    assert dict(new.names) == dict(old.names)
    again = cujit.bundle([new])
    assert [(e.options, e.identifier) for e in cujit.inspection.read_fatbin(again.data)][-1] == ("-O1", "new")
    assert sorted(cujit.load(new, device)) == ["nv", "saxpy"]
    with raises(BundleError, "bundle-conflict", "sm_80"):
        cujit.bundle([old, cujit.compile(BOTH, arch="sm_80")])


def test_fatbin_of_ltoir_is_extracted_again(tmp_path: Path) -> None:
    fatbin = cujit.build(BOTH, ["lto_90", "sm_90"])
    path = fatbin.save(tmp_path / "lto.fatbin")
    more = cujit.bundle([path, cujit.compile(BOTH, arch="lto_80")])
    assert [str(image) for image in cujit.inspect(more)] == ["ltoir lto_90", "cubin sm_90", "ltoir lto_80"]
    assert "saxpy" in cujit.link([more], arch="sm_80").names
    packed = cujit.build(BOTH, "lto_90", compress="size")
    with raises(FormatError, "format", "nvJitLink", "at byte 16") as caught:
        cujit.bundle([packed])
    assert "without compression" in (caught.value.help or "")


@pytest.mark.parametrize(
    ("arch", "options", "code"), [("sm_90", "-O1", "option"), ("compute_90", "rubbish", "option-unknown")]
)
def test_meaningless_entry_options_are_refused(arch: str, options: str, code: str) -> None:
    with raises(OptionError, code, "Entry"):
        cujit.Entry(cujit.compile(SAXPY, arch=arch), options=options)


def test_no_linker_without_the_gpu_architecture_is_named() -> None:
    text = ".version 9.4\n.target sm_50\n.address_size 64\n.visible .entry k() { ret; }\n"
    for device, is_named in (("sm_90", True), ("sm_50", False), (None, False)):
        (verdict,) = cujit.compat(text, driver="13.0", device=device)
        assert ("nvJitLink" in verdict.why + verdict.help) == is_named


def test_link_names_kernels_automatically() -> None:
    ptx = cujit.compile(SAXPY, arch="compute_80").text
    assert dict(cujit.link([ptx], arch="sm_90").names) == {"saxpy": "saxpy"}
    assert dict(cujit.link([ptx, cujit.compile(NV, arch="compute_80").text], to="ptx").names) == {
        "saxpy": "saxpy",
        "nv": "nv",
    }
    source = cujit.compile("template <int N> __global__ void k() {}", names=["k<1>"], to="ltoir", arch="lto_90")
    assert list(cujit.link([source], arch="sm_90").names) == ["k<1>"]


# Messages


def test_elf_file_without_gpu_or_host_is_called_damaged() -> None:
    data = bytearray(cujit.compile(SAXPY, arch="sm_90").data)
    data[18] ^= 0x55
    for door in (cujit.load, cujit.inspect, cujit.Artifact.of):
        with raises(FormatError, "format", "GPU", "at byte 18"):
            door(bytes(data))


@pytest.mark.parametrize("arch", ["compute_90", "compute_100"])
@pytest.mark.parametrize("layout", ['target datalayout = "e-p:32:32:32-i64:64"\n', ""])
def test_wrong_data_layout_is_reported_with_the_right_one(layout: str, arch: str) -> None:
    text = HEAD.splitlines()[0] + "\n" + layout + "define void @k() {\n  ret void\n}\n" + VERSION
    with raises(CompileError, "compile", "k.ll", "libNVVM") as caught:
        cujit.compile(cujit.Source.nvvm(text, name="k.ll"), arch=arch)
    assert (caught.value.help or "").startswith('target datalayout = "e-p:64:64:64-')


MESSAGES: dict[str, tuple[Callable[[], object], type[CujitError], str]] = {
    "a host function": (lambda: cujit.compile("int f() { return 1; }"), CompileError, "default_device=True"),
    "main": (lambda: cujit.compile("int main() { return 0; }"), CompileError, "skip main"),
    "vector": (lambda: cujit.compile("#include <vector>"), HeaderNotFoundError, "<vector> is a host"),
    "iostream": (lambda: cujit.compile("#include <iostream>"), HeaderNotFoundError, "<iostream> is a host"),
    "thrust": (lambda: cujit.compile("#include <thrust/device_vector.h>"), CompileError, "host code"),
    "a header of one's own": (lambda: cujit.compile('#include "own.h"'), HeaderNotFoundError, "include=[…]"),
    "no kernel": (
        lambda: cujit.jit("template <class T> __global__ void k() {}", device="cpu"), CompileError, "names=['kernel<",
    ),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MESSAGES)
def test_hint_says_what_to_do(mistake: str) -> None:
    call, kind, said = MESSAGES[mistake]
    with pytest.raises(kind) as caught:
        call()
    assert said in (caught.value.help or "")


def test_jit_accepts_a_source_with_only_variables() -> None:
    assert list(cujit.jit("__device__ int counter = 4;", device="cpu").globals) == ["counter"]


@pytest.mark.parametrize("options", [["-arch=sm_90", "--nonsense", "-lto"], ["--nonsense", "-arch=sm_90"]])
def test_linker_names_the_option_that_it_rejects(options: list[str]) -> None:
    with raises(nvjitlink.nvJitLinkError, "tool", "ERROR_UNRECOGNIZED_OPTION", "--nonsense") as caught:
        nvjitlink.create(len(options), options)
    assert caught.value.status == nvjitlink.Result.ERROR_UNRECOGNIZED_OPTION
    with raises(nvjitlink.nvJitLinkError, "tool", "-arch=sm_", "-lto"):
        nvjitlink.create(1, ["-lto"])
    with raises(nvfatbin.nvFatbinError, "tool", "ERROR_UNRECOGNIZED_OPTION", "--nonsense"):
        nvfatbin.create(["-compress=false", "--nonsense"], 2)


def test_linker_and_packer_name_the_rejected_input() -> None:
    link = nvjitlink.create(1, ["-arch=sm_90"])
    with raises(nvjitlink.nvJitLinkError, "tool", "bad.cubin"):
        nvjitlink.add_data(link, nvjitlink.InputType.CUBIN, b"rubbish!", 8, "bad.cubin")
    nvjitlink.destroy(link)
    fatbin = nvfatbin.create([], 0)
    with raises(nvfatbin.nvFatbinError, "tool", "identifier 'bad'", "8"):
        nvfatbin.add_cubin(fatbin, b"rubbish!", 8, "90", "bad")
    nvfatbin.destroy(fatbin)


def test_input_type_is_accepted_by_its_c_name() -> None:
    assert nvjitlink.NVJITLINK_INPUT_LTOIR is nvjitlink.InputType.LTOIR
    with pytest.raises(AttributeError, match="IR to LTO-IR first"):
        _ = nvjitlink.NVJITLINK_INPUT_NVVM_IR
    with pytest.raises(AttributeError, match="has no attribute 'nothing'"):
        _ = nvjitlink.nothing


# What things look like


def test_inspection_prints_its_images_and_kernels() -> None:
    shown = str(cujit.inspect(cujit.build(cujit.Source.cuda(BOTH, name="a.cu"), ["sm_80", "compute_90"])))
    head, *images = shown.splitlines()
    assert head.startswith("a.cu: fatbin, ")
    assert sorted(images[0].removeprefix("  cubin sm_80: ").split(", ")) == ["nv", "saxpy"]
    assert sorted(images[1].removeprefix("  ptx compute_90: ").split(", ")) == ["nv", "saxpy"]


def test_registered_module_of_many_kernels_is_short_to_look_at() -> None:
    text = "".join(f'extern "C" __global__ void a_kernel_with_a_name_{i}() {{}}\n' for i in range(80))
    module = cujit.module("doors.many", lambda: cujit.ModuleSpec(text), device="cpu")
    assert len(repr(module)) < 400
    assert "and 76 more" in repr(module)


def test_allocation_by_the_command_line_is_named_so(tmp_path: Path) -> None:
    (tmp_path / "k.cu").write_text('extern "C" __global__ void k(int* p) { p[threadIdx.x + 1] = 1; }')
    command = ["run", "k.cu", "-k", "k", "--device", "cpu", "--check", "all", "--grid", "1", "--block", "32"]
    done = subprocess.run(
        [sys.executable, "-m", "cujit", *command, "--arg", "zeros:i32:32"], cwd=tmp_path, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "allocated by the command line" in " ".join(done.stderr.split())
    assert "click" not in done.stderr


def test_cpu_device_accepts_each_observer_only_in_its_place() -> None:
    watching: dict[str, Any] = {"trace": cujit.Trace(), "coverage": cujit.Coverage(), "profile": Profile()}
    assert len(cujit.cpu(**watching).backend.watchers) == 3
    for name, others in (("trace", "profile"), ("coverage", "trace"), ("profile", "coverage")):
        for wrong in (watching[others], 3):
            given: dict[str, Any] = {name: wrong}
            with raises(OptionError, "option", name, type(wrong).__name__) as refused:
                cujit.cpu(**given)
            assert refused.value.help == {"profile": "profile=cujit.profile.Profile()"}.get(
                name, f"{name}=cujit.{name.title()}()"
            )


def test_image_may_be_any_buffer() -> None:
    ptx = cujit.compile(SAXPY, rdc=True).data
    shared = (ctypes.c_char * len(ptx)).from_buffer_copy(ptx)
    images: tuple[Any, ...] = (
        memoryview(ptx),
        bytearray(ptx),
        array.array("B", ptx),
        np.frombuffer(ptx, np.uint8),
        shared,
    )
    for image in images:
        assert list(cujit.load(image, "cpu")) == ["saxpy"]
        assert [kernel.name for kernel in cujit.inspect(image).kernels] == ["saxpy"]
        assert cujit.link([image], to="ptx").kind is cujit.ImageKind.PTX
