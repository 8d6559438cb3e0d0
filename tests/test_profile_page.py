"""Every snippet of docs/profile.md runs, and its table is what the goldens say."""

from __future__ import annotations

import json
import re
from pathlib import Path

from cujit.profile import Measures
from pages import Page

PAGE = Page("profile.md")
GOLDEN = json.loads((Path(__file__).parent / "goldens/counters.json").read_text())


def test_the_python_runs() -> None:
    PAGE.run("\n".join(code for _, code in PAGE.snippets()))


def test_every_part_of_the_page_has_a_snippet() -> None:
    assert PAGE.has_code_in_every_section()


def test_each_measure_is_explained() -> None:
    named = {name for row in re.findall(r"^\| (`.+?) \|", PAGE.sections["What is counted"], re.MULTILINE)
             for name in re.findall(r"`(\w+)`", row)}  # fmt: skip
    assert named == {*Measures.__match_args__, "moved_bytes"}


def test_the_table_has_what_a_gpu_counted() -> None:
    table = PAGE.sections["Under the names of Nsight Compute"]
    shown = [int(number.replace(",", "")) for number in re.findall(r"\| ([\d,]+) (?=\|)", table)]
    counted = [count for case in GOLDEN["cases"].values() for count in case.values()]
    assert set(counted) <= set(shown)
