"""Compute what the explorer shows for a buggy kernel and for its fix, and serve the page locally."""

import urllib.request
from pathlib import Path
from tempfile import mkdtemp

import cujit.explore
from cujit.explore import Scene

SOURCE = """\
template <int COLUMNS> __global__ void transpose(const float *x, float *y, int n) {
    __shared__ float tile[32][COLUMNS];
    int column = blockIdx.x * 32 + threadIdx.x, row = blockIdx.y * 32 + threadIdx.y;
    tile[threadIdx.y][threadIdx.x] = x[row * n + column];
    __syncthreads();
    y[(blockIdx.x * 32 + threadIdx.y) * n + blockIdx.y * 32 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}
"""


def scene(source: str, columns: int) -> Scene:
    """Describe a launch, as one would type it."""
    arguments = "arange:f32:4096 zeros:f32:4096 64"
    kernel = f"transpose<{columns}>"
    return Scene(source, "transpose.cu", kernel=kernel, grid="2x2", block="32x32", arguments=arguments, on="H200")


for columns in (32, 33):
    seen = cujit.explore.analyze(scene(SOURCE, columns))
    (kernel,) = seen.record()["kernels"]
    rules = [advice["rule"] for advice in kernel["profile"]["advice"]]
    print(f"{kernel['name']}: {kernel['occupancy']['registers']} registers, {rules or 'nothing to fix'}")
    assert rules == (["bank_conflicts"] if columns == 32 else [])

wrong = cujit.explore.analyze(scene(SOURCE.replace("__syncthreads();", "__syncthreads()"), 33))
for error in wrong.record()["errors"]:
    print(f"{error['source']}: {error['text']}")
assert not wrong.is_compiled

path = Path(mkdtemp()) / "transpose.cu"
path.write_text(SOURCE)
with cujit.explore.start(path, scene("", 33)) as explorer, urllib.request.urlopen(explorer.url) as answer:
    print(f"served at {explorer.url.partition('?')[0]}: {len(answer.read()):,} bytes, with the editor")
