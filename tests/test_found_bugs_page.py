"""Every snippet of docs/found-bugs.md runs, and finds its bug."""

from __future__ import annotations

import pytest

from pages import Page

PAGE = Page("found-bugs.md")


@pytest.mark.parametrize("code", PAGE.each())
def test_snippet_finds_its_bug_and_is_silent_without_it(code: str) -> None:
    PAGE.run(code)


def test_every_section_has_a_snippet() -> None:
    assert PAGE.has_code_in_every_section()
