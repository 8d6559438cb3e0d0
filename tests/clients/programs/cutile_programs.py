"""cuTile Python: products, softmax, layer norm and attention, compiled by ``tileiras`` when they are launched."""

import math
import sys
from pathlib import Path

import cuda.tile as ct
import numpy as np
from cuda.bindings import driver

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cutile_kernels as kernels


@ct.kernel
def product_of_bits(a, b, c, is_half: ct.Constant[bool], size: ct.Constant[int]):
    """Multiply two matrices of a type that NumPy lacks, which come as unsigned integers."""
    row, column = ct.bid(0), ct.bid(1)
    total = ct.full((size, size), 0, dtype=ct.float32)
    for step in range(ct.num_tiles(a, axis=1, shape=(size, size))):
        left = ct.load(a, index=(row, step), shape=(size, size))
        right = ct.load(b, index=(step, column), shape=(size, size))
        if is_half:
            total = ct.mma(ct.bitcast(left, ct.bfloat16), ct.bitcast(right, ct.bfloat16), total)
        else:
            total = ct.mma(ct.bitcast(left, ct.float8_e4m3fn), ct.bitcast(right, ct.float8_e4m3fn), total)
    ct.store(c, index=(row, column), tile=total)


def checked(answer):
    """Return the values of a call that succeeded."""
    assert answer[0] == 0, answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]


class Array:
    """Numbers on the device, with the protocol that cuTile reads."""

    def __init__(self, values):
        self.values = values
        shift = values.itemsize if UNALIGNED else 0
        self.address = int(checked(driver.cuMemAlloc(values.nbytes + shift))) + shift
        self.__cuda_array_interface__ = {
            "shape": values.shape, "typestr": values.dtype.str, "data": (self.address, False), "version": 3,
            "strides": None,
        }  # fmt: skip
        checked(driver.cuMemcpyHtoD(self.address, values.ctypes.data, values.nbytes))

    def numpy(self):
        """Copy the numbers to the host."""
        found = np.empty_like(self.values)
        checked(driver.cuMemcpyDtoH(found.ctypes.data, self.address, found.nbytes))
        return found


def random(*shape, dtype=np.float32):
    """Return normally distributed numbers, the same ones each time."""
    return np.random.default_rng(len(shape)).standard_normal(shape).astype(dtype)


def run(kernel, grid, *arguments):
    """Launch a kernel over arrays and numbers, and return what is in the last array then."""
    arrays = [Array(np.ascontiguousarray(each)) if isinstance(each, np.ndarray) else each for each in arguments]
    ct.launch(0, grid, kernel, tuple(arrays))
    checked(driver.cuCtxSynchronize())
    return [each for each in arrays if isinstance(each, Array)][-1].numpy()


def close(found, expected, **bounds):
    """Compare two arrays."""
    np.testing.assert_allclose(found, expected, **bounds)


checked(driver.cuInit(0))
device = checked(driver.cuDeviceGet(0))
checked(driver.cuCtxSetCurrent(checked(driver.cuDevicePrimaryCtxRetain(device))))
MAJOR = checked(driver.cuDeviceGetAttribute(driver.CUdevice_attribute(75), device))
UNALIGNED = MAJOR >= 9  # then no kernel needs tensor maps, which a GPU's driver writes

a, b = random(50, 80, dtype=np.float16), random(80, 90, dtype=np.float16)
right = a.astype(np.float32) @ b.astype(np.float32)
close(run(kernels.product, (2, 3), a, b, np.zeros((50, 90), np.float32), 32, 32, 32), right, atol=1e-4)
close(run(kernels.product_persistent, (4,), a, b, np.zeros((50, 90), np.float32), 32, 32, 32), right, atol=1e-4)

a, b = random(64, 64), random(64, 64) + 1
found = run(kernels.product_tf32, (2, 2), a, b, np.zeros((64, 64), np.float32), 32, 32, 32)
assert (np.abs(found - a @ b) <= 2.0**-10 * (np.abs(a) @ np.abs(b))).all()

a, b = ((random(64, 64) * k).view(np.uint32) & 0xFFFF0000 for k in (1, 2))
halves = [(each >> 16).astype(np.uint16) for each in (a, b)]
found = run(product_of_bits, (2, 2), *halves, np.zeros((64, 64), np.float32), True, 32)
close(found, a.view(np.float32) @ b.view(np.float32), atol=1e-4)

if MAJOR >= 9:  # cuTile has no FP8 before
    bits = np.random.default_rng(0).integers(0, 0x7F, (2, 64, 64), np.uint8)  # no NaN
    exponent, rest = (bits >> 3).astype(np.int32), (bits & 7).astype(np.float64)
    values = np.where(exponent > 0, (1 + rest / 8) * 2.0 ** (exponent - 7), rest * 2.0**-9)
    found = run(product_of_bits, (2, 2), *bits, np.zeros((64, 64), np.float32), False, 32)
    close(found, values[0] @ values[1], rtol=2e-3)

a, b = random(3, 40, 32, dtype=np.float16), random(3, 32, 64, dtype=np.float16)
found = run(kernels.product_batched, (2, 2, 3), a, b, np.zeros((3, 40, 64), np.float32), 32, 32, 32)
close(found, a.astype(np.float32) @ b.astype(np.float32), atol=1e-4)

x = random(7, 100)
weights = np.exp(x - x.max(axis=1, keepdims=True))
found = run(kernels.softmax, (7,), x, np.zeros_like(x), 128)
close(found, weights / weights.sum(axis=1, keepdims=True), rtol=1e-5)

x, weight, bias = random(5, 128) * 3 + 1, random(128), random(128) + 2
centered = x - x.mean(axis=1, keepdims=True)
scaled = centered / np.sqrt((centered**2).mean(axis=1, keepdims=True) + 1e-5)
found = run(kernels.layer_norm, (5,), x, weight, bias, np.zeros_like(x), 1e-5, 128)
close(found, scaled * weight + bias, rtol=1e-4, atol=1e-5)

q, k, v = (random(2, 64, 32, dtype=np.float16) * n for n in (1, 2, 3))
scale = 1 / math.sqrt(32)
scores = q.astype(np.float32) @ k.astype(np.float32).transpose(0, 2, 1) * scale
weights = np.exp(scores - scores.max(axis=2, keepdims=True))
expected = weights / weights.sum(axis=2, keepdims=True) @ v.astype(np.float32)
found = run(kernels.attention, (2, 2), q, k, v, np.zeros((2, 64, 32), np.float32), scale, 32, 32, 32)
close(found, expected, rtol=5e-3, atol=5e-3)
print("equal")
