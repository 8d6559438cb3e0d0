"""The separate process: reads jobs from standard input and answers on its own descriptor until the input ends."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import resource
import traceback
from typing import Any

from cujit.artifact import Artifact
from cujit.compiler.isolation.parent import WorkOrder
from cujit.errors import CujitError, ToolCrashError
from cujit.errors.hints import Hint
from cujit.forks import single_flight_cache
from cujit.toolchain.headers import Settings
from cujit.toolchain.toolset import Toolchain
from cujit.workers.serving import serve


def main(answers: int) -> None:
    """Serve; ``answers`` is the descriptor to write to."""
    serve(answers, _answer)


def _answer(order: WorkOrder) -> Artifact | CujitError:
    """Do the job, and return an image or an error."""
    try:
        if order.directory is not None:
            os.chdir(order.directory)
        with _limited(order.memory_mib):
            return order.job.run(_toolchain(order.settings))
    except CujitError as e:
        return e
    except Exception as e:
        if _is_of_memory(e, is_limited=order.memory_mib is not None):
            message, result, log = "MemoryError: there is not enough memory", "MemoryError", ""
        else:
            message, result, log = f"a fault of cujit in the separate process: {e!r}", "", traceback.format_exc()
        help = (
            Hint("set a larger memory_mib, or remove it", shell="set a larger --memory, or remove it") if result else ""
        )
        return ToolCrashError(message, result=result, log=log, help=help)


def _is_of_memory(error: Exception, *, is_limited: bool) -> bool:
    """Return whether an error means too little memory. The loaders of modules and libraries have their own errors for
    it.

    Python itself raises ``SystemError`` with various texts if it lacks the memory for an exception.
    """
    if isinstance(error, MemoryError) or (is_limited and isinstance(error, SystemError)):
        return True
    return isinstance(error, OSError | ImportError | SystemError) and bool(_NO_MEMORY.search(str(error)))


_NO_MEMORY = re.compile(f"{os.strerror(errno.ENOMEM)}|failed to map segment|error return without exception set")


@single_flight_cache(8)
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
