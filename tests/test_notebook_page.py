"""The cells of docs/notebook.md run, the error that it shows comes, and its tables have what there is."""

from __future__ import annotations

import importlib
import re

import pytest

import cujit
from cells import Cells
from cujit.notebook.displays import SAID
from cujit.notebook.magic import _command
from pages import Page

PAGE = Page("notebook.md")
CELLS = re.findall(r"```(?:python|cuda)\n(.*?)```", PAGE.text, re.DOTALL)


def test_the_cells_run_and_the_error_comes_that_it_shows() -> None:
    pytest.importorskip("IPython")
    cells = Cells()
    *good, broken = (cell.rstrip("\n") for cell in CELLS)
    try:
        values = [cells.run(cell) for cell in good]
        assert "<table" in cells.shown(values[-1])["text/html"]
        assert isinstance(cells.failure(broken), cujit.errors.CompileError)
        (display,) = cells.displayed()
    finally:
        cells.close()
    (shown,) = re.findall(r"```text\n(.*?)```", PAGE.text, re.DOTALL)
    said = re.sub(r"<[^>]+>", "\n", display["text/html"]).replace("&gt;", ">").replace("&quot;", '"')
    assert re.sub(r"\n+", "\n", said).strip() == shown.strip()


def test_the_table_of_options_has_each() -> None:
    shown = set(re.findall(r"`(--?[a-zA-Z]+)", PAGE.sections["Options"].partition("IPython puts")[0]))
    options = [{*option.opts} for option in _command.params]
    assert all(option & shown for option in options)
    assert shown <= set().union(*options)


def test_the_table_of_values_has_each_type_that_is_shown() -> None:
    text = PAGE.sections["Results as tables"]
    assert len(SAID) == 11
    for module, name in SAID:
        assert hasattr(importlib.import_module(module), name)
    for word in (
        "Profile",
        "bounds",
        "compare",
        "Artifact",
        "inspect",
        "occupancy",
        "budget",
        "BudgetError",
        "CompileError",
    ):
        assert word in text
