"""Small real images for the fuzzer to start from: ``python fuzz/seeds.py DIRECTORY`` fills DIRECTORY/READER.

They come from the compilers that are installed, and from the goldens of the tests.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import cujit

GOLDENS = Path(__file__).resolve().parents[1] / "tests" / "goldens"
ARCHES = ("sm_75", "sm_90a", "sm_100f", "sm_120")
MODES = ("none", "size", "speed", "balance")
SMALL = 20_000
SOURCE = cujit.Source.cuda(
    r"""
__constant__ float factor[2];
__device__ int counter;
template <typename T> __global__ void axpy(T a, const T *x, T *y, unsigned n) {
    __shared__ T s[64];
    s[threadIdx.x & 63] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < n) y[threadIdx.x] = a * s[63 - (threadIdx.x & 63)] + factor[n & 1] + counter;
}
extern "C" __global__ void __launch_bounds__(128) nothing() {}
""",
    name="axpy.cu",
)
NAMES = ("axpy<float>", "axpy<double>")
_OF_HOST_FILES = ("find_fatbins", "salvage", "inspect")


def compiled() -> Iterator[tuple[str, str, bytes]]:
    """Reader, name and bytes of each image that the installed toolkit makes."""
    images = []
    for arch in ARCHES:
        for rdc in (False, True):
            image = cujit.compile(SOURCE, to="cubin", arch=arch, names=NAMES, rdc=rdc)
            yield "cubin", f"{arch}-{rdc}", image.data
            yield "elf", f"{arch}-{rdc}", image.data
            lined = cujit.compile(SOURCE, to="cubin", arch=arch, names=NAMES, rdc=rdc, lineinfo=True)
            yield "recovered", f"{arch}-{rdc}", lined.data
        images.append(cujit.compile(SOURCE, to="cubin", arch=arch, names=NAMES))
    images.append(cujit.compile(SOURCE, to="ptx", arch="compute_80", names=NAMES))
    yield "ptx", "compute_80", images[-1].data
    yield "heads", "compute_80", images[-1].data
    yield "inspect", "compute_80", images[-1].data
    for arch in ("lto_75", "lto_90a", "lto_121"):
        ltoir = cujit.compile(SOURCE, to="ltoir", arch=arch, names=NAMES)
        yield "ltoir", arch, ltoir.data
    for path in (GOLDENS / "tileir").glob("*.tileir"):
        yield "tileir", path.name, path.read_bytes()
        yield "inspect", path.name, path.read_bytes()
    for mode in MODES:
        fatbin = cujit.bundle(images[1::2], compress=mode)
        yield "fatbin", mode, fatbin.data
        for reader in _OF_HOST_FILES:
            yield reader, mode, fatbin.data
    for text in (*NAMES, *images[0].names.values(), "ns::k<3u, 0x10, 'a', void (*)(int)>"):
        yield "mangling", text.replace("/", "_"), text.encode()


CALLS = "extern __device__ int base; __device__ int f(int); static __device__ int n; __device__ int *p = &base;"
CALLS += "__global__ void k(int *out) { extern __shared__ int s[]; s[0] = n++; *out = f(s[0]) + base + *p; }"
HAS = "__device__ int base = 3; static __device__ int n = 5; template <class T> __device__ T g(T x) { return x + n; }"
HAS += "__device__ int f(int x) { return g(x); }"


def linkable() -> Iterator[tuple[str, str, bytes]]:
    """Two modules that link, with and without debug data."""
    for name, options in (("plain", {}), ("lines", {"lineinfo": True}), ("debug", {"debug": True})):
        parts = [cujit.compile(text, to="ptx", rdc=True, options=options).data for text in (CALLS, HAS)]
        yield "linking", name, b"\f".join(parts)


def kept() -> Iterator[tuple[str, str, bytes]]:
    """The small ones among the goldens: fatbins, objects, archives and libraries of nvcc; records of the cache."""
    for path in sorted((GOLDENS / "cache").iterdir()):
        yield "record", path.name, path.read_bytes()
    for path in sorted((GOLDENS / "lined").glob("*.cubin")):
        yield "recovered", path.name, path.read_bytes()
    for folder in ("fatbins", "device"):
        for path in sorted((GOLDENS / folder).iterdir()):
            data = path.read_bytes()
            if len(data) > SMALL or path.suffix not in (".fatbin", ".o", ".a", ".so"):
                continue
            for reader in _OF_HOST_FILES:
                yield reader, path.name, data
            if path.suffix == ".fatbin":
                yield "fatbin", path.name, data


def saved() -> Iterator[tuple[str, str, bytes]]:
    """A launch in a file, with views, a structure and a null pointer."""
    device = cujit.cpu()
    code = "struct P { int n; float f; }; __global__ void k(P p, float *x, float *y, int *none) {}"
    array = device.zeros(64, "float32")
    launch = cujit.jit(code, device=device)["k"].prepare(2, 32, cluster=2)
    with tempfile.TemporaryDirectory() as folder:
        path = launch.save(Path(folder) / "launch", bytes(8), array, array[3:], None)
        yield "saved", "views", path.read_bytes()


def main() -> None:
    """Write every image into the directory of its reader."""
    if len(sys.argv) != 2:
        raise SystemExit("usage: seeds.py DIRECTORY")
    for reader, name, data in (*compiled(), *linkable(), *kept(), *saved()):
        folder = Path(sys.argv[1]) / reader
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"seed-{name}").write_bytes(data)


if __name__ == "__main__":
    main()
