"""Compute a scan with one cooperative launch instead of two launches."""

import numpy as np

import cujit

SOURCE = """
#include <cooperative_groups.h>
extern "C" __global__ void scan(int *x, int *sums, int n) {  // a block sums a piece, and then adds what comes behind
    auto grid = cooperative_groups::this_grid();
    int piece = (n + gridDim.x - 1) / gridDim.x;
    int first = blockIdx.x * piece, last = min(first + piece, n);
    if (threadIdx.x == 0) {
        int sum = 0;
        for (int i = last - 1; i >= first; --i) x[i] = sum += x[i];
        sums[blockIdx.x] = sum;
    }
    grid.sync();
    int behind = 0;
    for (int k = blockIdx.x + 1; k < gridDim.x; ++k) behind += sums[k];
    for (int i = first + threadIdx.x; i < last; i += blockDim.x) x[i] += behind;
}
"""
device = cujit.default_device()
scan = cujit.jit(SOURCE, device=device)["scan"]
blocks = min(scan.cooperative_limit(64), 48)  # another block would be waited for, and never start
data = np.random.default_rng(0).integers(-9, 9, 10_000, np.int32)
x, sums = device.array(data), device.empty(blocks, np.int32)
scan.prepare(blocks, 64, cooperative=True)(x, sums, data.size)
assert (x.numpy() == data[::-1].cumsum()[::-1]).all()
print(f"{blocks} blocks on {device.name} scanned {data.size} numbers from the end; the whole sum is {x.numpy()[0]}")
