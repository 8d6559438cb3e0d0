"""Taichi: dense and sparse fields, sums, atomics, matrices, arrays of NumPy, random numbers, gradients, and print."""

import numpy as np
import taichi as ti

ti.init(arch=ti.cuda, log_level=ti.ERROR, offline_cache=False, device_memory_GB=0.1)
assert ti.lang.impl.current_cfg().arch == ti.cuda

SIZE = 200
x, y, total = ti.field(ti.f32, SIZE), ti.field(ti.f32, SIZE), ti.field(ti.f32, ())


@ti.kernel
def axpy(a: ti.f32):
    """Add a multiple of a field to another one."""
    for i in x:
        y[i] += a * x[i]


@ti.kernel
def summed() -> ti.f32:
    """Sum a field by atomic additions."""
    for i in x:
        total[None] += x[i]
    return total[None]


numbers = np.arange(SIZE, dtype=np.float32)
x.from_numpy(numbers)
y.fill(1)
axpy(2)
assert (y.to_numpy() == 2 * numbers + 1).all()
assert summed() == numbers.sum()

sparse = ti.field(ti.i32)
ti.root.pointer(ti.i, 16).dense(ti.i, 16).place(sparse)


@ti.kernel
def activate():
    """Write to three blocks of a sparse field."""
    for i in range(3):
        sparse[40 * i] = i + 1


@ti.kernel
def active() -> ti.i32:
    """Sum what is active."""
    found = 0
    for i in sparse:
        found += sparse[i] + 1
    return found


activate()
assert active() == 3 * 16 + 6


@ti.kernel
def bins(values: ti.types.ndarray(), counts: ti.types.ndarray()):
    """Count the values of an array of NumPy."""
    for i in values:
        ti.atomic_add(counts[values[i]], 1)


values = np.random.default_rng(1).integers(0, 7, 1000, dtype=np.int32)
counts = np.zeros(7, np.int32)
bins(values, counts)
assert (counts == np.bincount(values, minlength=7)).all()

a, b, c = (ti.ndarray(ti.f32, (24, 24)) for _ in range(3))


@ti.kernel
def product(a: ti.types.ndarray(ndim=2), b: ti.types.ndarray(ndim=2), c: ti.types.ndarray(ndim=2)):
    """Multiply two matrices of whole numbers."""
    for i, j in c:
        c[i, j] = 0.0
        for k in range(a.shape[1]):
            c[i, j] += a[i, k] * b[k, j]


left, right = (np.random.default_rng(seed).integers(-9, 9, (24, 24)).astype(np.float32) for seed in (2, 3))
a.from_numpy(left)
b.from_numpy(right)
product(a, b, c)
assert (c.to_numpy() == left @ right).all()

bodies = ti.Vector.field(3, ti.f32, SIZE)
matrices = ti.Matrix.field(2, 2, ti.f32, 8)


@ti.kernel
def turned():
    """Normalize vectors, and invert matrices."""
    for i in bodies:
        bodies[i] = ti.Vector([i + 1.0, 2.0, -1.0]).normalized()
    for i in matrices:
        matrices[i] = ti.Matrix([[i + 2.0, 1.0], [1.0, 1.0]]).inverse()


turned()
assert np.allclose(np.linalg.norm(bodies.to_numpy(), axis=1), 1, atol=1e-6)
assert np.allclose(matrices.to_numpy() @ [[[i + 2, 1], [1, 1]] for i in range(8)], np.eye(2), atol=1e-5)

scale, loss = ti.field(ti.f32, (), needs_grad=True), ti.field(ti.f32, (), needs_grad=True)


@ti.kernel
def error():
    """Sum squares, for a gradient."""
    for i in range(10):
        loss[None] += (scale[None] * i - 3.0 * i) ** 2


scale[None] = 2
with ti.ad.Tape(loss):
    error()
assert loss[None] == sum(i * i for i in range(10))
assert scale.grad[None] == -2 * sum(i * i for i in range(10))

noise = ti.field(ti.f32, 4096)


@ti.kernel
def fill_noise():
    """Fill a field with random numbers."""
    for i in noise:
        noise[i] = ti.random(ti.f32)


fill_noise()
drawn = noise.to_numpy()
assert ((drawn >= 0) & (drawn < 1)).all()
assert abs(drawn.mean() - 0.5) < 0.05


@ti.kernel
def shared_sum(out: ti.types.ndarray()):
    """Sum a block by shared memory and barriers."""
    ti.loop_config(block_dim=64)
    for i in range(SIZE // 64 * 64):
        tile = ti.simt.block.SharedArray((64,), ti.f32)
        lane = i % 64
        tile[lane] = x[i]
        ti.simt.block.sync()
        if lane == 0:
            found = 0.0
            for k in range(64):
                found += tile[k]
            out[i // 64] = found


sums = np.zeros(SIZE // 64, np.float32)
shared_sum(sums)
assert (sums == numbers[:192].reshape(3, 64).sum(axis=1)).all()


@ti.kernel
def say():
    """Print from a kernel."""
    print("said", 7)


say()
ti.sync()
print("equal")
