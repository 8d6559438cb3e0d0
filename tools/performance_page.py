"""The page of the pairs that benchmarks/history keeps: this cujit against its first version, on each machine."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["STEPS", "latest", "performance_page", "ratios"]

HISTORY = Path(__file__).parents[1] / "benchmarks/history"
PEERS = HISTORY.parent / "peers.json"
SHAPES = HISTORY.parent / "shapes.json"
START = HISTORY.parent / "cpu_start.json"
LIFE = HISTORY.parents[1] / "tests/goldens/life.json"
LIFE_OF_NOTHING = LIFE.with_name("life_null.json")

_HEAD = """\
# Performance

This page compares the speed of cujit with other tools and with the first version of cujit. The measurements are in
`benchmarks/peers.json` and `benchmarks/history`.
"""

_PAIRS = """
## Compared with the first version

Each ratio compares the CPU times of two processes that do the same work, one after the other. One process uses this
version of cujit; the other uses the first version (commit 1e8a532). A ratio below 1 means that this version is faster.
The tables show the median and the quartiles over all pairs of processes.

<picture><source media="(prefers-color-scheme: dark)" srcset="images/pairs-dark.svg"><img
src="images/pairs-light.svg" width="900" alt="Plot of the ratios in the first table below"></picture>
"""

_PEERS = """
## Compared with other tools

{tables}
* For rows that don't require a GPU, `benchmarks/peers.py` ran each tool in a new process, on Linux without a driver.
  Versions: {without}. numba-cuda and Warp compile Python, not CUDA C++.
* *Cache compiled kernels*: the disk cache of the tool stores both a plain kernel and the template instantiation
  `add<float>`. CuPy's result is from a run on an H200.
* *Notice edited headers*: the tool's disk cache tracks included headers automatically.
* The H200 rows were measured with this configuration: {machine}, {date}. Versions: {on}.
* *Time per launch*: the time of a launch with four arguments, relative to a C loop that launches the same kernel with
  `cuLaunchKernel`. For cujit, the arguments include cujit arrays. For all kinds of arguments, see
  [launch.md](launch.md).
* *Time to load a cached template*: a new process gets templates from a warm disk cache, loads each template, and
  launches it once. The table shows the average time for one template. For loads and first launches, see
  [A library of kernels](#a-library-of-kernels).

Other pages contain more comparisons:

| measurement | compared with | page |
|---|---|---|
| launches, by argument type | a loop in C, cuda.core, CuPy, PyTorch, numba-cuda | [launch.md](launch.md) |
| cache hits with 580 headers | cache hits without hint files | [cache.md](cache.md) |
| packs, read by 300 processes at once | a cache directory | [shipping.md](shipping.md) |
| kernels on the CPU | C with OpenMP, PoCL | [cpu.md](cpu.md) |
| launches with checks enabled | launches without checks | [checks.md](checks.md) |
| emulated CUDA programs | an empty function, cuda.core, Numba's simulator | [emulate.md](emulate.md#how-fast) |
| PyTorch and JAX operators | `load_inline`, Triton, `pure_callback` | [frameworks.md](frameworks.md) |
| thousands of kernels in many processes | one process | [scale.md](scale.md) |
"""

_LIFE = """
## A library of kernels

A library typically loads hundreds of kernels and launches each kernel a few times. `benchmarks/life.py` measures this
workload on an H200 with 300 kernels and 10 launches per kernel. Each value is the median of five processes. For
templates from the cache, the values range from 125 to 189 µs for cujit and from 201 to 398 µs for CuPy. The libraries
ran alternately on a shared host.

{table}
* *C* is `benchmarks/life_floor.c`, which makes the minimum number of driver calls: `cuModuleLoadData`,
  `cuModuleGetFunction`, and `cuLaunchKernel`. The driver loads a kernel's code when a program looks up the kernel.
  cuda.core looks up kernels in a `CUlibrary`, so the driver loads the kernel's code at the first launch.
* For each process, the times per kernel are averages over 300 kernels, or over 100 templates. The first load and the
  first launch in a process take 1 to 3 ms longer than later loads and launches. To import the library and create the
  first arrays, cujit took {start:.0f} ms, CuPy {cupy_start:.0f} ms, and cuda.core {core_start:.0f} ms.
* Unless another size is shown, arrays are 4 KB each and are copied to and from NumPy arrays. `device.zeros` and
  `device.array` don't wait for the fill or copy to complete. Launches in other streams wait for the fill or copy. Small
  arrays reuse memory from freed arrays of the same size.
* *Touched host memory* has been written to before. Up to eight threads copy the 256 MB through page-locked memory. If
  the destination itself is page-locked, the copy takes {pinned:.1f} ms.
* The measurements are in `tests/goldens/life.json` (driver {driver}, {date}).
* `tests/null_driver.py` replaces the driver with a driver that does nothing, which leaves each library's own time. The
  following values are medians on two shared cores, from `tests/goldens/life_null.json` ({null_date}). cujit loads a
  cubin and finds its kernel in {load[cujit]:.1f} µs, and cuda.core in {load[cuda.core]:.1f} µs. In the image with 300
  kernels, cujit finds a kernel in {one[cujit]:.2f} µs, and cuda.core in {one[cuda.core]:.2f} µs. A later launch takes
  {later[cujit]:.2f} µs in cujit, and {later[cuda.core]:.2f} µs in cuda.core.
"""

STEPS = {
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
"""Rows of the library's life by the metrics of its record."""

_CONTENDERS = {"C": "floor", "cujit": "cujit", "CuPy": "cupy", "cuda.core": "cuda.core"}

_START = """
## Start of a process on the CPU device

`benchmarks/cpu_start.py` measures the CPU time of whole processes. Each process loads a small kernel from the disk
cache, launches the kernel, and reads the result. These processes don't need a CUDA compiler or LLVM.

| Step | CPU time, ms |
|---|---|
{rows}
* The values are medians over {processes} processes with Python {python}, on two cores shared with other processes.
* *Whole process without the NumPy import* is the time of the whole process minus the time that NumPy takes to import.
* The last two rows were measured with small kernels, each in a separate PTX file. For *new PTX*, cujit compiles the
  PTX. NVRTC had already compiled the CUDA source to PTX.
"""

_SHAPES = """
## Large PTX

This table shows how long the CPU device takes to load and compile large PTX, and how much memory it uses.
`benchmarks/shapes.py` generates PTX that repeats one construct, such as a call or an `if`. The benchmark measures PTX
of several sizes, up to the size in the table, without a cache. CPU time grows as the size of the repeated PTX to the
power of the exponent. An exponent of 1 means that the time is proportional to that size. A dash means that the times
are too short to determine an exponent. The table shows {measured} of the constructs in
`benchmarks/ptx_shapes.py`. The measurements are from {date} (commits {commits}), on two cores
shared with other processes.

| Repeated construct | PTX size, KB | Load, s | First compile, s | Memory, MB | Exponent | Result |
|---|---|---|---|---|---|---|
{rows}
* An exponent below 1 means that LLVM compiles larger PTX without optimization, or that a fixed cost dominates.
* Exponents above 1.15 are due to LLVM passes whose time grows faster than the size of a function: instruction selection
  and the register allocator, and in `selections` also the two-address pass. If a kernel reaches a limit for the
  [optimizer](cpu.md#how-fast), LLVM uses faster passes instead.
* If the result is *rejected*, cujit raises an error within the time shown. Either the assembler rejects this PTX too,
  or the PTX exceeds a [limit](limits.md#large-ptx-on-the-cpu-device).
"""

_TAIL = """
## Repeat the measurements

* `make bench` runs all benchmarks once and prints the results.
* `make bench-check` compares this source tree with commit 1e8a532. To compare it with another commit, use
  `make bench-check AGAINST=HEAD~5`. The comparison takes ten minutes. `make bench-check` fails if a benchmark is slower
  and the interquartile ranges of the two versions don't overlap.
* `python benchmarks/pairs.py --write FILE` saves the measurements to a file.
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
        + _life(json.loads(LIFE.read_text()), json.loads(LIFE_OF_NOTHING.read_text()))
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


def _life(record: dict[str, Any], null: dict[str, Any]) -> str:
    """Write the section about a library that loads and launches hundreds of kernels.

    ``null`` is the record of a driver that does nothing.
    """
    table = f"| Step | {' | '.join(_CONTENDERS)} |\n|{'---|' * (len(_CONTENDERS) + 1)}\n"
    for step, metric in STEPS.items():
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
        null_date=null["date"],
        load=null["medians"]["modules load median"],
        one=null["medians"]["one load median"],
        later=null["medians"]["modules later"],
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
    result = "compiled" if row["outcome"] == "ok" else "rejected"
    figures = f"{row['bytes'] / 1000:.0f} | {row['load']:.2f} | {row['launch']:.2f} | {row['megabytes']}"
    return f"| {name} | {figures} | {exponent} | {result} |\n"


def _table(record: dict[str, Any]) -> str:
    pairs = min(len(case["own"]) for case in record["cases"].values())
    when = f"Commit {record['commit']}, measured on {record['date']} with {pairs} pairs of processes."
    head = f"\n### {record['machine']}\n\n{when}\n\n"
    rows = "".join(map(_row, record["cases"].values()))
    return f"{head}| benchmark | first version | this version | ratio | quartiles |\n|---|---|---|---|---|\n{rows}"


def _row(case: dict[str, Any]) -> str:
    low, middle, high = ratios(case)
    before, now = (_shown(statistics.median(case[of])) for of in ("other", "own"))
    return f"| {case['what']} | {before} | {now} | {middle:.2f} | {low:.2f} to {high:.2f} |\n"


def _shown(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms" if seconds >= 1e-3 else f"{1e6 * seconds:.3g} µs"
