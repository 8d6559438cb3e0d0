"""What the key of a compile costs: the scan of its headers, the check of a memo, and how many headers that is."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import medians

from cujit.arch import Arch
from cujit.artifact import ImageKind
from cujit.compiler.inputs.source import Source
from cujit.compiler.keys.maker import Keyed, KeyMaker
from cujit.compiler.request import Request
from cujit.toolchain.toolset import Toolchain

HEADERS = ("", "cuda_fp16.h", "cuda/std/complex", "cooperative_groups.h", "cub/block/block_reduce.cuh")


class Directory:
    """Hints as files."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def get(self, name: str) -> bytes | None:
        try:
            return (self._path / name).read_bytes()
        except OSError:
            return None

    def has(self, name: str) -> bool:
        return (self._path / name).exists()

    def put(self, name: str, data: bytes) -> None:
        (self._path / name).write_bytes(data)


def request(header: str) -> Request:
    """A compile that includes one header, or none."""
    text = (f"#include <{header}>\n" if header else "") + "__global__ void k() {}\n"
    return Request(Source.cuda(text, name="k.cu"), ImageKind.CUBIN, Arch.parse("sm_90"))


def key(maker: KeyMaker, header: str) -> Keyed:
    """The key of that compile; it has one."""
    keyed = maker.of_request(request(header))
    assert isinstance(keyed, Keyed), keyed
    return keyed


def from_disk(path: Path, header: str) -> float:
    """Seconds for the first key of a process that has hints on disk; its imports are not counted."""
    store = Directory(path)
    work = request(header)
    maker = KeyMaker(Toolchain(), store)
    start = time.perf_counter()
    maker.of_request(work)
    return time.perf_counter() - start


def _in_other_process(path: Path, header: str) -> float:
    code = f"from closure import *; print(from_disk(Path({str(path)!r}), {header!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parent, capture_output=True, check=True)
    return float(done.stdout)


def run() -> list[str]:
    """Measure, and return lines of a table."""
    lines = []
    with tempfile.TemporaryDirectory() as directory:
        store = Directory(Path(directory))
        warm = KeyMaker(Toolchain(), store)
        for header in HEADERS:
            start = time.perf_counter()
            keyed = key(KeyMaker(Toolchain(), None), header)
            cold = time.perf_counter() - start
            key(warm, header)
            took = medians({"again": lambda header=header: key(warm, header)}, rounds=41)  # type: ignore[misc]
            first = sorted(_in_other_process(Path(directory), header) for _ in range(9))[4]
            absent = sum(len(d.absent) for d in keyed.manifest.directories)
            lines.append(
                f"key with {header or 'no header'}: {len(keyed.manifest.files)} files, {absent} names not there; "
                f"scan {1e3 * cold:.1f} ms, in another process {1e3 * first:.2f} ms, again {1e3 * took['again']:.3f} ms"
            )
    return lines


if __name__ == "__main__":
    print(*run(), sep="\n")
