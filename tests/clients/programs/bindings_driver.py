"""cuda.bindings: NVRTC, then the driver API by its own names."""

import numpy as np
from cuda.bindings import driver, nvrtc

CODE = b"""
extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""


def checked(answer):
    error, *values = answer
    assert int(error) == 0, error
    return values[0] if len(values) == 1 else values


checked(driver.cuInit(0))
device = checked(driver.cuDeviceGet(0))
context = checked(driver.cuDevicePrimaryCtxRetain(device))
checked(driver.cuCtxSetCurrent(context))
major, minor = (
    checked(driver.cuDeviceGetAttribute(getattr(driver.CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}"), device))
    for name in ("COMPUTE_CAPABILITY_MAJOR", "COMPUTE_CAPABILITY_MINOR")
)
program = checked(nvrtc.nvrtcCreateProgram(CODE, b"axpy.cu", 0, [], []))
checked(nvrtc.nvrtcCompileProgram(program, 1, [f"-arch=sm_{major}{minor}".encode()]))
image = bytearray(checked(nvrtc.nvrtcGetCUBINSize(program)))
checked(nvrtc.nvrtcGetCUBIN(program, image))
module = checked(driver.cuModuleLoadData(bytes(image)))
kernel = checked(driver.cuModuleGetFunction(module, b"axpy"))

n = 1000
x, y = np.arange(n, dtype=np.float32), np.ones(n, np.float32)
stream = checked(driver.cuStreamCreate(0))
begin, end = checked(driver.cuEventCreate(0)), checked(driver.cuEventCreate(0))
dx, dy = checked(driver.cuMemAlloc(x.nbytes)), checked(driver.cuMemAlloc(y.nbytes))
checked(driver.cuMemcpyHtoDAsync(dx, x.ctypes.data, x.nbytes, stream))
checked(driver.cuMemcpyHtoDAsync(dy, y.ctypes.data, y.nbytes, stream))
values = [np.array(2, np.float32), np.array(int(dx), np.uint64), np.array(int(dy), np.uint64), np.array(n, np.int32)]
pointers = np.array([value.ctypes.data for value in values], np.uint64)
checked(driver.cuEventRecord(begin, stream))
checked(driver.cuLaunchKernel(kernel, -(-n // 256), 1, 1, 256, 1, 1, 0, stream, pointers.ctypes.data, 0))
checked(driver.cuEventRecord(end, stream))
out = np.empty_like(y)
checked(driver.cuMemcpyDtoHAsync(out.ctypes.data, dy, out.nbytes, stream))
checked(driver.cuStreamSynchronize(stream))
assert np.array_equal(out, 2 * x + 1)
assert checked(driver.cuEventElapsedTime(begin, end)) >= 0
for each in (dx, dy):
    checked(driver.cuMemFree(each))
checked(driver.cuModuleUnload(module))
checked(driver.cuDevicePrimaryCtxRelease(device))
