"""Every snippet of docs/report.md runs, and the shell lines write pages."""

from __future__ import annotations

from pathlib import Path

import pytest

from pages import Page, shell

PAGE = Page("report.md")


def test_python_runs_and_the_shell_lines_write_pages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    PAGE.run("\n".join(code for _, code in PAGE.snippets()))
    for line in PAGE.text.split("```console\n")[1].partition("```")[0].splitlines():
        shell(line.removeprefix("$ "))
    for name in ("report.html", "image.html"):
        assert "</html>" in Path(name).read_text()
