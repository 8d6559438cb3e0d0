"""TileLang: CUDA C++ of a kernel, which NVRTC compiles and the driver loads. TileLang says no lines of Python."""

import ctypes
import sys

import numpy as np
import nvidia.cu13
import tilelang
import tilelang.language as tl
from cuda.bindings import driver
from tilelang import tvm
from tilelang.contrib import nvrtc
from tilelang.env import CUTLASS_INCLUDE_DIR, TILELANG_TEMPLATE_PATH

LENGTH = int(sys.argv[1])


@tl.prim_func
def turned(a: tl.Tensor((LENGTH,), "float32")):
    """Double each tile, and turn it around."""
    with tl.Kernel(LENGTH // 128, threads=128) as block:
        tile = tl.alloc_shared((128,), "float32")
        for i in tl.Parallel(128):
            tile[i] = a[block * 128 + i]
        for i in tl.Parallel(128):
            a[block * 128 + i] = tile[127 - i] * 2.0


driver.cuInit(0)
_, context = driver.cuDevicePrimaryCtxRetain(0)
driver.cuCtxSetCurrent(context)
with tvm.target.Target({"kind": "cuda", "arch": "sm_90"}) as target:
    source = tilelang.lower(turned, target=target, enable_device_compile=False).kernel_source
    toolkit = f"{nvidia.cu13.__path__[0]}/include"
    folders = [TILELANG_TEMPLATE_PATH, CUTLASS_INCLUDE_DIR, toolkit, f"{toolkit}/cccl"]
    options = ["-lineinfo", "-std=c++20", *(f"-I{folder}" for folder in folders)]
    cubin = nvrtc.compile_cuda(source, "cubin", options=options, verbose=True)
print(source)
error, module = driver.cuModuleLoadData(bytes(cubin))
assert int(error) == 0, error
_, kernel = driver.cuModuleGetFunction(module, b"turned_kernel")
x = np.arange(256, dtype=np.float32)
_, a = driver.cuMemAlloc(x.nbytes)
driver.cuMemcpyHtoD(a, x.ctypes.data, x.nbytes)
given = (int(a),), (ctypes.c_void_p,)
driver.cuLaunchKernel(kernel, LENGTH // 128, 1, 1, 128, 1, 1, 4 * 128, 0, given, 0)
(error,) = driver.cuMemcpyDtoH(x.ctypes.data, a, x.nbytes)
assert int(error) == 0, error
assert (x == 2 * np.arange(256).reshape(2, 128)[:, ::-1].ravel()).all()
