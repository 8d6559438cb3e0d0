"""A ready process that forks a process for each launch, because importing and compiling the common parts takes 0.2 s.

It is a new Python process that runs no launch itself, so that launches don't affect each other. It ends with this
process, and after some time without requests.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import socket
import struct
from collections.abc import Sequence
from typing import Any

from cujit.forks import Lock, on_fork_child
from cujit.workers.child import BEGIN
from cujit.workers.environment import GPU_LAUNCH, LAUNCH, kept
from cujit.workers.interpreter import interpreter
from cujit.workers.process import Worker, module_directories

LENGTH, STATUS = struct.Struct("<Q"), struct.Struct("<i")
"""What stands before an answer, and how a process that was forked has ended."""

_ENTRY = "cujit.reproducer.child:serve"
_BEGIN = BEGIN

_guard = Lock()


class ForkServer(Worker):
    """One of them, started in a ``world``: interpreter, code, paths, environment, and whether it is for a GPU."""

    def __init__(self, world: tuple[Any, ...]) -> None:
        _, begin, _, environment, is_gpu = world
        self._last = 0, ""
        self._orders, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        super().__init__(
            _ENTRY,
            "gpu" if is_gpu else "cpu",
            environment=dict(environment),
            descriptors=(os.dup(self._orders.fileno()), far.detach()),
            takes_orders=False,
            cwd="/",
            begin=begin,
        )

    def fork(self, files: Sequence[int]) -> bool:
        """Ask for a process with these files; False where the server has ended."""
        try:
            socket.send_fds(self._orders, [b"1"], files)
        except ConnectionError:
            return False
        return True

    def ended(self) -> tuple[int, str]:
        """End it, if it lives; return its status and its last words."""
        with _guard:
            if self.answers >= 0:
                self._orders.close()
                words = self.last_words()
                self._last = self.end()[0], words
            return self._last

    def forget(self) -> None:
        """Drop the server in a forked child, which doesn't own its process."""
        self._orders.close()
        super().forget()


_living: dict[tuple[Any, ...], ForkServer] = {}


def fork(files: Sequence[int], *, is_gpu: bool) -> ForkServer:
    """Make the server process fork a child with these files. Start the server if there is none.

    Raises:
        UnsupportedError: there is no Python interpreter to start, as in a frozen program.
    """
    world = (interpreter(), _BEGIN, tuple(module_directories()), tuple(_environment(is_gpu).items()), is_gpu)
    with _guard:
        for other, server in tuple(_living.items()):
            if not server.is_alive or (other == world and not server.fork(files)):
                _living.pop(other).ended()
            elif other == world:
                return server
        server = _living[world] = ForkServer(world)
        server.fork(files)
        with contextlib.suppress(ConnectionError):  # it ended, which is an error of the launch
            server.require_greeting()
        return server


def _environment(is_gpu: bool) -> dict[str, str]:
    """Return the environment variables that the process needs. Others may be secret.

    NumPy's linear algebra library gets no threads, because they are unused and take 0.1 of 0.3 s to start.
    """
    return kept(GPU_LAUNCH if is_gpu else LAUNCH) | {"OPENBLAS_NUM_THREADS": "1"}


def _end_all() -> None:
    while _living:
        _living.popitem()[1].ended()


def _forget_all() -> None:
    while _living:
        _living.popitem()[1].forget()


atexit.register(_end_all)
on_fork_child(_forget_all)
