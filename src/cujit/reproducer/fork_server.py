"""A process that is ready, and forks one for each launch: to import and compile anew what all need takes 0.2 s.

It is a fresh Python that never sees a launch, so that what one does is unknown to the next. It ends with this process,
and after a while in which nobody asks.
"""

from __future__ import annotations

import atexit
import os
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import IO, Any

from cujit.forks import Lock, in_child
from cujit.workers.interpreter import interpreter

LENGTH, STATUS = struct.Struct("<Q"), struct.Struct("<i")
"""What stands before an answer, and how a process that was forked has ended."""

_BEGIN = "import sys; sys.path[:] = sys.argv[1:-2]; from cujit.reproducer.child import serve; serve()"
_KEPT_ENVIRONMENT = (
    "HOME", "XDG_CACHE_HOME", "CUJIT_CACHE", "CUJIT_CACHE_DIR", "CUJIT_CPU_OPTIMIZE", "LANG", "LC_ALL", "LC_CTYPE",
)  # fmt: skip
_KEPT_FOR_GPU = (
    "PATH", "LD_LIBRARY_PATH", "CUDA_CACHE_DISABLE", "CUDA_CACHE_MAXSIZE", "CUDA_CACHE_PATH", "CUDA_DEVICE_ORDER",
    "CUDA_DEVICE_MAX_CONNECTIONS", "CUDA_DISABLE_PTX_JIT", "CUDA_FORCE_PTX_JIT", "CUDA_HOME", "CUDA_LAUNCH_BLOCKING",
    "CUDA_MODULE_LOADING", "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_VISIBLE_DEVICES",
)  # fmt: skip
"""Whole names: ``LANG`` must not let ``LANGCHAIN_API_KEY`` through."""

_guard = Lock()


class ForkServer:
    """One of them, started in a ``world``: interpreter, code, paths, environment, and whether it is for a GPU."""

    def __init__(self, world: tuple[Any, ...]) -> None:
        program, begin, paths, environment, is_gpu = world
        self._last = b""
        # A file, not a pipe: what nobody reads must not hold the process up.
        self._words: IO[bytes] = tempfile.TemporaryFile(prefix="cujit-ready-")  # noqa: SIM115  # ``end`` closes it
        self._orders, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with far:
            self._process = subprocess.Popen(
                [program, "-c", begin, *paths, "gpu" if is_gpu else "cpu", str(far.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._words,
                pass_fds=(far.fileno(),),
                env=dict(environment),
                cwd="/",
                start_new_session=True,  # Ctrl-C in a terminal is for us alone
            )

    @property
    def has_ended(self) -> bool:
        """Whether it ended by itself."""
        return self._process.poll() is not None

    def fork(self, files: Sequence[int]) -> bool:
        """Ask for a process with these files; False where the server has ended."""
        try:
            socket.send_fds(self._orders, [b"1"], files)
        except ConnectionError:
            return False
        return True

    def end(self) -> tuple[int, bytes]:
        """End it, if it lives; give its status and what it wrote."""
        with _guard:
            if not self._words.closed:
                self._orders.close()
                self._process.kill()
                self._process.wait()
                with self._words as words:
                    words.seek(0)
                    self._last = words.read()
            return self._process.returncode, self._last

    def forget(self) -> None:
        """Let go of it in a forked child, whose process it is not."""
        self._orders.close()
        self._words.close()
        self._process.returncode = 0


_living: dict[tuple[Any, ...], ForkServer] = {}


def fork(files: Sequence[int], *, is_gpu: bool) -> ForkServer:
    """Have the process that is ready fork one with these files; start it, if there is none.

    Raises:
        UnsupportedError: there is no Python interpreter to start, as in a frozen program.
    """
    paths = tuple(map(os.path.abspath, sys.path))
    world = (interpreter(), _BEGIN, paths, tuple(_environment(is_gpu).items()), is_gpu)
    with _guard:
        for other, server in tuple(_living.items()):
            if server.has_ended or (other == world and not server.fork(files)):
                _living.pop(other).end()
            elif other == world:
                return server
        server = _living[world] = ForkServer(world)
        server.fork(files)
        return server


def _environment(is_gpu: bool) -> dict[str, str]:
    """Give what the process needs of the environment; the rest may be secret.

    NumPy's library of linear algebra, which nobody needs there, has no threads: to start them took 0.1 of 0.3 s.
    """
    kept = (*_KEPT_ENVIRONMENT, *(_KEPT_FOR_GPU if is_gpu else ()))
    return {name: os.environ[name] for name in kept if name in os.environ} | {"OPENBLAS_NUM_THREADS": "1"}


def _end_all() -> None:
    while _living:
        _living.popitem()[1].end()


def _forget_all() -> None:
    while _living:
        _living.popitem()[1].forget()


atexit.register(_end_all)
in_child(_forget_all)
