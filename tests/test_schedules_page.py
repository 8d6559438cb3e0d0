"""Every snippet of docs/schedules.md runs."""

from __future__ import annotations

import pytest

from pages import Page

PAGE = Page("schedules.md")


@pytest.mark.parametrize("code", PAGE.each())
def test_snippet_runs(code: str) -> None:
    PAGE.run(code)
