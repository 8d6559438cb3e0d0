"""Declare a library's kernels in code, ship them in a pack, and start a service that compiles nothing."""

import tempfile
from pathlib import Path

import cujit
import cujit.warmup
import cujit.worklist

# What the library says at its import. Nothing is compiled here.
SOURCE = """
template <typename T, int N> __global__ void repeat(const T *x, T *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n)
        for (int k = 0; k < N; ++k) y[i * N + k] = x[i];
}
"""
cujit.warmup.declare(
    "mylib.repeat",
    cujit.Source.cuda(SOURCE, name="repeat.cu"),
    names="repeat<{dtype}, {times}>",
    over={"dtype": ["float", "double"], "times": [2, 4]},
    when=lambda dtype, times: (dtype, times) != ("double", 4),
)

with tempfile.TemporaryDirectory() as folder:
    # What the build job does, on a machine without a GPU.
    pack = Path(folder, "kernels.pack")
    listed = cujit.worklist.build(cujit.warmup.worklist(["mylib"], arch=["sm_80", "sm_90"]), pack=pack)
    print(listed)
    assert listed.is_good

    # What each pod does at its start: nothing may be compiled, and the report says so.
    shipped = cujit.Cache(None, read_only=[pack], compile="never")
    report = cujit.warmup.run(["mylib"], arch=["sm_90"], cache=shipped, rank=0)
    print(report)
    assert report.counts == {"disk": 3}

    # A GPU that nobody built for is found at the start, and not at the first request.
    report = cujit.warmup.run(["mylib"], arch=["sm_120"], cache=shipped, rank=0)
    print(report)
    assert len(report.failed) == 3
