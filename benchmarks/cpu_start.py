"""Processes of the CPU device: from ``python`` to the first result with a warm cache, and libraries of many kernels.

``python benchmarks/cpu_start.py [--processes 15] [--kernels 100] [--json FILE] [--tree NAME=PATH …]``. All figures are
CPU time, as other processes may use the machine. The contestants take turns, each measurement in a separate process;
the table has medians. ``--tree`` adds another checkout of cujit. What NumPy's import takes is a row of its own, and is
left out of the row without NumPy.
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
from collections.abc import Mapping
from pathlib import Path

_ROOT = Path(__file__).parents[1]

_FIRST = """
import cujit
device = cujit.cpu()
y = device.empty(1024, "float32")
source = 'extern "C" __global__ void ramp(float a, float* y) { int i = blockIdx.x * 256 + threadIdx.x; y[i] = a * i; }'
cujit.jit(source, device=device)["ramp"].over(1024, block=256)(2.0, y)
assert y.numpy()[-1] == 2046.0
"""

_MANY = """
import sys, time, numpy, cujit
device, count = cujit.cpu(), int(sys.argv[1])
x, y = device.array(numpy.ones(64, numpy.float32)), device.zeros(64, numpy.float32)
def text(i):
    return (f'extern "C" __global__ void k{i}(const float* x, float* y, int n) '
            f'{{ int t = blockIdx.x * blockDim.x + threadIdx.x; if (t < n) y[t] = x[t] * {i}.5f; }}')
images = [cujit.compile(text(i), to="ptx", arch="compute_90") for i in range(count + 1)]
def first(i):
    cujit.load(images[i], device)[f"k{i}"][1, 64](x, y, 64)
first(count)  # starts the threads and loads the run-time
begin = time.process_time()
for i in range(count):
    first(i)
print(1e3 * (time.process_time() - begin) / count)
"""


def _run(code: str, environment: Mapping[str, str], *arguments: str) -> tuple[float, str]:
    """Run code in a process: its CPU time in milliseconds, and what it printed."""
    child = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], env=environment, stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    printed = child.stdout.read()
    _, status, used = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        raise SystemExit(f"a process ended with status {child.returncode}")
    return 1e3 * (used.ru_utime + used.ru_stime), printed


def measure(trees: Mapping[str, Path], processes: int, kernels: int) -> dict[str, dict[str, float]]:
    """Measure every tree in turns: medians in milliseconds by row and tree."""
    found: dict[str, dict[str, list[float]]] = {}

    def note(row: str, name: str, value: float) -> None:
        found.setdefault(row, {}).setdefault(name, []).append(value)

    with tempfile.TemporaryDirectory() as folder:
        for turn in range(processes + 1):  # the first fills the caches and is not counted
            for name, tree in trees.items():
                environment = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
                environment |= {
                    "PYTHONPATH": str(tree),
                    "PYTHONPYCACHEPREFIX": f"{folder}/bytecode",
                    "CUJIT_CACHE_DIR": f"{folder}/cache {name}",
                }
                python, numpy, whole = (_run(code, environment)[0] for code in ("pass", "import numpy", _FIRST))
                warm = float(_run(_MANY, environment, str(kernels))[1])
                new = {**environment, "CUJIT_CACHE_DIR": f"{folder}/cache {name} {turn}"}
                cold = float(_run(_MANY, new, str(max(kernels // 2, 1)))[1]) if turn <= _COLD_TURNS else None
                if turn:
                    note("Python", name, python)
                    note("NumPy import", name, numpy - python)
                    note("Whole process", name, whole)
                    note("Whole process without the NumPy import", name, whole - numpy + python)
                    note("Load and first launch from the cache, per kernel", name, warm)
                    if cold is not None:
                        note("Load and first launch of new PTX, per kernel", name, cold)
    return {row: {name: statistics.median(values) for name, values in of.items()} for row, of in found.items()}


_COLD_TURNS = 3


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=15)
    parser.add_argument("--kernels", type=int, default=100)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tree", action="append", default=[], metavar="NAME=PATH")
    given = parser.parse_args()
    others = (each.partition("=") for each in given.tree)
    trees = {"cujit": _ROOT / "src", **{name: Path(path) for name, _, path in others}}
    rows = measure(trees, given.processes, given.kernels)
    for row, of in rows.items():
        print(f"{row}: " + ", ".join(f"{name} {value:.2f} ms" for name, value in of.items()))
    if given.json:
        record = {"python": platform.python_version(), "processes": given.processes, "rows": rows}
        given.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
