"""``cujit farm build``: a list by named executors, what came of it as text and as JSON, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import cujit
from cujit.cli.app import main


def test_worklist_is_built_and_failures_end_with_status_1(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    code = '#if __CUDA_ARCH__ == 800\n#error not here\n#endif\nextern "C" __global__ void k() {}'
    with cujit.record_worklist(tmp_path / "rec"):
        cujit.compile(cujit.Source.cuda(code, name="k\x1b[2J.cu"), arch="sm_90")
    words = ["farm", "build", str(tmp_path / "rec"), "--executor", "processes:1", "--root", str(tmp_path / "root")]
    built = CliRunner().invoke(main, [*words, "-o", str(tmp_path / "k.pack"), "--deadline", "60", "--memory", "9999"])
    assert built.exit_code == 0, built.output
    assert "1 image: 1 made, 0 found; 0 failed, 0 quarantined" in built.output
    assert (tmp_path / "k.pack").exists()
    said = CliRunner().invoke(main, [*words, "--arch", "sm_80", "--arch", "sm_90", "--json"])
    told = json.loads(said.stdout)
    assert (said.exit_code, told["made"], told["hit"], len(told["keys"])) == (1, 0, 1, 1)
    (failure,) = told["failed"]
    assert (failure["arch"], failure["reason"].endswith("error: #error directive: not here")) == ("sm_80", True)
    refused = CliRunner().invoke(main, [*words, "--executor", "threads"])
    assert (refused.exit_code, "unknown executor 'threads'" in refused.output) == (1, True)


def test_architectures_share_common_work(tmp_path: Path) -> None:
    for name, body in (("plain", "*x = 3;"), ("asks", "*x = __CUDA_ARCH__;")):
        with cujit.record_worklist(tmp_path / "rec"):
            cujit.compile(cujit.Source.cuda(f"__global__ void k(int *x) {{ {body} }}", name=f"{name}.cu"), arch="sm_90")
    words = ["farm", "build", str(tmp_path / "rec"), "--executor", "processes:1", "--root", str(tmp_path / "root")]
    built = CliRunner().invoke(main, [*words, "--arch", "sm_80", "--arch", "sm_90", "--share", "ltoir"])
    assert built.exit_code == 0, built.output
    assert (
        "  2 made of what architectures share\n  2 made alone: it may ask for the architecture: __CUDA_ARCH__"
        in built.output
    )
    shown = CliRunner().invoke(main, ["cache", "ls", "--dir", str(tmp_path / "root"), "--json"])
    assert "(of ltoir for lto_80)" in shown.output, shown.output
