"""A library's life: 300 kernels loaded, launched once, twice, ten times, beside a floor in C, CuPy and cuda.core.

``python benchmarks/life.py [--processes 5] [--kernels 300] [--json FILE] [--tree NAME=PATH …]``. All contenders take
turns in one run, each measurement in a separate process; the table has medians over the processes. The floor is
``life_floor.c``: the same calls of the driver, in C; ``floor (lib)`` finds the kernels in a ``CUlibrary``, as cuda.core
does. ``--tree`` adds another checkout of cujit. A library that is not
installed is reported and left out. ``process`` has whole processes with a warm cache, those of
``warm_process.py``; those of cuda.bindings stand below the floor. Without a GPU, run it by ``python
tests/null_driver.py``: then the driver costs nothing, and the times are what each library adds.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

_HERE = Path(__file__).parent
_ROOT = _HERE.parent


def source(i: int) -> str:
    """Return kernel ``i`` of the library."""
    return (
        f'extern "C" __global__ void k{i}(const float* a, const float* b, float* c, int n) {{ int t = blockIdx.x * '
        f"blockDim.x + threadIdx.x; if (t < n) c[t] = a[t] * {i}.5f + b[t] * sinf(a[t]); }}"
    )


def write_images(directory: Path, count: int) -> None:
    """Compile every kernel for the first GPU, each alone and all in one image."""
    import cujit

    arch = cujit.gpu(0).arch
    sources = {f"{i}": source(i) for i in range(count)} | {"one": "\n".join(map(source, range(count)))}
    from warm_process import SOURCE

    sources["ramp"] = SOURCE
    for name, text in sources.items():
        (directory / f"{name}.cubin").write_bytes(cujit.compile(text, to="cubin", arch=arch).data)


def build_floor(directory: Path) -> list[str] | None:
    """Compile the floor; None without a compiler of C."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    command = [compiler] if compiler else [sys.executable, "-m", "ziglang", "cc"]
    path = directory / "life_floor"
    made = subprocess.run(
        [*command, "-O2", str(_HERE / "life_floor.c"), "-o", str(path), "-ldl"], capture_output=True, text=True
    )
    if made.returncode:
        print(f"no floor: {made.stderr.strip()[-200:]}")
        return None
    return [str(path)]


def measure(command: list[str], environment: dict[str, str]) -> dict[str, float] | str:
    """Run one process; return its times, or the last line of what went wrong."""
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return "did not end in 120 s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1][:160]
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def time_process(script: str, directory: Path, environment: dict[str, str]) -> float | str:
    """Run a contestant of ``warm_process.py``; return its milliseconds, or the last line of what went wrong."""
    from warm_process import _HEAD, SCRIPTS

    command, start = [sys.executable, "-c", _HEAD + SCRIPTS[script]], time.perf_counter()
    done = subprocess.run(command, env={**environment, "WARM_ROOT": str(directory)}, capture_output=True, text=True)
    took = (time.perf_counter() - start) * 1e3
    return (done.stderr.strip().splitlines() or ["?"])[-1][:160] if done.returncode else took


_PROCESSES = (
    ("warm process, ms", "floor", "ctypes"),
    ("warm process, ms", "cupy", "CuPy"),
    ("warm process, ms", "cuda.core", "cuda.core"),
    ("warm process of cuda.bindings, ms", "floor", "cuda.bindings"),
    ("warm process of it and NumPy, ms", "floor", "cuda.bindings and numpy"),
)
"""The row, the column and the contestant; each tree of cujit has a column of its own."""


def main() -> None:
    """Measure everything in turns and print the table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--processes", type=int, default=5)
    parser.add_argument("--kernels", type=int, default=300)
    parser.add_argument("--templates", type=int, default=100)
    parser.add_argument("--what", default="library,early,templates,shipped,memory,alternating,process")
    parser.add_argument("--json")
    parser.add_argument("--tree", action="append", default=[], metavar="NAME=PATH")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        write_images(directory, given.kernels)
        floor = build_floor(directory)
        child = str(_HERE / "life_child.py")
        trees = {"cujit": str(_ROOT / "src"), **dict(each.split("=", 1) for each in given.tree)}
        contenders = {name: [sys.executable, child, "cujit"] for name in trees}
        contenders |= {name: [sys.executable, child, name] for name in ("cupy", "cuda.core")}
        floors = {"floor": [*floor, str(directory), str(given.kernels), "10"]} if floor else {}
        if floor:
            floors["floor (lib)"] = [*floors["floor"], "library"]
        names = [*floors, *contenders]
        times: dict[str, dict[str, list[float]]] = {}
        absent: dict[str, str] = {}

        def environment_of(name: str) -> dict[str, str]:
            environment = dict(os.environ)
            environment.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has its bytecode
            environment["CUJIT_CACHE_DIR"] = str(directory / f"cache {name}")
            environment["CUPY_CACHE_DIR"] = str(directory / "cache cupy")
            if name in trees:
                environment["PYTHONPATH"] = os.pathsep.join(filter(None, (trees[name], os.environ.get("PYTHONPATH"))))
            return environment

        for turn in range(given.processes + 1):  # the first fills the disk caches and is not counted
            whole = [*_PROCESSES, *(("warm process, ms", name, "cujit") for name in trees)]
            for metric, name, script in whole if "process" in given.what.split(",") else ():
                took = time_process(script, directory, environment_of(name))
                if isinstance(took, str):
                    absent[f"{script}, {metric}"] = took
                elif turn:
                    times.setdefault(metric, {}).setdefault(name, []).append(took)
            for what in (each for each in given.what.split(",") if each != "process"):
                for name, command in {**floors, **contenders}.items():
                    if name not in {"shipped": trees, "alternating": trees, "library": names}.get(what, contenders):
                        continue
                    if name == "cuda.core" and what in ("templates", "memory"):
                        continue
                    count = given.templates if what in ("templates", "shipped") else given.kernels
                    rest = [] if name in floors else [what, str(directory), str(count)]
                    found = measure([*command, *rest], environment_of(name))
                    if isinstance(found, str):
                        absent[f"{name}, {what}"] = found
                    elif turn:
                        for metric, value in found.items():
                            metric = f"{what}: {metric}" if metric == "start ms" else metric
                            times.setdefault(metric, {}).setdefault(name, []).append(value)
    medians = {metric: {name: statistics.median(row) for name, row in rows.items()} for metric, rows in times.items()}
    print(f"medians of {given.processes} processes, microseconds unless the row says ms")
    print(f"{'':<34}" + "".join(f"{name:>14}" for name in names))
    for metric, row in medians.items():
        print(f"{metric:<34}" + "".join(f"{row[name]:>14.2f}" if name in row else f"{'':>14}" for name in names))
    for name, why in absent.items():
        print(f"not measured: {name}: {why}")
    if given.json:
        Path(given.json).write_text(json.dumps({"medians": medians, "times": times, "absent": absent}, indent=1) + "\n")


if __name__ == "__main__":
    main()
