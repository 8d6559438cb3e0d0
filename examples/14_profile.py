"""Profile a kernel without a GPU: memory sectors for loops over rows and columns, advice, and a budget."""

import numpy as np

import cujit
import cujit.profile
from cujit.budget import Budget, check

SOURCE = """\
extern "C" __global__ void sum_rows(const float *x, float *sums, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < columns; k++)
        sum += x[row * columns + k];
    sums[row] = sum;
}
extern "C" __global__ void sum_turned(const float *x, float *sums, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < columns; k++)
        sum += x[k * rows + row];
    sums[row] = sum;
}
"""
profile = cujit.profile.Profile()
device = cujit.cpu(profile=profile)
module = cujit.jit(SOURCE, device=device, name="sums.cu")
x = np.random.default_rng(0).random((256, 64), np.float32)
for name, array in (("sum_rows", x), ("sum_turned", np.ascontiguousarray(x.T))):
    sums = device.zeros(256, np.float32)
    module[name][2, 128](device.array(array), sums, 256, 64)
    np.testing.assert_allclose(sums.numpy(), x.sum(1), rtol=1e-5)

apart, together = profile.kernels
for kernel in profile.kernels:
    for line in kernel.lines():
        if line.measures.sectors:
            print(f"{kernel.name} {line.source}: {line.measures.sectors_per_request:.1f} sectors a request")
assert apart.metrics()["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 8 * 64 * 32
assert together.metrics()["l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum"] == 8 * 64 * 4

for advice in cujit.profile.advice_for(apart):
    print(f"{advice.rule}: {advice}")
    assert "adjacent threads access addresses 256 bytes apart" in advice.cause
assert cujit.profile.advice_for(together) == ()

least = {kernel.name: cujit.profile.bounds(kernel, "H200") for kernel in profile.kernels}
for bounds in least.values():
    print(bounds)
assert least[apart.name].seconds > least[together.name].seconds

limit = Budget(sectors_per_request=4.5)
print(check(together, limit))
try:
    check(apart, limit)
except cujit.errors.BudgetError as error:
    print(error)
else:
    raise SystemExit("it was to be over its budget")
