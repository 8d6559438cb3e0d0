"""Compile a library's kernel once, and link user functions into it in a fraction of the compile time."""

import numpy as np

import cujit

LIBRARY = """
#include <cub/block/block_reduce.cuh>
extern "C" __device__ float op(float x);        // what the user writes
extern "C" __global__ void total(const float *x, float *sums) {
    using Reduce = cub::BlockReduce<float, 128>;
    __shared__ Reduce::TempStorage room;
    float sum = Reduce(room).Sum(op(x[blockIdx.x * 128 + threadIdx.x]));
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
"""
device = cujit.default_device()
library = cujit.compile(LIBRARY, to="ltoir", arch=device.arch.lto, names=["total"])

# Fragments can be linked in steps: to="ltoir" leaves what is missing for a later link.
helper = 'extern "C" __device__ float half(float x) { return x / 2; }'
library = cujit.link([library, cujit.Source.cuda(helper, name="helper.cu")], to="ltoir")
assert library.kind is cujit.ImageKind.LTOIR
print(f"{library.name}: {library.kind.value} {library.arch}, {len(library.data)} bytes")

x = np.arange(256, dtype=np.float32)
for body, expected in (("half(x)", x / 2), ("x * x", x * x)):
    text = f'extern "C" __device__ float half(float); extern "C" __device__ float op(float x) {{ return {body}; }}'
    linked = cujit.link([library, cujit.Source.cuda(text, name="op.cu")], device=device)
    sums = device.zeros(2, np.float32)
    cujit.load(linked, device)["total"][2, 128](device.array(x), sums)
    np.testing.assert_allclose(sums.numpy(), expected.reshape(2, 128).sum(axis=1), rtol=1e-6)
    print(f"{body}: {sums.numpy().tolist()}")
