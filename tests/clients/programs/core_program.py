"""cuda.core: templates compiled to PTX and to machine code, linked, launched in streams."""

import numpy as np
from cuda.bindings import driver
from cuda.core import Device, LaunchConfig, Linker, LinkerOptions, Program, ProgramOptions, launch

TEMPLATE = """
template <typename T> __global__ void axpy(T a, const T* x, T* y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] += a * x[i];
}
"""
CALLS = """
extern __device__ int twice(int);
extern "C" __global__ void calls(int* p) { p[threadIdx.x] = twice(threadIdx.x); }
"""
HAS = "__device__ int twice(int x) { return 2 * x; }"

device = Device()
device.set_current()
stream = device.create_stream()
arch = f"sm_{device.arch}"


def copied(to, of, size):
    driver.cuMemcpyAsync(int(to), int(of), size, int(stream.handle))


n = 1000
for kind in ("ptx", "cubin"):
    for dtype, name in ((np.float32, "float"), (np.float64, "double")):
        program = Program(TEMPLATE, "c++", ProgramOptions(std="c++17", arch=arch))
        kernel = program.compile(kind, name_expressions=(f"axpy<{name}>",)).get_kernel(f"axpy<{name}>")
        x, y = np.arange(n, dtype=dtype), np.ones(n, dtype)
        dx, dy = device.allocate(x.nbytes, stream=stream), device.allocate(y.nbytes, stream=stream)
        copied(dx.handle, x.ctypes.data, x.nbytes)
        copied(dy.handle, y.ctypes.data, y.nbytes)
        config = LaunchConfig(grid=-(-n // 256), block=256)
        launch(stream, config, kernel, dtype(2), dx, dy, np.uint64(n))
        out = np.empty_like(y)
        copied(out.ctypes.data, dy.handle, out.nbytes)
        stream.sync()
        assert np.array_equal(out, 2 * x + 1), (kind, name)
        dx.close(stream)
        dy.close(stream)

for kind in ("ptx", "cubin", "ltoir"):
    is_lto = kind == "ltoir"
    options = ProgramOptions(arch=arch, relocatable_device_code=True, link_time_optimization=is_lto or None)
    parts = [Program(text, "c++", options).compile(kind) for text in (CALLS, HAS)]
    linked = Linker(*parts, options=LinkerOptions(arch=arch, link_time_optimization=is_lto or None)).link("cubin")
    out = device.allocate(4 * 32, stream=stream)
    launch(stream, LaunchConfig(grid=1, block=32), linked.get_kernel("calls"), out)
    got = np.empty(32, np.int32)
    copied(got.ctypes.data, out.handle, got.nbytes)
    stream.sync()
    assert np.array_equal(got, 2 * np.arange(32)), kind
