"""The cache without a compiler: a hit in the process, a hit from disk with its proof, a put; and bare file calls."""

from __future__ import annotations

import hashlib
import itertools
import os
import tempfile
from pathlib import Path

from measure import medians, row

from cujit.arch import Arch
from cujit.artifact import Artifact, ImageKind
from cujit.cache.cache import Cache
from cujit.cache.key import Key, Part, make_key

PAYLOAD_BYTES = 64 << 10
HEADERS = 440  # the closure of a source that includes <cub/block/block_reduce.cuh>


def _key(n: int, headers: int = 0) -> Key:
    closure = [Part.content(f"include cub/block/header_{i}.cuh", str(i)) for i in range(headers)]
    return make_key(
        "nvrtc", [Part.text("name", "a.cu"), Part.text("arch", "sm_90"), Part.content("n", str(n)), *closure]
    )


def _artifact() -> Artifact:
    data = b"\x50\xed\x55\xba" + os.urandom(PAYLOAD_BYTES - 4)
    return Artifact(
        ImageKind.FATBIN, data, Arch.parse("sm_90"), {"axpy<float>": "_Z4axpyIfEvT_PKS0_PS0_m"}, name="a.cu"
    )


def _unexpected() -> Artifact:
    raise AssertionError("a miss")


def run() -> list[str]:
    """Measure, and return lines of a table."""
    with tempfile.TemporaryDirectory() as directory:
        return _measure(Path(directory) / "cache", Path(directory) / "bare")


def _measure(root: Path, bare: Path) -> list[str]:
    artifact = _artifact()
    in_memory, on_disk = Cache(root), Cache(root, memory_bytes=0)
    alone, with_headers = _key(0), _key(0, HEADERS)
    for key in (alone, with_headers):
        in_memory.get_or_make(key, lambda: artifact)
    bare.write_bytes(artifact.data)
    numbers = itertools.count(1)

    def put() -> None:
        on_disk.get_or_make(_key(next(numbers)), lambda: artifact)

    def bare_put() -> None:
        (bare.parent / "new").write_bytes(artifact.data)
        os.replace(bare.parent / "new", bare.parent / f"bare-{next(numbers)}")

    took = medians(
        {
            "memory": lambda: in_memory.get_or_make(alone, _unexpected),
            "disk": lambda: on_disk.get_or_make(alone, _unexpected),
            "headers": lambda: on_disk.get_or_make(with_headers, _unexpected),
            "put": put,
            "read": lambda: hashlib.sha256(bare.read_bytes()).digest(),
            "write": bare_put,
        },
        rounds=301,
    )
    floor = "read and SHA-256"
    return [
        f"cache hit in the process: {took['memory'] * 1e6:.1f} us",
        row("cache hit from disk, 64 KiB", took["disk"], took["read"], floor, "us", 1e6),
        row(f"cache hit from disk, a key of {HEADERS} headers", took["headers"], took["read"], floor, "us", 1e6),
        row("cache put, 64 KiB", took["put"], took["write"], "write and rename", "us", 1e6),
    ]


if __name__ == "__main__":
    print("\n".join(run()))
