"""Compile CUDA Tile C++ to Tile IR, pack the IR for many GPUs, and check the kernel on the CPU device."""

import numpy as np

import cujit

code = """
#include <cuda_tile.h>
namespace ct = cuda::tiles;
__tile_global__ void axpy(float a, float* x, float* y, int n) {
    ct::tensor_span all_x{x, ct::extents<int, ct::dynamic_extent>{n}};
    ct::tensor_span all_y{y, ct::extents<int, ct::dynamic_extent>{n}};
    ct::partition_view xs{all_x, ct::shape<256>{}}, ys{all_y, ct::shape<256>{}};
    auto i = ct::bid().x;
    ys.store_masked(xs.load_masked(i) * a + ys.load_masked(i), i);
}
"""

# Tile IR is the same for every architecture; `tileiras` (pip install 'cujit[tile]') compiles it for each of them.
tile = cujit.compile(cujit.Source.cuda(code, name="axpy.cu"), to="tileir")
fatbin = cujit.bundle([cujit.build(tile, ["sm_80", "sm_90", "sm_120"]), tile])
print(cujit.inspect(fatbin))

# Each block works on one tile of 256 elements. The number of threads is the choice of `tileiras`.
device = cujit.cpu(check="all")
module = cujit.jit(cujit.Source.tile(tile), device=device)
threads = cujit.inspect(module).kernel("axpy").required_block
x, y = device.array(np.arange(1000, dtype=np.float32)), device.array(np.ones(1000, np.float32))
module["axpy"].prepare(4, threads)(2.0, x, y, 1000)
assert (y.numpy() == 2 * np.arange(1000) + 1).all()

try:
    module["axpy"].prepare(4, threads)(2.0, x, y, 1001)  # one element too many
except cujit.errors.KernelFaultError as fault:
    print(fault)
    assert fault.kind == "memory"
else:
    raise AssertionError("no fault was found")
