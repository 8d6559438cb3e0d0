"""numba-cuda-mlir: jit and device arrays, by LTO-IR."""

import numpy as np
from numba_cuda_mlir import cuda


@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]


x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
device_y = cuda.to_device(y)
axpy[4, 256](np.float32(2), cuda.to_device(x), device_y)
assert np.array_equal(device_y.copy_to_host(), 2 * x + 1)
