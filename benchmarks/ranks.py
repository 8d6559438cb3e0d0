"""Many processes that start at once and want a thousand kernels each: from a pack, from one of zstd, from a directory.

Eight run at a time, of each kind in turn. Each tells the CPU time between ``import cujit`` and its last kernel, found
alone, or also looked at, as whoever loads it has to. System calls are counted by strace in a crowd of their own, less
those of processes that only import cujit; without strace the reads alone are, by /proc/self/io.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median

from measure import row

import cujit
from cujit.artifact import Artifact
from cujit.cache.cache import Cache
from cujit.cache.key import Key, Part, make_key
from cujit.cache.pack import Pack, write_pack
from cujit.cache.trust import Trust

SOURCE = """
template <typename T, int N> __global__ void norm(const T* x, const T* w, T* y, float eps) {
    __shared__ float sums[32];
    float kept[N], sum = 0;
    size_t column = threadIdx.x, width = blockDim.x, row = blockIdx.x * N * width;
    #pragma unroll
    for (int i = 0; i < N; ++i) kept[i] = (float)x[row + i * width + column], sum += kept[i] * kept[i];
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    if (column % 32 == 0) sums[column / 32] = sum;
    __syncthreads();
    sum = column % 32 < width / 32 ? sums[column % 32] : 0;
    for (int step = 16; step; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    float scale = rsqrtf(sum / (N * width) + eps);
    #pragma unroll
    for (int i = 0; i < N; ++i) y[row + i * width + column] = (T)(kept[i] * scale * (float)w[i * width + column]);
}
"""
NAMES = [f"norm<{type_}, {n}>" for type_ in ("float", "double") for n in range(14, 20)]
CHILD = """
import os, sys, time
import cujit
from pathlib import Path
from cujit.cache.cache import Cache
sys.path.insert(0, {here!r})
import ranks
keys = [ranks.key_of(n) for n in range(int(sys.argv[2]))]
def reads(): return int(Path("/proc/self/io").read_text().split("syscr: ")[1].split()[0])
begin, before = time.process_time(), reads()
if sys.argv[1] != "nothing":
    import cujit.cache.pack
    cache = Cache(None, read_only=[Path(sys.argv[1])])
    found = [cache.find(key) for key in keys]
    assert all(found)
    if sys.argv[3] == "looked at":
        for artifact, _ in found: artifact.data
print(time.process_time() - begin, reads() - before - 1, flush=True)
os._exit(0)
"""


def key_of(n: int) -> Key:
    """Make the key of the n-th kernel; nobody compiles it."""
    return make_key("nvrtc", [Part.text("name", "norm.cu"), Part.text("arch", "sm_90"), Part.text("number", str(n))])


def run(processes: int = 16, kernels: int = 1000, at_once: int = 8) -> list[str]:
    """Measure, and return lines of a table."""
    with tempfile.TemporaryDirectory() as directory:
        return _measured(Path(directory), processes, kernels, at_once)


def _measured(here: Path, processes: int, kernels: int, at_once: int) -> list[str]:
    images = [cujit.compile(SOURCE, arch="sm_90", names=[name]) for name in NAMES]
    cache = Cache(here / "directory", cap_bytes=1 << 40)
    for n, image in zip(range(kernels), itertools.cycle(images)):
        cache.keep(key_of(n), image)
    ways = {"a directory": here / "directory", "a pack": here / "raw.pack", "a pack of zstd": here / "zstd.pack"}
    sizes = [write_pack(path, cache.stores, compress="zstd" in way) for way, path in ways.items() if "pack" in way]
    lines = [f"-- {processes} processes, {at_once} at a time, {kernels} kernels of {_mean(images) / 1e3:.1f} kB each"]
    lines.append(row("a pack of zstd", sizes[1].file_bytes, sizes[0].file_bytes, "a pack", "MB", 1e-6))
    took: dict[tuple[str, str], list[float]] = {}
    reads: dict[tuple[str, str], float] = {}
    crowds = [*itertools.product(ways, ("found",)), ("a pack", "looked at"), ("a pack of zstd", "looked at")]
    for size in _crowds(processes, at_once):
        for way, use in crowds:
            told = [_told(child) for child in _started(size, [], ways[way], kernels, use)]
            took.setdefault((way, use), []).extend(seconds for seconds, _ in told)
            reads[way, use] = median(count for _, count in told)
    for way, use in crowds:
        if way != "a directory":
            floor = median(took["a directory", "found"])  # where all of it is read at once
            lines.append(row(f"CPU, {use} in {way}", median(took[way, use]), floor, "a directory", "ms", 1e3))
    calls = {way: _calls(path, kernels, here) for way, path in ways.items()} if shutil.which("strace") else None
    counted, what = (calls, "system calls") if calls else ({way: reads[way, "found"] for way in ways}, "reads")
    for way in ways:
        if way != "a directory":
            mine, floor = counted[way] * processes, counted["a directory"] * processes
            lines.append(row(f"{what} of all processes, found in {way}", mine, floor, "a directory", "calls", 1))
    lines += [_opening(ways["a pack"], kernels)]
    return lines


def _mean(images: Sequence[Artifact]) -> float:
    return sum(len(image.data) for image in images) / len(images)


def _crowds(processes: int, at_once: int) -> Iterator[int]:
    for begin in range(0, processes, at_once):
        yield min(at_once, processes - begin)


def _started(count: int, tracer: list[str], path: Path, kernels: int, use: str) -> list[subprocess.Popen[str]]:
    code = CHILD.format(here=str(Path(__file__).parent))
    command = [*tracer, sys.executable, "-c", code, str(path), str(kernels), use]
    compiled = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(_compiled())}  # as is installed
    return [subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=compiled) for _ in range(count)]


@functools.cache
def _compiled() -> Path:
    directory = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, directory)
    return directory


def _told(child: subprocess.Popen[str]) -> tuple[float, int]:
    output, _ = child.communicate()
    if child.returncode:
        raise SystemExit(f"a process ended with {child.returncode}")
    seconds, reads = output.split()
    return float(seconds), int(reads)


def _calls(path: Path, kernels: int, here: Path) -> float:
    """Count the system calls of one process by strace, without those of one that only imports cujit."""
    counts = []
    for what in (path, Path("nothing")):
        log = here / "calls"
        for child in _started(1, ["strace", "-c", "-f", "-o", str(log)], what, kernels, "found"):
            _told(child)
        counts.append(int(next(line for line in log.read_text().splitlines() if line.endswith(" total")).split()[3]))
    return counts[0] - counts[1]


def _opening(path: Path, kernels: int) -> str:
    times = []
    for _ in range(21):
        begin = time.process_time()
        Pack(path, Trust.of_process()).is_there()
        times.append(time.process_time() - begin)
    return f"to open a pack of {kernels}: {median(times) * 1e3:.2f} ms of CPU"


def main() -> None:
    """Print the table; the whole of it takes ``--processes 300``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--kernels", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=8)
    said = parser.parse_args()
    print("\n".join(run(said.processes, said.kernels, said.at_once)))


if __name__ == "__main__":
    main()
