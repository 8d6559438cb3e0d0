"""One cujit against another, in turn: ``python benchmarks/pairs.py --against 1e8a532``.

Each case is a process of its own that prints CPU seconds: with this tree, then with the other, then with the other
first, and so on. A pair's ratio is what counts, below 1 is faster. ``--check`` fails where a case became slower by more
than the spreads: its lower quartile is above the other's upper one. ``--write FILE`` keeps the run,
with commit and machine: those in ``benchmarks/history`` are drawn in docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

__all__ = ["CASES", "Pair", "main", "measured", "ratios", "slower"]

HERE = Path(__file__).resolve().parent
ROUNDS = 9

_KERNEL = """extern "C" __global__ void saxpy(float a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}"""
_SORT = """#include <cub/block/block_radix_sort.cuh>
extern "C" __global__ void order(int *keys) {
    using Sort = cub::BlockRadixSort<int, 128, 4>;
    __shared__ typename Sort::TempStorage room;
    int own[4];
    for (int i = 0; i < 4; ++i) own[i] = keys[4 * threadIdx.x + i];
    Sort(room).Sort(own);
    for (int i = 0; i < 4; ++i) keys[4 * threadIdx.x + i] = own[i];
}"""
_START = f"""
import os, sys, time  # what Python itself has begun with: a module more would be one that cujit need not import
KERNEL, SORT = {_KERNEL!r}, {_SORT!r}
def spent(act):
    begin = time.process_time()
    act()
    return time.process_time() - begin
"""
_PROCESS = "import cujit\ncujit.compile(KERNEL, arch='sm_90')\nprint(time.process_time())"
_HIT = """
import statistics
from pathlib import Path
import cujit
cujit.compile(KERNEL, arch='sm_90')
here = Path(os.environ['CUJIT_CACHE_DIR'])
def some():
    caches = [cujit.Cache(here) if FRESH else None for _ in range(100)]
    def one():
        for cache in caches: cujit.compile(KERNEL, arch='sm_90', cache=cache)
    return spent(one) / 100
some()
print(statistics.median(some() for _ in range(7)))
"""
_FIRST = """
import statistics
import numpy as np
import cujit
ptx = cujit.compile(SOURCE, arch='compute_90').data
device = cujit.cpu(1)
data = device.zeros(512, np.int32)
def first(number):
    name = b'%s_%d_%d' % (NAME, os.getpid(), number)  # kept by no earlier process
    module = cujit.load(ptx.replace(NAME, name), device=device)
    return spent(lambda: module[name.decode()][1, 128](*((data,) if NAME == b'order' else (2.0, data, data, 512))))
first(0)
print(statistics.median(first(number) for number in range(1, 6)))
"""
_LAUNCH = """
import statistics
import numpy as np
import cujit
device = cujit.cpu(1)
x, y = device.zeros(32, np.float32), device.zeros(32, np.float32)
launch = cujit.jit(KERNEL, device=device)['saxpy'][1, 32]
scalars = np.float32(2), np.int32(32)
def many():
    for _ in range(20_000): launch(scalars[0], x, y, scalars[1])
many(); many(); many()
print(statistics.median(spent(many) for _ in range(5)) / 20_000)
"""
_CASE = """
import statistics
sys.path.insert(0, BENCHMARKS)
from cpu_cases import CASES
from cpu_contestants import InCuda
import cujit
case = next(case for case in CASES if case.name == NAME)
own = InCuda(case, cujit.cpu(1))
own.run(); own.run()
print(statistics.median(spent(own.run) for _ in range(5)))
"""


@dataclass(frozen=True)
class Pair:
    """What both do: ``code`` prints CPU seconds; it sees KERNEL, SORT, ``spent`` and the names in ``given``."""

    name: str
    what: str
    code: str
    given: str = ""

    def seconds(self, source: Path, cache: Path) -> float:
        """Run it with the cujit of ``source``.

        Raises:
            RuntimeError: it failed.
        """
        path = os.pathsep.join(filter(None, (str(source), os.environ.get("PYTHONPATH"))))  # the first one counts
        environment = os.environ | {"PYTHONPATH": path, "CUJIT_CACHE_DIR": str(cache)}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as users have it
        code = f"{_START}\nBENCHMARKS = {str(HERE)!r}\n{self.given}\n{self.code}"
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{self.name} with {source}:\n{done.stderr[-2000:]}")
        return float(done.stdout.split()[-1])


CASES = (
    Pair("import", "`import cujit`", "import cujit\nprint(time.process_time())"),
    Pair("process", "new process, until the cubin is read from the cache", _PROCESS),
    Pair("hit", "`cujit.compile`, hit in the in-memory cache", _HIT, "FRESH = False"),
    Pair("disk", "`cujit.compile`, hit in the disk cache, with a new `Cache`", _HIT, "FRESH = True"),
    Pair("first", "first launch of precompiled PTX: saxpy", _FIRST, "SOURCE, NAME = KERNEL, b'saxpy'"),
    Pair("first-cub", "first launch of precompiled PTX: CUB's block sort", _FIRST, "SOURCE, NAME = SORT, b'order'"),
    Pair("launch", "launch with NumPy scalars, CPU device", _LAUNCH),
    *(
        Pair(name, f"{name}, CPU device, one thread", _CASE, f"NAME = {name!r}")
        for name in ("saxpy", "stride", "tree", "histogram", "transpose", "bitonic", "nbody", "matmul", "mandelbrot")
    ),
)


# -- both in turn ------------------------------------------------------------------------------------------


def measured(
    cases: Sequence[Pair], own: Path, other: Path, rounds: int
) -> Iterator[tuple[Pair, list[float], list[float]]]:
    """Run each case with both, ``rounds`` times and one before that fills the caches; give the seconds of each."""
    with tempfile.TemporaryDirectory() as folder:
        both = (own, Path(folder) / "own"), (other, Path(folder) / "other")
        for case in cases:
            took: tuple[list[float], list[float]] = ([], [])
            for turn in range(rounds + 1):
                for k in (0, 1) if turn % 2 else (1, 0):
                    took[k].append(case.seconds(*both[k]))
            yield case, took[0][1:], took[1][1:]


def spread(times: Sequence[float]) -> tuple[float, float, float]:
    """Give the lower quartile, the median and the upper quartile."""
    low, middle, high = statistics.quantiles(times, n=4, method="inclusive")
    return low, middle, high


def slower(own: Sequence[float], other: Sequence[float]) -> bool:
    """Tell whether the own times are above the others, so that their spreads do not overlap."""
    return spread(own)[0] > spread(other)[2]


def ratios(own: Sequence[float], other: Sequence[float]) -> tuple[float, float, float]:
    """Give the quartiles of the ratios of pairs."""
    return spread([mine / theirs for mine, theirs in zip(own, other, strict=True)])


# -- trees and records -------------------------------------------------------------------------------------


def _git(*words: str) -> str:
    """Ask git; where it cannot tell, give nothing."""
    done = subprocess.run(["git", *words], cwd=HERE, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def _tree(against: str, folder: str) -> Path:
    """Find the source of a directory that has ``src``, or lay out that of a commit."""
    if (Path(against) / "src").is_dir():
        return Path(against).resolve() / "src"
    archive = subprocess.run(
        ["git", "archive", against, "src"], cwd=HERE.parent, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
    return Path(folder) / "src"


def _processor() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def _record(given: argparse.Namespace) -> dict[str, Any]:
    changed = "+" if _git("status", "--porcelain", "--", "src") else ""
    return {
        "date": datetime.now(timezone.utc).date().isoformat(),
        "commit": given.commit or _git("rev-parse", "--short=7", "HEAD") + changed,
        "against": _git("rev-parse", "--short=7", given.against) or Path(given.against).name,
        "machine": f"{_processor()}, {len(os.sched_getaffinity(0))} cores, Python {platform.python_version()}",
    }


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = [case.name for case in CASES]
    parser.add_argument("cases", nargs="*", metavar="CASE", help=f"which ones, else all: {' '.join(names)}")
    parser.add_argument("--against", default="1e8a532", help="a commit, or a directory that has src")
    parser.add_argument("--commit", help="what this tree is called, where git cannot tell")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--check", action="store_true", help="fail where one became slower")
    parser.add_argument("--write", type=Path, help="the file for the record")
    given = parser.parse_args()
    if unknown := sorted({*given.cases} - {*names}):
        parser.error(f"no case is called {', '.join(unknown)}")
    return given


def main() -> int:
    """Measure, print, and keep or check what was asked for."""
    given = _arguments()
    record, rows, worse = _record(given), {}, []
    chosen = [case for case in CASES if not given.cases or case.name in given.cases]
    with tempfile.TemporaryDirectory() as folder:
        other = _tree(given.against, folder)
        for case, mine, theirs in measured(chosen, HERE.parent / "src", other, given.rounds):
            rows[case.name] = {"what": case.what, "own": mine, "other": theirs}
            low, middle, high = ratios(mine, theirs)
            took = (
                f"{1e3 * statistics.median(mine):.3g} ms, {record['against']} {1e3 * statistics.median(theirs):.3g} ms"
            )
            print(f"{case.what}: {took}, ratio {middle:.3f} ({low:.3f} to {high:.3f})", flush=True)
            worse += [case.name] if slower(mine, theirs) else []
    if given.write:
        given.write.write_text(json.dumps({**record, "cases": rows}, indent=1) + "\n")
    if worse:
        print(f"slower by more than the spreads: {', '.join(worse)}")
    return 1 if worse and given.check else 0


if __name__ == "__main__":
    sys.exit(main())
