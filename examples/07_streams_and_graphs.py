"""Synchronize two streams, and capture a graph that is launched many times."""

import numpy as np

import cujit

SOURCE = """
extern "C" __global__ void step(const float *x, float *y, int n) {  // one step of heat along a rod
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = i == 0 || i == n - 1 ? x[i] : 0.25f * x[i - 1] + 0.5f * x[i] + 0.25f * x[i + 1];
}
"""
device = cujit.default_device()
step = cujit.jit(SOURCE, device=device)["step"]
n = 1000
rod = np.zeros(n, np.float32)
rod[n // 2] = 64


def cooled(steps: int) -> np.ndarray:
    """Say what the rod is after so many steps, by NumPy."""
    x = rod.copy()
    for _ in range(steps):
        x[1:-1] = 0.25 * x[:-2] + 0.5 * x[1:-1] + 0.25 * x[2:]
    return x


first, second = device.stream(), device.stream()
a, b = device.array(rod, stream=first), device.empty(n, np.float32, stream=first)
step.over(n, stream=first)(a, b, n)
second.wait(first)  # on the device; Python goes on
step.over(n, stream=second)(b, a, n)
assert np.allclose(a.numpy(stream=second), cooled(2))

with device.capture() as graph:  # nothing runs here
    step.over(n, stream=graph.stream)(a, b, n)
    step.over(n, stream=graph.stream)(b, a, n)
second.synchronize()
for _ in range(50):
    graph.launch()
assert np.allclose(a.numpy(stream=graph.stream), cooled(102), atol=1e-5)
print(f"after 102 steps on {device.name}: {a.numpy(stream=graph.stream)[n // 2 - 2 : n // 2 + 3].round(3).tolist()}")

timing = cujit.time(graph.launch, repeat=5, warmup=1, limit_s=0.05)
print(f"a launch of the graph: {timing}")
