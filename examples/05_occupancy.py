"""Compute the occupancy of a kernel, and what limits it, for GPUs that you don't have."""

import numpy as np

import cujit
import cujit.occupancy

SOURCE = """
extern "C" __global__ void smooth(const float *x, float *y, int n) {
    extern __shared__ float tile[];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? x[i] : 0;
    __syncthreads();
    int left = max((int)threadIdx.x - 1, 0), right = min(threadIdx.x + 1, blockDim.x - 1);
    if (i < n) y[i] = (tile[left] + tile[threadIdx.x] + tile[right]) / 3;
}
"""
image = cujit.compile(SOURCE, arch="sm_90")
for shared_bytes, blocks in ((1 << 10, 8), (64 << 10, 3)):
    on_h200 = cujit.occupancy.of(image, block=256, shared_bytes=shared_bytes, on="H200")
    print(on_h200)
    assert on_h200.active_blocks == blocks

device = cujit.default_device()
smooth = cujit.jit(SOURCE, device=device)["smooth"]
launch = smooth.over(3000, shared_bytes=4 * 1024)  # the block of highest occupancy
block = launch.shape.block.x
print(f"here, on {device.name}: blocks of {block}, occupancy {smooth.occupancy(block, 4096):.0%}")
x, y = np.arange(3000, dtype=np.float32), device.empty(3000, np.float32)
launch(device.array(x), y, x.size)
inside = np.arange(3000) % block
here = (inside > 0) & (inside < block - 1) & (np.arange(3000) < 2999)
assert np.allclose(y.numpy()[here], x[here])
