"""Files that hold images, made here: fatbins of real images, ELF files and archives around them."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from formats.images import Input, bundled, cubin, ltoir, ptx

SOURCE = r"""
__device__ int counter;
template <class T> __global__ void scale(T a, const T* x, T* y, int n) {
    __shared__ T tile[64];
    tile[threadIdx.x & 63] = x[threadIdx.x];
    __syncthreads();
    if (threadIdx.x < n) y[threadIdx.x] = a * tile[63 - (threadIdx.x & 63)];
}
template __global__ void scale<float>(float, const float*, float*, int);
template __global__ void scale<double>(double, const double*, double*, int);
extern "C" __global__ void __launch_bounds__(96) count(int* p) { *p = ++counter; }
"""

SPILLING = r"""
extern "C" __global__ void __launch_bounds__(1024, 2) spilling(double* p, int n) {
    double a[48];
    for (int i = 0; i < 48; i++) a[i] = p[i * n + threadIdx.x];
    for (int r = 0; r < n; r++)
        for (int i = 0; i < 48; i++) a[i] = a[(i + 1) % 48] * a[i] + r;
    for (int i = 0; i < 48; i++) p[i] = a[i];
}
extern "C" __global__ void empty() {}
"""


def many(*options: str) -> bytes:
    """A fatbin of cubins, PTX and LTO-IR of one source."""
    images: list[Input] = [("cubin", arch, cubin(SOURCE, f"sm_{arch}")) for arch in ("75", "90a", "100f", "120")]
    images += [("ptx", "75", ptx(SOURCE)), ("ltoir", "90", ltoir(SOURCE))]
    return bundled(tuple(images), *options)


def several(count: int) -> bytes:
    """An uncompressed fatbin of ``count`` equal cubins."""
    return bundled(tuple(("cubin", "80", cubin(SOURCE, "sm_80")) for _ in range(count)), "-compress=false")


def host_elf(content: bytes, kind: int, section: bytes = b".nv_fatbin") -> bytes:
    """An ELF file for x86-64 of type ``kind`` (1 object, 2 executable, 3 library) with one section."""
    names = b"\0.shstrtab\0" + section + b"\0"
    at = 64
    table = at + len(content) + len(names)
    header = struct.pack(
        "<16sHHIQQQIHHHHHH", b"\x7fELF\2\1\1", kind, 62, 1, 0, 0, table, 0, 64, 56, 0, 64, 3, 1
    )  # fmt: skip
    rows = [
        struct.pack("<IIQQQQIIQQ", *[0] * 10),
        struct.pack("<IIQQQQIIQQ", 1, 3, 0, 0, at + len(content), len(names), 0, 0, 1, 0),
        struct.pack("<IIQQQQIIQQ", 11, 1, 2, 0, at, len(content), 0, 0, 8, 0),
    ]
    return header + content + names + b"".join(rows)


def archive(members: Sequence[bytes]) -> bytes:
    """An archive of files."""
    found = b"!<arch>\n"
    for number, member in enumerate(members):
        name = f"{number}.o/".encode()
        found += struct.pack("16s12s6s6s8s10s2s", name.ljust(16), b"0".ljust(12), b"0".ljust(6), b"0".ljust(6),
                             b"644".ljust(8), str(len(member)).encode().ljust(10), b"`\n")  # fmt: skip
        found += member + b"\n" * (len(member) % 2)
    return found
