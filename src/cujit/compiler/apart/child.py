"""The process apart: takes jobs from standard input and answers on standard output, until the input ends."""

from __future__ import annotations

import contextlib
import functools
import os
import queue
import sys
import threading
import traceback
from typing import Any

from cujit.compiler.apart.parent import receive, send, write_error, write_result
from cujit.compiler.jobs import read_job
from cujit.errors import CujitError, ToolCrashError
from cujit.toolchain.headers import Settings
from cujit.toolchain.toolset import Toolchain

if sys.platform != "win32":
    import resource

__all__ = ["main"]


def main() -> None:
    """Serve."""
    jobs = sys.stdin.buffer
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    if sys.platform != "win32":
        _, hard = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, hard))  # whoever asks for a process apart expects its death
    waiting: queue.SimpleQueue[tuple[dict[str, Any], list[bytes]]] = queue.SimpleQueue()

    def read() -> None:
        while (message := receive(jobs)) is not None:
            waiting.put(message)
        os._exit(0)  # whoever asked is gone, and whatever is done here is for nobody

    threading.Thread(target=read, daemon=True).start()
    while True:
        head, blobs = waiting.get()
        said, *images = _answered(head, blobs)
        send(answers, said, images)


def _answered(head: dict[str, Any], blobs: list[bytes]) -> tuple[Any, ...]:
    try:
        settings = Settings(tuple((str(variable), str(home)) for variable, home in head["cuda_homes"]))
        if head["directory"] is not None:
            os.chdir(head["directory"])
        job = read_job(head, blobs)
        with _limited(head["memory_mib"]):
            return {}, write_result(job.run(_toolchain(settings)))
    except CujitError as e:
        return {"error": write_error(e)}, b""
    except MemoryError:
        error = ToolCrashError(
            "MemoryError: there is not enough memory", result="MemoryError", help="a larger memory_mib, or none"
        )
        return {"error": write_error(error)}, b""
    except Exception as e:
        error = ToolCrashError(f"a fault of cujit in the process apart: {e!r}", log=traceback.format_exc())
        return {"error": write_error(error)}, b""


@functools.lru_cache(maxsize=8)
def _toolchain(settings: Settings) -> Toolchain:
    return Toolchain(settings)


@contextlib.contextmanager
def _limited(memory_mib: int | None) -> Any:
    if memory_mib is None or sys.platform == "win32":
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
