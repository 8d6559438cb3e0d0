"""Measure what a kernel over CUB costs a new process: cached (by a scan of the headers, hints, a pack) and compiled.

CPU is that of one call after ``import cujit``. In the cached cases compiling is forbidden, so that no library is
opened. cujit lies in a ``site-packages`` with its RECORD, as wheels are installed. strace counts the system calls.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import cujit
from cujit.cache.pack import write_pack
from cujit.program import runner

SOURCE = """#include <cub/block/block_reduce.cuh>
extern "C" __global__ void total(int *x) {
    using Reduce = cub::BlockReduce<int, 128>;
    __shared__ Reduce::TempStorage room;
    const int sum = Reduce(room).Sum(x[threadIdx.x]);
    if (threadIdx.x == 0) x[0] = sum;
}
"""
_CHILD = """
import os, sys, time
from pathlib import Path
import cujit
path = Path(sys.argv[1])
roots = {"read_only": [path]} if path.suffix == ".pack" else {}
cache = cujit.Cache(None if roots else path, compile="auto" if path.name == "none" else "never", **roots)
source = sys.stdin.read()
if path.name == "none":
    source += f"// new in {os.getpid()} at {time.time()}"  # NVRTC keeps what it compiled in other processes
os.getppid()
begin = time.process_time()
image = cujit.compile(source, arch="sm_90", cache=cache)
took = time.process_time() - begin
os.getppid()
begin = time.process_time()
cujit.compile(source + "// another", arch="sm_90", cache=cache)
print(took, time.process_time() - begin, image.provenance.headers, sep=",")
"""
_OPENS = re.compile(r"(?:\d+ +)?open(?:at)?\(")
_STATS = re.compile(r"(?:\d+ +)?(?:newf?stat(?:at)?|statx|[lf]?stat|access)\(")
_ROUNDS = 15
_COMPILES = 5


def _installed(directory: Path) -> None:
    """Lay cujit out as an installer does."""
    site = directory / "site-packages"
    shutil.copytree(Path(cujit.__file__).parent, site / "cujit", ignore=shutil.ignore_patterns("__pycache__"))
    lines = []
    for path in sorted(filter(Path.is_file, site.rglob("*"))):
        digest = base64.urlsafe_b64encode(hashlib.sha256(path.read_bytes()).digest()).decode().rstrip("=")
        lines.append(f"{path.relative_to(site)},sha256={digest},{path.stat().st_size}\n")
    (site / "cujit-1.dist-info").mkdir()
    (site / "cujit-1.dist-info/RECORD").write_text("".join(lines))


def _one(root: Path, *before: str) -> tuple[float, float, str]:
    """Run one process: CPU seconds of the first kernel and of another, and how their headers were known."""
    command = [*before, sys.executable, "-c", _CHILD, str(root)]
    paths = {"PYTHONPYCACHEPREFIX": str(root.parent / "pyc"), "PYTHONPATH": str(root.parent / "site-packages")}
    environment = os.environ | paths
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # modules are compiled once, as where they are installed
    done = subprocess.run(command, input=SOURCE, capture_output=True, text=True, check=True, env=environment)
    first, second, how = done.stdout.strip().split(",")
    return float(first), float(second), how


def _calls(root: Path, log: Path) -> str:
    if shutil.which("strace") is None:
        return "system calls not counted: no strace"
    _one(root, "strace", "-f", "-y", "-o", str(log))
    lines = log.read_text().splitlines()
    marks = [number for number, line in enumerate(lines) if "getppid" in line]
    between = [line for line in lines[marks[0] : marks[1]] if "ENOTTY" not in line and "EMPTY_PATH" not in line]
    headers = [line for line in between if any(p in line for p in ("/include", "toolchain/std", ".dist-info"))]
    opens, stats = (sum(1 for line in headers if kind.match(line)) for kind in (_OPENS, _STATS))
    absent = sum(1 for line in headers if "ENOENT" in line)
    return f"opens of headers, directories and RECORDs {opens}, stats {stats}, of which not there {absent}"


def run() -> list[str]:
    """Measure, and return lines of a table."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        _installed(directory)
        cache = cujit.Cache(directory / "cache")
        for text in (SOURCE, SOURCE + "// another"):
            cujit.compile(text, arch="sm_90", cache=cache)
        roots = {"scan": directory / "bare.pack", "hints": directory / "cache", "request table": directory / "k.pack"}
        write_pack(roots["scan"], cache.stores)
        requests, closures = runner(cache).answers(cache.stores)
        write_pack(roots["request table"], cache.stores, requests=requests, closures=closures)
        times: dict[str, list[tuple[float, float]]] = {how: [] for how in roots}
        for turn in range(_ROUNDS + 1):
            for how, root in roots.items():
                first, second, was = _one(root)
                if turn:  # the first leaves hints of where this cujit lies
                    assert was == how, was
                    times[how].append((first, second))
        compiled = [_one(directory / "none")[:2] for _ in range(_COMPILES)]
        lines, whole = [], 0.0
        for how, root in roots.items():
            first, second = (1e3 * statistics.median(column) for column in zip(*times[how], strict=True))
            whole = whole or first
            calls = _calls(root, directory / "calls")
            lines.append(
                f"a CUB kernel by {how}: CPU {first:.1f} ms ({first / whole:.3f} of a scan), "
                f"another in the same process {second:.1f} ms; {calls}"
            )
        first, second = (1e3 * statistics.median(column) for column in zip(*compiled, strict=True))
        lines.append(f"a CUB kernel compiled: CPU {first:.0f} ms, another in the same process {second:.0f} ms")
    return lines


if __name__ == "__main__":
    print(*run(), sep="\n")
