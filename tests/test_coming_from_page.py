"""What is written for cujit on the page for those who come from other tools runs."""

from __future__ import annotations

import pytest

from pages import Page

PAGE = Page("coming-from.md")


@pytest.mark.parametrize("code", PAGE.each())
def test_it_runs(code: str) -> None:
    PAGE.run(code)


def test_every_tool_is_shown_beside_cujit() -> None:
    assert PAGE.has_code_in_every_section()
    for title, text in PAGE.sections.items():
        assert "```py\n" in text or "```cpp\n" in text, title
        assert "\n* " in text, title
