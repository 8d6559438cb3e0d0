"""The pages that people see first are in plain English: no private words, short sentences, titles of the subject."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]


def _front() -> dict[str, str]:
    """Return the text of each page, or of the part of it that is seen first."""

    def read(path: str) -> str:
        return (_ROOT / path).read_text()

    whole = [
        "README.md",
        "docs/index.md",
        "docs/installation.md",
        "docs/how-to/index.md",
        "docs/environment.md",
        "docs/cli.md",
        "docs/versions.md",
        "docs/examples.md",
        "docs/how-to/see-source.md",
        "docs/how-to/many-ranks.md",
        "docs/how-to/old-drivers.md",
        "docs/how-to/find-a-race.md",
        "docs/how-to/ci.md",
    ]
    whole += [f"docs/tutorial/{path.name}" for path in sorted((_ROOT / "docs/tutorial").glob("*.md"))]
    templates = [path.relative_to(_ROOT).as_posix() for path in sorted((_ROOT / ".github").glob("*TEMPLATE*/*.yml"))]
    found = {path: read(path) for path in (*whole, *templates, ".github/PULL_REQUEST_TEMPLATE.md")}
    found["CONTRIBUTING.md"] = read("CONTRIBUTING.md").partition("## Rules for a change")[0]
    found["CHANGELOG.md"] = read("CHANGELOG.md").partition("\n## 0.2.0 ")[0]
    for path in ("docs/checks.md", "docs/testing.md"):
        found[path] = read(path).partition("\n```")[0]
    return found


_FRONT = _front()

_PRIVATE = re.compile(
    r"\b(?:houses?|floors?|told|roads?|run by (?:the|our) tests|(?:do not|don't) edit|by hand|verbs?|anew|likewise|"
    r"shall|in vain|whoever|whose else|nobody|somebody|unsaid|if nothing is said|"
    r"(?=\d*[a-f])(?=[a-f]*\d)[0-9a-f]{7,40})\b",
    re.IGNORECASE,
)
"""Words for parts of this project, remarks about how a page is made, names of commits, and archaisms."""


def _prose(text: str) -> str:
    """Return a text without code, pictures and the targets of links."""
    text = re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"<[^>]+>", "", text, flags=re.DOTALL)
    return re.sub(r"\]\([^)]*\)", "]", re.sub(r"`[^`\n]*`", "x", text))


def _sentences(text: str) -> Iterator[str]:
    for block in re.split(r"\n\s*\n|^\s*(?:[*>]|\d+\.)+ |\|", _prose(text), flags=re.MULTILINE):
        yield from re.split(r"(?<=[.!?:])\**\s+", " ".join(block.split()))


@pytest.mark.parametrize("page", _FRONT)
def test_a_page_that_is_seen_first_has_no_private_words(page: str) -> None:
    found = [
        f"{page}: {match[0]!r} in {sentence!r}"
        for sentence in _sentences(_FRONT[page])
        for match in _PRIVATE.finditer(sentence)
    ]
    assert found == []


@pytest.mark.parametrize("page", [page for page in _FRONT if page != "CHANGELOG.md"])
def test_a_sentence_of_such_a_page_has_25_words_at_most(page: str) -> None:
    long = [sentence for sentence in _sentences(_FRONT[page]) if len(sentence.split()) > 25]
    assert long == []


_VAGUE = re.compile(r"# (?:What|Who|Where|Why|How|It|Its|They|This|That|Such|A page|Names$)\b")


def test_the_title_of_each_page_names_its_subject_and_no_two_are_equal() -> None:
    titles = {path: path.read_text().partition("\n")[0] for path in (_ROOT / "docs").rglob("*.md")}
    assert [f"{path}: {title}" for path, title in titles.items() if not re.match("# \\w", title)] == []
    assert [title for title in titles.values() if _VAGUE.match(title) or _PRIVATE.search(title)] == []
    assert len({*titles.values()}) == len(titles)


def test_the_words_are_found_where_they_are() -> None:
    for text in ("the house: a tour", "commit 1e8a532", "Each snippet is run by the tests.", "it is told anew"):
        assert _PRIVATE.search(_prose(text)), text
    for text in ("run `make house`", "1234567 elements", "[x](1e8a532)", "`cujit VERB`"):
        assert not _PRIVATE.search(_prose(text)), text
    assert [*_sentences("One two. Three\n\n* four\n* five | six |")] == [
        "One two.",
        "Three",
        "",
        "four",
        "five",
        "six",
        "",
    ]
