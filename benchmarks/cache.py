"""A hit of the cache, in the process and from disk: ours, cuda.core's FileStreamProgramCache, and CuPy's disk cache.

Two sources: a template that includes nothing, and one over ``cub/block/block_reduce.cuh``. Everything is asked for the
same image, in turns. cuda.core leaves the digest of the headers to its user: it is timed with one that reads every
header again, as a user who wants no stale kernel must, and with one that was made once and is trusted from then on.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from measure import medians, row

import cujit
from cujit.cache.cache import Cache
from cujit.cache.key import Key
from cujit.compiler.keys.maker import Keyed
from cujit.errors import MissingError
from cujit.program import runner, toolchain

PLAIN = """
template <typename T> __global__ void total(const T* x, T* y, size_t n) {
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    if (i < n) y[i] += x[i];
}
"""
CUB = """
#include <cub/block/block_reduce.cuh>
template <typename T> __global__ void total(const T* x, T* y, size_t n) {
    using Reduce = cub::BlockReduce<T, 128>;
    __shared__ typename Reduce::TempStorage shared;
    size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x;
    T sum = Reduce(shared).Sum(i < n ? x[i] : T());
    if (threadIdx.x == 0) atomicAdd(y, sum);
}
"""
NAME = "total<float>"
ROUNDS = 101
Contestants = dict[str, Callable[[], object]]


@dataclass(frozen=True)
class Job:
    """One source, where its caches are, and every file that its compile reads besides."""

    text: str
    arch: str
    root: Path
    headers: tuple[Path, ...]
    directories: tuple[str, ...]


def job(text: str, arch: str, root: Path) -> Job:
    """Tell which headers a source stands on, by our scanner, which leaves none out."""
    keys = runner(Cache(root / "cujit")).keys
    assert keys is not None
    keyed = keys.of_request(cujit.request(text, arch=arch, names=[NAME]))
    assert isinstance(keyed, Keyed)
    headers = tuple(Path(path) for path, _ in keyed.manifest.files)
    return Job(text, arch, root, headers, tuple(toolchain().headers.paths))


# -- contestants ------------------------------------------------------------------------------------------


def ours(work: Job) -> Contestants:
    """Whole calls of ``cujit.compile``, and the store without the key."""
    memory, disk = Cache(work.root / "cujit"), Cache(work.root / "cujit", memory_bytes=0)

    def compiled(cache: Cache) -> cujit.Artifact:
        return cujit.compile(work.text, arch=work.arch, names=[NAME], cache=cache)

    key: Key = compiled(memory).provenance.key  # type: ignore[union-attr]
    compiled(disk)
    assert compiled(memory).provenance.is_hit  # type: ignore[union-attr]
    return {
        "cujit, in the process": lambda: compiled(memory),
        "cujit, from disk": lambda: compiled(disk),
        "cujit, store alone, in the process": lambda: memory.find(key),
        "cujit, store alone, from disk": lambda: disk.find(key),
    }


def cuda_core(work: Job) -> Contestants:
    """What its documentation shows for templates and headers: a key with a digest, and the cache as a mapping."""
    core: Any = importlib.import_module("cuda.core")
    utils: Any = importlib.import_module("cuda.core.utils")
    options = core.ProgramOptions(arch=work.arch, std="c++17", include_path=list(work.directories) or None)

    def digest() -> bytes:
        whole = hashlib.sha256()
        for path in work.headers:
            whole.update(path.read_bytes())
        return whole.digest()

    def found(cache: Any, fingerprint: Callable[[], bytes]) -> object:
        key = utils.make_program_cache_key(
            code=work.text, code_type="c++", options=options, target_type="cubin", name_expressions=(NAME,),
            extra_digest=fingerprint(),
        )  # fmt: skip
        data = cache.get(key)
        if data is None:
            data = core.Program(work.text, "c++", options).compile("cubin", name_expressions=(NAME,)).code
            cache[key] = data
        return core.ObjectCode.from_cubin(data)

    files, memory, once = utils.FileStreamProgramCache(work.root / "core"), utils.InMemoryProgramCache(), digest()
    turns: Contestants = {
        "cuda.core InMemoryProgramCache": lambda: found(memory, lambda: once),
        "cuda.core FileStreamProgramCache": lambda: found(files, lambda: once),
    }
    if work.headers:
        turns["cuda.core FileStreamProgramCache, headers read"] = lambda: found(files, digest)
    return turns


def loaded(work: Job) -> Contestants:
    """Up to a kernel on the GPU: ours and CuPy's RawModule, which has no step before that."""
    device = cujit.gpu()
    disk = Cache(work.root / "cujit", memory_bytes=0)
    cupy: Any = importlib.import_module("cupy")
    options = ("--std=c++17", *(f"-I{directory}" for directory in work.directories))

    def ours() -> object:
        return cujit.jit(work.text, names=[NAME], device=device, cache=disk)[NAME]

    def theirs() -> object:
        cupy.clear_memo()
        return cupy.RawModule(code=work.text, options=options, name_expressions=[NAME]).get_function(NAME)

    ours(), theirs()
    return {"cujit.jit, from disk to a kernel": ours, "CuPy RawModule, from disk to a kernel": theirs}


# -- the table --------------------------------------------------------------------------------------------

_PEERS = {
    "cuda.core InMemoryProgramCache": "cujit, in the process",
    "cuda.core FileStreamProgramCache": "cujit, from disk",
    "cuda.core FileStreamProgramCache, headers read": "cujit, from disk",
    "CuPy RawModule, from disk to a kernel": "cujit.jit, from disk to a kernel",
}


def run() -> list[str]:
    """Measure, and return lines of a table."""
    lines = []
    with tempfile.TemporaryDirectory() as directory:
        os.environ["CUPY_CACHE_DIR"] = str(Path(directory) / "cupy")
        for what, text in (("no headers", PLAIN), ("cub/block/block_reduce.cuh", CUB)):
            lines += _measured(what, job(text, _arch(), Path(directory)))
    return lines


def _arch() -> str:
    try:
        return str(cujit.gpu().arch)
    except MissingError:
        return "sm_90"


def _measured(what: str, work: Job) -> list[str]:
    contestants = ours(work)
    lines = [f"-- {what}: {len(work.headers)} headers"]
    for others in (cuda_core, loaded):
        try:
            contestants |= others(work)
        except Exception as e:  # noqa: PERF203, whatever a peer does not do here
            lines.append(f"without {others.__name__}: {str(e).splitlines()[0]}")
    took = medians(contestants, ROUNDS, warm_up=5)
    lines += [f"{name}: {seconds * 1e6:.1f} us" for name, seconds in took.items() if name not in _PEERS]
    lines += [row(mine, took[mine], took[peer], peer, "us", 1e6) for peer, mine in _PEERS.items() if peer in took]
    return lines


if __name__ == "__main__":
    print("\n".join(run()))
