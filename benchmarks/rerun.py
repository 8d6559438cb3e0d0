"""A saved launch run again: with the process that is ready, and with one that has to be started for it.

Both run the same launch in turn, and the rows are seconds of wall time that ``cujit.reproducer.run`` takes.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path

import numpy as np

import cujit
from cujit.reproducer import fork_server, run

ROUNDS = 9
_KERNEL = """extern "C" __global__ void saxpy(float a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}"""


def _seconds(path: Path) -> float:
    begin = time.perf_counter()
    run(path, device="cpu")
    return time.perf_counter() - begin


def main() -> None:
    """Measure and print."""
    device = cujit.cpu()
    x, y = device.zeros(4096, np.float32), device.zeros(4096, np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "saxpy.launch"
        cujit.jit(_KERNEL, device=device)["saxpy"][16, 256].save(path, np.float32(2), x, y, np.int32(4096))
        started, ready = [], []
        for _ in range(ROUNDS):
            fork_server._end_all()
            started.append(_seconds(path))
            ready.append(_seconds(path))
    print(f"started for it {statistics.median(started):.3f} s, ready {statistics.median(ready):.3f} s")
    ratio = statistics.median(mine / theirs for mine, theirs in zip(ready, started, strict=True))
    print(f"ready / started {ratio:.2f}")


if __name__ == "__main__":
    main()
