"""The farm: CPU per key against the same compiles in one process, scaling by processes, and the driver's memory.

``python benchmarks/farm.py [--processes 16] [--keys 100000]`` prints five tables; none of it needs a GPU.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import os
import platform
import re
import runpy
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor
from pathlib import Path
from typing import Any

import cujit
import cujit.farm
from cujit.cache.cache import Cache
from cujit.farm.tasks import ChunkResult, PieceResult, WorkChunk

TILE: str = runpy.run_path(str(Path(__file__).parents[1] / "examples/farmed_tiles.py"))["TILE"]
_COUNTER = itertools.count()


def requests(count: int) -> Iterator[cujit.Request]:
    """Small kernels, each new: some 60 ms of NVRTC."""
    for _ in range(count):
        text = TILE.replace("T sum = 0", f"T sum = {next(_COUNTER)}")
        yield cujit.request(cujit.Source.cuda(text, name="tile.cu"), names=["tile<float, 16>"], arch="sm_90")


def pool(processes: int) -> ProcessPoolExecutor:
    return ProcessPoolExecutor(processes, multiprocessing.get_context("spawn"))


def alone(count: int, root: Path) -> float:
    """The CPU seconds of compiling in this process, into a cache."""
    cache = Cache(root)
    asked = list(requests(count))
    begin = time.process_time()
    for request in asked:
        made = cujit.compile(request.source, names=request.names, arch=request.arch, cache=cache)
        assert made.provenance is not None
        assert not made.provenance.is_hit
    return time.process_time() - begin


def farmed(count: int, root: Path, executor: Executor) -> float:
    """The CPU seconds of driver and workers for as many compiles."""
    asked = list(requests(count))
    begin = time.process_time()
    report = cujit.farm.build(asked, executor=executor, sink=root)
    assert report.made == count, report
    return time.process_time() - begin + report.cpu_s


def overhead(root: Path) -> None:
    """Print what a key costs in one process and over the farm, in turns; what starting costs is left out."""
    count, rounds = 24, 9
    with pool(1) as executor:
        farmed(4, root / "f", executor)
        alone(4, root / "a")
        each = [(alone(count, root / "a"), farmed(count, root / "f", executor)) for _ in range(rounds)]
    here, there = (statistics.median(column) / count * 1e3 for column in zip(*each, strict=True))
    more = statistics.median(b / a - 1 for a, b in each)
    print(f"CPU per key    in one process {here:.1f} ms    over the farm {there:.1f} ms    more {more:+.1%}")


def joining(root: Path) -> None:
    """Print what instances of one source cost where several are compiled together."""
    print("join   CPU ms per key   bytes of an image (mean of the 20 largest)")
    with pool(1) as executor:
        farmed(4, root / "j", executor)
        for join in (1, 2, 4, 8, 16):
            (one,) = requests(1)
            names = [f"tile<{scalar}, {n}>" for n in range(4, 20) for scalar in ("float", "double")]
            asked = [cujit.request(one.source, names=[name], arch="sm_90") for name in names]
            begin = time.process_time()
            report = cujit.farm.build(asked, executor=executor, sink=root / "j", join=join, chunk_s=9.0)
            cpu_ms = (time.process_time() - begin + report.cpu_s) / len(asked) * 1e3
            print(f"{join:4} {cpu_ms:16.1f} {statistics.mean(image.size_bytes for image in report.largest):19.0f}")


def sharing(root: Path) -> None:
    """Print what kernels for four architectures cost that share PTX or LTO-IR, as a part of what they cost alone."""
    print("architectures      share   CPU, of that without   made of what is shared")
    with pool(1) as executor:
        for arches in (["sm_80", "sm_86", "sm_89", "sm_90"], ["sm_80", "sm_90", "sm_100", "sm_120"]):
            spent: dict[str | None, list[float]] = {None: [], "ptx": [], "ltoir": []}
            shared: dict[str | None, float] = {}
            for _ in range(6):  # the first of them starts what compiles
                for share, each in spent.items():
                    asked = list(requests(12))
                    begin = time.process_time()
                    report = cujit.farm.build(
                        asked, arches, executor=executor, sink=root / "h", share=share, chunk_s=9.0
                    )
                    each.append(time.process_time() - begin + report.cpu_s)
                    shared[share] = report.shared / report.made
            name = " ".join(arch.removeprefix("sm_") for arch in arches)
            for share in ("ptx", "ltoir"):
                part = statistics.median(b / a for a, b in zip(spent[None][1:], spent[share][1:], strict=True))
                print(f"{name:18} {share:7} {part:20.0%} {shared[share]:24.0%}")


def scaling(root: Path, most: int) -> None:
    """Print compiles a second by the number of processes, and the share of what as many times one process would do."""
    print("processes   keys   seconds   keys/s   of linear   CPU ms per key")
    first = 0.0
    for processes in [n for n in (1, 2, 4, 8, 16, 32, 64) if n <= most]:
        with pool(processes) as executor:
            farmed(processes * 4, root / "s", executor)  # each worker has begun
            asked = list(requests(48 * processes))
            begin = time.perf_counter()
            report = cujit.farm.build(asked, executor=executor, sink=root / "s", chunk_s=0.5)
            seconds = time.perf_counter() - begin
        rate = len(report.keys) / seconds
        first = first or rate
        cpu_ms = report.cpu_s / len(report.keys) * 1e3
        share = rate / first / processes
        print(f"{processes:9} {len(report.keys):6} {seconds:9.2f} {rate:8.1f} {share:11.1%} {cpu_ms:16.1f}")


class Instant(Executor):
    """Says of every key that it was made, after an empty file for it: what is left is the driver's work."""

    def submit(self, _fn: Callable[..., Any], /, *args: Any, **_more: Any) -> Future[Any]:
        chunk: WorkChunk = args[0]
        for piece in chunk.pieces:
            directory = f"{chunk.root}/e/{piece.digest[:2]}"
            os.makedirs(directory, exist_ok=True)
            os.close(os.open(f"{directory}/{piece.digest[2:]}", os.O_CREAT | os.O_WRONLY))
        future: Future[Any] = Future()
        made = PieceResult("made", make_ms=60.0, size_bytes=4000)
        future.set_result(ChunkResult((made,) * len(chunk.pieces), 0.0, "here"))
        return future


def most_megabytes() -> float:
    """The most memory that this process had; getrusage counts what its parent had before exec."""
    (peak,) = re.findall(r"VmHWM:\s+([0-9]+) kB", Path("/proc/self/status").read_text())
    return int(peak) / 1024


def memory(root: Path, keys: int) -> None:
    """Print the most memory that the driver had, before and after so many keys."""
    cache = Cache(root / "m", cap_bytes=1 << 62)
    cujit.farm.build(requests(1), executor=Instant(), sink=cache, workers=16)
    before = most_megabytes()
    begin = time.process_time()
    report = cujit.farm.build(requests(keys), executor=Instant(), sink=cache, workers=16)
    spent = time.process_time() - begin
    after = most_megabytes()
    assert len(report.keys) == keys
    print(f"driver    {keys:,} keys    {before:.0f} -> {after:.0f} MB    {spent / keys * 1e3:.2f} ms of CPU per key")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--processes", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--keys", type=int, default=100_000)
    given = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} processors, load {os.getloadavg()[0]:.1f}")
    with tempfile.TemporaryDirectory(prefix="cujit-farm-") as name:
        root = Path(name)
        if given.keys:  # first: what compiles here would count as memory of the driver
            memory(root, given.keys)
        overhead(root)
        joining(root)
        sharing(root)
        scaling(root, given.processes)


if __name__ == "__main__":
    main()
