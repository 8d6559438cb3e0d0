"""saxpy of 16 M floats: the CPU device against ``gcc -O3 -march=native -fopenmp`` and numpy, all on all cores."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
from measure import medians

import cujit

N = 1 << 24
CUDA = """
extern "C" __global__ void saxpy(float a, const float *x, float *y, int n)
{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
C = """
void saxpy(float a, const float *restrict x, float *restrict y, long n)
{
    #pragma omp parallel for simd
    for (long i = 0; i < n; i++) y[i] = a * x[i] + y[i];
}
"""


def c_saxpy(folder: Path) -> Callable[..., None] | None:
    """Compile the C contestant; None where there is no gcc."""
    gcc = shutil.which("gcc")
    if gcc is None:
        return None
    source, library = folder / "saxpy.c", folder / "saxpy.so"
    source.write_text(C)
    command = [gcc, "-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-o", str(library), str(source)]
    subprocess.run(command, check=True)
    function = ctypes.CDLL(str(library)).saxpy
    function.argtypes = [ctypes.c_float, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long]
    return lambda a, x, y, n: function(a, x, y, n)


def run() -> list[str]:
    """Measure, and return lines of a table; the ratio is speed: above 1 is faster than the floor."""
    device = cujit.cpu()
    kernel = cujit.jit(CUDA, names=["saxpy"], device=device)["saxpy"]
    ones = np.ones(N, np.float32)
    x, y = device.array(ones), device.array(ones)
    x_c, y_c = ones.copy(), ones.copy()
    x_n, y_n = ones.copy(), ones.copy()
    launch = kernel.over(N)

    def numpy_saxpy() -> None:
        np.add(np.multiply(x_n, np.float32(1e-3)), y_n, out=y_n)

    contestants = {"cpu device": lambda: launch(1e-3, x, y, N), "numpy": numpy_saxpy}
    with tempfile.TemporaryDirectory() as folder:
        c = c_saxpy(Path(folder))
        if c is not None:
            contestants["gcc"] = lambda: c(1e-3, x_c.ctypes.data, y_c.ctypes.data, N)
        took = medians(contestants, rounds=31, warm_up=3)
    moved = 3 * 4 * N / 1e9
    lines = [f"saxpy, {N >> 20} M floats, {device.limits.processors} cores"]
    for name, seconds in took.items():
        speed = "" if name == "cpu device" else f"   cpu device is {seconds / took['cpu device']:5.2f} x as fast"
        lines.append(f"  {name:<12} {moved / seconds:7.1f} GB/s{speed}")
    return lines
