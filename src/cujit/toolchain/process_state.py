"""What NVRTC changes of the process that it works in, put back.

*The limit of stack.* NVRTC raises the soft limit to the hard one while it compiles, and puts back what it found. It
does not after a compile that failed, and one that began while another ran finds, and leaves, the raised limit: then a
process has no limit of stack, nor have its children, and an endless recursion takes the machine's memory before it
ends. Source: NVRTC user guide, ``--modify-stack-limit``; measured with NVRTC 13.5.

*How signals are handled.* NVRTC 13.0 gives the handlers of SIGINT, SIGTERM and SIGXFSZ the flag ``SA_RESTART``, while
it compiles and afterwards. Python's do not have it: with it, Ctrl-C ends no wait for a lock. Source: ``sigaction``
before and after a compile, measured with 13.0.88; 13.5 leaves them alone.
"""

from __future__ import annotations

import functools
import os
import resource
import signal
import sys
import threading
from types import TracebackType
from typing import Any

from cujit.forks import once, register_reset
from cujit.threads import start

_NO_HANDLERS = (0, 1)
"""``SIG_DFL`` and ``SIG_IGN``."""

_CLONE_FS = 0x200
_SIGACTION_BYTES = 512
"""More than any C library's ``struct sigaction``, which begins with the handler and is otherwise opaque here."""


class ProcessStateKeeper:
    """A context for any number of threads. The last thread to leave it restores the state that the
    first thread found.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._limit = (0, 0)
        self._actions: dict[int, bytes] = {}
        register_reset(self)

    def after_fork(self) -> None:
        """Restore the state in a forked child after changes by compiles of other threads, which don't run there."""
        self._lock = threading.Lock()
        if self._inside:
            self._inside = 1
            self.__exit__(None, None, None)

    def __enter__(self) -> None:
        with self._lock:
            if not self._inside:
                self._limit = resource.getrlimit(resource.RLIMIT_STACK)
                self._actions = {number: _action(number) for number in _signals()}
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside:
                return
            if resource.getrlimit(resource.RLIMIT_STACK) != self._limit:
                resource.setrlimit(resource.RLIMIT_STACK, self._limit)
            self._put_back_signals()

    def put_back_signals(self) -> None:
        """Restore the signal handling during compiles, because a thread waits for signals."""
        with self._lock:
            if self._inside:
                self._put_back_signals()

    def _put_back_signals(self) -> None:
        for number, found in self._actions.items():
            # Another handler is one that the program has set meanwhile.
            if _handler(_action(number)) == _handler(found) not in _NO_HANDLERS:
                _c().sigaction(number, found, None)


@once
def process_state() -> ProcessStateKeeper:
    """Return the keeper of this process."""
    return ProcessStateKeeper()


def leave_working_directory() -> None:
    """Change this thread to its own working directory, ``/``. If the system refuses, the working directory stays as it
    is.

    Other threads keep theirs. Containers may refuse it. Source: unshare(2), CLONE_FS.
    """
    if _c().unshare(_CLONE_FS) == 0:
        os.chdir("/")


@once
def may_leave_working_directory() -> bool:
    """Return whether the system lets a thread have a separate working directory. This is tried once."""
    tried: list[int] = []
    start(lambda: tried.append(_c().unshare(_CLONE_FS)), name="cujit-unshare").join()
    return tried == [0]


@functools.cache
def _c() -> Any:
    import ctypes  # whoever finds everything in the cache does without

    return ctypes.CDLL(None)


@functools.cache
def _signals() -> tuple[int, ...]:
    return signal.SIGINT, signal.SIGTERM, signal.SIGXFSZ


def _action(number: int) -> bytes:
    """Read how a signal is handled."""
    import ctypes  # start-up: for calls of tools alone

    action = ctypes.create_string_buffer(_SIGACTION_BYTES)
    _c().sigaction(number, None, action)
    return action.raw


def _handler(action: bytes) -> int:
    return int.from_bytes(action[:8], sys.byteorder)
