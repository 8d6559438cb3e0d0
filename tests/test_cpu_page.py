"""Every snippet of docs/cpu.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "cpu.md").read_text()
SETUP = PAGE.partition("```python\n")[2].partition("```")[0]
SNIPPETS = [
    (title, code)
    for title, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
]


@pytest.mark.parametrize("code", [code for _, code in SNIPPETS], ids=[f"{i} {s[0]}" for i, s in enumerate(SNIPPETS)])
def test_the_snippet_runs(code: str) -> None:
    space: dict[str, object] = {"__name__": "snippet"}
    for part in (SETUP, code):
        exec(compile(part, "docs/cpu.md", "exec"), space)


def test_the_page_has_snippets() -> None:
    assert len(SNIPPETS) >= 4
