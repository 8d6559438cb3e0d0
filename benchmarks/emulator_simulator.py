"""numba-cuda under the emulator against its own simulator, which runs each thread of a kernel as one of Python.

Its tests, those of `PARTS` that pass in both: two processes of pytest run side by side, and count the processor's
seconds of each test and its child processes. Then a warm launch that multiplies matrices by tiles, in turns.
``python benchmarks/emulator_simulator.py`` takes some ten minutes, and needs what `tests/clients/requirements` names.
Arguments are other parts: ``numba.cuda.tests.nocuda``.
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from measure import emulated

PARTS = ("numba.cuda.tests.cudapy", "numba.cuda.tests.cudadrv")

_COUNTING = """
import json, os, resource, pytest

found = {}

def spent():
    of = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in of)

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    begin = spent()
    answer = yield
    found.setdefault(item.nodeid, ["none", 0])[1] = spent() - begin
    return answer

def pytest_runtest_logreport(report):
    entry = found.setdefault(report.nodeid, ["none", 0])
    if report.outcome != "passed" or (report.when == "call" and entry[0] == "none"):
        entry[0] = report.outcome

def pytest_unconfigure():
    with open(os.environ["COUNTED"], "w") as file:
        json.dump(found, file)

@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    request.cls._dump_failed_filechecks = False
"""

_PRODUCT = """
import time
import numpy as np
from numba import cuda, float32

@cuda.jit
def product(a, b, c):
    left = cuda.shared.array((16, 16), float32)  # the simulator takes arrays of one line for one
    right = cuda.shared.array((16, 16), float32)
    x, y = cuda.grid(2)
    i, j = cuda.threadIdx.x, cuda.threadIdx.y
    total = float32(0)
    for base in range(0, a.shape[1], 16):
        left[i, j] = a[x, base + j]
        right[i, j] = b[base + i, y]
        cuda.syncthreads()
        for k in range(16):
            total += left[i, k] * right[k, j]
        cuda.syncthreads()
    c[x, y] = total

a, b = (np.random.default_rng(k).random((64, 64), np.float32) for k in (1, 2))
c = cuda.to_device(np.empty((64, 64), np.float32))
a_there, b_there = cuda.to_device(a), cuda.to_device(b)
product[(4, 4), (16, 16)](a_there, b_there, c)
begin = time.process_time()
product[(4, 4), (16, 16)](a_there, b_there, c)
print(time.process_time() - begin)
np.testing.assert_allclose(c.copy_to_host(), a @ b, rtol=1e-4)
"""

_SIMULATOR = {**os.environ, "NUMBA_ENABLE_CUDASIM": "1"}


def _tests(environment: Mapping[str, str], folder: Path, parts: Sequence[str]) -> subprocess.Popen[bytes]:
    """Start the tests in a folder, in which they leave ``counted``."""
    folder.mkdir()
    (folder / "counting.py").write_text(_COUNTING)
    (folder / "pytest.ini").write_text("[pytest]\nconsider_namespace_packages = true\n")
    root = next(iter(importlib.util.find_spec("numba_cuda").submodule_search_locations))  # type: ignore[union-attr,arg-type]
    path = f"{folder}:{environment.get('PYTHONPATH', '')}"
    words = ["-c", "pytest.ini", "-q", "-p", "no:cujit", "-p", "counting", "--tb=no", "--rootdir", root, "--pyargs"]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", *words, *parts],
        env={**environment, "PYTHONPATH": path, "NUMBA_CACHE_DIR": "", "COUNTED": str(folder / "counted")},
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def _once(environment: Mapping[str, str]) -> float:
    done = subprocess.run([sys.executable, "-c", _PRODUCT], env=environment, capture_output=True, text=True, check=True)
    return float(done.stdout)


def run(parts: Sequence[str] = PARTS) -> Iterator[str]:
    """Print a line for the tests, and one for the product of matrices."""
    both = {"emulator": emulated(), "simulator": _SIMULATOR}
    with tempfile.TemporaryDirectory() as place:
        running = [_tests(environment, Path(place, name), parts) for name, environment in both.items()]
        for process in running:
            process.wait()
        found = {name: json.loads(Path(place, name, "counted").read_text()) for name in both}
    passed = {
        name: {test for test, (outcome, _) in tests.items() if outcome == "passed"} for name, tests in found.items()
    }
    common = sorted(passed["emulator"] & passed["simulator"])
    own, other = ([found[name][test][1] for test in common] for name in ("emulator", "simulator"))
    low, middle, high = statistics.quantiles((a / b for a, b in zip(own, other, strict=True)), n=4)
    yield (
        f"{len(common)} tests of numba-cuda (of {len(passed['emulator'])} and {len(passed['simulator'])} that pass): "
        f"emulator {sum(own):.0f} s, simulator {sum(other):.0f} s, ratio {sum(own) / sum(other):.2f}; "
        f"by test {middle:.1f}, quartiles {low:.1f} to {high:.1f}"
    )
    times = [[_once(environment) for environment in both.values()] for _ in range(5)]
    mine, theirs = (statistics.median(column) for column in zip(*times, strict=True))
    ratio = statistics.median(theirs / mine for mine, theirs in times)
    yield f"64x64 matrices by tiles of 16: emulator {mine * 1e3:.2f} ms, simulator {theirs * 1e3:.0f} ms, 1/{ratio:.0f}"


if __name__ == "__main__":
    for line in run(sys.argv[1:] or PARTS):
        print(line)
