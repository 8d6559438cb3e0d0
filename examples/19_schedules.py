"""Run a launch with many schedules; the report shows the first order-dependent element and its writers."""

import numpy as np

import cujit

SOURCE = """
extern "C" __global__ void reverse(const int *x, int *y) {
    __shared__ int part[128];
    part[threadIdx.x] = x[threadIdx.x];
    BARRIER
    y[threadIdx.x] = part[127 - threadIdx.x];
}
"""
device = cujit.default_device()
x, y = device.array(np.arange(128, dtype=np.int32)), device.zeros(128, np.int32)


def reverse(barrier: str) -> cujit.Launch:
    """Return the launch of the kernel with a barrier, or without one."""
    source = SOURCE.replace("BARRIER", barrier)
    return cujit.jit(source, device=device, name="reverse.cu", lineinfo=True)["reverse"][1, 128]


report = reverse("").under_schedules(x, y)
print(report)
assert not report.equal
seed = report.difference.second.seed

# The same seed repeats the same schedule, here under a check.
checked = cujit.cpu(schedule=seed, check="race")
try:
    cujit.jit(SOURCE.replace("BARRIER", ""), device=checked)["reverse"][1, 128](
        checked.array(np.arange(128, dtype=np.int32)), checked.zeros(128, np.int32)
    )
except cujit.errors.KernelFaultError as fault:
    print(f"schedule {seed}: {fault}")
    assert fault.kind == "race"

print(reverse("__syncthreads();").under_schedules(x, y))
