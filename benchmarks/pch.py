"""Measure what precompiled headers save: processor time of a compile without, of the one that precompiles, and with.

Each header has a process of its own. Compiles with and without alternate; each has a kernel that none had before.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile

_HEADERS = (
    "cuda_fp16.h",
    "mma.h",
    "curand_kernel.h",
    "cooperative_groups.h",
    "cuda/std/complex",
    "cuda/barrier",
    "cub/block/block_reduce.cuh",
    "cub/block/block_radix_sort.cuh cub/block/block_reduce.cuh",
)
_ROUNDS = 7
_CHILD = """
import os, sys, time
import cujit
from cujit.toolchain.precompiled import precompiled_headers
includes = "".join(f"#include <{header}>\\n" for header in sys.argv[1].split())
count = 0
def spent(is_precompiled):
    global count
    count += 1
    source = includes + f'extern "C" __global__ void k(int* p) {{ *p = {count} + {os.getpid()}; }}'
    begin = time.process_time()
    cujit.compile(source, arch="sm_90", pch=is_precompiled)
    return time.process_time() - begin
spent(False)
made = spent(True)
[directory] = precompiled_headers()._directories.values()
size = sum(entry.stat().st_size for entry in os.scandir(directory))
print(made, size, *(spent(is_precompiled) for _ in range(int(sys.argv[2])) for is_precompiled in (False, True)))
"""


def main() -> None:
    """Print a line for each header."""
    print("header                                     without   making     with   ratio   size")
    for header in sys.argv[1:] or _HEADERS:
        with tempfile.TemporaryDirectory() as cache:
            environment = {**os.environ, "CUJIT_CACHE_DIR": cache}
            ran = subprocess.run(
                [sys.executable, "-c", _CHILD, header, str(_ROUNDS)], env=environment, check=True, capture_output=True
            )
        made, size, *spent = map(float, ran.stdout.split())
        without, used = statistics.median(spent[::2]), statistics.median(spent[1::2])
        print(
            f"{header.replace('cub/block/', ''):40s} {without:7.2f} s {made:6.2f} s {used:6.2f} s "
            f"{without / used:6.1f}  {size / (1 << 20):4.0f} MiB"
        )


if __name__ == "__main__":
    main()
