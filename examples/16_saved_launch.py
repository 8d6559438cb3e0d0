"""Save a launch before it fails, replay it in a sandboxed process, and find the bug with checks."""

import tempfile
from pathlib import Path

import numpy as np

import cujit
import cujit.reproducer

SOURCE = """\
extern "C" __global__ void blur(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = (x[i - 1] + x[i]) / 2;
}
"""
device = cujit.default_device()
blur = cujit.jit(SOURCE, device=device, name="blur.cu")["blur"]
x, y = device.array(np.ones(512, np.float32)), device.zeros(512, np.float32)
with tempfile.TemporaryDirectory() as folder:
    path = blur[2, 256].save(Path(folder) / "bug.launch", x, y, 512)
    print(f"{path.name}: {path.stat().st_size:,} bytes, saved on {device.name}")

    # Whoever gets the file needs neither the program nor the GPU.
    saved = cujit.reproducer.open(path)
    print(f"{saved.kernel}: grid {saved.grid}, block {saved.block}")
    for argument in saved.arguments:
        print(f"  {argument.type} {argument.shape or argument.data.hex()}")
    again = cujit.reproducer.run(path, device="cpu")
    right = again.arguments[1][1:]
    np.testing.assert_allclose(right, 1)
    try:
        cujit.reproducer.run(path, check="memory")
    except cujit.errors.KernelFaultError as error:
        print(error)
        assert error.block == (0, 0, 0) and error.thread == (0, 0, 0)
        assert "argument 1 (const float*)" in error.message and "blur.cu:3" in error.message
    else:
        raise AssertionError("the check found nothing")
