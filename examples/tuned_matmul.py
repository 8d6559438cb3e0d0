"""Find the fastest tile size for a matrix product on this machine, once: ``python tuned_matmul.py [N] [CANDIDATES]``.

The second time, and in every other process of the user, it starts with the answer.
"""

import functools
import sys

import numpy as np

import cujit

SOURCE = """
template <int TILE, int ROWS> __global__ void matmul(const float *a, const float *b, float *c, int n) {
    __shared__ float left[TILE][TILE + 1], right[TILE][TILE];
    const int column = threadIdx.x, top = threadIdx.y * ROWS;
    const int x = blockIdx.x * TILE + column, y = blockIdx.y * TILE + top;
    float sum[ROWS] = {};
    for (int k = 0; k < n; k += TILE) {
        for (int r = 0; r < ROWS; ++r) {
            left[top + r][column] = a[(y + r) * n + k + column];
            right[top + r][column] = b[(k + top + r) * n + x];
        }
        __syncthreads();
        #pragma unroll UNROLL
        for (int i = 0; i < TILE; ++i)
            for (int r = 0; r < ROWS; ++r) sum[r] += left[top + r][i] * right[i][column];
        __syncthreads();
    }
    for (int r = 0; r < ROWS; ++r) c[(y + r) * n + x] = sum[r];
}
"""
SPACE = {"TILE": [32, 16, 8], "ROWS": [1, 2, 4], "UNROLL": [1, 8]}


def main(n: int = 512, candidates: int = 18) -> None:
    """Tune, and multiply."""
    device = cujit.default_device()
    host = np.random.default_rng(0).standard_normal((2, n, n), np.float32)
    a, b, c = device.array(host[0]), device.array(host[1]), device.zeros((n, n), np.float32)

    def workload(kernel: cujit.Kernel, v):
        c.fill(0)
        blocks = n // v["TILE"]
        return functools.partial(kernel[(blocks, blocks), (v["TILE"], v["TILE"] // v["ROWS"])], a, b, c, n)

    def check(_):
        return np.allclose(c.numpy(), host[0] @ host[1], atol=1e-2)

    few = {**SPACE, "TILE": SPACE["TILE"][: -(-candidates // 6)]}
    tuned = cujit.tune(SOURCE, few, workload, kernel="matmul<{TILE}, {ROWS}>", shape=n, check=check, device=device)
    print(tuned.record)
    print(f"{dict(tuned.values)}: {'known' if tuned.provenance.is_hit else 'measured now'}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
