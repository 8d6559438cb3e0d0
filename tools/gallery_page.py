"""The gallery: ten kernels, naive and optimized, with advice, counters, and times on an H200."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

__all__ = ["gallery_page"]

_ROOT = Path(__file__).parents[1]
_FOLDER = _ROOT / "examples/gallery"

_HEAD = """\
# Gallery: optimize ten kernels

This page shows ten kernels before and after they were optimized by cujit's [advice](advice.md). You don't need a GPU
for the advice and the counters: the CPU device computes them from a small launch.

| kernel | naive, ms | optimized, ms | speedup |
|---|---|---|---|
{rows}
We measured the times on an NVIDIA H200 (driver 580.159.04) with large inputs. `examples/gallery/gallery.py` contains
the sizes, compares each result with NumPy, and prints the figures of this page:

```sh
python examples/gallery/gallery.py                           # the advice and the counters of all kernels
python examples/gallery/gallery.py softmax --device cuda:0   # also time the kernels on the first GPU
python examples/gallery/gallery.py sort --report sort.html   # write a report about both kernels
```
"""


def gallery_page() -> str:
    """Write the page ``docs/gallery.md``."""
    found = json.loads((_ROOT / "tests/goldens/gallery.json").read_text())
    kernels = runpy.run_path(str(_FOLDER / "gallery.py"))["KERNELS"]
    rows = "".join(_row(name, found[name]["times_ms"]) for name in kernels)
    return _HEAD.format(rows=rows) + "".join(_section(name, each, found[name]) for name, each in kernels.items())


def _row(name: str, times: dict[str, float]) -> str:
    before, after, title = times["naive"], times["optimized"], _title(name)
    link = f"[{title}](#{title.lower().replace(' ', '-')})"
    return f"| {link} | {before:.3g} | {after:.3g} | {before / after:.3g} |\n"


def _title(name: str) -> str:
    titles = {"matmul": "Matrix product", "softmax": "Softmax", "sort": "Bitonic sort", "scan": "Running sums"}
    return titles.get(name, name.replace("_", " ").capitalize())


def _section(name: str, kernel: Any, found: dict[str, Any]) -> str:
    source = (_FOLDER / f"{name}.cu").read_text().rstrip()
    comment, _, code = source.partition("\n\n")
    advice = "".join(f"* `{rule}`: {text}\n" for rule, text in found["advice"].items())
    before, after = found["counters"]["naive"], found["counters"]["optimized"]
    counters = "".join(f"| {what} | {count:,} | {after[what]:,} |\n" for what, count in before.items())
    task = re.sub(r"^// ?", "", comment, flags=re.MULTILINE)
    return f"""
## {_title(name)}

{task} Advice for the naive kernel:

{advice}
{kernel.change}

| counter | naive | optimized |
|---|---|---|
{counters}
```cuda
{code}
```
"""
