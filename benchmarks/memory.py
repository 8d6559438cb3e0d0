"""What memory between guards costs: launches without and with shared memory, and arrays of 4 KB.

``python benchmarks/memory.py [SRC]`` prints CPU microseconds each, medians of turns; with the ``src`` folder of another
checkout it runs both in turns, and prints the ratios of this one to that one.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from pathlib import Path

_PROGRAM = r"""
import json, statistics, time
import numpy as np, cujit
code = '''extern "C" __global__ void plain(float *x) { x[threadIdx.x] += 1; }
extern "C" __global__ void tile(float *x) {
    __shared__ float s[256]; s[threadIdx.x] = x[threadIdx.x]; __syncthreads(); x[threadIdx.x] = s[threadIdx.x ^ 1];
}
extern "C" __global__ void own(float *x) {
    float s[64]; for (int i = 0; i < 64; i++) s[i] = x[i]; x[threadIdx.x] = s[(int)x[threadIdx.x] & 63];
}'''
device = cujit.cpu()
module, x, host = cujit.jit(code, device=device), device.zeros(256, np.float32), np.zeros(1000, np.float32)
def each(work, times):
    found = []
    for _ in range(7):
        start = time.process_time()
        work(times)
        found.append((time.process_time() - start) / times * 1e6)
    return statistics.median(found)
def launches(name):
    launch = module[name][1, 256]
    for _ in range(3000): launch(x)
    time.sleep(0.2)
    def work(times):
        for _ in range(times): launch(x)
    return each(work, 20000)
def arrays(times):
    for _ in range(times): device.array(host)
def living(times):
    kept = [device.empty(1000, np.float32) for _ in range(times)]
found = {name: launches(name) for name in ("plain", "tile", "own")}
arrays(2000), living(2000)
found["array of 4 KB"], found["2,000 arrays at once"] = each(arrays, 5000), each(living, 2000)
start = time.process_time()
kept = [device.array(host) for _ in range(100_000)]
found["each of 100,000 arrays"] = (time.process_time() - start) * 10
print(json.dumps(found))
"""


def _run(source: Path) -> dict[str, float]:
    made = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=True, env={"PYTHONPATH": str(source)}
    )
    found: dict[str, float] = json.loads(made.stdout)
    return found


def main() -> None:
    here = Path(__file__).parents[1] / "src"
    others = [Path(each) for each in sys.argv[1:2]]
    turns = [[_run(source) for source in (here, *others)] for _ in range(3)]
    for name in turns[0][0]:
        own = statistics.median(turn[0][name] for turn in turns)
        ratio = statistics.median(turn[0][name] / turn[-1][name] for turn in turns)
        print(f"{name:24} {own:8.2f} us" + (f", {ratio:.2f} times the other" if others else ""))


if __name__ == "__main__":
    main()
