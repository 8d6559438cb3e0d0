"""What stays of kernels that were compiled on the CPU device, launched and dropped: ``leak.py [KERNELS [FIRST]]``.

Every kernel has another text; every second one has a barrier, which takes LLVM's other pipeline. The cache is off.
Half of the modules are closed, the other half left to Python.
"""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from pathlib import Path

import numpy as np

import cujit

__all__ = ["grown_bytes"]

LIMIT_BYTES = 5_000_000
"""What 10,000 kernels may leave."""

_KERNELS = 10_000
_FIRST = 200
"""Kernels before the measurement: threads, tables and LLVM are there then."""

_LIBC = ctypes.CDLL(None)

_BARRIER = """
    st.shared.u32 [kept], r;
    bar.sync 0;
    ld.shared.u32 r, [kept];"""

_PTX = """.version 8.0
.target sm_90
.address_size 64
.visible .entry k(.param .u64 p)
{{
    .reg .b64 a, o;
    .reg .b32 r, t;
    .shared .u32 kept;
    ld.param.u64 a, [p];
    mov.u32 t, %tid.x;
    mul.wide.u32 o, t, 4;
    add.s64 a, a, o;
    ld.global.u32 r, [a];{barrier}
    add.u32 r, r, {number};
    st.global.u32 [a], r;
    ret;
}}
"""


def _resident_bytes() -> int:
    """Read how much memory this process has, without what the C library has in stock."""
    gc.collect()
    if hasattr(_LIBC, "malloc_trim"):
        _LIBC.malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def grown_bytes(kernels: int, first: int = _FIRST) -> int:
    """Compile, launch and drop ``first`` kernels, then ``kernels``; tell by how much these let the process grow."""
    device = cujit.cpu()
    data = device.array(np.zeros(64, np.uint32))
    before = 0
    for number in range(first + kernels):
        if number == first:
            before = _resident_bytes()
        module = cujit.load(_PTX.format(number=number, barrier=_BARRIER if number % 2 else ""), device)
        module["k"][1, 64](data)
        if number % 4 < 2:
            module.close()
    return _resident_bytes() - before


def main() -> None:
    """Measure, print one line, and end with 1 where more stays than may."""
    os.environ["CUJIT_CACHE"] = "off"
    counts = [int(text) for text in sys.argv[1:]] or [_KERNELS]
    kernels, grown = counts[0], grown_bytes(*counts)
    print(f"{kernels} kernels left {grown / 1e6:.2f} MB, {grown / kernels / 1000:.2f} kB each")
    sys.exit(grown > LIMIT_BYTES)


if __name__ == "__main__":
    main()
