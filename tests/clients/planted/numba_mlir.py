"""numba-cuda-mlir: a kernel with a bound that its caller gives."""

import sys

import numpy as np
from numba_cuda_mlir import cuda


@cuda.jit(lineinfo=True)
def doubled(x, n):
    """Double what lies below n."""
    i = cuda.grid(1)
    if i < n:
        x[i] *= 2  # out of bounds


x = cuda.to_device(np.arange(256, dtype=np.float32))
doubled[3, 128](x, int(sys.argv[1]))
assert (x.copy_to_host() == 2 * np.arange(256)).all()
