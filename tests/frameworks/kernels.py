"""The kernels that torch and JAX are tried with alike."""

from __future__ import annotations

AXPY = """
#include <cuda_bf16.h>
#include <cuda_fp16.h>
template <class T> __global__ void axpy(float a, const T *x, const T *y, T *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = T(a) * x[i] + y[i];
}
template <class T> __global__ void axpy_back(float a, const T *grad, T *of_x, T *of_y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) { of_x[i] = T(a) * grad[i]; of_y[i] = grad[i]; }
}
extern "C" __global__ void scale(float *x, float by, int n) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) x[i] *= by;
}
"""
"""On any elements: a sum, its way back, and a change in place that strides over the grid."""

SUMS = """
template <int N> __global__ void sums(const float *x, float *out, int rows) {
    extern __shared__ float row[];
    row[threadIdx.x] = x[blockIdx.x * N + threadIdx.x];
    __syncthreads();
    if (threadIdx.x) return;
    float sum = 0;
    for (int i = 0; i < N; ++i) sum += row[i];
    out[blockIdx.x] = sum;
}
extern "C" __global__ void shared(float *out, int n) {
    unsigned bytes;
    asm("mov.u32 %0, %%dynamic_smem_size;" : "=r"(bytes));
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = bytes;
}
"""
"""Sums of rows, with a value in the name and dynamic shared memory; and how many bytes of that a block has."""
