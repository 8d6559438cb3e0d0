"""Every snippet of docs/worklists.md runs, in Python and in the shell."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import cujit
import cujit.worklist
from cujit.cli.app import main
from pages import Page

PAGE = Page("worklists.md")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the snippets name, as the working directory, and a cache of their own."""
    (tmp_path / "scale.h").write_text("#define SCALE 2\n")
    (tmp_path / "scale.cu").write_text(
        '#include "scale.h"\nextern "C" __global__ void scale(float *x) { x[threadIdx.x] *= SCALE; }\n'
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    for _ in range(2):
        with cujit.record_worklist("recordings"):
            cujit.compile(Path("scale.cu"), arch="sm_90")
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("code", PAGE.each())
def test_python_runs(code: str) -> None:
    PAGE.run(code)


@pytest.mark.usefixtures("folder")
def test_shell_runs() -> None:
    (recipe,) = cujit.worklist.read("recordings").recipes
    for _, code in PAGE.snippets("shell"):
        for line in code.splitlines():
            words = shlex.split(line.replace("RECIPE", recipe[:12]))
            assert words[0] == "cujit"
            result = CliRunner().invoke(main, words[1:], catch_exceptions=False)
            assert result.exit_code == 0, (line, result.output)
