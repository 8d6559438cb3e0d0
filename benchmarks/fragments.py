"""Measure an operator of a user in a library's kernel: compiled whole, and as a fragment linked with LTO-IR.

The library's kernel sums and sorts by CUB what the operator gives, as the transforms of data frames do. Processor time
of one new operator each time; the ways alternate.
"""

from __future__ import annotations

import functools
import os
import statistics
import time
from collections.abc import Callable

import cujit

_LIBRARY = """#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
extern "C" __device__ float op(float x);
extern "C" __global__ void k(float *p) {
    using Reduce = cub::BlockReduce<float, 128>;
    using Sort = cub::BlockRadixSort<float, 128, 4>;
    __shared__ union { typename Reduce::TempStorage reduce; typename Sort::TempStorage sort; } room;
    const float sum = Reduce(room.reduce).Sum(op(p[threadIdx.x]));
    __syncthreads();
    float keys[4];
    for (int i = 0; i < 4; ++i) keys[i] = op(p[4 * threadIdx.x + i]);
    Sort(room.sort).Sort(keys);
    for (int i = 0; i < 4; ++i) p[4 * threadIdx.x + i] = keys[i] + sum;
}
"""
_ROUNDS = 7
_ARCH = "sm_90"


def _operator(number: int) -> str:
    return f'extern "C" __device__ float op(float x) {{ return x * {number}.5f + {os.getpid()}; }}'


def _spent(work: Callable[[], object]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def main() -> None:
    """Print the medians."""
    library = cujit.compile(_LIBRARY, to="ltoir", arch=_ARCH, cache=False)
    spent: dict[str, list[float]] = {"whole": [], "whole, headers precompiled": [], "fragment": [], "link": []}
    operators = iter(range(10 * _ROUNDS))

    def fragment() -> cujit.Artifact:
        return cujit.compile(_operator(next(operators)), to="ltoir", arch=_ARCH, cache=False)

    def whole(is_precompiled: bool) -> cujit.Artifact:
        return cujit.compile(_LIBRARY + _operator(next(operators)), arch=_ARCH, cache=False, pch=is_precompiled)

    for _ in range(_ROUNDS):
        spent["whole"].append(_spent(lambda: whole(False)))
        spent["whole, headers precompiled"].append(_spent(lambda: whole(True)))
        spent["fragment"].append(_spent(fragment))
        parts = [library, fragment()]
        spent["link"].append(_spent(functools.partial(cujit.link, parts, arch=_ARCH, cache=False)))
    medians = {way: statistics.median(seconds) for way, seconds in spent.items()}
    for way, seconds in medians.items():
        print(f"{way:28s} {seconds:6.3f} s")
    print(f"whole / (fragment + link)    {medians['whole'] / (medians['fragment'] + medians['link']):6.1f}")


if __name__ == "__main__":
    main()
