"""The cells of docs/notebook.md run, the errors that it shows come, and its tables have what there is."""

from __future__ import annotations

import html
import importlib
import re

import pytest

import cujit
from cells import Cells
from cujit.notebook.displays import RENDERERS
from cujit.notebook.magic import _command
from pages import Page

PAGE = Page("notebook.md")
CELLS = re.findall(r"```(?:python|cuda)\n(.*?)```", PAGE.text, re.DOTALL)


def test_cells_run_and_errors_match_the_page() -> None:
    pytest.importorskip("IPython")
    cells, shown = Cells(), iter(re.findall(r"```text\n(.*?)```", PAGE.text, re.DOTALL))
    try:
        for cell in CELLS:
            done = cells.shell.run_cell(cell.rstrip("\n"), store_history=True)
            if cell.startswith("cubin"):
                assert "<table" in cells.shown(done.result)["text/html"]
            if not done.success:
                assert isinstance(done.error_in_exec, cujit.errors.CujitError), done.error_in_exec
                (display,) = cells.displayed()
                said = html.unescape(re.sub(r"(?:<[^>]+>)+", "\n", display["text/html"]))
                assert _steady(said) == _steady(next(shown))
    finally:
        cells.close()
    assert next(shown, None) is None


def _steady(said: str) -> str:
    """Leave out what another run, or another NVRTC, makes otherwise."""
    return re.sub(r"PTX line .*", "PTX", re.sub(r"0x[0-9a-f]+", "0x…", said)).strip()


def test_table_lists_each_option() -> None:
    shown = set(re.findall(r"`(--?[a-zA-Z]+)", PAGE.sections["Options of a cell"].partition("IPython replaces")[0]))
    options = [{*option.opts} for option in _command.params]
    assert all(option & shown for option in options)
    assert shown <= set().union(*options)


def test_table_lists_each_displayed_type() -> None:
    text = PAGE.sections["Show results as tables"]
    assert len(RENDERERS) == 13
    for module, name in RENDERERS:
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
