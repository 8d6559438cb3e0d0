"""Examples to start from, for a file that is empty: a source, and a launch of it."""

from __future__ import annotations

from cujit.explore.scene import Scene

_AXPY = """extern "C" __global__ void axpy(float a, const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
_TRANSPOSE = """extern "C" __global__ void transpose(const float *x, float *y, int n) {
    __shared__ float tile[32][32];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = x[row * n + column];
    __syncthreads();
    y[(blockIdx.x * 32 + threadIdx.y) * n + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
"""
_REDUCTION = """extern "C" __global__ void sum(const float *x, float *total, int n) {
    __shared__ float part[256];
    int i = blockIdx.x * 256 + threadIdx.x;
    part[threadIdx.x] = i < n ? x[i] : 0;
    for (int half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) part[threadIdx.x] += part[threadIdx.x + half];
    }
    if (threadIdx.x == 0) atomicAdd(total, part[0]);
}
"""
_HISTOGRAM = """extern "C" __global__ void histogram(const unsigned char *x, unsigned *bins, int n) {
    __shared__ unsigned part[256];
    part[threadIdx.x] = 0;
    __syncthreads();
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) atomicAdd(&part[x[i]], 1);
    __syncthreads();
    atomicAdd(&bins[threadIdx.x], part[threadIdx.x]);
}
"""

STARTERS = (
    Scene(_AXPY, "axpy", over="1000", arguments="2.0 ones:f32:1000 zeros:f32:1000 1000"),
    Scene(_TRANSPOSE, "transpose", grid="2x2", block="32x32", arguments="arange:f32:64x64 zeros:f32:64x64 64"),
    Scene(_REDUCTION, "sum", grid="4", block="256", arguments="ones:f32:1000 zeros:f32:1 1000"),
    Scene(_HISTOGRAM, "histogram", grid="4", block="256", arguments="arange:u8:4096 zeros:u32:256 4096"),
)
"""Examples by name, from the simplest one on."""
