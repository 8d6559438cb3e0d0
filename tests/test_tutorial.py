"""The tutorial, from an empty directory to the list of kernels that its wheel brings, by copy and paste.

What is left of the last step, the wheel, is in ``test_wheels.py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pages import Page
from steps import blocks, is_shown, steps, typed

ROOT = Path(__file__).parents[1]
PAGES = [Page(f"tutorial/{path.name}") for path in sorted((ROOT / "docs/tutorial").glob("*.md"))]


def test_tutorial_has_eight_linked_steps() -> None:
    names = [Path(page.name).name for page in PAGES]
    assert [name[0] for name in names] == [*"12345678"]
    for page, after in zip(PAGES, names[1:], strict=False):
        assert f"]({after})" in page.text


def test_examples_are_the_files_that_the_tutorial_shows() -> None:
    shown = {path: text for page in PAGES for path, text in blocks(page).items()}
    folder = ROOT / "examples/tutorial"
    files = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.*") if path.suffix != ".pyc"}
    assert {name: path.read_text() for name, path in files.items()} == shown


def test_every_step_prints_what_it_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    status = 0
    for page in PAGES:
        for what, name, text in steps(page):
            if what == "write":
                Path(name).parent.mkdir(exist_ok=True)
                Path(name).write_text(text)
            elif name.startswith("pip "):
                if name.startswith("pip wheel"):
                    return
            else:
                status, printed = typed(name, status)
                assert is_shown(printed, text), f"{page.name}: {name}\n{printed}"
                assert not status or "failed" in text, f"{page.name}: {name}\n{printed}"
    raise AssertionError("no wheel is built")
