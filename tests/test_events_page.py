"""Every snippet of docs/events.md runs, and says what the page says."""

from __future__ import annotations

import logging
import re
import runpy
from collections.abc import Iterator
from pathlib import Path

import pytest

from pages import Page

PAGE = Page("events.md")


@pytest.fixture(autouse=True)
def _logger_as_it_was() -> Iterator[None]:
    logger = logging.getLogger("cujit.compiler")
    yield
    logger.setLevel(logging.NOTSET)
    for handler in list(logger.handlers):
        logger.removeHandler(handler)


@pytest.mark.parametrize("code", PAGE.each())
def test_snippet_runs(
    code: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    PAGE.run(code)
    said = capsys.readouterr()
    printed = re.sub(r"\d+\.\d ms", "… ms", said.out + said.err)
    for line in re.findall(r"(?:\) {2,}|^)# (.*)$", code, re.MULTILINE):
        assert re.sub(r"\d+\.\d ms", "… ms", line) in printed


def test_example_counts_the_compiles_of_a_program(capsys: pytest.CaptureFixture[str]) -> None:
    example = runpy.run_path(str(Path(__file__).parents[1] / "examples/compiles_seen.py"))
    assert dict(example["main"]().asked) == {"k1.cu for compute_75": 2, "k2.cu for compute_75": 1}
    assert capsys.readouterr().out.startswith("k1.cu for compute_75: 2\nk2.cu for compute_75: 1\ncompiled for ")
