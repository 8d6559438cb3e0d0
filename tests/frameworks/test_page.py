"""Every snippet of docs/frameworks.md runs, and so do the examples, where torch and JAX are installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from pages import Page

PAGE = Page("frameworks.md")


@pytest.mark.usefixtures("torch")
@pytest.mark.filterwarnings("default")  # of torch's compiler
@pytest.mark.parametrize("code", PAGE.each())
def test_snippet_runs(code: str) -> None:
    if "import jax" in code:
        pytest.importorskip("jax")
    PAGE.run(code)


def test_every_section_shows_code() -> None:
    assert PAGE.has_code_in_every_section()


@pytest.mark.parametrize("framework", ["jax", "torch"])
def test_example_runs(framework: str) -> None:
    pytest.importorskip(framework)
    example = Path(__file__).parents[2] / "examples" / f"{framework}_operator.py"
    done = subprocess.run([sys.executable, example], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "the largest difference" in done.stdout
