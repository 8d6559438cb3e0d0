"""What asynchronous copies and schedules cost on the CPU device: instructions of three pipelines, counted by callgrind.

``python benchmarks/copies.py`` prints the instructions of one launch of each case: four stages of ``cp.async``, a
pipeline of bulk copies with producer and consumer warps, and ``wgmma`` on tiles that bulk copies bring. ``python
benchmarks/copies.py OTHER/src`` prints the same for the package at another place, and the ratio. Counts do not depend
on what else the machine does. One launch is a quarter of the difference between five launches and one.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

HEAD = r"""
#include <cstdint>
__device__ unsigned sh(const void *p) { return (unsigned)__cvta_generic_to_shared(p); }
__device__ void make(uint64_t *bar, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1; fence.mbarrier_init.release.cluster;"
               :: "r"(sh(bar)), "r"(count) : "memory"); }
__device__ void until(uint64_t *bar, int parity) {
  asm volatile("{ .reg .pred p; L: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @!p bra L; }"
               :: "r"(sh(bar)), "r"(parity) : "memory"); }
__device__ void arrive(uint64_t *bar) {
  asm volatile("mbarrier.arrive.shared.b64 _, [%0];" :: "r"(sh(bar)) : "memory"); }
__device__ void bulk(void *to, const void *from, int bytes, uint64_t *bar) {
  asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" :: "r"(sh(bar)), "r"(bytes) : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               :: "r"(sh(to)), "l"(from), "r"(bytes), "r"(sh(bar)) : "memory"); }
"""

GROUPS = r"""
extern "C" __global__ void groups(const float4 *a, const float4 *b, float *c, int n) {
  __shared__ __align__(16) float4 sa[4][256], sb[4][256];
  int t = threadIdx.x; float acc[4][4] = {};
  auto fetch = [&](int k) {
    if (k < n) {
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                   :: "r"(sh(&sa[k % 4][t])), "l"(a + k * 256 + t) : "memory");
      asm volatile("cp.async.cg.shared.global [%0], [%1], 16;"
                   :: "r"(sh(&sb[k % 4][t])), "l"(b + k * 256 + t) : "memory");
    }
    asm volatile("cp.async.commit_group;" ::: "memory"); };
  for (int k = 0; k < 3; k++) fetch(k);
  for (int k = 0; k < n; k++) {
    asm volatile("cp.async.wait_group 2;" ::: "memory"); __syncthreads();
    fetch(k + 3);
    for (int j = 0; j < 16; j++) {
      float4 x = sa[k % 4][j * 16 + t / 16], y = sb[k % 4][j * 16 + t % 16];
      float xs[4] = {x.x, x.y, x.z, x.w}, ys[4] = {y.x, y.y, y.z, y.w};
      for (int p = 0; p < 4; p++) for (int q = 0; q < 4; q++) acc[p][q] += xs[p] * ys[q];
    }
  }
  for (int p = 0; p < 4; p++) for (int q = 0; q < 4; q++) c[(blockIdx.x * 16 + p * 4 + q) * 256 + t] = acc[p][q];
}
"""

BULK = r"""
extern "C" __global__ void pipeline(const float4 *a, const float4 *b, float *c, int n) {
  __shared__ __align__(128) float4 sa[4][256], sb[4][256]; __shared__ uint64_t full[4], empty[4];
  int t = threadIdx.x; float acc = 0;
  if (t == 0) for (int k = 0; k < 4; k++) { make(&full[k], 2); make(&empty[k], 256); }
  __syncthreads();
  if (t >= 256) {
    for (int k = 0; k < n && t == 256; k++) {
      if (k >= 4) until(&empty[k % 4], (k / 4 - 1) & 1);
      bulk(sa[k % 4], a + k * 256, 4096, &full[k % 4]); bulk(sb[k % 4], b + k * 256, 4096, &full[k % 4]);
    }
    return;
  }
  for (int k = 0; k < n; k++) {
    until(&full[k % 4], k / 4 & 1);
    for (int j = 0; j < 16; j++) {
      float4 x = sa[k % 4][j * 16 + t / 16], y = sb[k % 4][j * 16 + t % 16];
      acc += x.x * y.x + x.y * y.y + x.z * y.z + x.w * y.w;
    }
    arrive(&empty[k % 4]);
  }
  c[blockIdx.x * 256 + t] = acc;
}
"""

WGMMA = r"""
extern "C" __global__ void wgmma(const float4 *a, const float4 *b, float *c, int n) {
  extern __shared__ __align__(1024) char s[]; __shared__ uint64_t full[2];
  int t = threadIdx.x; float d[4] = {};
  if (t == 0) { make(&full[0], 2); make(&full[1], 2); }
  __syncthreads();
  for (int k = 0; k < n; k++) {
    char *at = s + k % 2 * 4096;
    if (t == 0) { bulk(at, a + k * 128, 2048, &full[k % 2]); bulk(at + 2048, b + k * 128, 2048, &full[k % 2]); }
    until(&full[k % 2], k / 2 & 1);
    uint64_t common = (uint64_t)8 << 16 | (uint64_t)16 << 32;
    uint64_t x = (sh(at) & 0x3ffff) >> 4 | common, y = (sh(at + 2048) & 0x3ffff) >> 4 | common;
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
    asm volatile("wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%0, %1, %2, %3}, %4, %5, 1, 1, 1, 0, 0;"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(x), "l"(y));
    asm volatile("wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;" ::: "memory");
    __syncthreads();
  }
  for (int k = 0; k < 4; k++) c[(blockIdx.x * 4 + k) * 128 + t] = d[k];
}
"""

CASES = {"cp.async, 4 stages": ("groups", GROUPS, 256, 0), "cp.async.bulk, 4 stages": ("pipeline", BULK, 288, 0),
         "wgmma on bulk copies": ("wgmma", WGMMA, 128, 8192)}  # fmt: skip
TURNS, BLOCKS = 64, 2

CHILD = """
import sys, numpy as np, cujit
name, source, block, shared, launches = sys.argv[1], open(sys.argv[2]).read(), *map(int, sys.argv[3:])
d = cujit.cpu(threads=1)
module = cujit.load(cujit.compile(source, arch="sm_90a", to="ptx"), d)
kernel = module[name].prepare({blocks}, block, shared_bytes=shared)
x, c = np.ones({turns} * 1024, np.float32), d.zeros({blocks} * 16 * 256, np.float32)
a, b = d.array(x), d.array(x)
for _ in range(launches):
    kernel(a, b, c, {turns})
"""


def counted(package: Path, case: str, launches: int, folder: Path) -> int:
    """Count the instructions of a process that launches so often, by the package at a place."""
    name, source, block, shared = CASES[case]
    file, out = folder / f"{name}.cu", folder / "callgrind"
    file.write_text(HEAD + source)
    child = CHILD.replace("{blocks}", str(BLOCKS)).replace("{turns}", str(TURNS))
    command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", sys.executable, "-c", child]
    arguments = [name, str(file), str(block), str(shared), str(launches)]
    environment = {
        **os.environ,
        "PYTHONPATH": str(package),
        "CUJIT_CACHE_DIR": str(folder / "cache"),
        "PYTHONHASHSEED": "0",
    }
    done = subprocess.run([*command, *arguments], env=environment, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(done.stderr[-2000:])
    found = re.search(r"^(?:summary|totals): (\d+)", out.read_text(), re.MULTILINE)
    assert found is not None
    return int(found[1])


def one_launch(package: Path, case: str) -> int:
    """Count the instructions of one launch: the first run of the process fills the cache."""
    with tempfile.TemporaryDirectory() as folder:
        counted(package, case, 1, Path(folder))
        return (counted(package, case, 5, Path(folder)) - counted(package, case, 1, Path(folder))) // 4


def run(arguments: list[str]) -> Iterator[str]:
    """Print one line for each case."""
    here = Path(__file__).parents[1] / "src"
    for case in CASES:
        own = one_launch(here, case)
        line = f"{case}: {own / 1e6:.2f} million instructions a launch"
        for other in arguments:
            before = one_launch(Path(other).resolve(), case)
            line += f", {before / 1e6:.2f} at {other}: {own / before:.2f} times"
        yield line


if __name__ == "__main__":
    for line in run(sys.argv[1:]):
        print(line, flush=True)
