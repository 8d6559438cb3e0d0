"""Twenty kernels that use registers, shared memory, barriers and launch bounds in many amounts."""

from __future__ import annotations

__all__ = ["CODE", "DYNAMIC", "NAMES"]

CODE = r"""
template <int N> __device__ void keep_and_fold(const float* x, float* y) {
    float kept[N];
    #pragma unroll
    for (int i = 0; i < N; i++) kept[i] = x[threadIdx.x + i * blockDim.x];
    __syncthreads();
    float sum = 0;
    #pragma unroll
    for (int i = 0; i < N; i++) sum = sum * 1.5f + kept[i] * kept[N - 1 - i];
    y[threadIdx.x] = sum;
}
template <int N> __global__ void hold(const float* x, float* y) { keep_and_fold<N>(x, y); }
template <int T> __global__ void __launch_bounds__(T) bound(const float* x, float* y) { keep_and_fold<96>(x, y); }

template <int BYTES> __global__ void tile(char* y) {
    __shared__ char kept[BYTES];
    for (int i = threadIdx.x; i < BYTES; i += blockDim.x) kept[i] = y[i];
    __syncthreads();
    y[threadIdx.x] = kept[(threadIdx.x * 7) % BYTES];
}

template <int N> struct Meet {
    static __device__ void all(int* y) {
        y[threadIdx.x] += N;
        asm volatile("barrier.sync %0;" :: "n"(N - 1) : "memory");
        Meet<N - 1>::all(y);
    }
};
template <> struct Meet<0> { static __device__ void all(int*) {} };
template <int N> __global__ void meet(int* y) { Meet<N>::all(y); }

extern "C" __global__ void grown(float* y) {
    extern __shared__ float s[];
    s[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[blockDim.x - 1 - threadIdx.x];
}
"""

NAMES = (
    *(f"hold<{n}>" for n in (1, 16, 24, 32, 40, 56, 72, 128)),
    *(f"tile<{n}>" for n in (1, 5000, 20000, 49152)),
    *(f"meet<{n}>" for n in (2, 5, 9, 16)),
    *(f"bound<{n}>" for n in (64, 256, 1024)),
    "grown",
)

DYNAMIC = (0, 1, 3000, 10_000, 40_000, 60_000, 99_000, 150_000)
"""Dynamic shared memory of a block, in bytes; one for each block size."""
