"""Every snippet of docs/tuning.md runs, and the example."""

from __future__ import annotations

import os
import runpy
from pathlib import Path

import pytest

from pages import Page

PAGE = Page("tuning.md")


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No answers but the page's own; images may be those of other tests."""
    monkeypatch.setenv("CUJIT_CACHE_ROOTS", os.environ["CUJIT_CACHE_DIR"])
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path))


def test_python_runs() -> None:
    PAGE.run("\n".join(code for _, code in PAGE.snippets()))


def test_each_how_to_section_has_a_snippet() -> None:
    assert {title for title, _ in PAGE.snippets()} == {*PAGE.sections} - {"How the winner is chosen"}


def test_example_measures_once(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(Path(__file__).parents[1] / "examples/tuned_matmul.py"))
    for ending in ("measured now", "known"):
        example["main"](32, 6)
        assert capsys.readouterr().out.strip().endswith(ending)
