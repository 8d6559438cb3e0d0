"""Reserve some SMs for urgent work, so that a long kernel on the other SMs doesn't delay it."""

import numpy as np

import cujit

SOURCE = """
extern "C" __global__ void waves(float *x, int n, int rounds) {
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        for (int k = 0; k < rounds; k++) x[i] = 0.5f * x[i] + 1;
}
"""
device = cujit.default_device()
waves = cujit.jit(SOURCE, device=device)["waves"]
urgent, rest = device.green_contexts(max(device.limits.processors // 4, 1), None)
print(f"{device.name}: {urgent.sm_count} SMs for urgent work, {rest.sm_count} for everything else")

n = 1 << 16
slow, quick = device.zeros(n, np.float32), device.zeros(1000, np.float32)
background, now = rest.stream(), urgent.stream()
waves[4 * rest.sm_count, 256, 0, background](slow, n, 200)  # fills its SMs, and leaves the others free
start = now.record()
waves[4, 256, 0, now](quick, 1000, 1)
end = now.record()
print(f"the urgent kernel took {end.elapsed_ms(start):.3f} ms")
background.synchronize()
assert (quick.numpy() == 1).all()
assert np.allclose(slow.numpy(), 2)
