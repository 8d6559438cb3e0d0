"""Kernels that part lanes or compute much: the CPU device against the same loops in C, both on all cores."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np
from measure import medians, row

import cujit

KERNELS = Path(__file__).parents[1] / "tests" / "kernels" / "kernels.cu"
C = """
#include <math.h>
typedef struct { float x, y, z, w; } body;
void nbody(const body *b, body *a, int n, float softening)
{
    #pragma omp parallel for
    for (int i = 0; i < n; i++) {
        float ax = 0, ay = 0, az = 0;
        #pragma omp simd reduction(+:ax,ay,az)
        for (int j = 0; j < n; j++) {
            float dx = b[j].x - b[i].x, dy = b[j].y - b[i].y, dz = b[j].z - b[i].z;
            float inverse = 1.0f / sqrtf(dx * dx + dy * dy + dz * dz + softening);
            float pull = b[j].w * (inverse * inverse * inverse);
            ax += pull * dx; ay += pull * dy; az += pull * dz;
        }
        a[i].x = ax; a[i].y = ay; a[i].z = az; a[i].w = 0;
    }
}
void mandelbrot(int *count, int width, int height, int most)
{
    #pragma omp parallel for schedule(dynamic, 8)
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            float cr = -2.0f + 3.0f * x / width, ci = -1.0f + 2.0f * y / height, zr = 0, zi = 0;
            int k = 0;
            while (k < most && zr * zr + zi * zi <= 4.0f) {
                float next = zr * zr - zi * zi + cr;
                zi = 2.0f * zr * zi + ci;
                zr = next;
                k++;
            }
            count[y * width + x] = k;
        }
}
"""


def run() -> list[str]:
    """Measure, and return lines of a table; a ratio below 1 means that the CPU device is faster than C."""
    gcc = shutil.which("gcc")
    if gcc is None:
        return ["no gcc: the kernels were not compared with C"]
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "k.c"), Path(folder, "k.so")
        source.write_text(C)
        flags = ["-O3", "-march=native", "-fno-math-errno", "-fopenmp", "-shared", "-fPIC"]
        subprocess.run([gcc, *flags, "-o", str(library), str(source), "-lm"], check=True)
        return _compare(ctypes.CDLL(str(library)))


def _compare(c: ctypes.CDLL) -> list[str]:
    device = cujit.cpu()
    module = cujit.jit(cujit.Source.cuda(KERNELS), names=["nbody", "mandelbrot"], device=device)
    n, softening = 4096, np.float32(0.01)
    bodies = np.random.default_rng(0).random((n, 4), np.float32)
    body, pull, c_pull = device.array(bodies), device.array(np.zeros_like(bodies)), np.zeros_like(bodies)
    width, height, most = 1024, 1024, 256
    count, c_count = device.array(np.zeros((height, width), np.int32)), np.zeros((height, width), np.int32)
    nbody = module["nbody"][n // 256, 256]
    mandelbrot = module["mandelbrot"][(width // 32, height // 8), (32, 8)]
    took = medians(
        {
            "nbody": lambda: nbody(body, pull, n, softening),
            "nbody in C": lambda: c.nbody(
                ctypes.c_void_p(bodies.ctypes.data), ctypes.c_void_p(c_pull.ctypes.data), n, ctypes.c_float(0.01)
            ),
            "mandelbrot": lambda: mandelbrot(count, width, height, most),
            "mandelbrot in C": lambda: c.mandelbrot(ctypes.c_void_p(c_count.ctypes.data), width, height, most),
        },
        rounds=11,
    )
    names = ("nbody", "mandelbrot")
    return [row(name, took[name], took[f"{name} in C"], "gcc -O3 -march=native -fopenmp", "ms", 1e3) for name in names]
