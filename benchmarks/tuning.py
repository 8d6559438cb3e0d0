"""What tuning finds and costs: a tiled matrix product over 208 variants on a GPU, or a few on the CPU device.

``python benchmarks/tuning.py [N]`` multiplies matrices of N by N. From an empty cache it tells the time until there is
an answer where a farm compiles with all processors, and where the measuring process does; how far the winner is from
the best of all candidates, measured again; what eight processes get that ask at once; and the time of a hit.
"""

from __future__ import annotations

import functools
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

import cujit
from cujit.cache import admin
from cujit.devices.device import Device
from cujit.kernel import Kernel
from cujit.tuning import Tuned

SOURCE = r"""
template <int N> struct alignas(4 * N) Floats { float f[N]; };

template <int BM, int BN, int BK, int TM, int TN, int VEC>
__global__ void __launch_bounds__(BM / TM * (BN / TN)) product(const float *a, const float *b, float *c, int n) {
    constexpr int THREADS = BM / TM * (BN / TN);
    using Vector = Floats<VEC>;
    __shared__ float left[BK][BM + 4];
    __shared__ alignas(16) float right[BK][BN];
    const int t = threadIdx.x, tx = t % (BN / TN), ty = t / (BN / TN);
    a += blockIdx.y * BM * n;
    b += blockIdx.x * BN;
    float sum[TM][TN] = {};
    for (int k = 0; k < n; k += BK) {
        for (int i = t; i < BM * BK / VEC; i += THREADS) {
            const int row = i / (BK / VEC), column = i % (BK / VEC) * VEC;
            const Vector read = *(const Vector *)&a[row * n + k + column];
            for (int v = 0; v < VEC; ++v) left[column + v][row] = read.f[v];
        }
        for (int i = t; i < BK * BN / VEC; i += THREADS) {
            const int row = i / (BN / VEC), column = i % (BN / VEC) * VEC;
            *(Vector *)&right[row][column] = *(const Vector *)&b[(k + row) * n + column];
        }
        __syncthreads();
        #pragma unroll UNROLL
        for (int kk = 0; kk < BK; ++kk) {
            float x[TM], y[TN];
            #pragma unroll
            for (int i = 0; i < TM; ++i) x[i] = left[kk][ty * TM + i];
            #pragma unroll
            for (int j = 0; j < TN; ++j) y[j] = right[kk][tx * TN + j];
            #pragma unroll
            for (int i = 0; i < TM; ++i)
                #pragma unroll
                for (int j = 0; j < TN; ++j) sum[i][j] += x[i] * y[j];
        }
        __syncthreads();
    }
    c += (blockIdx.y * BM + ty * TM) * n + blockIdx.x * BN + tx * TN;
    for (int i = 0; i < TM; ++i)
        for (int j = 0; j < TN; ++j) c[i * n + j] = sum[i][j];
}
"""
MANY = {
    "BM": [32, 64, 128], "BN": [32, 64, 128], "BK": [8, 16], "TM": [4, 8], "TN": [4, 8], "VEC": [1, 4],
    "UNROLL": [2, 8],
}  # fmt: skip
FEW = {"BM": [16, 32], "BN": [32], "BK": [8], "TM": [2, 4], "TN": [4], "VEC": [1, 4], "UNROLL": [2]}
KERNEL = "product<{BM}, {BN}, {BK}, {TM}, {TN}, {VEC}>"
ROUNDS = 5
SAMPLE_MS = 2.0


def threads(v: Mapping[str, Any]) -> int:
    return int(v["BM"] // v["TM"] * (v["BN"] // v["TN"]))


class Product:
    """The matrices on one device, and how ``cujit.tune`` is asked about their product."""

    def __init__(self, device: Device, n: int) -> None:
        self.device, self.n = device, n
        host = np.random.default_rng(0).standard_normal((2, n, n), np.float32)
        self.wanted = host[0][::61] @ host[1]
        self.a, self.b, self.c = device.array(host[0]), device.array(host[1]), device.zeros((n, n), np.float32)
        self.space = MANY if device.is_gpu else FEW

    def constraint(self, v: Mapping[str, Any]) -> bool:
        most = 256 if self.device.is_gpu else 1024
        return 64 <= threads(v) <= most and v["BK"] * (v["BM"] + 4 + v["BN"]) * 4 <= 48 << 10

    def workload(self, kernel: Kernel, v: Mapping[str, Any]) -> Callable[[], object]:
        self.c.fill(0)
        grid = self.n // v["BN"], self.n // v["BM"]
        return functools.partial(kernel[grid, threads(v)], self.a, self.b, self.c, self.n)

    def check(self, _: object) -> bool:
        return np.allclose(self.c.numpy()[::61], self.wanted, atol=1e-3 * self.n**0.5)

    def tune(self, **more: Any) -> tuple[Tuned, float]:
        """Tune, and give the seconds that it took."""
        start = time.perf_counter()
        tuned = cujit.tune(
            SOURCE, self.space, self.workload, kernel=KERNEL, shape=self.n, constraint=self.constraint,
            check=self.check, device=self.device, **more,
        )  # fmt: skip
        return tuned, time.perf_counter() - start

    def best(self, tuned: Tuned) -> tuple[float, float, Mapping[str, Any]]:
        """Measure all candidates again, in turns; give the milliseconds of the winner and of the best, and which."""
        calls: list[Callable[[], object]] = []
        times: list[list[float]] = []
        good = [one.values for one in tuned.record.candidates if one.timing is not None]
        for v in good:
            name = KERNEL.format(**v)
            module = cujit.jit(SOURCE, names=[name], device=self.device, define={"UNROLL": v["UNROLL"]})
            calls.append(self.workload(module[name], v))
            times.append([])
        for turn in range(ROUNDS):
            for call, taken in zip(calls, times, strict=True):
                if turn < 2 or statistics.median(taken) < 1.3 * min(map(statistics.median, times)):
                    count = math.ceil(SAMPLE_MS / min(taken)) if taken else None
                    taken += cujit.time(call, repeat=5, warmup=1, calls=count, device=self.device).samples_ms
        medians = [statistics.median(taken) for taken in times]
        won, best = medians[good.index(dict(tuned.values))], min(medians)
        return won, best, good[medians.index(best)]


def cold(folder: str) -> None:
    """Have this process look for answers and images in an empty directory from now on."""
    os.environ["CUJIT_CACHE_DIR"] = tempfile.mkdtemp(dir=folder)


def forget_answers() -> None:
    """Delete the answers, and leave the images."""
    cache = cujit.default_cache()
    assert cache.store is not None
    for entry in list(admin.ls(cache)):
        if entry.summary is not None and entry.summary.work == "tuning":
            cache.store.delete(entry.digest)


def eight(n: int) -> tuple[list[dict[str, Any]], float]:
    """Have eight processes ask at once, and give what each got, and the seconds until the last had it."""
    start = time.perf_counter()
    command = [sys.executable, __file__, str(n), "--one"]
    children = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(8)]
    said = [child.communicate()[0] for child in children]
    return [json.loads(text) for text in said], time.perf_counter() - start


def run(n: int, device: Device, folder: str) -> Iterator[str]:
    """Give the lines of the table."""
    product = Product(device, n)
    processes = os.cpu_count() or 1
    yield f"matrices of {n} by {n} on {device.product}, {processes} processors"
    cold(folder)
    tuned, farm_s = product.tune(executor="processes")
    candidates, won = tuned.record.candidates, tuned.record.best.timing
    assert won is not None
    lost = [one.error for one in candidates if one.error]
    yield f"{len(candidates)} candidates, of which {len(lost)} lost {lost[:1]}"
    slowest_ms = max(one.timing.median_ms for one in candidates if one.timing is not None)
    speed = 2 * n**3 / won.median_ms / 1e9
    yield f"winner: {dict(tuned.values)}: {won}, {speed:.2f} TFLOP/s; the slowest {slowest_ms:.3f} ms"
    winner_ms, best_ms, best = product.best(tuned)
    yield f"all again: winner {winner_ms:.4f} ms, best {best_ms:.4f} ms, {winner_ms / best_ms - 1:+.2%}: {dict(best)}"
    yield f"cold, compiled by {processes} processes: {farm_s:.1f} s until the answer"
    again, hit_s = product.tune()
    yield f"a hit in the same process: {1e3 * hit_s:.2f} ms ({again.provenance.outcome.value})"
    answers, eight_s = eight(n)
    known = sum(answer["outcome"] == "disk" for answer in answers)
    yield f"eight processes, where there is an answer: {eight_s:.1f} s with their start, {known} found it"
    forget_answers()
    answers, eight_s = eight(n)
    measured = sum(answer["outcome"] == "made" for answer in answers)
    distinct = len({json.dumps(answer["values"]) for answer in answers})
    yield f"eight processes at once, images there: {eight_s:.1f} s, {measured} measured, {distinct} answer"
    cold(folder)
    _, here_s = product.tune()
    yield f"cold, compiled where it is measured: {here_s:.1f} s until the answer, {here_s / farm_s:.1f} times as long"


def main() -> None:
    """Print the table, or, as one of eight, what was got."""
    device = cujit.default_device()
    n = int(sys.argv[1]) if len(sys.argv) > 1 else 2048 if device.is_gpu else 64
    if sys.argv[2:] == ["--one"]:
        tuned, _ = Product(device, n).tune()
        print(json.dumps({"values": dict(tuned.values), "outcome": tuned.provenance.outcome.value}))
        return
    with tempfile.TemporaryDirectory() as folder:
        for line in run(n, device, folder):
            print(line, flush=True)


if __name__ == "__main__":
    main()
