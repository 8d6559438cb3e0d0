"""Find a data race; the error shows both accesses with their source lines."""

import numpy as np

import cujit

SOURCE = """
extern "C" __global__ void reverse(int *x) {
    __shared__ int part[64];
    part[threadIdx.x] = x[threadIdx.x];
    BARRIER
    x[threadIdx.x] = part[63 - threadIdx.x];
}
"""
x = np.arange(64, dtype=np.int32)
device = cujit.default_device()


def reverse(barrier: str) -> cujit.Launch:
    """Give the launch of a kernel with that between its two halves."""
    source = SOURCE.replace("BARRIER", barrier)
    return cujit.jit(source, device=device, name="reverse.cu", lineinfo=True)["reverse"][1, 64]


try:
    reverse("").replay_on_cpu(device.array(x), check="race")  # of a launch of a GPU, too
except cujit.errors.KernelFaultError as fault:
    print(fault)
    assert fault.kind == "race" and "no barrier in between" in fault.message
else:
    raise AssertionError("no race was found")

(result,) = reverse("__syncthreads();").replay_on_cpu(device.array(x), check="all")
assert (result == x[::-1]).all()
print("with __syncthreads() there is none")

code = 'extern "C" __global__ void shift(int *x) { x[threadIdx.x] = x[threadIdx.x + 1]; }'
try:
    cujit.jit(code, device=device)["shift"][1, 64].replay_on_cpu(device.array(x), check="memory")
except cujit.errors.KernelFaultError as fault:
    print(fault)
    assert fault.kind == "memory" and fault.thread == (63, 0, 0)
