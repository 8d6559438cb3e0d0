"""CuTe DSL: the PTX of a kernel, which the driver loads. What launches it from CuTe itself is NVIDIA's runtime."""

import ctypes
import os
import sys

os.environ |= {"CUTE_DSL_LINEINFO": "1", "CUTE_DSL_NO_CACHE": "1", "CUTE_DSL_ARCH": "sm_90a", "CUTE_DSL_KEEP": "ptx"}
os.environ["CUTE_DSL_DUMP_DIR"] = os.getcwd()

import cutlass
import numpy as np
from cuda.bindings import driver
from cutlass import cute
from cutlass.cute.runtime import make_ptr

THREADS = 128


@cute.kernel
def doubled(at: cute.Pointer, n: cutlass.Int32):
    """Double what lies below n."""
    thread, _, _ = cute.arch.thread_idx()
    block, _, _ = cute.arch.block_idx()
    a, i = cute.make_tensor(at, cute.make_layout(n)), block * THREADS + thread
    if i < n:
        a[i] = a[i] * 2.0  # out of bounds


@cute.jit
def launch_doubled(at: cute.Pointer, n: cutlass.Int32):
    """Launch it in three blocks."""
    doubled(at, n).launch(grid=(3, 1, 1), block=(THREADS, 1, 1))


driver.cuInit(0)
_, context = driver.cuDevicePrimaryCtxRetain(0)
driver.cuCtxSetCurrent(context)
x, length = np.arange(256, dtype=np.float32), int(sys.argv[1])
_, a = driver.cuMemAlloc(x.nbytes)
driver.cuMemcpyHtoD(a, x.ctypes.data, x.nbytes)
at = make_ptr(cutlass.Float32, int(a), cute.AddressSpace.gmem, assumed_align=16)
compiled = cute.compile(launch_doubled, at, cutlass.Int32(length))
error, module = driver.cuModuleLoadData(compiled.__ptx__.encode())
assert int(error) == 0, error
_, kernels = driver.cuModuleEnumerateFunctions(1, module)
values, types = (int(a), length), (ctypes.c_void_p, ctypes.c_int)
driver.cuLaunchKernel(kernels[0], 3, 1, 1, THREADS, 1, 1, 0, 0, (values, types), 0)
(error,) = driver.cuMemcpyDtoH(x.ctypes.data, a, x.nbytes)
assert int(error) == 0, error
assert (x == 2 * np.arange(256)).all()
