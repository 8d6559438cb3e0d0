"""OptiX IR: LTO-IR with tags of its own, which OptiX alone takes."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

import cujit
from cujit import program
from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.artifact.artifact import kind_of
from cujit.cache.provenance import Provenance
from cujit.cli.compile import command
from cujit.errors import CompileError, FormatError, LinkError, LoadError, OptionError
from cujit.inspection.read import inspect
from cujit.loading import load
from cujit.occupancy.cubins import cubins_for
from cujit.program import Source
from llvm_ir import SCALE
from raising import raises

SOURCE = Source.cuda('extern "C" __global__ void __raygen__k(int* p) { *p = 1; }', name="ray.cu")


@pytest.fixture(scope="module")
def made() -> Artifact:
    return program.compile(SOURCE, to="optixir", arch="compute_90", names="__raygen__k")


def test_optixir_is_compiled_cached_and_recognized(made: Artifact, tmp_path: Path) -> None:
    assert (made.kind, str(made.arch), dict(made.names)) == (
        ImageKind.OPTIXIR,
        "compute_90",
        {"__raygen__k": "__raygen__k"},
    )
    again = program.compile(SOURCE, to="optixir", arch="compute_90", names="__raygen__k")
    assert isinstance(again.provenance, Provenance)
    assert again.provenance.is_hit
    assert Artifact.open(made.save(tmp_path / "ray.optixir")).kind is ImageKind.OPTIXIR
    for options in ({}, {"lineinfo": True}, {"debug": True}, {"rdc": True}):
        for number in (75, 90, 120):
            arch = Arch.parse(f"compute_{number}")
            images = {to: program.compile(SOURCE, to=to, arch=arch, options=options) for to in ("optixir", "ltoir")}
            assert {to: kind_of(image.data).value for to, image in images.items()} == {to: to for to in images}


def test_optixir_is_described_with_its_consumer(made: Artifact) -> None:
    [image] = inspect(made.data)
    assert (image.kind, str(image.arch)) == (ImageKind.OPTIXIR, "compute_90")
    assert "only OptiX" in image.note
    [verdict] = cujit.compat(made, device="sm_90", driver="13.0")
    assert (verdict.loads, verdict.help) == (False, "optixModuleCreate(…)")
    with raises(LoadError, "load", "optixir ray.cu") as refused:
        load(made, "cpu")
    assert "optixModuleCreate" in str(refused.value.help)
    with raises(FormatError, "format", "optixir"):
        cubins_for(made, None)
    with raises(LinkError, "link-input", "OptiX", "IR", "optixModuleCreate"):
        program.link([made], arch="sm_90")


def test_request_that_cannot_give_optixir_is_refused() -> None:
    with raises(OptionError, "option-rejected", "LLVM", "IR"):
        program.compile(Source.nvvm(SCALE), to="optixir")
    with raises(OptionError, "option-conflict", "LTO-IR", "optixir"):
        program.compile(SOURCE, to="optixir", dlto=True)
    with raises(OptionError, "option", "fatbin"):
        program.compile(SOURCE, to="fatbin")
    with pytest.raises(CompileError):
        program.compile("__global__ void k() { error }", to="optixir")


def test_command_writes_optixir_by_the_file_extension(tmp_path: Path) -> None:
    (tmp_path / "ray.cu").write_text(SOURCE.text)
    output = tmp_path / "ray.optixir"
    result = CliRunner().invoke(command, [str(tmp_path / "ray.cu"), "-o", str(output)])
    assert result.exit_code == 0, result.output
    assert kind_of(output.read_bytes()) is ImageKind.OPTIXIR
