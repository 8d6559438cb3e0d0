"""cuTile Python: a kernel over an array that is as long as its caller says."""

import sys

import cuda.tile as ct
import numpy as np
from cuda.bindings import driver


@ct.kernel
def doubled(a, size: ct.Constant[int]):
    """Double a tile."""
    i = ct.bid(0)
    tile = ct.load(a, index=(i,), shape=(size,))  # out of bounds
    ct.store(a, index=(i,), tile=2 * tile)


class Array:
    """Floats on the device, with the protocol that cuTile reads."""

    def __init__(self, values, length):
        _, self.pointer = driver.cuMemAlloc(values.nbytes)
        driver.cuMemcpyHtoD(self.pointer, values.ctypes.data, values.nbytes)
        self.__cuda_array_interface__ = {
            "shape": (length,), "typestr": "<f4", "data": (int(self.pointer), False), "version": 3, "strides": None,
        }  # fmt: skip


driver.cuInit(0)
_, context = driver.cuDevicePrimaryCtxRetain(0)
driver.cuCtxSetCurrent(context)
x, length = np.arange(256, dtype=np.float32), int(sys.argv[1])
a = Array(x, length)
ct.launch(0, (length // 128,), doubled, (a, 128))
(error,) = driver.cuMemcpyDtoH(x.ctypes.data, a.pointer, x.nbytes)
assert int(error) == 0, error
assert (x == 2 * np.arange(256)).all()
