"""Every snippet of docs/checks.md runs."""

from __future__ import annotations

import re

import pytest

from pages import Page

PAGE = Page("checks.md")


@pytest.mark.parametrize("code", PAGE.each())
def test_snippet_runs_and_the_check_finds_its_bug(code: str) -> None:
    # What a snippet expects to fail has to fail.
    code = re.sub(
        r"^except cujit", "    raise AssertionError('the check is silent')\nexcept cujit", code, flags=re.MULTILINE
    )
    PAGE.run(code)


def test_every_section_has_a_snippet() -> None:
    assert PAGE.has_code_in_every_section()
