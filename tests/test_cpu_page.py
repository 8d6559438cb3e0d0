"""Every snippet of docs/cpu.md runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
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


def test_the_page_tells_how_much_a_gpu_recorded() -> None:
    goldens = Path(__file__).parent / "goldens"
    counts = []
    for name in ("instructions", "scenes", "tensor", "textures"):
        with np.load(goldens / f"{name}.npz") as file:
            counts.append(len({array.rpartition(":")[0] or array for array in file.files} - {"origin"}))
    forms, kernels, copies, lookups = counts
    said = f"{forms:,} instruction forms, {kernels} small kernels, {copies} tensor copies and {lookups} texture lookups"
    assert said in " ".join(PAGE.split())
    assert f"of {len(json.loads((goldens / 'sums.json').read_text())['forms'])} forms is as the CPU device" in PAGE
