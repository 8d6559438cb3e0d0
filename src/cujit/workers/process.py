"""A worker: a Python process that this process starts, communicates with, and ends under all circumstances.

It is a new Python process, never a fork. It finds modules in the same places, and receives only allowed environment
variables. It answers on its own descriptor, which begins with a greeting. Its output is kept for error messages.
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from typing import IO, Any

from cujit.errors import UnsupportedError
from cujit.forks import cached_property
from cujit.version import __version__
from cujit.workers.answers import printable
from cujit.workers.child import BEGIN, GREETING
from cujit.workers.interpreter import interpreter, is_frozen
from cujit.workers.messages import read_message, write_message

_GREETING_S = 120.0
_WORDS_BYTES = 4096


class Worker:
    """One process; its standard input is ``orders``, and ``answers`` is the descriptor that it answers on."""

    def __init__(
        self,
        entry: str,
        *arguments: object,
        environment: Mapping[str, str],
        descriptors: tuple[int, int] | None = None,
        takes_orders: bool = True,
        cwd: str | None = None,
        begin: str = BEGIN,
    ) -> None:
        """Start it.

        Args:
            entry: the function that it calls, ``module:function``.
            arguments: what the function is called with, after the descriptor for answers.
            environment: all of its environment.
            descriptors: this side's and the worker's end for answers; a new pipe if it is None.
            takes_orders: whether its standard input is a pipe.
            cwd: its working directory.
            begin: what its interpreter runs.

        Raises:
            UnsupportedError: there is no Python interpreter to start.
        """
        self.program = interpreter()
        self._has_greeted = False
        self._words: IO[bytes] = tempfile.TemporaryFile(prefix="cujit-worker-")  # noqa: SIM115  # ``close`` closes it
        self._from = 0
        self.answers, far = descriptors or os.pipe()
        try:
            self.process = subprocess.Popen(
                [self.program, "-c", begin, str(far), entry, json.dumps(arguments), *module_directories()],
                stdin=subprocess.PIPE if takes_orders else subprocess.DEVNULL,
                stdout=self._words,  # a file, not a pipe: what nobody reads must not hold the process up
                stderr=self._words,
                pass_fds=(far,),
                env=dict(environment),
                cwd=cwd,
                start_new_session=True,  # Ctrl-C in a terminal is for us alone
            )
        except BaseException:
            self._words.close()
            os.close(self.answers)
            raise
        finally:
            os.close(far)

    @cached_property
    def _stream(self) -> IO[bytes]:
        return os.fdopen(self.answers, "rb", closefd=False)

    def exchange(self, order: object) -> Any:
        """Send the worker an order, and return its answer, or None if it died. An invalid answer gives a ValueError.

        Raises:
            UnsupportedError: the process is not Python with this version of cujit. It is ended.
        """
        assert self.process.stdin
        self.forget_words()
        try:
            write_message(self.process.stdin, order)
            if not self._has_greeted:
                self.require_greeting()
                self._has_greeted = True
            return read_message(self._stream)
        except OSError:  # a pipe without its other end
            return None
        except ValueError as e:
            return e

    @property
    def is_alive(self) -> bool:
        """Whether it has not ended yet."""
        return self.process.poll() is None

    def require_greeting(self) -> None:
        """Wait for the greeting.

        Raises:
            UnsupportedError: the process is no Python with this version of cujit; it is ended.
            ConnectionError: the process ended.
        """
        found = b""
        until = time.monotonic() + _GREETING_S
        poll = select.poll()  # select() takes no descriptor above 1,023
        poll.register(self.answers, select.POLLIN)
        while len(found) < len(GREETING) and GREETING.startswith(found):
            ready = poll.poll(max(0.0, until - time.monotonic()) * 1e3)
            piece = os.read(self.answers, len(GREETING) - len(found)) if ready else b"?"
            if not piece:
                raise BrokenPipeError
            found += piece
        self.check_greeting(found)

    def check_greeting(self, found: bytes) -> None:
        """End the process if it doesn't begin with a greeting.

        Raises:
            UnsupportedError: the greeting is invalid.
        """
        if found != GREETING:
            self.kill()
            raise UnsupportedError(
                f"{self.program} didn't start as Python with cujit {__version__}",
                help="set CUJIT_PYTHON to the path of a Python interpreter that has this version of cujit installed",
            )

    def read_to_end(self, timeout_s: float, most_bytes: int) -> bytes:
        """Read its answers until it ends, up to a time limit and a size limit."""
        found = bytearray()
        until = time.monotonic() + timeout_s
        poll = select.poll()
        poll.register(self.answers, select.POLLIN)
        while len(found) < most_bytes and poll.poll(max(0.0, until - time.monotonic()) * 1e3):
            piece = os.read(self.answers, most_bytes - len(found))
            if not piece:
                break
            found += piece
        return bytes(found)

    def kill(self) -> None:
        """Kill the worker and its child processes."""
        if self.process.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.process.pid, signal.SIGKILL)

    def forget_words(self) -> None:
        """Discard earlier output at the start of a new piece of work."""
        self._from = os.fstat(self._words.fileno()).st_size

    def last_words(self) -> str:
        """Return the last 4 KiB of its output for the current work, without terminal control characters."""
        fd = self._words.fileno()
        end = os.fstat(fd).st_size
        begin = max(self._from, end - _WORDS_BYTES)
        return printable(os.pread(fd, end - begin, begin).decode("utf-8", "replace"))

    def cpu_s(self) -> float:
        """Return its CPU time in seconds, or 0 after it ended."""
        with contextlib.suppress(OSError):  # it is gone
            return time.clock_gettime((~self.process.pid << 3) | 2)  # as clock_getcpuclockid(3) makes the number
        return 0.0

    def await_death(self, timeout_s: float) -> None:
        """Wait until it has ended, and leave its status for ``end``."""
        until = time.monotonic() + timeout_s
        flags = os.WEXITED | os.WNOWAIT | os.WNOHANG
        with contextlib.suppress(ChildProcessError):
            while os.waitid(os.P_PID, self.process.pid, flags) is None and time.monotonic() < until:
                time.sleep(0.005)

    def end(self) -> tuple[int, Any]:
        """End it if it lives, and return its exit status, with its resource usage if no other code waited for it."""
        self.close()
        usage = None
        if self.process.returncode is None:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):  # somebody else waited for it
                os.killpg(self.process.pid, signal.SIGKILL)  # by ``kill`` it would be waited for, and its usage lost
                _, status, usage = os.wait4(self.process.pid, 0)
                self.process.returncode = os.waitstatus_to_exitcode(status)
        return self.process.wait(), usage

    def close(self) -> None:
        """Close this side of its descriptors."""
        for pipe in (self.process.stdin, self._words):
            with contextlib.suppress(OSError):
                if pipe:
                    pipe.close()
        if self.answers >= 0:
            os.close(self.answers)
            self.answers = -1

    def forget(self) -> None:
        """Drop the worker in a forked child, which doesn't own the process."""
        for pipe in (self.process.stdin, self._words):
            if isinstance(pipe, io.BufferedReader | io.BufferedWriter | io.BufferedRandom):
                pipe.raw.close()
        if self.answers >= 0:
            os.close(self.answers)
        self.process.returncode = 0


def module_directories() -> list[str]:
    """Return the module search path for a worker: this process's path, or the interpreter's for a frozen program."""
    return [] if is_frozen() else [*map(os.path.abspath, sys.path)]


CRASH_HELP = "to find the cause in the input or the tool, reduce the input until the crash disappears"


def how_ended(status: int) -> tuple[str, str]:
    """Return the name of an exit status and its description: ``("SIGKILL", "died of SIGKILL")``."""
    if status < 0:
        with contextlib.suppress(ValueError):
            name = signal.Signals(-status).name
            return name, f"died of {name}"
    return str(status), f"ended with status {status}"
