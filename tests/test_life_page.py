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
    "All of it, ms": "modules all ms",
    "Find a kernel of one image with 300, µs": "one load",
    "First launch of these, µs": "one first",
    "All of it with one image, ms": "one all ms",
    "Request, load and launch a cached template, µs": "templates, each",
    "The same with `cuda_fp16.h`, µs": "templates with a header, each",
    "The same template out of a pack, µs": "templates of a pack, each",
    "The same through `cujit.module`, µs": "templates of a registry, each",
    "`device.empty`, µs": "empty 4 KB",
    "`device.zeros`, µs": "zeros 4 KB",
    "`device.array`, µs": "array 4 KB",
    "`array.numpy()`, µs": "numpy 4 KB",
    "Read 256 MB into touched memory, ms": "read 256 MB into touched memory, ms",
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
