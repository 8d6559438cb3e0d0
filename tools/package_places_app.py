"""An application that compiles, links, launches and emulates: ``package_places.py`` packages it and runs it.

``app`` does the first three, and compiles in a separate process if the program can have one. ``app emulate`` launches
on an emulated GPU. It prints one line, or ends with a traceback.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

import cujit
from cujit.errors import UnsupportedError

KERNEL = """
#include <cuda_fp16.h>
#include <vector>
__device__ int twice(int x) { return 2 * x; }
extern "C" __global__ void fill(int *out) { out[threadIdx.x] = twice(threadIdx.x); }
"""


def _compiled() -> str:
    """Compile and link, with headers of CUDA and stand-ins for those of a host."""
    made = cujit.compile(KERNEL, arch="sm_90", host_headers="stub")
    part = cujit.compile(KERNEL, to="ptx", arch="compute_90", host_headers="stub", rdc=True)
    linked = cujit.link([part], arch="sm_90")
    assert min(len(made), len(linked)) > 1000
    return f"compiled {len(made):,} bytes, linked {len(linked):,}"


def _launched(device: cujit.Device) -> str:
    out = device.zeros(4, np.int32)
    cujit.jit(KERNEL, device=device, host_headers="stub")["fill"][1, 4](out)
    assert out.numpy().tolist() == [0, 2, 4, 6]
    return f"launched on {device.name}"


def _isolated() -> str:
    """Compile in a separate process, or return why there is none."""
    try:
        cujit.compile(KERNEL, arch="sm_90", host_headers="stub", isolate=True, cache=False)
    except UnsupportedError as e:
        return f"no separate process ({e.help})"
    return "compiled in a separate process"


def main() -> None:
    """Do all of it."""
    if sys.argv[1:] == ["emulate"]:
        cujit.emulate()
        did = _launched(cujit.gpu(0)).replace("launched on", "emulated")
    else:
        did = "; ".join((_compiled(), _launched(cujit.cpu()), _isolated()))
    print(f"{did}; cujit in {Path(cujit.__file__).parent}")


if __name__ == "__main__":
    main()
