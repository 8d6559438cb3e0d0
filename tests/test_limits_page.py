"""Every snippet of docs/limits.md runs, and says what the page says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "limits.md").read_text()
SNIPPETS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


@pytest.mark.parametrize("code", SNIPPETS, ids=[str(k) for k in range(len(SNIPPETS))])
def test_the_snippet_runs(code: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(code, "docs/limits.md", "exec"), {"__name__": "snippet"})
    printed = capsys.readouterr().out
    for said in re.findall(r"print\(.*\)\s+# (.*?) ?…?$", code, re.MULTILINE):
        assert said in printed
