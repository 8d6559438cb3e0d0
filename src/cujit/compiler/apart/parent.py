"""Work in a process apart: it may die, be killed when its time is over, or be short of memory; this process goes on.

The process is a fresh Python, never a fork. It gets a job, gives an image or an error back, and is kept for the next
job. It ends when this process does. Both sides believe each other, as threads do: what they say goes by pickle.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import os
import pickle
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import time
from typing import IO, Any

from cujit.artifact import Artifact
from cujit.compiler.jobs import Job
from cujit.errors import CujitError, ToolCrashError, UnsupportedError
from cujit.forks import Lock, in_child
from cujit.toolchain.headers import Settings
from cujit.toolchain.stopping import current_stop
from cujit.values import NamedTuple
from cujit.version import __version__
from cujit.workers.interpreter import interpreter

_KEPT = 4
"""How many processes without work are kept; each has some 150 MB of NVIDIA's libraries mapped."""

_LAST_WORDS_BYTES = 4096
_BEGIN = "import sys; sys.path[:] = sys.argv[2:]; from cujit.compiler.apart.child import main; main()"
_LENGTH = struct.Struct("<Q")
_MOST_BYTES = 2 << 30
"""A longer message is none; no tool makes such an image."""

GREETING = f"cujit {__version__} works here\n".encode()
"""The first bytes of the process apart: before them, anything that is printed at Python's start may come."""

_GREETING_S = 120.0
_GIVEN_UP = ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGKILL")


class WorkOrder(NamedTuple):
    """A job for the process apart, and under what it is done: settings, limits and the working directory."""

    job: Job
    settings: Settings
    memory_mib: int | None
    directory: str | None


def run_apart(job: Job, settings: Settings, memory_mib: int | None) -> Artifact:
    """Do a job in a process apart; the ``Stop`` of this thread, if there is one, kills it.

    Raises:
        ToolCrashError: the process died.
        UnsupportedError: there is no Python interpreter to start, as in a frozen program.
        CujitError: whatever the job raises there.
    """
    child = _take(job)
    stop = current_stop()
    try:
        with stop.by(child.kill) if stop else contextlib.nullcontext():
            answer = child.ask(WorkOrder(job, settings, memory_mib, _directory()))
    except BaseException:
        child.end()
        raise
    if answer is None:
        raise _death(job, child, memory_mib)
    _give_back(child)
    if isinstance(answer, CujitError):
        raise answer if memory_mib is None else _starved(job, answer, memory_mib)
    return answer


def _directory() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


# Processes


class _Child:
    """One process apart; ``world`` is what it was started in."""

    def __init__(self, world: object) -> None:
        self.world = world
        # A file, not a pipe: what nobody reads must not hold the process up.
        self._words: IO[bytes] = tempfile.TemporaryFile(prefix="cujit-apart-")  # noqa: SIM115  # ``end`` closes it
        self._from = 0
        # Answers have a descriptor of their own: sitecustomize and libraries print what they like to the standard one.
        answers, far = os.pipe()
        self._answers = os.fdopen(answers, "rb")
        try:
            self._process = subprocess.Popen(
                [interpreter(), "-c", _BEGIN, str(far), *map(os.path.abspath, sys.path)],
                stdin=subprocess.PIPE,
                stdout=self._words,
                stderr=self._words,
                pass_fds=(far,),
                start_new_session=True,  # Ctrl-C in a terminal is for us alone
            )
        finally:
            os.close(far)
        self._has_greeted = False
        _living.add(self)

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, order: WorkOrder) -> Artifact | CujitError | None:
        """Give it an order and wait for the answer; None when it died."""
        assert self._process.stdin
        self._from = os.fstat(self._words.fileno()).st_size
        data = pickle.dumps(order)
        try:
            send(self._process.stdin, data)
            if not self._has_greeted:
                self._require_greeting()
            answer: Artifact | CujitError | None = receive(self._answers)
        except (OSError, ValueError):  # a pipe without its other end, or closed by ``kill``
            return None
        return answer

    def _require_greeting(self) -> None:
        """Wait for the greeting.

        Raises:
            UnsupportedError: the process is no Python with this version of cujit.
            OSError: the process ended.
        """
        found = b""
        until = time.monotonic() + _GREETING_S
        poll = select.poll()  # select() takes no descriptor above 1,023
        poll.register(self._answers, select.POLLIN)
        while len(found) < len(GREETING) and GREETING.startswith(found):
            ready = poll.poll(max(0.0, until - time.monotonic()) * 1e3)
            piece = os.read(self._answers.fileno(), len(GREETING) - len(found)) if ready else b"?"
            if not piece:
                raise BrokenPipeError
            found += piece
        if found != GREETING:
            self.kill()
            raise UnsupportedError(
                f"{interpreter()} did not start as Python with cujit {__version__}",
                help="set CUJIT_PYTHON to the path of a Python interpreter that has this version of cujit installed",
            )
        self._has_greeted = True

    def kill(self) -> None:
        """End it, whatever it does."""
        self._process.kill()

    def last_words(self) -> str:
        """What it wrote to standard error since it got its job; at most the last 4 KiB."""
        fd = self._words.fileno()
        end = os.fstat(fd).st_size
        begin = max(self._from, end - _LAST_WORDS_BYTES)
        return os.pread(fd, end - begin, begin).decode("utf-8", "replace")

    def cpu_s(self) -> float:
        """The CPU seconds that it has taken; 0 when it is gone."""
        with contextlib.suppress(OSError):  # it is gone
            return time.clock_gettime((~self._process.pid << 3) | 2)  # as clock_getcpuclockid(3) makes the number
        return 0.0

    def await_death(self, timeout_s: float) -> None:
        """Wait until it is gone, and leave what it was for ``end`` to say."""
        until = time.monotonic() + timeout_s
        flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
        with contextlib.suppress(ChildProcessError):
            while os.waitid(os.P_PID, self._process.pid, flags) is None and time.monotonic() < until:
                time.sleep(0.005)

    def end(self) -> int:
        """End it if it lives, release what we have of it, and give its exit status."""
        self._close()
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):  # somebody else waited for it
                os.kill(self._process.pid, signal.SIGKILL)  # by ``kill`` it would be waited for, and its usage lost
                _, status, usage = os.wait4(self._process.pid, 0)
                self._process.returncode = os.waitstatus_to_exitcode(status)
                _ended.note(usage)
        self._process.kill()
        _living.discard(self)
        return self._process.wait()

    def forget(self) -> None:
        """Let go of it in a forked child, whose process it is not.

        What is closed is below the buffers: a thread that is not here may hold the lock of each.
        """
        for pipe in (self._process.stdin, self._answers, self._words):
            assert isinstance(pipe, io.BufferedReader | io.BufferedWriter | io.BufferedRandom)
            pipe.raw.close()
        self._process.returncode = 0

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._answers, self._words):
            assert pipe
            with contextlib.suppress(OSError):
                pipe.close()


class Spent:
    """What processes apart have taken: ``cpu_s`` of all together, ``peak_bytes`` of memory of the last that ended."""

    def __init__(self, cpu_s: float = 0.0, peak_bytes: int = 0) -> None:
        self.cpu_s, self.peak_bytes = cpu_s, peak_bytes

    def note(self, usage: Any) -> None:
        """Add what one that ended has taken, as ``wait4`` gives it."""
        self.cpu_s += usage.ru_utime + usage.ru_stime
        self.peak_bytes = usage.ru_maxrss << 10  # Linux counts in KiB


_guard = Lock()
_idle: list[_Child] = []
_living: set[_Child] = set()
_ended = Spent()


def spent_apart() -> Spent:
    """Tell what the processes apart of this one have taken until now."""
    return Spent(_ended.cpu_s + sum(child.cpu_s() for child in tuple(_living)), _ended.peak_bytes)


def _take(job: Job) -> _Child:
    world = (interpreter(), tuple(sys.path), tuple(sorted(os.environ.items())), job.apart)
    while True:
        with _guard:
            child = _idle.pop() if _idle else None
        if child is None:
            return _Child(world)
        if child.world == world and child.is_alive:
            return child
        child.end()


def _give_back(child: _Child) -> None:
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
in_child(_forget_all)


_MEMORY_HELP = (
    "more (memory_mib=, --memory), or no limit; it counts all that the process maps, libraries and stacks too"
)
_NO_MEMORY = re.compile(r"out of memory|OUT_OF_MEMORY|MemoryError|bad_alloc|failed to map segment", re.IGNORECASE)


def _starved(job: Job, error: CujitError, memory_mib: int) -> CujitError:
    """Give an error that is for want of memory as what it is: with more memory it would not be."""
    if not _NO_MEMORY.search(str(error)):
        return error
    return ToolCrashError(
        f"{job.tool} did not {job.step} {job.subject} in {memory_mib} MiB of address space",
        tool=getattr(error, "tool", "") or job.tool,
        call=getattr(error, "call", "") or f"{job.step} in a process apart",
        result=getattr(error, "result", "") or "out of memory",
        log=error.message,
        help=_MEMORY_HELP,
    )


def _death(job: Job, child: _Child, memory_mib: int | None) -> ToolCrashError:
    child.await_death(5)  # the pipe is closed a little before the process is gone
    words = child.last_words()
    status = child.end()
    how, help = f"ended with status {status}", "the input is at fault, or the tool: make it smaller until it passes"
    result = str(status)
    if status < 0:
        with contextlib.suppress(ValueError):
            result = signal.Signals(-status).name
        how = f"died of {result}"
    if memory_mib is not None and (result in _GIVEN_UP or "bad_alloc" in words or "memory" in words):
        how += f", with {memory_mib} MiB of address space at most"
        help = _MEMORY_HELP
    return ToolCrashError(
        f"{job.tool} {how} when asked to {job.step} {job.subject}",
        tool=job.tool,
        call=f"{job.step} in a process apart",
        result=result,
        log=words,
        help=help,
    )


# Messages: a length, and a pickle


def send(stream: IO[bytes], data: bytes) -> None:
    """Write one message.

    Raises:
        OSError: nobody reads it any more.
    """
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Read one message; None at the end of the stream, in the middle of a message too."""
    prefix = stream.read(_LENGTH.size)
    if len(prefix) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(prefix)
    if length > _MOST_BYTES:
        raise OSError(f"a message of {length} bytes")
    data = stream.read(length)
    return pickle.loads(data) if len(data) == length else None
