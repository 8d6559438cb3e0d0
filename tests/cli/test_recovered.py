"""Verbs given a cubin with line information: they take the PTX in it, and say so."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from click.testing import CliRunner, Result

import cujit
from cujit.cli.app import main
from cujit.formats.ptx.parser import parse

Run: TypeAlias = Callable[..., Result]
LINED = Path(__file__).parents[1] / "goldens" / "lined"
CODE = 'extern "C" __global__ void k(int* p) { p[threadIdx.x] = threadIdx.x; }'


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    monkeypatch.chdir(tmp_path)

    def call(*arguments: object) -> Result:
        return CliRunner().invoke(main, [*map(str, arguments)], catch_exceptions=False)

    return call


@pytest.fixture
def lined(tmp_path: Path) -> Path:
    return cujit.compile(CODE, to="cubin", arch="sm_75", lineinfo=True).save(tmp_path / "k.cubin")


@pytest.fixture
def other(lined: Path) -> Path:
    """A cubin whose PTX is not that of its code."""
    path = lined.with_name("other.cubin")
    path.write_bytes(lined.read_bytes().replace(b".target sm_75", b".target sm_90"))
    return path


def test_inspect_reports_recoverable_ptx(run: Run, lined: Path) -> None:
    assert "carries its PTX" in run("inspect", lined).stdout
    (image,) = json.loads(run("inspect", lined, "--json").stdout)["files"][0]["images"]
    assert image["carries_ptx"] is True
    plain = cujit.compile(CODE, to="cubin", arch="sm_75").save("plain.cubin")
    assert "carries" not in run("inspect", plain).stdout


def test_extract_writes_recovered_ptx_next_to_the_cubin(run: Run, lined: Path, other: Path) -> None:
    written = run("inspect", lined, "--extract", "out").stdout.split()
    assert written == ["out/k.0.sm_75.cubin", "out/k.0.sm_75.recovered.ptx"]
    text = Path(written[1]).read_text()
    assert text.startswith("// recovered by cujit from the line information of a cubin for sm_75\n")
    assert [entry.name for entry in parse(text).entries] == ["k"]
    refused = run("inspect", other, "--extract", "out")
    assert refused.stdout.split() == ["out/other.0.sm_75.cubin"]
    assert "its PTX is for sm_90, but its machine code is for sm_75" in refused.stderr


def test_ptx_and_needs_use_the_recovered_text(run: Run, lined: Path, other: Path) -> None:
    assert ".visible .entry k(" in run("inspect", lined, "--ptx").stdout
    assert "k.cubin, recovered from the cubin: PTX" in run("inspect", lined, "--needs").stdout
    (image,) = json.loads(run("inspect", lined, "--needs", "--json").stdout)["files"][0]["images"]
    assert image["runs_on_cpu"]
    for option in ("--ptx", "--needs"):
        done = run("inspect", other, option)
        assert done.exit_code == 1
        assert "its PTX is for sm_90" in done.stdout + done.stderr


def test_ptx_file_next_to_a_cubin_takes_precedence(run: Run) -> None:
    cujit.build(CODE, ["sm_80", "compute_75"], options={"lineinfo": True}).save("k.fatbin")
    printed = run("inspect", "k.fatbin", "--ptx").stdout
    assert printed.count(".entry k(") == 1
    assert "recovered" not in printed
    cujit.build(CODE, ["sm_80", "sm_90"], options={"lineinfo": True}).save("two.fatbin")
    assert run("inspect", "two.fatbin", "--ptx").stdout.count("// recovered") == 2


def test_report_shows_recovered_ptx_next_to_sass(run: Run, lined: Path, other: Path) -> None:
    assert run("inspect", lined, "--html", "k.html").exit_code == 0
    assert "recovered by cujit" in Path("k.html").read_text()
    assert run("inspect", other, "--html", "other.html").exit_code == 0
    assert "can't recover PTX" in Path("other.html").read_text()


def test_retarget_writes_ptx(run: Run, lined: Path) -> None:
    assert run("retarget", lined, "--ptx-version", "7.0", "-o", "old.ptx").exit_code == 0
    assert ".version 7.0" in Path("old.ptx").read_text()


def test_compat_names_images_that_would_load(run: Run, lined: Path) -> None:
    done = run("compat", lined, "--arch", "sm_90")
    assert done.exit_code == 1
    assert "or load the PTX that it carries: cujit inspect FILE --extract DIR" in done.stdout
    special = LINED / "cute-added-sm_90a.cubin"
    assert "carries" not in run("compat", special, "--arch", "sm_100").stdout


def test_run_and_profile_accept_a_triton_cubin(run: Run) -> None:
    x = np.linspace(-3, 3, 400, dtype=np.float32).reshape(4, 100)
    np.save("x.npy", x)
    launch = ["--kernel", "softmax", "--grid", 4, "--block", 128, "--shared-bytes", 16, "--arg", "zeros:f32:4x100"]
    launch += ["--arg", "x.npy", "--arg", 100, "--arg", 100, "--arg", "null", "--arg", "null"]
    done = run(
        "run", LINED / "triton-softmax-sm_90.cubin", *launch, "--device", "cpu", "--check", "all", "--out", "1=y.npy"
    )
    assert done.exit_code == 0, done.stderr
    assert "PTX recovered from the cubin" in done.stderr
    e = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(np.load("y.npy"), e / e.sum(axis=1, keepdims=True), rtol=1e-5)
    profiled = run("profile", LINED / "triton-softmax-sm_90.cubin", *launch)
    assert profiled.exit_code == 0, profiled.stderr
    assert "global memory:" in profiled.stdout
