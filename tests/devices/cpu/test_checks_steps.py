"""Kernels that go on in steps, of shapes that no benchmark has: a race is found at each step without a barrier."""

from __future__ import annotations

import functools
import math

import numpy as np
import pytest

import cujit
from cujit.errors import KernelFaultError
from raising import raises

_CODE = r"""
// Fewer threads at each step, at distances that are not the rows' own.
template <typename T> __device__ void halve(T *s, const float *x, float *y, int t, int n, int skip)
{
    s[t] = x[t];
    #pragma unroll
    for (int d = 1; d < n; d *= 2) {
        if (d != skip) __syncthreads();
        if (t % (2 * d) == 0 && t + d < n) s[t] += s[t + d];
    }
    if (t == 0) y[0] = s[0];
}
extern "C" __global__ void words(const float *x, float *y, int skip)
{
    __shared__ float s[256];
    halve(s, x, y, threadIdx.x, 256, skip);
}
extern "C" __global__ void bytes(const float *x, float *y, int skip)
{
    __shared__ unsigned char s[256];
    halve(s, x, y, threadIdx.x, blockDim.x, skip);
}
extern "C" __global__ void cube(const float *x, float *y, int skip)
{
    __shared__ float s[5][4][6];
    int u = threadIdx.x, v = threadIdx.y, w = threadIdx.z, t = (w * 4 + v) * 5 + u;
    float sum = x[t];
    for (int k = 1; k <= 4; k++) {
        s[w][v][u] = sum;
        if (k != skip) __syncthreads();
        sum += s[(w + 1) % 5][v][(u + k) % 5];
        __syncthreads();
    }
    y[t] = sum;
}
extern "C" __global__ void far(const float *x, float *y, int skip)
{
    __shared__ double s[33 * 96];
    int t = threadIdx.x, n = blockDim.x;
    for (int k = 1; k <= 2; k++)
        for (int j = 0; j < 2; j++) {
            s[33 * t + j] = x[t] + k;
            if (2 * k + j != skip) __syncthreads();
            y[t] += s[33 * ((t + k) % n) + j];
            __syncthreads();
        }
}
extern "C" __global__ void copies(const float *x, float *y, int skip)
{
    __shared__ __align__(16) float s[3][4 * 96];
    int t = threadIdx.x, n = blockDim.x;
    float sum = 0;
    for (int k = 0; k < 4; k++) {
        unsigned to = (unsigned)__cvta_generic_to_shared(&s[k % 2][4 * t]);
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;\ncp.async.commit_group;" ::"r"(to), "l"(x + 4 * t));
        s[2][t] = sum; // beside what is copied
        if (k == skip) sum += s[k % 2][t + 4];
        asm volatile("cp.async.wait_group 0;");
        if (k + 4 != skip) __syncthreads();
        sum += s[k % 2][4 * (n - 1 - t)] + s[2][t];
        __syncthreads();
    }
    y[t] = sum;
}
"""

_STEPS = {
    "words": ((256,), (1, 2, 4, 8, 16, 32, 64, 128), "__syncwarp()"),
    "bytes": ((200,), (1, 4, 16, 128), "__syncwarp()"),
    "cube": ((5, 4, 5), (1, 2, 4), "__syncwarp()"),
    "far": ((96,), (2, 3, 5), "__syncwarp()"),
    "copies": ((96,), (0, 3), "writes"),
    "copies without a barrier": ((96,), (4, 6), "__syncwarp()"),
}

pytestmark = pytest.mark.usefixtures("unoptimised")


@functools.cache
def _image() -> cujit.Artifact:
    return cujit.compile(cujit.Source.cuda(_CODE, name="steps.cu"), arch="compute_80")


@pytest.mark.parametrize("name", _STEPS)
def test_missing_barrier_is_found_at_each_step(name: str) -> None:
    block, steps, words = _STEPS[name]
    device = cujit.cpu(1, check="race")
    launch = cujit.load(_image(), device)[name.split()[0]].prepare(1, block)
    threads = math.prod(block)
    x, y = device.array(np.ones(4 * threads, np.float32)), device.zeros(threads, np.float32)
    launch(x, y, -1)
    for step in steps:
        with raises(KernelFaultError, "fault-race", words):
            launch(x, y, step)
    launch(x, y, -1)
