"""The check of prose finds mistakes in pages, help, errors and the changelog, and leaves code alone."""

from __future__ import annotations

import functools
import re
from pathlib import Path

import pytest

pytest.importorskip("harper", reason="harper-py checks the grammar")

from harper import Linter

import prose
from prose import RULES, Block, blocks, findings, made, messages, report, sources


@pytest.fixture(scope="module")
def linter() -> Linter:
    return made()


@pytest.mark.parametrize(
    ("sentence", "text"),
    [
        ("A launch takes some 40 microseconds on a device of this kind.", "some 40"),
        ("It writes the the image into the cache of this user.", "the the"),
        ("This is a error of the driver that runs the kernel.", "a error"),
        ("You should of closed the module before the end of the process.", "should of"),
        (f"A launch {'is fast and ' * 8}ends.", "A launch"),
        ("Where the cache has no such image, cujit compiles the source.", "Where the cache"),
        ("cujit compiles it anew.", "anew"),
        ("The name of the option defaults to its letter.", "defaults to"),
        ("The value is said in the error.", "is said"),
        ("This stream is no stream.", "is no stream"),
        ("A fatbin cannot contain it.", "cannot"),
        ("Commit 1e8a532 changed it.", "1e8a532"),
    ],
)
def test_mistake_is_found_with_its_line(linter: Linter, sentence: str, text: str) -> None:
    for before, after in (("\n\n", ""), ("\n\n* ", ""), ("\n!!! note\n    ", ""), ("\n\n|a|\n|---|\n| ", " |")):
        page = blocks(f"# Page\n\nA page.{before}{sentence}{after}\n")
        ((line, found, message),) = findings(page, linter)
        assert line == 3 + before.count("\n")
        assert text in found
        assert message


@pytest.mark.parametrize(
    "right",
    [
        "Run `make house`, or `cujit VERB`.",
        "[x](1e8a532) has 1234567 elements.",
        "Added memory checks by default to `cujit run`.",
        "If there is no GPU, cujit uses the CPU device.",
        "Where to compile the kernels: `processes:8`.",
        "Default: 10.",
        f"{'Ten words are in front of it: ' * 3}all of these are short.",
    ],
)
def test_correct_text_has_no_findings(linter: Linter, right: str) -> None:
    assert list(findings(blocks(right), linter)) == []


def test_code_is_not_prose(linter: Linter) -> None:
    page = "Text.\n\n```python\nthe the anew\n```\n\n    a error anew\n\nMore `anew`.\n"
    assert blocks(page) == [Block(1, "Text."), Block(9, "More `anew`.")]
    assert list(findings(blocks(page), linter)) == []


def test_messages_come_from_errors_hints_and_options() -> None:
    code = """_HELP = "say it in the constant"
if x:
    raise KindError(
        f"the value {x!r} is " "no number", help=_HELP if y else Hint("one in Python", shell=f"one in {shell}")
    )
option(help="Path of the file.")
raise failed("a function makes this")
print("this is no message")
"""
    texts = ["say it in the constant", "the value `x` is no number", "one in Python", "one in `x`"]
    assert [block.text for block in messages(code)] == [*texts, "Path of the file.", "a function makes this"]


@functools.cache
def _sources() -> list[tuple[Path, list[Block]]]:
    """Read everything once."""
    return [*sources()]


def test_everything_that_users_read_is_checked() -> None:
    names = {path.name for path, found in _sources() if found}
    assert {"README.md", "CHANGELOG.md", "PULL_REQUEST_TEMPLATE.md", "api.md", "cli.md", "errors.md"} <= names
    assert {"environment.md", "cache.md", "loading.py", "kernel.py", "nvrtc.py"} <= names


def test_no_sentence_breaks_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prose, "sources", _sources)
    assert report() == ""
    page = Block(3, "The value is said in the error.")
    monkeypatch.setattr(prose, "sources", lambda: [(prose.ROOT / name, [page]) for name in ("README.md", "docs/x.md")])
    (line,) = report().splitlines()  # a sentence that is on two pages counts once
    assert line.startswith("README.md:3: 'The value is said in the error.': name the actor and the verb")


_VAGUE = re.compile(r"# (?:What|Who|Where|Why|How|It|Its|They|This|That|Such|A page|Names$)\b")


def test_page_titles_name_their_subjects_and_are_unique() -> None:
    titles = {path: path.read_text().partition("\n")[0] for path in (prose.ROOT / "docs").rglob("*.md")}
    assert [f"{path}: {title}" for path, title in titles.items() if not re.match("# \\w", title)] == []
    assert [title for title in titles.values() if _VAGUE.match(title) or RULES["a word to avoid"].search(title)] == []
    assert len({*titles.values()}) == len(titles)
