"""The figures of a library's life in docs/performance.md are those that were recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path

from performance_page import STEPS

ROOT = Path(__file__).parents[1]
COLUMNS = ("floor", "cujit", "cupy", "cuda.core")


def shown(value: float | None) -> str:
    """Spell a figure as the page does."""
    return "–" if value is None else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def test_the_page_has_what_was_recorded() -> None:
    record = json.loads((ROOT / "tests/goldens/life.json").read_text())
    page = (ROOT / "docs/performance.md").read_text().partition("## A library of kernels")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| ([^|]+) \| (.*) \|$", page, re.MULTILINE))
    assert {name: rows[name].split(" | ") for name in STEPS} == {
        name: [shown(record["medians"][metric].get(column)) for column in COLUMNS] for name, metric in STEPS.items()
    }
    assert f"driver {record['driver']}, {record['date']}" in page
