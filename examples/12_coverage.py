"""Measure which lines of a kernel its tests execute, for tools such as genhtml and Codecov."""

import tempfile
from pathlib import Path

import numpy as np

import cujit

SOURCE = """\
extern "C" __global__ void collatz(const int *start, int *steps, int n) {
    int i = threadIdx.x;
    if (i >= n) return;
    long long x = start[i];
    int count = 0;
    while (x != 1) {
        if (x < 1) {
            count = -1;
            break;
        }
        x = x % 2 ? 3 * x + 1 : x / 2;
        ++count;
    }
    steps[i] = count;
}
"""
coverage = cujit.Coverage(exact=True)
device = cujit.cpu(coverage=coverage)
start, steps = np.array([1, 6, 7, 27], np.int32), device.zeros(4, np.int32)
cujit.jit(SOURCE, device=device, name="collatz.cu")["collatz"][1, 32](device.array(start), steps, 4)
assert steps.numpy().tolist() == [0, 8, 16, 111]

threads = coverage.lines()["collatz.cu"]
for number, line in enumerate(SOURCE.splitlines(), 1):
    print(f"{threads.get(number, '')!s:>5}  {line}")
assert threads[12] == 0 + 8 + 16 + 111
assert threads[8] == 0  # no test has a number below 1
with tempfile.TemporaryDirectory() as folder:
    coverage.save(Path(folder) / "cuda.info")
    assert "DA:8,0" in (Path(folder) / "cuda.info").read_text()
