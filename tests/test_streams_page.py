"""Every snippet of docs/streams.md runs, on every device that it can run on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cujit.devices.device import Device

PAGE = (Path(__file__).parents[1] / "docs" / "streams.md").read_text()
SETUP = PAGE.partition("```python\n")[2].partition("```")[0]
SNIPPETS = [
    (title, code)
    for title, text in re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", PAGE, re.DOTALL | re.MULTILINE)
    for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL)
]


@pytest.mark.parametrize("code", [code for _, code in SNIPPETS], ids=[f"{i} {s[0]}" for i, s in enumerate(SNIPPETS)])
def test_the_snippet_runs(code: str, device: Device) -> None:
    if "# needs a GPU" in code:
        if not device.is_gpu:
            pytest.skip("this snippet needs a GPU")
        pytest.importorskip("torch")
    space: dict[str, object] = {"device": device, "__name__": "snippet"}
    for part in (SETUP, code):
        exec(compile(part, "docs/streams.md", "exec"), space)


def test_every_part_of_the_page_has_a_snippet() -> None:
    assert {title for title, _ in SNIPPETS} == set(re.findall(r"^## (.+)$", PAGE, re.MULTILINE))
    assert len(SNIPPETS) >= 8
