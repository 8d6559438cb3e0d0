"""Every snippet of docs/explore.md runs, and its shell line is one that the verb takes."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner

from cujit.cli.app import main
from pages import Page

PAGE = Page("explore.md")


def test_python_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("uvicorn", reason="needs a server: pip install 'cujit[explore]'")
    monkeypatch.chdir(tmp_path)
    PAGE.run("\n".join(code for _, code in PAGE.snippets()))


def test_shell_command_of_the_page_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    PAGE.run("")
    (line,) = [line for line in PAGE.text.splitlines() if line.startswith("$ cujit explore")]
    arguments = [word for word in shlex.split(line.removeprefix("$ cujit ")) if word != "--open"]
    result = CliRunner().invoke(main, [*arguments, "--json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert '"is_counted": true' in result.stdout
