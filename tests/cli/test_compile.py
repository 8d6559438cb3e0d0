"""``cujit compile``, ``bundle`` and ``retarget``: one image of each kind, by the name of its file."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Protocol

import pytest
from click.testing import Result

from cujit.artifact import Artifact, ImageKind
from cujit.formats.fatbin import read_fatbin
from cujit.program import compile
from llvm_ir import SCALE, kernel_that_calls


class Cujit(Protocol):
    def __call__(self, *arguments: str) -> Result: ...


@pytest.fixture
def scale(tmp_path: Path) -> str:
    (tmp_path / "scale.cu").write_text('extern "C" __global__ void scale(int* x) { *x *= FACTOR; }')
    return "scale.cu"


@pytest.mark.parametrize(
    ("said", "kind", "arch"),
    [
        (("-o", "k.ptx"), ImageKind.PTX, "compute_75"),
        (("-o", "k.ptx", "-a", "sm_90"), ImageKind.PTX, "compute_90"),
        (("-o", "k.cubin", "-a", "sm_90"), ImageKind.CUBIN, "sm_90"),
        (("-o", "k.cubin"), ImageKind.CUBIN, "sm_75"),
        (("-o", "k.ltoir", "-a", "sm_90"), ImageKind.LTOIR, "lto_90"),
        (("-o", "k.bin", "--to", "ltoir"), ImageKind.LTOIR, "lto_75"),
        (("-o", "k.bin", "-a", "sm_90"), ImageKind.CUBIN, "sm_90"),
    ],
)
def test_output_extension_selects_the_kind(
    cujit: Cujit, scale: str, said: tuple[str, ...], kind: ImageKind, arch: str
) -> None:
    done = cujit("compile", scale, "-D", "FACTOR=3", *said, "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["kind"], told["arch"], told["names"]) == (kind.value, arch, {"scale": "scale"})
    assert Artifact.open(said[1]).kind is kind


def test_ending_sass_writes_machine_code_as_text(cujit: Cujit, scale: str) -> None:
    done = cujit("compile", scale, "-D", "FACTOR=3", "-o", "k.sass", "-a", "sm_90", "--json")
    assert json.loads(done.stdout) == {"output": "k.sass", "kind": "sass", "arch": "sm_90"}
    text = Path("k.sass").read_text()
    assert ".text.scale" in text
    assert re.search(r"IMAD|IMUL|LEA", text)
    Path("unused.cu").write_text('extern "C" __global__ void k() { int unused = 1; }')
    assert "was declared but never referenced" in cujit("compile", "unused.cu", "-o", "k.sass").stderr
    refused = cujit("compile", scale, "-D", "FACTOR=3", "-o", "k.sass", "--to", "ptx")
    assert refused.exit_code == 2
    assert "SASS is disassembled from a cubin, but --to is ptx" in refused.stderr


def test_several_architectures_are_refused_with_a_command(cujit: Cujit, scale: str) -> None:
    refused = cujit("compile", scale, "--arch", "sm_90", "--arch", "sm_80")
    assert refused.exit_code == 2
    assert "cujit build FILE --arch sm_90 --arch sm_80" in refused.stderr


def test_output_is_named_after_the_source_by_default(cujit: Cujit, scale: str) -> None:
    done = cujit("compile", scale, "-D", "FACTOR=3", "-a", "sm_90")
    assert done.stdout.startswith("scale.cubin: cubin for sm_90, ")
    assert Artifact.open("scale.cubin").kind is ImageKind.CUBIN


def test_llvm_ir_is_compiled_too(cujit: Cujit, tmp_path: Path) -> None:
    (tmp_path / "k.ll").write_text(SCALE)
    assert cujit("compile", "k.ll", "-o", "k.ptx", "-a", "compute_90").exit_code == 0
    assert ".visible .entry scale(" in Path("k.ptx").read_text()


@pytest.mark.parametrize(
    ("said", "message"),
    [
        (("compile", "-o", "k.ptx", "--to", "cubin"), "k.ptx ends in a suffix for ptx, but you asked for cubin"),
        (("compile", "-o", "k.cubin", "-a", "compute_90"), "k.cubin ends in a suffix for cubin, but you asked for ptx"),
        (("compile", "--to", "ptx", "-a", "lto_90"), "lto_90 implies ltoir, but --to is ptx"),
        (
            ("compile", "-o", "k.fatbin"),
            "this command writes ptx or cubin or ltoir or optixir or tileir; cujit build and",
        ),
        (("build", "-o", "k.ptx"), "this command writes fatbin; cujit compile and cujit link make PTX"),
        (("build", "-o", "k.cubin", "-t", "sm_90"), "cujit compile and cujit link make cubins"),
        (("bundle", "-o", "k.ltoir"), "cujit compile and cujit link make LTO-IR"),
        (("link", "-o", "k.ptx", "--to", "cubin"), "k.ptx ends in a suffix for ptx, but you asked for cubin"),
        (("link", "-o", "k.FATBIN"), "this command writes cubin or ptx"),
        (("retarget", "-o", "k.cubin", "--ptx-version", "8.0"), "this command writes ptx"),
    ],
)
def test_conflicting_extension_is_a_usage_error(cujit: Cujit, scale: str, said: tuple[str, ...], message: str) -> None:
    done = cujit(said[0], scale, *said[1:])
    assert (done.exit_code, message in done.stderr) == (2, True), done.stderr
    assert sorted(path.name for path in Path().iterdir()) == [scale]


def test_fatbin_is_bundled_of_images_and_grows(cujit: Cujit, scale: str) -> None:
    for arch in ("sm_80", "sm_90"):
        assert cujit("compile", scale, "-D", "FACTOR=3", "-a", arch, "-o", f"{arch}.cubin").exit_code == 0
    assert cujit("bundle", "sm_80.cubin", "-o", "one.fatbin", "--compress", "none").exit_code == 0
    done = cujit("bundle", "one.fatbin", "sm_90.cubin", "-o", "two.fatbin", "--json")
    assert [image["arch"] for image in json.loads(done.stdout)["images"]] == ["sm_80", "sm_90"]
    assert [str(e) for e in read_fatbin(Path("two.fatbin").read_bytes())] == ["cubin sm_80", "cubin sm_90"]


def test_source_in_a_bundle_is_refused(cujit: Cujit, scale: str) -> None:
    assert cujit("bundle", scale, "-o", "k.fatbin").exit_code == 1


def test_ptx_can_get_another_version_and_target(cujit: Cujit, tmp_path: Path) -> None:
    compile("__global__ void k(int* x) { *x = 1; }", arch="compute_90").save(tmp_path / "k.ptx")
    done = cujit("retarget", "k.ptx", "-o", "old.ptx", "--ptx-version", "7.0", "--arch", "compute_80")
    assert done.stdout.startswith("old.ptx: ptx, "), done.stderr
    text = Path("old.ptx").read_text()
    assert (".version 7.0" in text, ".target sm_80" in text) == (True, True)


def test_too_new_ptx_keeps_its_version_and_explains_why(cujit: Cujit, tmp_path: Path) -> None:
    text = '__global__ void k(int* x) { asm volatile("griddepcontrol.wait;"); *x = 1; }'
    compile(text, arch="compute_90").save(tmp_path / "k.ptx")
    done = cujit("retarget", "k.ptx", "-o", "old.ptx", "--ptx-version", "7.0", "--arch", "sm_80")
    assert (done.exit_code, "griddepcontrol.wait" in done.stderr) == (1, True)
    assert not Path("old.ptx").exists()
    assert "specify --ptx-version, --arch, or both" in cujit("retarget", "k.ptx", "-o", "old.ptx").stderr


LAUNCH = ["--grid", "1", "--block", "1", "--arg", "ones:f32:1", "--print", "1", "--device", "cpu"]
# The module of one file: a kernel k(float* p) with *p = sin(*p), by a function of libdevice.
SINE = kernel_that_calls("__nv_sinf")


def test_llvm_ir_is_linked_with_libdevice_on_request(cujit: Cujit, tmp_path: Path) -> None:
    (tmp_path / "sine.ll").write_text(SINE)
    refused = cujit("compile", "sine.ll", "--arch", "sm_90")
    assert refused.exit_code == 1
    assert "hint: add --libdevice, or -O rdc" in refused.stderr
    assert cujit("compile", "sine.ll", "--arch", "sm_90", "--libdevice", "-o", "sine.ptx").exit_code == 0
    assert cujit("build", "sine.ll", "--target", "sm_90", "--libdevice").exit_code == 0
    assert cujit("link", "sine.ll", "--libdevice", "-o", "sine.cubin", "--arch", "sm_90").exit_code == 0
    for file in ("sine.ll", "sine.ptx"):
        options = ["--libdevice"] if file == "sine.ll" else []
        done = cujit("run", file, *LAUNCH, *options)
        assert done.exit_code == 0, done.output
        assert re.search(r"^\[0\.84147", done.stdout, re.MULTILINE), done.output


def test_libdevice_is_refused_for_other_inputs(cujit: Cujit, scale: str) -> None:
    for verb in (["compile"], ["run", "--over", "1"], ["link", "-o", "x.cubin"], ["cache", "why", "--file"]):
        done = cujit(*verb, scale, "--libdevice")
        assert done.exit_code == 2
        assert "--libdevice requires LLVM IR" in done.stderr
