"""The worker of a farm, which runs the compiles of a task in order, each in a separate process.

A crash affects only one compile. The worker computes every key from its own toolchain and the files of the task. It
refuses a piece with a different key.
"""

from __future__ import annotations

import os
import platform
import re
import time
from pathlib import Path

from cujit.artifact import Artifact
from cujit.cache.cache import Cache
from cujit.compiler.backends.diagnostics import NAME_MAP
from cujit.compiler.isolation.parent import worker_usage
from cujit.compiler.jobs import CompileJob
from cujit.compiler.keys.maker import KeyMaker, Uncacheable
from cujit.compiler.options.limits import WorkLimits
from cujit.compiler.runner import Runner
from cujit.errors import CompileError, CujitError, ToolCrashError, ToolTimeoutError
from cujit.farm.coalesce import Together, laid_out, result_of
from cujit.farm.tasks import ChunkResult, Piece, PieceResult, WorkChunk
from cujit.forks import single_flight_cache
from cujit.toolchain.headers import Settings
from cujit.toolchain.toolset import Toolchain

_LOG_CHARS = 4096
_LINE_CHARS = 1000

_LAID_OUT = re.compile(r"[^\s:]*/cujit-farm-[^/\s]+/tree/")


def work(chunk: WorkChunk) -> ChunkResult:
    """Run a task, and return its results. Executors call this function.

    Failures of a compile or a disk are results, not exceptions.
    """
    begin = _cpu_s()
    runner = _runner(chunk.root, chunk.cap_bytes, chunk.gid, chunk.compiling, Settings.from_environment(os.environ))
    together = Together(chunk, runner)
    if chunk.join > 1 or chunk.share:
        together.work()
    ended = together.ended
    for piece in chunk.pieces:
        if piece.digest not in ended:
            why = together.why_alone.get(piece.digest, "")
            ended[piece.digest] = _ended(piece, chunk, runner)._replace(why_alone=why)
    return ChunkResult(tuple(ended[piece.digest] for piece in chunk.pieces), _cpu_s() - begin, platform.node())


def _cpu_s() -> float:
    return time.process_time() + worker_usage().cpu_s


@single_flight_cache(4)
def _runner(root: str, cap_bytes: int, gid: int | None, compiling: str, settings: Settings) -> Runner:
    """Return the runner of this process for a root. It caches no images in memory, and leaves no hints of file
    locations.
    """
    cache = Cache(Path(root), cap_bytes=cap_bytes, memory_bytes=0, trusted_gid=gid, compile=compiling)
    runner = Runner.allowed(Toolchain(settings), cache)
    runner.keys = KeyMaker(runner.toolchain)
    return runner


def _ended(piece: Piece, chunk: WorkChunk, runner: Runner) -> PieceResult:
    try:
        with laid_out(piece) as job:
            ended = _kept(job, piece.digest, chunk, runner)
    except (CujitError, OSError) as e:
        ended = PieceResult("failed", first_message(e))
    return ended._replace(reason=_LAID_OUT.sub("", ended.reason))


def _kept(job: CompileJob, digest: str, chunk: WorkChunk, runner: Runner) -> PieceResult:
    """Run a job if its key is the driver's key, and return the result.

    Raises:
        CujitError: the source doesn't compile.
    """
    assert runner.keys is not None
    job.check()
    keyed = job.key(runner.keys)
    if isinstance(keyed, Uncacheable):
        return PieceResult("refused", f"not cached: {keyed.reason}")
    if keyed.key.digest != digest:
        return PieceResult("refused", parts=keyed.key.parts)
    try:
        return result_of(_got(job, chunk, runner))
    except (ToolCrashError, ToolTimeoutError):
        pass  # perhaps of what the process apart had done before: once more, in one that is new
    try:
        return result_of(_got(job, chunk, runner))
    except (ToolCrashError, ToolTimeoutError) as e:
        signal = "deadline" if isinstance(e, ToolTimeoutError) else e.result
        log, peak_bytes = e.log[-_LOG_CHARS:], worker_usage().peak_bytes
        return PieceResult("quarantined", first_message(e), signal=signal, log=log, peak_bytes=peak_bytes)


def _got(job: CompileJob, chunk: WorkChunk, runner: Runner) -> Artifact:
    return runner.within(WorkLimits.of(chunk.deadline_s, True, chunk.memory_mib)).get(job)


def first_message(error: Exception) -> str:
    """Return a one-line description of an error. For a compile error, it is the compiler's first error."""
    diagnostics = error.diagnostics if isinstance(error, CompileError) else ()
    errors = [d for d in diagnostics if d.severity == "error" and d.file != NAME_MAP]  # of names, the message says more
    first = errors[0] if errors else error.message if isinstance(error, CujitError) else error
    return str(first).partition("\n")[0][:_LINE_CHARS]
