"""Code of a user that type checkers accept."""

from pathlib import Path

import numpy as np

import cujit

SOURCE = "template <typename T> __global__ void scale(T* x, T a, int n) {}"

device = cujit.cpu(check="memory")
module = cujit.jit(SOURCE, names=["scale<float>"], device=device, std="c++17", define={"N": 4, "FAST": None})
kernel = module["scale<float>"]
x = device.array(np.ones(32, np.float32))
kernel[1, 32](x, 2.0, 32)
kernel[(1, 2), (32, 4)](x, 2.0, 32)
kernel[1, 32, 1024](x, 2.0, 32)
kernel[1, np.int64(32), 0, device.stream()](x, 2.0, 32)
kernel.over(32)(x, 2.0, 32)
kernel.over(32, shared_bytes=1024)(x, 2.0, 32)
kernel.prepare(1, 32, shared_bytes=1024, cooperative=True)(x, 2.0, 32)
total: float = x.numpy().sum()

ptx = cujit.compile(SOURCE, to="ptx", arch="sm_90", names=["scale<float>"], include=[Path("inc")], lineinfo=True)
cubin = cujit.link([ptx], arch="sm_90", opt_level=3)
fatbin = cujit.build(Path("kernel.cu"), targets=["sm_90", "compute_80"], maxrregcount=64, extra=["--device-int128"])
options = cujit.Options(use_fast_math=True, diag_suppress=[177])
cujit.compile(SOURCE, options=options, arch="sm_90")
cujit.compile(SOURCE, options={"std": "c++20"}, arch="sm_90", std=None)
timing = cujit.time(kernel[1, 32], x, 2.0, 32, repeat=10)
milliseconds: float = timing.median_ms
