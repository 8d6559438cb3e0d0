"""numba-cuda: jit, device arrays, shared memory, reduction, atomics, grids that meet."""

import numpy as np
from numba import cuda, float32


@cuda.jit
def axpy(a, x, y):
    i = cuda.grid(1)
    if i < x.size:
        y[i] += a * x[i]


@cuda.jit
def reversed_tiles(x, y):
    tile = cuda.shared.array(128, float32)
    i = cuda.grid(1)
    tile[cuda.threadIdx.x] = x[i]
    cuda.syncthreads()
    y[i] = tile[127 - cuda.threadIdx.x]


@cuda.jit
def histogram(values, counts):
    i = cuda.grid(1)
    if i < values.size:
        cuda.atomic.add(counts, values[i], 1)


@cuda.jit
def rounds(rows):
    column = cuda.grid(1)
    grid = cuda.cg.this_grid()
    for row in range(1, rows.shape[0]):
        opposite = rows.shape[1] - column - 1
        rows[row, column] = rows[row - 1, opposite] + 1
        grid.sync()


@cuda.reduce
def total(a, b):
    return a + b


x, y = np.arange(1000, dtype=np.float32), np.ones(1000, np.float32)
device_y = cuda.to_device(y)
axpy[4, 256](np.float32(2), cuda.to_device(x), device_y)
assert np.array_equal(device_y.copy_to_host(), 2 * x + 1)
axpy[4, 256](np.float32(2), x, y)
assert np.array_equal(y, 2 * x + 1)

x, y = np.random.default_rng(1).random(1024, np.float32), np.empty(1024, np.float32)
reversed_tiles[8, 128](x, y)
assert np.array_equal(y, x.reshape(8, 128)[:, ::-1].ravel())

values, counts = np.random.default_rng(2).integers(0, 10, 5000), np.zeros(10, np.int64)
histogram[20, 256](values, counts)
assert np.array_equal(counts, np.bincount(values, minlength=10))

rows = np.zeros((10, 256), np.int32)
rounds[4, 64](rows)
assert np.array_equal(rows, np.repeat(np.arange(10), 256).reshape(10, 256))

numbers = np.arange(5000, dtype=np.float64)
assert total(numbers) == numbers.sum()
