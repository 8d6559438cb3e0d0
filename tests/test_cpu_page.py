"""Every snippet of docs/cpu.md runs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from pages import Page

PAGE = Page("cpu.md")


@pytest.mark.parametrize("code", PAGE.each())
def test_snippet_runs(code: str) -> None:
    PAGE.run(code)


def test_page_contains_its_snippets() -> None:
    assert len(PAGE.snippets()) >= 4


def test_page_states_the_number_of_gpu_recordings() -> None:
    goldens = Path(__file__).parent / "goldens"
    counts = []
    for name in ("instructions", "scenes", "tensor", "textures"):
        with np.load(goldens / f"{name}.npz") as file:
            counts.append(len({array.rpartition(":")[0] or array for array in file.files} - {"origin"}))
    forms, kernels, copies, lookups = counts
    small = f"{kernels} small kernels, {copies} tensor copies, and {lookups} texture lookups"
    assert f"{forms:,} instruction forms, {small}" in " ".join(PAGE.text.split())
    sums = json.loads((goldens / "sums.json").read_text())["forms"]
    assert f"results for {len(sums)} instruction forms" in " ".join(PAGE.text.split())
