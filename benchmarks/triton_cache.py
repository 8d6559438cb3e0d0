"""Triton with its own cache and with cujit's: what a hit costs, and how eight ranks start cold and warm.

A hit is all of ``triton.compile``, in one process, by turns. Ranks are processes that start at once; a rank is ready
when it has all kernels. No GPU is needed: Triton compiles for a target. Run it by the Python of `make clients`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

CHILD = """
import json, os, sys, time, warnings
warnings.simplefilter("ignore")
begin = time.perf_counter()
import triton
import triton.language as tl
from triton import knobs
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def product(a, b, c, n, SIZE: tl.constexpr):
    rows = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    columns = tl.program_id(1) * SIZE + tl.arange(0, SIZE)
    inner = tl.arange(0, SIZE)
    total = tl.zeros((SIZE, SIZE), dtype=tl.float32)
    for base in range(0, n, SIZE):
        left = tl.load(a + rows[:, None] * n + (base + inner)[None, :])
        right = tl.load(b + (base + inner)[:, None] * n + columns[None, :])
        total = tl.dot(left, right, total)
    tl.store(c + rows[:, None] * n + columns[None, :], total)


types = {"a": "*fp16", "b": "*fp16", "c": "*fp32", "n": "i32", "SIZE": "constexpr"}


def make(size, warps):
    source = ASTSource(fn=product, signature=types, constexprs={"SIZE": size})
    triton.compile(source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps})


counted = []
knobs.compilation.listener = lambda **said: counted.append(said["cache_hit"])
mode, count = sys.argv[1], int(sys.argv[2])
if mode == "rank":
    loaded = time.perf_counter()
    for n in range(count):
        make((32, 64, 128)[n % 3], (2, 4, 8)[n // 3 % 3])
    end = time.perf_counter()
    print(json.dumps([end - begin, end - loaded, counted.count(False)]))
else:
    from triton.runtime.cache import FileCacheManager
    from cujit.integrations.triton import CacheManager
    managers, times = (FileCacheManager, CacheManager), ([], [])
    for manager in managers:
        knobs.cache.manager_class = manager
        for _ in range(20):
            make(32, 4)
    for turn in range(count):
        for which in ((0, 1), (1, 0))[turn % 2]:
            knobs.cache.manager_class = managers[which]
            start = time.process_time()
            for _ in range(20):
                make(32, 4)
            times[which].append((time.process_time() - start) / 20)
    print(json.dumps(times))
"""

OURS = {"TRITON_CACHE_MANAGER": "cujit.integrations.triton:CacheManager"}


def start(folder: Path, mode: str, count: int, **variables: str) -> subprocess.Popen[str]:
    own = {"TRITON_CACHE_DIR": str(folder / "triton"), "CUJIT_CACHE_DIR": str(folder / "cujit"), **variables}
    command = [sys.executable, str(folder / "child.py"), mode, str(count)]
    return subprocess.Popen(command, env={**os.environ, **own}, stdout=subprocess.PIPE, text=True)


def answer(process: subprocess.Popen[str]) -> Any:
    output, _ = process.communicate(timeout=500)
    assert process.returncode == 0
    return json.loads(output)


def hit(folder: Path, turns: int) -> str:
    own, ours = answer(start(folder, "hit", turns))
    ratios = sorted(b / a for a, b in zip(own, ours, strict=True))
    return (
        f"a hit: Triton's own {median(own) * 1e6:.0f} us of CPU, cujit's {median(ours) * 1e6:.0f} us; "
        f"ratio of the medians {median(ours) / median(own):.3f}, "
        f"of pairs {ratios[len(ratios) // 4]:.3f} to {ratios[len(ratios) * 3 // 4]:.3f}"
    )


def ranks(folder: Path, number: int, kernels: int, title: str, **variables: str) -> str:
    """Start ranks at once, and tell when the last one was ready and how many kernels all of them compiled."""
    found = [answer(process) for process in [start(folder, "rank", kernels, **variables) for _ in range(number)]]
    last, waited, compiled = max(row[0] for row in found), max(row[1] for row in found), sum(row[2] for row in found)
    return (
        f"{title}: the last of {number} ranks is ready after {last:.1f} s, kernels {waited:.1f} s, {compiled} compiles"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=101)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--kernels", type=int, default=9)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for who, variables in (("Triton", {}), ("cujit", OURS)):
            place = folder / who
            place.mkdir(mode=0o700)
            (place / "child.py").write_text(CHILD)
            for how in ("cold", "warm"):
                print(ranks(place, given.ranks, given.kernels, f"{who}, {how}", **variables), flush=True)
        print(hit(folder / "cujit", given.turns))


if __name__ == "__main__":
    main()
