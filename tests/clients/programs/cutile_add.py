"""cuTile Python: a kernel is compiled by ``tileiras`` when it is launched, and adds two arrays."""

import ctypes

import cuda.tile as ct
import numpy as np
from cuda.bindings import driver


@ct.kernel
def add(a, b, c, size: ct.Constant[int]):
    """Add a tile of two arrays."""
    i = ct.bid(0)
    ct.store(c, index=(i,), tile=ct.load(a, index=(i,), shape=(size,)) + ct.load(b, index=(i,), shape=(size,)))


def checked(answer):
    """Return the values of a call that succeeded."""
    assert answer[0] == 0, answer[0]
    return answer[1] if len(answer) == 2 else answer[1:]


class Array:
    """Floats on the device, with the protocol that cuTile reads."""

    def __init__(self, values):
        self.address = int(checked(driver.cuMemAlloc(values.nbytes)))
        self.__cuda_array_interface__ = {
            "shape": values.shape, "typestr": values.dtype.str, "data": (self.address, False), "version": 3,
            "strides": None,
        }  # fmt: skip
        checked(driver.cuMemcpyHtoD(self.address, values.ctypes.data, values.nbytes))

    def numpy(self, like):
        """Copy the floats to the host."""
        values = np.empty_like(like)
        checked(driver.cuMemcpyDtoH(values.ctypes.data, self.address, ctypes.c_size_t(values.nbytes).value))
        return values


checked(driver.cuInit(0))
context = checked(driver.cuDevicePrimaryCtxRetain(checked(driver.cuDeviceGet(0))))
checked(driver.cuCtxSetCurrent(context))
x, y = np.arange(1024, dtype=np.float32), np.full(1024, 2, np.float32)
a, b, c = Array(x), Array(y), Array(np.zeros_like(x))
ct.launch(0, (8,), add, (a, b, c, 128))
checked(driver.cuCtxSynchronize())
assert (c.numpy(x) == x + y).all()
print("equal")
