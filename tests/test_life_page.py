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


def test_page_has_the_recorded_figures() -> None:
    record = json.loads((ROOT / "tests/goldens/life.json").read_text())
    page = (ROOT / "docs/performance.md").read_text().partition("## A library of kernels")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| ([^|]+) \| (.*) \|$", page, re.MULTILINE))
    assert {name: rows[name].split(" | ") for name in STEPS} == {
        name: [shown(record["medians"][metric].get(column)) for column in COLUMNS] for name, metric in STEPS.items()
    }
    assert f"driver {record['driver']}, {record['date']}" in page


def test_page_has_the_figures_of_the_null_driver() -> None:
    record = json.loads((ROOT / "tests/goldens/life_null.json").read_text())["medians"]
    page = (ROOT / "docs/performance.md").read_text().partition("`tests/null_driver.py`")[2].partition("\n## ")[0]
    wanted = ["modules load median", "one load median", "modules later"]
    assert [float(each) for each in re.findall(r"([\d.]+)\s+µs", page)] == [
        round(record[metric][name], 1 if metric == wanted[0] else 2)
        for metric in wanted
        for name in ("cujit", "cuda.core")
    ]
