"""The figures of a library's life in docs/performance.md are those that were recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
ROWS = {
    "Load a cubin and find its kernel, µs": "modules load",
    "First launch, µs": "modules first",
    "Second launch, µs": "modules second",
    "Launches 3 to 10, µs": "modules later",
    "All loads and launches, ms": "modules all ms",
    "Find a kernel in one image with 300 kernels, µs": "one load",
    "First launch of a kernel from this image, µs": "one first",
    "All lookups and launches from this image, ms": "one all ms",
    "Request, load, and launch a cached template, µs": "templates, each",
    "Cached template that includes `cuda_fp16.h`, µs": "templates with a header, each",
    "Cached template from a pack, µs": "templates of a pack, each",
    "Cached template through `cujit.module`, µs": "templates of a registry, each",
    "`device.empty`, µs": "empty 4 KB",
    "`device.zeros`, µs": "zeros 4 KB",
    "`device.array`, µs": "array 4 KB",
    "`array.numpy()`, µs": "numpy 4 KB",
    "Copy 256 MB into touched host memory, ms": "read 256 MB into touched memory, ms",
}
COLUMNS = ("floor", "cujit", "cupy", "cuda.core")


def shown(value: float | None) -> str:
    """Spell a figure as the page does."""
    return "–" if value is None else f"{value:.1f}" if value < 100 else f"{value:,.0f}"


def test_the_page_has_what_was_recorded() -> None:
    record = json.loads((ROOT / "tests/goldens/life.json").read_text())
    page = (ROOT / "docs/performance.md").read_text().partition("## A library of kernels")[2].partition("\n## ")[0]
    rows = dict(re.findall(r"^\| ([^|]+) \| (.*) \|$", page, re.MULTILINE))
    assert {name: rows[name].split(" | ") for name in ROWS} == {
        name: [shown(record["medians"][metric].get(column)) for column in COLUMNS] for name, metric in ROWS.items()
    }
    assert f"driver {record['driver']}, {record['date']}" in page
