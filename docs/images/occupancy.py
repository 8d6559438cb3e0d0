"""Draw ``occupancy-light.svg`` and ``occupancy-dark.svg`` beside this file: ``python docs/images/occupancy.py``.

The kernel is compiled for sm_90 and looked at as on an H200; no GPU is needed. Another NVRTC may give it other
registers, and another matplotlib other bytes.
"""

from __future__ import annotations

from pathlib import Path

from cujit.occupancy.subject import plot, subject
from cujit.program import compile

SGEMM = r"""
// C = A * B for row-major square matrices whose size n is a multiple of 64: a tile of 64 x 64 for each block of
// 256 threads, 4 x 4 elements for each thread.
__global__ void sgemm(int n, const float* a, const float* b, float* c) {
    __shared__ float left[16][64 + 4], right[16][64];
    const int row = blockIdx.y * 64, column = blockIdx.x * 64;
    const int x = threadIdx.x % 16, y = threadIdx.x / 16;
    float sum[4][4] = {};
    for (int k = 0; k < n; k += 16) {
        for (int i = threadIdx.x; i < 64 * 16; i += 256) {
            left[i % 16][i / 16] = a[(row + i / 16) * n + k + i % 16];
            right[i / 64][i % 64] = b[(k + i / 64) * n + column + i % 64];
        }
        __syncthreads();
        #pragma unroll
        for (int i = 0; i < 16; i++) {
            float p[4], q[4];
            #pragma unroll
            for (int j = 0; j < 4; j++) { p[j] = left[i][y * 4 + j]; q[j] = right[i][x * 4 + j]; }
            #pragma unroll
            for (int j = 0; j < 4; j++)
                #pragma unroll
                for (int l = 0; l < 4; l++) sum[j][l] += p[j] * q[l];
        }
        __syncthreads();
    }
    for (int j = 0; j < 4; j++)
        for (int l = 0; l < 4; l++) c[(row + y * 4 + j) * n + column + x * 4 + l] = sum[j][l];
}
"""


def main() -> None:
    """Write both."""
    found = subject(compile(SGEMM, arch="sm_90"), on="H200")
    place = Path(__file__).parent
    plot(place / "occupancy-light.svg", found, 256)
    plot(place / "occupancy-dark.svg", found, 256, dark=True)


if __name__ == "__main__":
    main()
