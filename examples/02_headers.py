"""Pass a library's headers as strings, alongside CUDA's headers."""

import numpy as np

import cujit

HEADERS = {
    "shapes/circle.h": "template <typename T> __device__ T area(T radius) { return T(PI) * radius * radius; }\n",
    "shapes/all.h": '#pragma once\n#include "circle.h"\n',
}
SOURCE = """
#include <cuda_fp16.h>
#include "shapes/all.h"
extern "C" __global__ void areas(const __half *radius, float *out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = area(__half2float(radius[i]));
}
"""
device = cujit.default_device()
areas = cujit.jit(SOURCE, headers=HEADERS, define={"PI": 3}, device=device, name="areas.cu")["areas"]
radius = np.arange(6, dtype=np.float16)
out = device.empty(radius.shape, np.float32)
areas.over(radius.size)(device.array(radius), out, radius.size)
assert out.numpy().tolist() == [0, 3, 12, 27, 48, 75]
print(f"where π is 3: {out.numpy().tolist()}")

try:
    cujit.jit(SOURCE, headers={"shapes/all.h": HEADERS["shapes/all.h"]}, device=device, name="areas.cu")
except cujit.errors.CompileError as error:
    print(error)
    assert "circle.h" in str(error)
