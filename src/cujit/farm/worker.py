"""The worker: does a task, one compile after the other, each in a process apart that may die alone.

It makes every key anew, from its own toolchain and the files that came with the task, and refuses what has another.
"""

from __future__ import annotations

import contextlib
import functools
import os
import platform
import tempfile
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from cujit.artifact import Artifact
from cujit.cache.cache import Cache
from cujit.cache.provenance import Outcome, Provenance
from cujit.compiler.apart.parent import spent_apart
from cujit.compiler.backends.diagnostics import NAME_MAP
from cujit.compiler.jobs import CompileJob
from cujit.compiler.keys.maker import Keyed, KeyMaker, Uncacheable
from cujit.compiler.keys.recipe import request_of
from cujit.compiler.options.limits import WorkLimits
from cujit.compiler.request import Request
from cujit.compiler.runner import Runner
from cujit.errors import CompileError, CujitError, ToolCrashError, ToolTimeoutError
from cujit.farm.tasks import Chunk, ChunkResult, Piece, PieceResult, alike, job_of, wipe
from cujit.toolchain.headers import Settings
from cujit.toolchain.toolset import Toolchain

_LOG_CHARS = 4096
_LINE_CHARS = 1000


def work(chunk: Chunk) -> ChunkResult:
    """Do a task; it is what executors are given, and raises nothing that a compile or a disk can be at fault for."""
    begin = _cpu_s()
    runner = _runner(chunk.root, chunk.cap_bytes, chunk.gid, chunk.compiling, Settings.from_environment(os.environ))
    ended = _joined(chunk, runner) if chunk.join > 1 else {}
    for piece in chunk.pieces:
        if piece.digest not in ended:
            ended[piece.digest] = _ended(piece, chunk, runner)
    return ChunkResult(tuple(ended[piece.digest] for piece in chunk.pieces), _cpu_s() - begin, platform.node())


def _cpu_s() -> float:
    return time.process_time() + spent_apart().cpu_s


@functools.lru_cache(maxsize=4)
def _runner(root: str, cap_bytes: int, gid: int | None, compiling: str, settings: Settings) -> Runner:
    """Give the runner of this process for a root; it remembers no images, and leaves no hints of where files were."""
    cache = Cache(Path(root), cap_bytes=cap_bytes, memory_bytes=0, trusted_gid=gid, compile=compiling)
    runner = Runner.allowed(Toolchain(settings), cache)
    runner.keys = KeyMaker(runner.toolchain)
    return runner


def _ended(piece: Piece, chunk: Chunk, runner: Runner) -> PieceResult:
    try:
        if piece.tree is None:
            return _kept(job_of(piece, Path()), piece.digest, chunk, runner)
        directory = Path(tempfile.mkdtemp(prefix="cujit-farm-"))
        try:
            ended = _kept(job_of(piece, directory), piece.digest, chunk, runner)
            return ended._replace(reason=ended.reason.replace(f"{directory}/tree/", ""))
        finally:
            wipe(directory)
    except (CujitError, OSError) as e:
        return PieceResult("failed", first_message(e))


def _joined(chunk: Chunk, runner: Runner) -> dict[str, PieceResult]:
    """Compile together what differs in names alone, and tell what came of each that was made so, by its digest."""
    groups: defaultdict[Request, list[Keyed]] = defaultdict(list)
    named: dict[str, tuple[str, ...]] = {}
    for piece in chunk.pieces:
        with contextlib.suppress(CujitError, OSError):  # it is done alone, and then its error is said
            keyed = _keyed(piece, runner)
            if keyed is not None:
                request = request_of(piece.said)
                named[piece.digest] = request.names
                groups[alike(request)].append(keyed)
    ended: dict[str, PieceResult] = {}
    for request, each in groups.items():
        for first in range(0, len(each), chunk.join):
            some = each[first : first + chunk.join]
            with contextlib.suppress(CujitError):  # one by one they say whose fault it is
                if len(some) > 1:
                    ended |= _together(request, some, named, chunk, runner)
    return ended


def _keyed(piece: Piece, runner: Runner) -> Keyed | None:
    """Make the key of a piece that can be compiled with others: one that is to be made, and has no files."""
    job = job_of(piece, Path())
    job.check()
    assert runner.keys is not None
    assert runner.cache is not None
    keyed = job.key(runner.keys)
    if not isinstance(keyed, Keyed) or keyed.key.digest != piece.digest or not job.request.names:
        return None
    return None if runner.cache.find(keyed.key) else keyed


def _together(
    request: Request, each: Sequence[Keyed], named: Mapping[str, tuple[str, ...]], chunk: Chunk, runner: Runner
) -> dict[str, PieceResult]:
    """Compile some instances of one source together, and keep the image under the key of each.

    Raises:
        CujitError: one of them does not compile, or there was not enough time or memory for all.
    """
    every = tuple(dict.fromkeys(name for keyed in each for name in named[keyed.key.digest]))
    alone = Runner(runner.toolchain, compiling=runner.compiling)
    limits = WorkLimits.of(chunk.deadline_s, True, chunk.memory_mib)
    image = alone.within(limits).get(CompileJob(replace(request, names=every)))
    assert isinstance(image.provenance, Provenance)
    make_ms = image.provenance.make_ms / len(each)
    ended = {}
    for keyed in each:
        own = named[keyed.key.digest]
        names = {name: low for name, low in image.names.items() if name in own or name not in every}
        signatures = {low: image.signatures[low] for low in names.values() if low in image.signatures}
        assert runner.keys is not None
        assert runner.cache is not None
        if runner.keys.is_still(keyed):
            known = runner.cache.keep(keyed.key, replace(image, names=names, signatures=signatures), make_ms=make_ms)
            ended[keyed.key.digest] = _made(replace(image, provenance=known))
    return ended


def _kept(job: CompileJob, digest: str, chunk: Chunk, runner: Runner) -> PieceResult:
    """Do a job whose key is that of the driver.

    Raises:
        CujitError: it does not compile.
    """
    assert runner.keys is not None
    job.check()
    keyed = job.key(runner.keys)
    if isinstance(keyed, Uncacheable):
        return PieceResult("refused", f"not cached: {keyed.reason}")
    if keyed.key.digest != digest:
        return PieceResult("refused", parts=keyed.key.parts)
    try:
        return _made(_got(job, chunk, runner))
    except (ToolCrashError, ToolTimeoutError):
        pass  # perhaps of what the process apart had done before: once more, in one that is new
    try:
        return _made(_got(job, chunk, runner))
    except (ToolCrashError, ToolTimeoutError) as e:
        signal = "deadline" if isinstance(e, ToolTimeoutError) else e.result
        log, peak_bytes = e.log[-_LOG_CHARS:], spent_apart().peak_bytes
        return PieceResult("quarantined", first_message(e), signal=signal, log=log, peak_bytes=peak_bytes)


def _got(job: CompileJob, chunk: Chunk, runner: Runner) -> Artifact:
    return runner.within(WorkLimits.of(chunk.deadline_s, True, chunk.memory_mib)).get(job)


def _made(artifact: Artifact) -> PieceResult:
    known = artifact.provenance
    assert isinstance(known, Provenance)
    if known.outcome is Outcome.UNCACHED:
        return PieceResult("not kept", f"not kept: {known.reason}")
    outcome = "made" if known.outcome is Outcome.MADE else "hit"
    return PieceResult(outcome, make_ms=known.make_ms, size_bytes=len(artifact.data))


def first_message(error: Exception) -> str:
    """Say in one line what is wrong: of a source, the first error of the compiler."""
    said = error.diagnostics if isinstance(error, CompileError) else ()
    errors = [d for d in said if d.severity == "error" and d.file != NAME_MAP]  # of names, the message says more
    first = errors[0] if errors else error.message if isinstance(error, CujitError) else error
    return str(first).partition("\n")[0][:_LINE_CHARS]
