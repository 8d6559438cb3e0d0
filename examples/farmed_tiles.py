"""Compile every tile size of a matrix product for every GPU in a cluster into one pack.

On this machine: ``python farmed_tiles.py``. On a cluster of Slurm's, with dask-jobqueue::

    from dask_jobqueue import SLURMCluster
    cluster = SLURMCluster(cores=1, processes=1, memory="1GB", walltime="00:30:00")
    cluster.scale(100)
    python farmed_tiles.py --executor dask://<cluster.scheduler_address without tcp://>

Then ``CUJIT_CACHE_ROOTS=tiles.pack CUJIT_COMPILE=never`` runs the program without a compiler.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path

import cujit
import cujit.farm

TILE = """
template <typename T, int N> __global__ void tile(const T* a, const T* b, T* c, int width) {
    __shared__ T at[N][N], bt[N][N];
    int row = blockIdx.y * N + threadIdx.y, col = blockIdx.x * N + threadIdx.x;
    T sum = 0;
    for (int k = 0; k < width / N; k++) {
        at[threadIdx.y][threadIdx.x] = a[row * width + k * N + threadIdx.x];
        bt[threadIdx.y][threadIdx.x] = b[(k * N + threadIdx.y) * width + col];
        __syncthreads();
        for (int i = 0; i < N; i++) sum += at[threadIdx.y][i] * bt[i][threadIdx.x];
        __syncthreads();
    }
    c[row * width + col] = sum;
}
"""


def requests(sizes: Sequence[int]) -> Iterator[cujit.Request]:
    """Every tile in both precisions; a generator, so that a list of any length takes no room."""
    source = cujit.Source.cuda(TILE, name="tile.cu")
    for size in sizes:
        for scalar in ("float", "double"):
            yield cujit.request(source, names=[f"tile<{scalar}, {size}>"], arch="sm_90")


def build(
    executor: Executor | str, folder: Path, sizes: Sequence[int], targets: Sequence[str], share: str | None = None
) -> cujit.farm.Report:
    """Compile what is not there yet, at most a minute each, and write the pack."""
    images, pack = folder / "images", folder / "tiles.pack"
    return cujit.farm.build(
        requests(sizes), targets, executor=executor, sink=images, pack=pack, deadline_s=60, share=share
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--executor", default="processes")
    parser.add_argument("--share", choices=["ptx", "ltoir"], help="what the architectures share")
    given = parser.parse_args()
    report = build(given.executor, Path(), range(4, 33, 4), ["sm_80", "sm_90", "sm_100", "sm_120"], given.share)
    print(report)
    sys.exit(not report.is_good)
