"""Kernels that keep one part of a GPU busy, their bounds, and how long they take: ``python tests/bounds/bounded.py``.

``test_gpu.py`` holds that no bound is beaten.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

import cujit
from cujit.devices.device import Device
from cujit.devices.process import process_devices
from cujit.profile import Bound, KernelBounds, Profile, bounds

CODE = r"""
#include <cuda_fp16.h>
__global__ void copy(const float4 *x, float4 *y) { int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = x[i]; }
__global__ void saxpy(const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    y[i] = 2.5f * x[i] + y[i];
}
template <int STRIDE> __global__ void reread(const float *x, float *y) {
    float sum = 0;
    for (int k = 0; k < 128; k++) {
        const float *mine = x + threadIdx.x % 32 * STRIDE + k % 8 * 1024;
        #pragma unroll
        for (int j = 0; j < 16; j++) sum += mine[64 * j];
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
template <int WIDTH> __global__ void columns(const float *x, float *y) {
    __shared__ float s[32][WIDTH];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int k = warp; k < 32; k += blockDim.x / 32) s[k][lane] = x[k * 32 + lane];
    __syncthreads();
    const volatile float *column = s[lane];
    float sum = 0;
    #pragma unroll 16
    for (int k = 0; k < 2048; k++) sum += column[k % 32];
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
template <typename T, int MANY> __global__ void neighbours(const T *x, T *y) {
    __shared__ T s[8][32 * MANY];
    for (int k = threadIdx.x; k < 8 * 32 * MANY; k += blockDim.x) s[0][k] = x[k];
    int lane = threadIdx.x % 32;
    T sum = 0;
    for (int k = 0; k < 256; k++) {
        __syncthreads();
        #pragma unroll
        for (int j = 0; j < 8; j++)
            for (int i = 0; i < MANY; i++) sum += s[j][lane * MANY + i];
    }
    y[blockIdx.x * blockDim.x + threadIdx.x] = sum;
}
template <typename T> __global__ void fused(const T *x, T *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    T a[8], b = x[i];
    for (int j = 0; j < 8; j++) a[j] = x[i + j];
    #pragma unroll 8
    for (int k = 0; k < 4096; k++)
        for (int j = 0; j < 8; j++) a[j] = a[j] * b + b;
    T sum = a[0];
    for (int j = 1; j < 8; j++) sum = sum + a[j];
    y[i] = sum;
}
__global__ void halves(const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    __half2 a[8], b = __float2half2_rn(x[i]);
    for (int j = 0; j < 8; j++) a[j] = __float2half2_rn(x[i + j]);
    #pragma unroll 8
    for (int k = 0; k < 4096; k++)
        for (int j = 0; j < 8; j++) a[j] = __hfma2(a[j], b, b);
    __half2 sum = a[0];
    for (int j = 1; j < 8; j++) sum = __hadd2(sum, a[j]);
    y[i] = __low2float(sum) + __high2float(sum);
}
__global__ void powers(const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a[4];
    for (int j = 0; j < 4; j++) a[j] = x[i + j];
    #pragma unroll 8
    for (int k = 0; k < 2048; k++)
        for (int j = 0; j < 4; j++) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(a[j]));
    y[i] = a[0] + a[1] + a[2] + a[3];
}
__global__ void exchanged(const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float a[4];
    for (int j = 0; j < 4; j++) a[j] = x[i + j];
    #pragma unroll 8
    for (int k = 0; k < 2048; k++)
        for (int j = 0; j < 4; j++) a[j] = __shfl_xor_sync(~0u, a[j], 1 + k % 8);
    y[i] = a[0] + a[1] + a[2] + a[3];
}
__global__ void products(const float *x, float *y) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    unsigned a[4], b[2];
    float c[4][4] = {};
    for (int j = 0; j < 4; j++) a[j] = __float_as_uint(x[i + j]);
    b[0] = a[0] ^ a[1], b[1] = a[2] ^ a[3];
    #pragma unroll 4
    for (int k = 0; k < 2048; k++)
        for (int j = 0; j < 4; j++)
            asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
                "{%0,%1,%2,%3};" : "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3])
                : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
    float sum = 0;
    for (int j = 0; j < 4; j++) sum += c[j][0] + c[j][1] + c[j][2] + c[j][3];
    y[i] = sum;
}
"""
_FILLING = 132 * 4
"""Blocks of 256 threads, so that each multiprocessor of an H200 has four."""


class Case(NamedTuple):
    """A launch by blocks of 256 threads, and the part of the GPU that it keeps busy."""

    kernel: str
    unit: str
    blocks: int = _FILLING
    bytes_per_element: int = 4


CASES = (
    Case("copy", "memory", 1 << 14, 16),
    Case("saxpy", "memory", 1 << 16),
    Case("reread<0>", "load/store unit"),
    Case("reread<1>", "load/store unit"),
    Case("reread<8>", "L1 cache"),
    Case("reread<33>", "L1 cache"),
    Case("columns<32>", "shared memory"),
    Case("columns<33>", "load/store unit"),
    Case("neighbours<float, 4>", "shared memory"),
    Case("neighbours<double, 2>", "shared memory"),
    Case("fused<float>", "issue slots"),
    Case("fused<double>", "arithmetic of f64"),
    Case("halves", "issue slots"),
    Case("powers", "special functions"),
    Case("exchanged", "shuffles"),
    Case("products", "tensor cores, f16"),
)


def launch(case: Case, device: Device) -> Callable[[], object]:
    """Load a kernel, and give its launch on arrays of its own."""
    kernel = cujit.jit(CODE, names=[case.kernel], device=device, arch="compute_80", name="bounded.cu")[case.kernel]
    count = (case.blocks * 256 + 1024) * case.bytes_per_element // 4
    dtype = np.float64 if "double" in case.kernel else np.float32
    x, y = device.array(np.ones(count, dtype)), device.zeros(count, dtype)
    return functools.partial(kernel[case.blocks, 256], x, y)


def bounds_of(case: Case, gpu: Device | str) -> KernelBounds:
    """Profile the same launch on the CPU device."""
    profile = Profile()
    launch(case, cujit.cpu(profile=profile))()
    return bounds(profile.kernels[0], gpu)


def certain_s(found: KernelBounds, bound: Bound, times: int = 1) -> float:
    """Give what a bound leaves in seconds where the second cache keeps what it can from launch to launch.

    The launch has so many ``times`` the blocks of the one that was profiled.
    """
    if not bound.assumes:
        return times * bound.seconds
    kept = (found.gpu.l2_mib or 0) << 20
    return max(0.0, times * bound.amount - kept) / bound.per_second if bound.unit == "memory" else 0.0


def main() -> None:
    """Print how long each takes a GPU of this machine, and its tightest bound."""
    gpu = process_devices().gpu()
    for case in CASES:
        found = bounds_of(case, gpu)
        call = launch(case, gpu)
        took = cujit.time(call, device=gpu, flush_cache=case.unit == "memory")
        certain = {bound.unit: certain_s(found, bound) for bound in found.bounds}
        said = {"kernel": case.kernel, "unit": found.bounds[0].unit, "bound_us": found.seconds * 1e6}
        print(json.dumps(said | {"took_us": took.min_ms * 1e3, "certain_us": max(certain.values()) * 1e6}))


if __name__ == "__main__":
    main()
