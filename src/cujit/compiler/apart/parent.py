"""Work in a process apart: it may die, be killed when its time is over, or be short of memory; this process goes on.

The process is a fresh Python, never a fork. It gets a job as JSON and bytes, gives an image or an error back in the
same way, and is kept for the next job. It ends when this process does.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import re
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import IO, Any

import cujit.errors as errors
from cujit.artifact import Artifact
from cujit.cache.key import make_key
from cujit.cache.record import decode, encode
from cujit.compiler.jobs import Job
from cujit.errors import (
    CompileError,
    CujitError,
    Diagnostic,
    FormatError,
    MissingError,
    ToolCrashError,
    ToolError,
    spell,
)
from cujit.forks import Lock, in_child
from cujit.toolchain.headers import Settings
from cujit.toolchain.stopping import current_stop

__all__ = ["read_error", "receive", "run_apart", "send", "write_error", "write_result"]

_KEPT = 4
"""How many processes without work are kept; each has some 150 MB of NVIDIA's libraries mapped."""

_LAST_WORDS_BYTES = 4096
_BEGIN = "import sys; sys.path[:] = sys.argv[1:]; from cujit.compiler.apart.child import main; main()"
_KEY = make_key("apart", ())
_LENGTH = struct.Struct("<Q")
_GIVEN_UP = ("SIGABRT", "SIGSEGV", "SIGBUS", "SIGKILL")


def run_apart(job: Job, settings: Settings, memory_mib: int | None) -> Artifact:
    """Do a job in a process apart; the ``Stop`` of this thread, if there is one, kills it.

    Raises:
        ToolCrashError: the process died.
        MissingError: this Python does not know its own interpreter.
        CujitError: whatever the job raises there.
    """
    head, blobs = job.write()
    head |= {"cuda_homes": settings.cuda_homes, "memory_mib": memory_mib, "directory": _directory()}
    child = _take()
    stop = current_stop()
    try:
        with stop.by(child.kill) if stop else contextlib.nullcontext():
            answer = child.ask(head, blobs)
    except BaseException:
        child.kill()
        raise
    if answer is None:
        raise _death(job, child, memory_mib)
    _give_back(child)
    said, (data, *_) = answer
    if "error" in said:
        error = read_error(said["error"])
        if isinstance(error, CompileError):
            error.request = job.request
        raise _starved(job, error, memory_mib) if memory_mib is not None else error
    return job.completed(decode(data, _KEY.digest).artifact)


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
        self._process = subprocess.Popen(
            [sys.executable, "-c", _BEGIN, *map(os.path.abspath, sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._words,
            start_new_session=True,  # Ctrl-C in a terminal is for us alone
        )

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def ask(self, head: dict[str, Any], blobs: Sequence[bytes]) -> tuple[dict[str, Any], list[bytes]] | None:
        """Give it a job and wait for the answer; None when it died."""
        assert self._process.stdin
        assert self._process.stdout
        self._from = os.fstat(self._words.fileno()).st_size
        try:
            send(self._process.stdin, head, blobs)
            return receive(self._process.stdout)
        except (OSError, ValueError):  # a pipe without its other end, or closed by ``kill``
            return None

    def kill(self) -> None:
        """End it, whatever it does."""
        self._process.kill()

    def last_words(self) -> str:
        """What it wrote to standard error since it got its job; at most the last 4 KiB."""
        fd = self._words.fileno()
        end = os.fstat(fd).st_size
        begin = max(self._from, end - _LAST_WORDS_BYTES)
        return os.pread(fd, end - begin, begin).decode("utf-8", "replace")

    def end(self) -> int:
        """End it if it lives, release what we have of it, and give its exit status."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe
            with contextlib.suppress(OSError):
                pipe.close()
        self._process.kill()
        status = self._process.wait()
        self._words.close()
        return status

    def forget(self) -> None:
        """Let go of it in a forked child, whose process it is not."""
        for pipe in (self._process.stdin, self._process.stdout, self._words):
            assert pipe
            with contextlib.suppress(OSError):
                pipe.close()
        self._process.returncode = 0


_guard = Lock()
_idle: list[_Child] = []


def _take() -> _Child:
    if not sys.executable:
        raise MissingError("this process does not know its Python interpreter (sys.executable)", help="isolate=False")
    world = (sys.executable, tuple(sys.path), tuple(sorted(os.environ.items())))
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


def _forget_idle() -> None:
    while _idle:
        _idle.pop().forget()


atexit.register(_end_idle)
in_child(_forget_idle)


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
    with contextlib.suppress(subprocess.TimeoutExpired):
        child._process.wait(timeout=5)  # the pipe is closed a little before the process is gone
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


# Messages: a length, JSON, and blobs of the sizes that it says


def send(stream: IO[bytes], head: dict[str, Any], blobs: Sequence[bytes] = ()) -> None:
    """Write one message.

    Raises:
        OSError: nobody reads it any more.
    """
    text = json.dumps({**head, "sizes": [len(blob) for blob in blobs]}).encode("ascii")
    stream.write(b"".join((_LENGTH.pack(len(text)), text, *blobs)))
    stream.flush()


def receive(stream: IO[bytes]) -> tuple[dict[str, Any], list[bytes]] | None:
    """Read one message; None at the end of the stream, in the middle of a message too."""
    prefix = stream.read(_LENGTH.size)
    if len(prefix) < _LENGTH.size:
        return None
    (length,) = _LENGTH.unpack(prefix)
    text = stream.read(length)
    if len(text) < length:
        return None
    head = json.loads(text)
    blobs = [stream.read(size) for size in head["sizes"]]
    return (head, blobs) if [len(blob) for blob in blobs] == head["sizes"] else None


def write_result(artifact: Artifact) -> bytes:
    """Write an Artifact as one blob.

    Raises:
        FormatError: it is not what its kind says.
    """
    return encode(_KEY, artifact, make_ms=0.0, made_s=0)


def write_error(error: CujitError) -> dict[str, Any]:
    """Write an error as JSON has it: its class by name, and what it says."""
    public = next(kind for kind in type(error).__mro__ if kind.__name__ in errors.__all__)
    said = {name: getattr(error, name) for name in ("tool", "call", "result", "log") if hasattr(error, name)}
    diagnostics = [vars(d) for d in getattr(error, "diagnostics", ())]
    return {
        "class": public.__name__,
        "message": error.message,
        "help": error.help,
        "said": said,
        "diagnostics": diagnostics,
    }


def read_error(written: dict[str, Any]) -> CujitError:
    """Read an error that was written.

    Raises:
        FormatError: it is none.
    """
    name = written["class"]
    kind = getattr(errors, name) if name in errors.__all__ else None
    if not isinstance(kind, type) or not issubclass(kind, CujitError):
        raise FormatError(f"no error: {spell(name)}")
    message, help = str(written["message"]), written["help"]
    if issubclass(kind, CompileError):
        diagnostics = [Diagnostic(**d) for d in written["diagnostics"]]
        return kind(message, diagnostics=diagnostics, help=help, **written["said"])
    if issubclass(kind, ToolError):
        return kind(message, help=help, **written["said"])
    return FormatError(message, help=help) if issubclass(kind, FormatError) else kind(message, help=help)
