"""Compile several instances of one template, and look up each kernel by its C++ name."""

import numpy as np

import cujit

SOURCE = """
template <typename T, int POWER> __global__ void raise(const T *x, T *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    T result = 1;
    for (int k = 0; k < POWER; ++k) result *= x[i];
    y[i] = result;
}
"""
device = cujit.default_device()
module = cujit.jit(SOURCE, names=["raise<float, 3>", "raise<double, 2>", "raise<int, 5>"], device=device)

for dtype, instance in ((np.float32, "raise<float, 3>"), (np.float64, "raise<double, 2>"), (np.int32, "raise<int, 5>")):
    kernel = module[instance]
    x = np.arange(-4, 5, dtype=dtype)
    y = device.empty(x.shape, dtype)
    kernel.over(x.size)(device.array(x), y, x.size)
    assert (y.numpy() == x ** int(instance[-2])).all()
    print(f"{instance} is {kernel.lowered_name}: {y.numpy().tolist()}")

try:
    module["raise<float, 4>"]
except cujit.errors.NameNotFoundError as error:
    print(error)
