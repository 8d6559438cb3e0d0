"""Work in a separate process, which may crash, exceed its time, or run out of memory without affecting this process.

The process is a new Python process, never a fork. It receives a job, returns an image or an error, and stays for the
next job. It ends when this process ends.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import re
from typing import Any

from cujit.artifact import Artifact
from cujit.compiler.jobs import Job
from cujit.errors import CujitError, ToolCrashError
from cujit.errors.hints import Hint
from cujit.forks import Lock, on_fork_child
from cujit.toolchain.headers import Settings
from cujit.toolchain.stopping import current_stop
from cujit.values import NamedTuple
from cujit.workers.answers import printable
from cujit.workers.environment import COMPILE, kept
from cujit.workers.interpreter import interpreter
from cujit.workers.process import CRASH_HELP, Worker, how_ended, module_directories

_KEPT = 4
"""How many processes without work are kept; each has some 150 MB of NVIDIA's libraries mapped."""

_LAST_CHARS = 200
_ENTRY = "cujit.compiler.isolation.child:main"
_GIVEN_UP = ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGKILL")


class WorkOrder(NamedTuple):
    """A job for the separate process, with its settings, limits, and working directory."""

    job: Job
    settings: Settings
    memory_mib: int | None
    directory: str | None


class _World(NamedTuple):
    """The conditions under which a separate process starts. Work under other conditions uses another process."""

    interpreter: str
    directories: tuple[str, ...]
    environment: tuple[tuple[str, str], ...]
    isolated: object


def run_isolated(job: Job, settings: Settings, memory_mib: int | None) -> Artifact:
    """Do a job in a separate process. The ``Stop`` of this thread, if any, kills the process.

    Raises:
        ToolCrashError: the process died.
        UnsupportedError: there is no Python interpreter to start, as in a frozen program.
        CujitError: any error that the job raises there.
    """
    child = _take(job)
    stop = current_stop()
    try:
        with stop.by(child.kill) if stop else contextlib.nullcontext():
            answer = child.do(WorkOrder(job, settings, memory_mib, _directory()))
    except BaseException:
        child.end()
        raise
    if answer is None:
        raise _death(job, child, memory_mib)
    _give_back(child)
    if isinstance(answer, CujitError):
        _make_printable(answer)
        raise answer if memory_mib is None else _starved(job, answer, memory_mib)
    return answer


def _make_printable(error: CujitError) -> None:
    """Remove terminal control characters from the texts of an error, because the source may be malicious."""
    error.args = tuple(printable(each) if isinstance(each, str) else each for each in error.args)
    for name, value in vars(error).items():
        if isinstance(value, str):
            setattr(error, name, printable(value))


def _directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


# Processes


class _CompilerChild(Worker):
    """A separate process. ``world`` contains the conditions under which it was started."""

    def __init__(self, world: _World) -> None:
        super().__init__(_ENTRY, environment=dict(world.environment))
        self.world = world
        _living.add(self)

    def do(self, order: WorkOrder) -> Artifact | CujitError | None:
        """Make the child process run an order, and wait for the result. Return None if the child died.

        Raises:
            ToolCrashError: the answer is malformed.
        """
        answer = self.exchange(order)
        if not isinstance(answer, Artifact | CujitError | None):
            raise _senseless(order.job, self, answer)
        return answer

    def end(self) -> tuple[int, Any]:
        """End the process if it lives, and record its resource usage."""
        status, usage = super().end()
        if usage is not None:
            _ended.note(usage)
        _living.discard(self)
        return status, usage


class Spent:
    """Resource usage of separate processes: ``cpu_s`` of all, and ``peak_bytes`` of memory of the last that ended."""

    def __init__(self, cpu_s: float = 0.0, peak_bytes: int = 0) -> None:
        self.cpu_s, self.peak_bytes = cpu_s, peak_bytes

    def note(self, usage: Any) -> None:
        """Add the resource usage of an ended process, from ``wait4``."""
        self.cpu_s += usage.ru_utime + usage.ru_stime
        self.peak_bytes = usage.ru_maxrss << 10  # Linux counts in KiB


_guard = Lock()
_idle: list[_CompilerChild] = []
_living: set[_CompilerChild] = set()
_ended = Spent()


def worker_usage() -> Spent:
    """Return the resource usage of this process's separate processes so far."""
    return Spent(_ended.cpu_s + sum(child.cpu_s() for child in tuple(_living)), _ended.peak_bytes)


def _take(job: Job) -> _CompilerChild:
    world = _World(interpreter(), tuple(module_directories()), tuple(kept(COMPILE).items()), job.isolated)
    while True:
        with _guard:
            child = _idle.pop() if _idle else None
        if child is None:
            return _CompilerChild(world)
        if child.world == world and child.is_alive:
            return child
        child.end()


def _give_back(child: _CompilerChild) -> None:
    with _guard:
        if len(_idle) < _KEPT:
            _idle.append(child)
            return
    child.end()


def _end_idle() -> None:
    while _idle:
        _idle.pop().end()


def _forget_all() -> None:
    _idle.clear()
    while _living:  # one that is at work for another thread, too: it ends when nobody holds its pipe any more
        _living.pop().forget()


atexit.register(_end_idle)
on_fork_child(_forget_all)


_MEMORY_HELP = Hint(
    "set a larger memory_mib, or remove it; the limit counts all mapped memory, including libraries and stacks",
    shell="set a larger --memory, or remove it; the limit counts all mapped memory, including libraries and stacks",
)
_NO_MEMORY = re.compile(r"out of memory|OUT_OF_MEMORY|MemoryError|bad_alloc|failed to map segment", re.IGNORECASE)


def _starved(job: Job, error: CujitError, memory_mib: int) -> CujitError:
    """Return an error for lack of memory as a ``ToolCrashError``, as more memory would avoid it. Return other errors
    unchanged.
    """
    if not _NO_MEMORY.search(str(error)):
        return error
    return ToolCrashError(
        f"{job.tool} couldn't {job.step} {job.subject} in {memory_mib} MiB of address space",
        tool=getattr(error, "tool", "") or job.tool,
        call=getattr(error, "call", "") or f"{job.step} in a separate process",
        result=getattr(error, "result", "") or "out of memory",
        log=error.message,
        help=_MEMORY_HELP,
    )


def _senseless(job: Job, child: _CompilerChild, answer: object) -> ToolCrashError:
    return ToolCrashError(
        f"the separate process sent an invalid answer to the request to {job.step} {job.subject}",
        tool=job.tool,
        call=f"{job.step} in a separate process",
        result=str(answer)[:_LAST_CHARS],
        log=child.last_words(),
        help=CRASH_HELP,
    )


def _death(job: Job, child: _CompilerChild, memory_mib: int | None) -> ToolCrashError:
    child.await_death(5)  # the pipe is closed a little before the process is gone
    words = child.last_words()
    result, how = how_ended(child.end()[0])
    help = CRASH_HELP
    if memory_mib is not None and (result in _GIVEN_UP or "bad_alloc" in words or "memory" in words):
        how += f", with {memory_mib} MiB of address space at most"
        help = _MEMORY_HELP
    return ToolCrashError(
        f"the request to {job.step} {job.subject} failed, because {job.tool} {how}",
        tool=job.tool,
        call=f"{job.step} in a separate process",
        result=result,
        log=words,
        help=help,
    )
