"""Every snippet of docs/launch.md runs, on every device that it can run on."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import cujit
from cujit.devices.device import Device

PAGE = (Path(__file__).parents[1] / "docs" / "launch.md").read_text()
SETUP = PAGE.partition("```python\n")[2].partition("```")[0]
SNIPPETS = {
    title: code
    for title, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
}


@pytest.mark.parametrize("title", list(SNIPPETS))
def test_the_snippet_runs(title: str, device: Device) -> None:
    space: dict[str, object] = {"device": device, "__name__": "snippet"}
    for part in (SETUP, SNIPPETS[title]):
        exec(compile(part, "docs/launch.md", "exec"), space)


def test_every_part_of_the_page_has_a_snippet() -> None:
    assert list(SNIPPETS) == re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert len(SNIPPETS) >= 8


def test_the_page_tells_every_keyword_of_prepare() -> None:
    table = PAGE.partition("## What `prepare` takes")[2].partition("```")[0]
    told = [name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert told == list(inspect.signature(cujit.Kernel.prepare).parameters)[1:]
