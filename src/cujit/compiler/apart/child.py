"""The process apart: takes jobs from standard input and answers on a descriptor of its own, until the input ends."""

from __future__ import annotations

import contextlib
import errno
import os
import pickle
import queue
import re
import resource
import sys
import threading
import traceback
from typing import Any

from cujit.compiler.apart.parent import GREETING, WorkOrder, receive, send
from cujit.errors import CujitError, ToolCrashError
from cujit.forks import once_each
from cujit.toolchain.headers import Settings
from cujit.toolchain.toolset import Toolchain


def main() -> None:
    """Serve."""
    jobs = sys.stdin.buffer
    answers = os.fdopen(int(sys.argv[1]), "wb")
    answers.write(GREETING)
    answers.flush()
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))  # whoever asks for a process apart expects its death
    waiting: queue.SimpleQueue[WorkOrder] = queue.SimpleQueue()

    def read() -> None:
        while (order := receive(jobs)) is not None:
            waiting.put(order)
        os._exit(0)  # whoever asked is gone, and whatever is done here is for nobody

    threading.Thread(target=read, daemon=True).start()
    while True:
        send(answers, _answer(waiting.get()))


def _answer(order: WorkOrder) -> bytes:
    """Do the job, and give the pickle of an image or of an error."""
    try:
        if order.directory is not None:
            os.chdir(order.directory)
        with _limited(order.memory_mib):
            return pickle.dumps(order.job.run(_toolchain(order.settings)))
    except CujitError as e:
        error = e
    except Exception as e:
        if _is_of_memory(e, is_limited=order.memory_mib is not None):
            said, result, log = "MemoryError: there is not enough memory", "MemoryError", ""
        else:
            said, result, log = f"a fault of cujit in the process apart: {e!r}", "", traceback.format_exc()
        help = "a larger memory_mib, or none" if result else ""
        error = ToolCrashError(said, result=result, log=log, help=help)
    return pickle.dumps(error)


def _is_of_memory(error: Exception, *, is_limited: bool) -> bool:
    """Whether memory was too little; the loaders of modules and of libraries have errors of their own for that.

    Python itself has ``SystemError``, in many words, where it has no memory for the exception.
    """
    if isinstance(error, MemoryError) or (is_limited and isinstance(error, SystemError)):
        return True
    return isinstance(error, OSError | ImportError | SystemError) and bool(_NO_MEMORY.search(str(error)))


_NO_MEMORY = re.compile(f"{os.strerror(errno.ENOMEM)}|failed to map segment|error return without exception set")


@once_each(8)
def _toolchain(settings: Settings) -> Toolchain:
    return Toolchain(settings)


@contextlib.contextmanager
def _limited(memory_mib: int | None) -> Any:
    if memory_mib is None:
        yield
        return
    found = resource.getrlimit(resource.RLIMIT_AS)
    wanted = memory_mib << 20
    hard = found[1]
    resource.setrlimit(resource.RLIMIT_AS, (wanted if hard < 0 else min(wanted, hard), hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, found)
