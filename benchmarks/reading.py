"""How long, and how much memory, it takes to list all of a large library: entries, images, kernels with resources.

The library is a real shared library of about 100 MB with thousands of entries, as linkers make them of many objects.
Linux, with gcc to link it.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

MEGABYTES = 100
SOURCE = r"""
template <int N> __global__ void turn(float* p, const float* q, int n) {
    __shared__ float s[256];
    float v[N];
#pragma unroll
    for (int i = 0; i < N; ++i) v[i] = p[i * 32 + threadIdx.x];
    s[threadIdx.x & 255] = v[0];
    __syncthreads();
#pragma unroll
    for (int i = 0; i < N; ++i) p[i * n + threadIdx.x] = sinf(v[i]) * v[(i * 7) % N] + s[i] + q[i];
}
"""
NAMES = ("turn<4>", "turn<8>", "turn<16>")
TARGETS = ("sm_75", "sm_80", "sm_90", "sm_100", "sm_120", "compute_120")

READ = """
import json, sys, time
from pathlib import Path
from cujit.formats.cubin import read_cubin
from cujit.formats.fatbin import EntryKind, find_fatbins

start = time.perf_counter()
entries = kernels = registers = 0
for fatbin in find_fatbins(Path(sys.argv[1]).read_bytes()):
    for entry in fatbin:
        entries += 1
        image = entry.payload()
        if entry.kind is EntryKind.CUBIN:
            found = read_cubin(image).kernels
            kernels += len(found)
            registers += sum(k.registers or 0 for k in found)
seconds = time.perf_counter() - start
# Not getrusage: its peak counts what the parent had when it forked.
status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
peak = int(status["VmHWM"].split()[0]) / 1024
print(json.dumps({"seconds": seconds, "peak": peak, "entries": entries, "kernels": kernels}))
"""


def library(folder: Path) -> Path:
    """Link a shared library of many containers, three in four as nvcc packs by default and one packed whole."""
    import cujit

    source = cujit.Source.cuda(SOURCE, name="turn.cu")
    plain = cujit.build(source, targets=TARGETS, names=NAMES).data
    packed = cujit.build(source, targets=TARGETS, names=NAMES, compress=True).data
    group = b"".join(part + bytes(-len(part) % 8) for part in (plain, plain, plain, packed))
    count = (MEGABYTES << 20) // len(group)
    (folder / "containers").write_bytes(group * count)
    assembly = folder / "library.S"
    assembly.write_text(
        '.section .nv_fatbin,"a"\n.balign 8\n.incbin "containers"\n.section .note.GNU-stack,"",%progbits\n'
    )
    result = folder / "liblarge.so"
    subprocess.run(["gcc", "-shared", "-nostdlib", "-o", result.name, assembly.name], cwd=folder, check=True)
    return result


def main() -> None:
    """Make the library and read it in a process of its own, three times; the best and the peak count."""
    with tempfile.TemporaryDirectory() as folder:
        path = library(Path(folder))
        size = path.stat().st_size / (1 << 20)
        command = [sys.executable, "-c", READ, str(path)]
        runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(3)]
    print(f"library of {size:.0f} MB: {runs[0]['entries']} entries, {runs[0]['kernels']} kernels")
    print(f"read in {min(r['seconds'] for r in runs):.2f} s, peak {max(r['peak'] for r in runs):.0f} MB")


if __name__ == "__main__":
    main()
