"""Examples run as they are, on every device that is there, and the page of examples has each of them."""

from __future__ import annotations

import ast
import json
import re
import runpy
from pathlib import Path

import pytest

import cujit
from cujit.devices.device import Device
from cujit.toolchain.libraries import find_program
from notebooks import NOTEBOOKS, executed, steady, written
from pages import Page
from releases import links_to_ltoir

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples"
NUMBERED = sorted(FOLDER.glob("[0-9][0-9]_*.py"))
PAGE = Page("examples.md")
EXTRAS = {"18_explore": "uvicorn"}
"""What an example imports of an extra, which a machine with a GPU may lack."""


def named(path: Path) -> str:
    return path.stem


@pytest.fixture
def default(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """What examples take for the device that is there."""
    monkeypatch.setattr(cujit, "default_device", lambda: device)


@pytest.mark.usefixtures("default")
@pytest.mark.parametrize("path", NUMBERED, ids=named)
def test_example_checks_its_results_and_prints(
    path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", [str(path)])
    if path.stem in EXTRAS:
        pytest.importorskip(EXTRAS[path.stem])
    if path.stem == "22_tile" and find_program("tileiras", ()) is None:
        pytest.skip("tileiras is not installed")
    if path.stem == "21_fragments" and not links_to_ltoir():
        pytest.skip("this nvJitLink does not link to LTO-IR")
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


@pytest.mark.parametrize("path", sorted(NOTEBOOKS.glob("*.ipynb")), ids=named)
def test_notebook_shows_its_stored_output(path: Path, device: Device) -> None:
    pytest.importorskip("nbclient")
    text = path.read_text()
    now = written(executed(json.loads(text), {} if device.is_gpu else {"CUDA_VISIBLE_DEVICES": ""}))
    assert steady(now) == steady(text), "python tools/notebooks.py stores what comes now"


def test_they_are_numbered_small_and_each_asserts() -> None:
    assert [path.name[:2] for path in NUMBERED] == [f"{k + 1:02}" for k in range(len(NUMBERED))]
    for path in NUMBERED:
        text = path.read_text()
        assert 20 <= len(text.splitlines()) <= 60, path.name
        assert any(isinstance(node, ast.Assert) for node in ast.walk(ast.parse(text))), path.name


def test_page_has_every_example_with_its_summary() -> None:
    said = dict(re.findall(r"^\| \[[^\]]+\]\(\.\./examples/([^)]+)\) \| (.+) \|$", PAGE.text, re.MULTILINE))
    notebooks = {f"notebooks/{path.name}" for path in NOTEBOOKS.glob("*")}
    there = {path.name for path in FOLDER.iterdir() if path.name not in ("__pycache__", "notebooks", "triton-cache")}
    assert {name if name in notebooks else name.split("/")[0] for name in said} == there | notebooks
    assert all((FOLDER / name).exists() for name in said)
    for path in FOLDER.glob("*.py"):
        first, *_ = (ast.get_docstring(ast.parse(path.read_text())) or "").split("\n\n")
        assert first.split(": ``python")[0].rstrip(".") == said[path.name].rstrip("."), path.name


def test_snippets_of_the_page_run() -> None:
    for _, code in PAGE.snippets():
        PAGE.run(code)
