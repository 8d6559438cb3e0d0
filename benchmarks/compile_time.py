"""Compile time against bare NVRTC calls, and the cost of importing cujit against bare Python."""

from __future__ import annotations

import subprocess
import sys

from cuda.bindings import nvrtc
from measure import medians, row

import cujit

SOURCE = """
template <typename T> __global__ void axpy(T a, const T *x, T *y, size_t n)
{
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""
NAME = "axpy<float>"


def _checked(result: tuple[object, ...]) -> object:
    if result[0] != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise SystemExit(f"NVRTC: {result[0]}")
    return result[1] if len(result) > 1 else None


def bare(arch: str) -> bytes:
    """The least that a program can do to get a cubin and a lowered name."""
    program = _checked(nvrtc.nvrtcCreateProgram(SOURCE.encode(), b"axpy.cu", 0, [], []))
    _checked(nvrtc.nvrtcAddNameExpression(program, NAME.encode()))
    _checked(nvrtc.nvrtcCompileProgram(program, 1, [f"--gpu-architecture={arch}".encode()]))
    _checked(nvrtc.nvrtcGetLoweredName(program, NAME.encode()))
    cubin = bytes(int(str(_checked(nvrtc.nvrtcGetCUBINSize(program)))))
    _checked(nvrtc.nvrtcGetCUBIN(program, cubin))
    nvrtc.nvrtcDestroyProgram(program)
    return cubin


def run() -> list[str]:
    """Measure, and return lines of a table."""
    source = cujit.Source.cuda(SOURCE, name="axpy.cu")
    took = medians(
        {
            "cujit": lambda: cujit.compile(source, arch="sm_90", names=[NAME], cache=False),
            "bare": lambda: bare("sm_90"),
        },
        rounds=41,
    )
    python = [sys.executable, "-c", "pass"]
    imports = [sys.executable, "-c", "import cujit"]
    starts = medians({"cujit": lambda: subprocess.run(imports), "python": lambda: subprocess.run(python)}, rounds=21)
    return [
        row("compile axpy<float> for sm_90", took["cujit"], took["bare"], "bare NVRTC calls", "ms", 1e3),
        f"import cujit costs {1e3 * (starts['cujit'] - starts['python']):.1f} ms over bare Python",
    ]
