"""Write an HTML report about two kernels: source, PTX, and SASS by line, findings, and plots."""

from pathlib import Path
from tempfile import mkdtemp

import numpy as np

import cujit
import cujit.profile
import cujit.report

SOURCE = """\
extern "C" __global__ void scattered(const float *x, float *y, int n) {
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    y[column * n + row] = x[row * n + column];
}
extern "C" __global__ void staged(const float *x, float *y, int n) {
    __shared__ float tile[32][33];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = x[row * n + column];
    __syncthreads();
    y[(blockIdx.x * 32 + threadIdx.y) * n + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
"""
N = 128

profile = cujit.profile.Profile()
device = cujit.cpu(profile=profile)
module = cujit.jit(SOURCE, device=device, name="transposes.cu")
x = device.array(np.random.default_rng(0).random((N, N), np.float32))
for name in ("scattered", "staged"):
    y = device.zeros((N, N), np.float32)
    module[name][(N // 32, N // 32), (32, 32)](x, y, N)
    np.testing.assert_array_equal(y.numpy(), x.numpy().T)

report = cujit.report.of(module, profile=profile.kernels, on="H200", title="Two transposes")
path = Path(mkdtemp()) / "transposes.html"
path.write_text(report.html())
print(f"{path}: {path.stat().st_size:,} bytes")
for listing in report.listings:
    print(f"{listing.kind}: {listing.name}, {len(listing.lines)} lines")

scattered, staged = report.record()["kernels"]
assert [advice["rule"] for advice in scattered["profile"]["advice"]] == ["uncoalesced"]
assert staged["profile"]["advice"] == []
