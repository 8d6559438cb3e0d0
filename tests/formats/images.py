"""Real images, made by NVIDIA's own libraries through their bindings, once per process each."""

from __future__ import annotations

import functools
from typing import Any

from cuda import pathfinder
from cuda.bindings import nvfatbin, nvjitlink, nvrtc

ARCHES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f", "sm_120", "sm_121")

SAXPY = r"""
extern "C" __global__ void saxpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""

ZOO = r"""
struct Mixed { char c; double d; };
struct alignas(32) Wide { float f[8]; };
__constant__ float table[8];
__device__ int counter;
__managed__ int shared_with_host;
extern "C" __global__ void nothing() {}
extern "C" __global__ void mixed(char a, short b, int* c, Mixed d, float4 e, double f, Wide g, const float* h) {
    *c = a + b + (int)(d.d + e.x + f + g.f[3] + h[0] + table[a] + counter + shared_with_host);
}
extern "C" __global__ void tile(const float* x, float* y) {
    __shared__ float s[300];
    s[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = s[299 - threadIdx.x];
}
extern "C" __global__ void __launch_bounds__(96) bounded(int* p) {
    extern __shared__ int q[];
    q[threadIdx.x] = *p;
    __syncthreads();
    *p = q[3];
}
extern "C" __global__ void stack(int* p, int n) {
    int local[64];
    for (int i = 0; i < 64; ++i) local[(i * n) & 63] = i + p[i];
    *p = local[n & 63];
}
"""

Input = tuple[str, str, bytes]

TWO_FILES = (
    'extern __device__ float twice(float); extern "C" __global__ void k(float* p) { *p = twice(*p); }',
    "__device__ float twice(float v) { return 2 * v; }",
)


class Compiled:
    """What one compile gave."""

    def __init__(self, image: bytes, lowered: dict[str, str], log: str) -> None:
        self.image = image
        self.lowered = lowered
        self.log = log


@functools.cache
def compiled(
    source: str,
    arch: str = "sm_90",
    *options: str,
    names: tuple[str, ...] = (),
    what: str = "CUBIN",
) -> Compiled:
    """Compile with NVRTC; ``what`` is CUBIN, PTX or LTOIR."""
    program = _done(nvrtc.nvrtcCreateProgram(source.encode(), b"/nowhere/image.cu", 0, [], []))
    for name in names:
        _done(nvrtc.nvrtcAddNameExpression(program, name.encode()))
    arguments = [f"-arch={arch}".encode(), *(o.encode() for o in options)]
    result = nvrtc.nvrtcCompileProgram(program, len(arguments), arguments)[0]
    # Not b" " * size: that is one shared object where size is 1, and NVRTC would write into it.
    log = bytes(_done(nvrtc.nvrtcGetProgramLogSize(program)))
    _done(nvrtc.nvrtcGetProgramLog(program, log))
    assert result == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()
    lowered = {n: _done(nvrtc.nvrtcGetLoweredName(program, n.encode())).decode() for n in names}
    image = bytes(_done(getattr(nvrtc, f"nvrtcGet{what}Size")(program)))
    _done(getattr(nvrtc, f"nvrtcGet{what}")(program, image))
    _done(nvrtc.nvrtcDestroyProgram(program))
    return Compiled(image, lowered, log.rstrip(b"\0 ").decode())


def cubin(source: str, arch: str = "sm_90", *options: str) -> bytes:
    return compiled(source, arch, *options).image


def ptx(source: str, arch: str = "compute_75", *options: str) -> bytes:
    return compiled(source, arch, *options, what="PTX").image


def ltoir(source: str, arch: str = "compute_90", *options: str) -> bytes:
    return compiled(source, arch, "-dlto", *options, what="LTOIR").image


@functools.cache
def linked(images: tuple[bytes, ...], arch: str, *options: str) -> bytes:
    """Link cubins with nvJitLink."""
    arguments = [f"-arch={arch}", *options]
    handle = nvjitlink.create(len(arguments), arguments)
    for number, image in enumerate(images):
        nvjitlink.add_data(handle, nvjitlink.InputType.CUBIN, image, len(image), f"input{number}")
    nvjitlink.complete(handle)
    output = bytearray(nvjitlink.get_linked_cubin_size(handle))
    nvjitlink.get_linked_cubin(handle, output)
    nvjitlink.destroy(handle)
    return bytes(output)


@functools.cache
def bundled(images: tuple[Input, ...], *options: str) -> bytes:
    """Bundle ``(kind, number, image)`` with nvFatbin; kind is cubin, ptx or ltoir, number is ``90a``."""
    handle = nvfatbin.create(list(options), len(options))
    for kind, number, image in images:
        _add(handle, kind, number, image)
    data = bytearray(nvfatbin.size(handle))
    nvfatbin.get(handle, data)
    nvfatbin.destroy(handle)
    return bytes(data)


def _add(handle: int, kind: str, number: str, image: bytes) -> None:
    identifier = f"image.{kind}"
    if kind == "cubin":
        nvfatbin.add_cubin(handle, image, len(image), number, identifier)
    elif kind == "ptx":
        nvfatbin.add_ptx(handle, image, len(image), number, identifier, "-O3 -v")
    else:
        nvfatbin.add_ltoir(handle, image, len(image), number, identifier, "-ftz=0")


def _done(results: Any) -> Any:
    """The value of a call of NVRTC's that must succeed."""
    assert results[0] == nvrtc.nvrtcResult.NVRTC_SUCCESS, results[0]
    return results[1] if len(results) == 2 else None


def include_directory() -> str:
    """The toolkit's own headers, as the wheels bring them."""
    found = pathfinder.locate_nvidia_header_directory("cudart")
    assert found is not None, "the wheel nvidia-cuda-runtime is not installed"
    return str(found.abs_path)
