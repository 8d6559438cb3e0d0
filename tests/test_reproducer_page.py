"""Every snippet of docs/reproducer.md runs, and the shell lines say what the page says."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from cujit.cli.app import main
from pages import Page

PAGE = Page("reproducer.md")


def test_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    PAGE.run("\n".join(code for _, code in PAGE.snippets()))


def test_every_section_has_a_snippet() -> None:
    assert PAGE.has_code_in_every_section()


def test_shell_lines_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    PAGE.run("")
    ((_, lines),) = PAGE.snippets("console")
    results = [
        CliRunner().invoke(main, line.removeprefix("$ cujit ").split(), catch_exceptions=False)
        for line in lines.splitlines()
    ]
    shown, checked, traced, profiled = results
    assert [result.exit_code for result in results] == [0, 1, 0, 0]
    assert shown.stdout.endswith(" 1994. 1996. 1998.]\n")
    assert "argument 2 (const float*)" in checked.stderr
    assert "axpy.cu:4: y[i] += a * x[i];" in traced.stdout
    assert "axpy.cu:4   y[i] += a * x[i];" in profiled.stdout
