"""Every snippet of docs/limits.md runs, and says what the page says."""

from __future__ import annotations

import re

import pytest

from pages import Page

PAGE = Page("limits.md")


@pytest.mark.parametrize("code", PAGE.each())
def test_snippet_runs(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    PAGE.run(code)
    printed = capsys.readouterr().out
    for said in re.findall(r"print\(.*\)\s+# (.*?) ?…?$", code, re.MULTILINE):
        assert said in printed
