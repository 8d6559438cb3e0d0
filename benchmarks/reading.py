"""How long, and how much memory, it takes to list all of a large library: entries, images, kernels with resources.

The library is a real shared library of about 100 MB with thousands of entries, as linkers make them of many objects.
Linux, with gcc to link it. Where cuRAND is installed (the wheel ``nvidia-curand``), ``cujit inspect --json`` reads its
library too: 100 MB whose PTX is mostly tables of numbers. ``--against DIRECTORY`` does so with another ``src`` in turn,
and prints the ratio.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import resource
import statistics
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


def cu_rand() -> Path | None:
    """Find cuRAND's library among the wheels."""
    found = importlib.util.find_spec("nvidia")
    folders = [Path(folder) for folder in found.submodule_search_locations or ()] if found else []
    return next((path for folder in folders for path in folder.glob("*/lib/libcurand.so.*")), None)


def inspected(path: Path, source: Path) -> float:
    """Print all of a library with the cujit of ``source``; give the CPU seconds."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    command = [sys.executable, "-m", "cujit", "inspect", "--json", str(path)]
    environment = os.environ | {"PYTHONPATH": str(source)}
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=environment)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> None:
    """Make the library and read it in a process of its own, three times; the best and the peak count."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--against", type=Path, help="the src of another cujit")
    other = parser.parse_args().against
    with tempfile.TemporaryDirectory() as folder:
        path = library(Path(folder))
        size = path.stat().st_size / (1 << 20)
        command = [sys.executable, "-c", READ, str(path)]
        runs = [json.loads(subprocess.run(command, check=True, capture_output=True).stdout) for _ in range(3)]
    print(f"library of {size:.0f} MB: {runs[0]['entries']} entries, {runs[0]['kernels']} kernels")
    print(f"read in {min(r['seconds'] for r in runs):.2f} s, peak {max(r['peak'] for r in runs):.0f} MB")
    library_of_tables = cu_rand()
    if library_of_tables is None:
        return
    own = Path(__file__).parents[1] / "src"
    pairs = [(inspected(library_of_tables, own), other and inspected(library_of_tables, other)) for _ in range(3)]
    print(f"cujit inspect --json of cuRAND: {statistics.median(new for new, _ in pairs):.1f} s CPU", end="")
    print(f", {statistics.median(new / old for new, old in pairs if old):.2f} of the other's" if other else "")


if __name__ == "__main__":
    main()
