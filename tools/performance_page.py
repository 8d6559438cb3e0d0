"""The page of the pairs that benchmarks/history keeps: this cujit against its first version, on each machine."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["latest", "performance_page", "ratios"]

HISTORY = Path(__file__).parents[1] / "benchmarks/history"
PEERS = HISTORY.parent / "peers.json"
SHAPES = HISTORY.parent / "shapes.json"
START = HISTORY.parent / "cpu_start.json"
LIFE = HISTORY.parents[1] / "tests/goldens/life.json"

_HEAD = """\
# Performance

How fast cujit is, compared with other tools and with its first version. The records are in `benchmarks/peers.json` and
`benchmarks/history`.
"""

_PAIRS = """
## Compared with the first version

Each ratio compares two processes that do the same work one after the other: one with this version of cujit, and one
with the first version (commit 1e8a532). We measure CPU time. A ratio below 1 means that this version is faster. The
tables show the median and the quartiles of all pairs.

<picture><source media="(prefers-color-scheme: dark)" srcset="images/pairs-dark.svg"><img
src="images/pairs-light.svg" width="900" alt="The ratios of the first table below as a plot"></picture>
"""

_PEERS = """
## Compared with other tools

{tables}
* Rows without a GPU: `benchmarks/peers.py` ran each tool in a new process, on Linux without a driver.
  Versions: {without}. numba-cuda and Warp compile Python, not CUDA C++.
* *Cache compiled kernels*: the tool keeps a kernel, and `add<float>`, in its disk cache. For CuPy, the run on an
  H200 showed it.
* *Notice edited headers*: the tool's disk cache follows `#include` without help from the caller.
* Rows on an H200: {machine}, {date}. Versions: {on}.
* *Time per launch*: a launch with four arguments, relative to a loop in C that launches the same kernel with
  `cuLaunchKernel`. For cujit, the arguments include its own arrays; [launch.md](launch.md) has all kinds.
* *Time to load a cached template*: a new process gets templates from a warm disk cache, loads each template and
  launches it once. The figure is the time for one template. For loads and first launches, see
  [A library of kernels](#a-library-of-kernels).

More measurements against other tools:

| measurement | compared with | page |
|---|---|---|
| launches, by kinds of arguments | a loop in C, cuda.core, CuPy, PyTorch, numba-cuda | [launch.md](launch.md) |
| cache hits with 580 headers | the same without hint files | [cache.md](cache.md) |
| packs, with 300 processes at once | a directory | [shipping.md](shipping.md) |
| kernels on the CPU | C with OpenMP, PoCL | [cpu.md](cpu.md) |
| checks | the same launch without checks | [checks.md](checks.md) |
| programs under `cujit emulate` | an empty function, cuda.core, Numba's simulator | [emulate.md](emulate.md#how-fast) |
| PyTorch and JAX operators | `load_inline`, Triton, `pure_callback` | [frameworks.md](frameworks.md) |
| thousands of kernels in many processes | one process | [scale.md](scale.md) |
"""

_LIFE = """
## A library of kernels

A library loads hundreds of kernels and launches each of them a few times. `benchmarks/life.py` measures that with 300
kernels, 10 launches each, on an H200. Figures are medians of five processes; those of templates from the cache range
from 207 to 277 µs in cujit, and from 184 to 336 in CuPy. The contenders took turns on a shared host.

{table}
* *C* is `benchmarks/life_floor.c`: the fewest calls of the driver, `cuModuleLoadData`, `cuModuleGetFunction` and
  `cuLaunchKernel`. The driver loads a kernel's code when the kernel is found, except in cuda.core, where it loads the
  code at the first launch: there it finds the kernel in a `CUlibrary`.
* Figures are means over the 300 kernels, and over 100 templates. The first load and the first launch of a process take
  1 to 3 ms more. To import and to make the first arrays, cujit took {start:.0f} ms, CuPy {cupy_start:.0f} ms and
  cuda.core {core_start:.0f} ms.
* Arrays are of 4 KB, copied from and to arrays of NumPy. `device.zeros` and `device.array` don't wait for the fill or
  the copy. A launch in another stream does. A small array gets memory that an earlier array of its size left.
* 256 MB are read into touched memory through page-locked memory, by up to four threads. From and to page-locked memory,
  the same copy takes {pinned:.1f} ms.
* The record is `tests/goldens/life.json`: driver {driver}, {date}.
"""

_STEPS = {
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
"""Rows of the library's life by the metrics of its record."""

_CONTENDERS = {"C": "floor", "cujit": "cujit", "CuPy": "cupy", "cuda.core": "cuda.core"}

_START = """
## Start of a process on the CPU device

`benchmarks/cpu_start.py` measures the CPU time of whole processes. Each one gets a small kernel out of the disk cache,
launches it and reads the result. It needs no compiler and no LLVM.

| Step | CPU time, ms |
|---|---|
{rows}
* Figures are medians of {processes} processes with Python {python}, on two cores that other processes used too.
* *First result without NumPy's import* is the whole process without what NumPy's import takes.
* The last two rows are of small kernels, each in a PTX text of its own. For *new PTX*, cujit compiles the text. NVRTC
  had compiled the CUDA source before.
"""

_SHAPES = """
## Large PTX

This table shows how long the CPU device takes for large PTX. `benchmarks/shapes.py` repeats one construct, such as a
call or an `if`, and measures texts of several sizes up to the size in the table, without a cache. The CPU seconds grow
as the size to the power of the exponent. An exponent of 1 means that time is proportional to the text. A dash means
that the times are too short to tell. Commit {commits}, {date}, two cores that other processes used too. The table has
{measured} of the shapes in `benchmarks/ptx_shapes.py`.

| Repeated | KB | Load, s | First compile, s | MB | Exponent | Result |
|---|---|---|---|---|---|---|
{rows}
* An exponent below 1 means that LLVM compiles the larger texts without its optimizer, or that a fixed cost dominates.
* Above 1.15, the time goes to single passes of LLVM that grow faster than the function: to `IndVarSimplify` and
  `LoopDeletion` for `loops in a row`, to `InstCombine` for `calls`, to instruction selection for `wide switch`, to the
  register allocator for `atomics`, and to both of these for `matrices` and `mma`. `kernels` and
  `selections` were not profiled.
* *refused* texts raise an error within the time of the table: the assembler refuses them too, or they exceed a
  [limit](limits.md#large-ptx-on-the-cpu-device).
"""

_TAIL = """
## Repeat the measurements

* `make bench` prints all measurements of one run.
* `make bench-check` compares this tree with commit 1e8a532, or with another commit: `make bench-check AGAINST=HEAD~5`.
  It takes ten minutes. It fails if a case is slower and the quartiles of its pairs don't overlap.
* `python benchmarks/pairs.py --write FILE` saves a run.
"""


def latest() -> list[dict[str, Any]]:
    """Give the last record of each machine, that of the fewest cores first."""
    found: dict[str, dict[str, Any]] = {}
    for path in sorted(HISTORY.glob("*.json")):
        record = json.loads(path.read_text())
        found[record["machine"]] = record
    return sorted(found.values(), key=lambda record: _cores(record["machine"]))


def _cores(machine: str) -> int:
    return int(machine.rpartition(" cores")[0].rpartition(" ")[2])


def ratios(case: dict[str, Sequence[float]]) -> tuple[float, float, float]:
    """Give the lower quartile, the median and the upper quartile of a case's pairs."""
    found = [own / other for own, other in zip(case["own"], case["other"], strict=True)]
    low, middle, high = statistics.quantiles(found, n=4, method="inclusive")
    return low, middle, high


def performance_page() -> str:
    """Write the page."""
    return (
        _HEAD
        + _peers(json.loads(PEERS.read_text()))
        + _life(json.loads(LIFE.read_text()))
        + _start(json.loads(START.read_text()))
        + _shapes(json.loads(SHAPES.read_text()))
        + _PAIRS
        + "".join(map(_table, latest()))
        + _TAIL
    )


def _peers(record: dict[str, Any]) -> str:
    """Write the section about other tools."""
    tools = list(record["without a GPU"]["versions"])
    rows = [row for part in record.values() for row in part["rows"].items()]
    table = "".join(
        f"| {what} | {' | '.join(values.get(tool, 'not measured') for tool in tools)} |\n" for what, values in rows
    )
    head = f"| | {' | '.join(tools)} |\n|{'---|' * (len(tools) + 1)}\n"
    without, on = (
        ", ".join(f"{tool} {version}" for tool, version in record[part]["versions"].items())
        for part in ("without a GPU", "on a GPU")
    )
    gpu = record["on a GPU"]
    return _PEERS.format(tables=head + table, without=without, on=on, machine=gpu["machine"], date=gpu["date"])


def _life(record: dict[str, Any]) -> str:
    """Write the section about a library that loads and launches hundreds of kernels."""
    table = f"| Step | {' | '.join(_CONTENDERS)} |\n|{'---|' * (len(_CONTENDERS) + 1)}\n"
    for step, metric in _STEPS.items():
        values = [record["medians"][metric].get(name) for name in _CONTENDERS.values()]
        cells = ["–" if value is None else f"{value:.1f}" if value < 100 else f"{value:,.0f}" for value in values]
        table += f"| {step} | {' | '.join(cells)} |\n"
    start = record["start ms"]
    return _LIFE.format(
        table=table,
        driver=record["driver"],
        date=record["date"],
        start=start["cujit"],
        cupy_start=start["cupy"],
        core_start=start["cuda.core"],
        pinned=record["medians"]["read 256 MB, pinned, ms"]["cujit"],
    )


def _start(record: dict[str, Any]) -> str:
    """Write the section about processes of the CPU device."""
    rows = "".join(f"| {row} | {of['cujit']:.3g} |\n" for row, of in record["rows"].items())
    return _START.format(rows=rows, python=record["python"], processes=record["processes"])


def _shapes(record: dict[str, Any]) -> str:
    """Write the section about large PTX."""
    rows = "".join(itertools.starmap(_shape, record["shapes"].items()))
    commits = ", ".join(sorted({row["commit"] for row in record["shapes"].values()}))
    return _SHAPES.format(date=record["date"], rows=rows, commits=commits, measured=len(record["shapes"]))


def _shape(name: str, row: dict[str, Any]) -> str:
    exponent = "–" if row["exponent"] is None else f"{row['exponent']:.2f}"
    result = "compiled" if row["outcome"] == "ok" else "refused"
    figures = f"{row['bytes'] / 1000:.0f} | {row['load']:.2f} | {row['launch']:.2f} | {row['megabytes']}"
    return f"| {name} | {figures} | {exponent} | {result} |\n"


def _table(record: dict[str, Any]) -> str:
    pairs = min(len(case["own"]) for case in record["cases"].values())
    head = f"\n### {record['machine']}\n\nCommit {record['commit']}, {record['date']}, {pairs} pairs.\n\n"
    rows = "".join(map(_row, record["cases"].values()))
    return f"{head}| what | first version | now | ratio | quartiles |\n|---|---|---|---|---|\n{rows}"


def _row(case: dict[str, Any]) -> str:
    low, middle, high = ratios(case)
    before, now = (_shown(statistics.median(case[of])) for of in ("other", "own"))
    return f"| {case['what']} | {before} | {now} | {middle:.2f} | {low:.2f} to {high:.2f} |\n"


def _shown(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} µs"
