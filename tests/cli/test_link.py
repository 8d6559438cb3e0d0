"""``cujit link``: files of every kind to one cubin or PTX."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from cujit.artifact import Artifact, ImageKind
from cujit.program import compile

Cujit = Callable[..., Result]
CALLER = 'extern "C" __device__ int twice(int); extern "C" __global__ void k(int *p) { *p = twice(*p); }'
CALLEE = 'extern "C" __device__ int twice(int x) { return 2 * x; }'


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    compile(CALLEE, arch="compute_80", rdc=True).save(tmp_path / "callee.ptx")
    (tmp_path / "caller.cu").write_text(CALLER)
    compile(CALLER, arch="compute_80", rdc=True).save(tmp_path / "caller.ptx")
    return ["caller.ptx", "callee.ptx"]


def test_link_kind_follows_the_extension_or_to(cujit: Cujit, files: list[str], tmp_path: Path) -> None:
    done = cujit("link", *files, "-o", "out.ptx")
    assert (done.exit_code, "out.ptx: ptx for compute_80" in done.output) == (0, True)
    assert Artifact.open(tmp_path / "out.ptx").kind is ImageKind.PTX
    assert done.stderr == ""
    done = cujit("link", *files, "-o", "out.cubin", "--arch", "sm_90", "--json")
    assert json.loads(done.stdout)["arch"] == "sm_90"
    assert cujit("link", *files, "-o", "out", "--to", "ptx").exit_code == 0
    assert Artifact.open(tmp_path / "out").kind is ImageKind.PTX


def test_source_is_compiled_first(cujit: Cujit, files: list[str], tmp_path: Path) -> None:
    assert cujit("link", "caller.cu", files[1], "-o", "out.ptx").exit_code == 0
    assert ".visible .entry k(" in (tmp_path / "out.ptx").read_text()


def test_link_failure_is_status_1_with_every_reason(cujit: Cujit, files: list[str]) -> None:
    done = cujit("link", files[0], files[0], "-o", "out.ptx")
    assert done.exit_code == 1
    assert "twice is used, and no input defines it" in done.output
    assert "k is defined again; first in 1:caller.ptx" in done.output
