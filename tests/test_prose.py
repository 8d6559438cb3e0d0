"""The check of prose finds mistakes in pages and leaves code and tables alone."""

from __future__ import annotations

import pytest

pytest.importorskip("harper", reason="harper-py checks the grammar")

from prose import findings, made, pages, texts


@pytest.mark.parametrize(
    ("sentence", "text"),
    [
        ("A launch takes some 40 microseconds.", "some 40"),
        ("It writes the the image.", "the the"),
        ("This is a error of the driver.", "a"),
        ("You should of closed the module.", "should of"),
        (f"A launch {'is fast and ' * 20}ends.", "A launch"),
    ],
)
def test_mistake_is_found_with_its_line(sentence: str, text: str) -> None:
    ((line, found, message),) = findings(f"# Page\n\nA page.\n\n{sentence}\n", made())
    assert line == 5
    assert text in found
    assert message


def test_code_and_tables_are_not_prose() -> None:
    page = "Text.\n\n```python\nthe the\n```\n\n| the the | a error |\n|---|---|\n\n    a error\n\nMore.\n"
    assert texts(page).count("\n") == page.count("\n")
    assert list(findings(page, made())) == []


def test_every_page_that_somebody_writes_is_checked() -> None:
    names = {page.name for page in pages()}
    assert {"README.md", "index.md", "cache.md", "cli.md", "errors.md"} <= names
    assert "api.md" not in names
