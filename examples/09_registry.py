"""Generate kernels in a library, and build each kernel once per process."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np

import cujit

OPERATORS = {"sum": "total + x[i]", "largest": "fmaxf(total, x[i])", "product": "total * x[i]"}
written: list[str] = []


def rows(operator: str, device: cujit.Device) -> cujit.Kernel:
    """Give the kernel that reduces each row of a matrix by an operator."""

    def builder() -> cujit.ModuleSpec:
        written.append(operator)
        text = f"""
        extern "C" __global__ void rows(const float *matrix, float *out, int rows, int columns) {{
            int row = blockIdx.x * blockDim.x + threadIdx.x;
            if (row >= rows) return;
            const float *x = matrix + row * columns;
            float total = x[0];
            for (int i = 1; i < columns; ++i) total = {OPERATORS[operator]};
            out[row] = total;
        }}"""
        return cujit.ModuleSpec(text, name=f"rows_{operator}.cu")

    return cujit.module(f"example rows {operator}", builder, device=device).get_kernel("rows")


device = cujit.default_device()
host = np.random.default_rng(0).integers(1, 4, (100, 8)).astype(np.float32)
matrix = device.array(host)


def reduced(operator: str) -> np.ndarray:
    """Reduce the rows of the matrix."""
    out = device.empty(100, np.float32)
    rows(operator, device).over(100)(matrix, out, 100, 8)
    return out.numpy()


with ThreadPoolExecutor(6) as threads:
    results = dict(zip([*OPERATORS] * 10, threads.map(reduced, [*OPERATORS] * 10), strict=True))
assert np.array_equal(results["sum"], host.sum(1))
assert np.array_equal(results["largest"], host.max(1))
assert np.array_equal(results["product"], host.prod(1))
assert sorted(written) == sorted(OPERATORS)
for known in cujit.default_registry():
    if known.name.startswith("example rows"):
        print(f"{known.name} on {known.device.name}: built once, asked for {known.hits + 1} times")
cujit.default_registry().forget("example rows")
