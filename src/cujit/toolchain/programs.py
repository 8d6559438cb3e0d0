"""Programs of the toolkit: their paths, and functions that run them."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence

from cujit.errors import MissingError, ToolCrashError, ToolError
from cujit.toolchain.stopping import Stop, current_stop, end_if_requested
from cujit.workers.process import CRASH_HELP, how_ended


def run_program(command: Sequence[str], *, environment: Mapping[str, str] | None = None) -> tuple[str, str]:
    """Run a program, and return what it wrote to standard output and to standard error.

    The program and its children are killed if the ``Stop`` of this thread is asked.

    Raises:
        ToolError: the program ended with another status than 0; ``log`` is what it wrote.
        ToolCrashError: a signal ended it.
        MissingError: it does not start.
        Ended: the work was asked to end.
    """
    name = os.path.basename(command[0])
    try:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment if environment is None else {**os.environ, **environment},
            start_new_session=True,  # its children end with it
        )
    except OSError as e:
        raise MissingError(
            f"can't run {command[0]}: {e.strerror or e}", help="run cujit doctor to check the installation"
        ) from e

    def end() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    try:
        with (current_stop() or Stop()).by(end):
            written = [stream.decode("utf-8", "backslashreplace") for stream in process.communicate()]
    except BaseException:
        end()
        process.wait()
        raise
    end_if_requested()
    log = "\n".join(text for text in reversed(written) if text.strip())
    if process.returncode < 0:
        result, how = how_ended(process.returncode)
        raise ToolCrashError(f"{name} {how}", tool=name, call=name, result=result, log=log, help=CRASH_HELP)
    if process.returncode:
        result = f"exit status {process.returncode}"
        raise ToolError(f"{name} failed: {result}", tool=name, call=name, result=result, log=log)
    return written[0], written[1]
