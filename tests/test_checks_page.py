"""Every snippet of docs/checks.md runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[1] / "docs" / "checks.md").read_text()
SETUP = PAGE.partition("```python\n")[2].partition("```")[0]
SNIPPETS = [
    (title, code)
    for title, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
]


@pytest.mark.parametrize("code", [code for _, code in SNIPPETS], ids=[f"{i} {s[0]}" for i, s in enumerate(SNIPPETS)])
def test_the_snippet_runs_and_the_check_finds_its_bug(code: str) -> None:
    # What a snippet expects to fail has to fail.
    code = re.sub(
        r"^except cujit", "    raise AssertionError('the check is silent')\nexcept cujit", code, flags=re.MULTILINE
    )
    space: dict[str, object] = {"__name__": "snippet"}
    for part in (SETUP, code):
        exec(compile(part, "docs/checks.md", "exec"), space)


def test_every_part_of_the_page_has_a_snippet() -> None:
    assert {title for title, _ in SNIPPETS} == set(re.findall(r"^## (.+)$", PAGE, re.MULTILINE))
