"""Every snippet of docs/scale.md runs, in Python and in the shell."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

import cujit
from cujit.cli.app import main
from pages import Page

PAGE = Page("scale.md")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the snippets name, as the working directory, and a cache of their own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    with cujit.record("recordings"):
        cujit.compile("__global__ void k() {}", arch="sm_90")
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("code", PAGE.each())
def test_the_python_runs(code: str) -> None:
    PAGE.run(code)


def test_the_shell_runs(folder: Path) -> None:
    for _, code in PAGE.snippets("shell"):
        for line in code.splitlines():
            words = shlex.split(line)
            assert words[0] == "cujit"
            result = CliRunner().invoke(main, words[1:], catch_exceptions=False)
            assert result.exit_code == 0, (line, result.output)
            assert "1 image: 1 made, 0 found; 0 failed" in result.output
    assert (folder / "kernels.pack").exists()
