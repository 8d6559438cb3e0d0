"""``cujit emulate``: runs a command whose processes find the emulator in place of the driver."""

from __future__ import annotations

import contextlib
import errno
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, TypeVar

import click

from cujit.artifact.writing import temporary_directory, write_file
from cujit.cli.console import note, print_error
from cujit.cli.help import Command
from cujit.devices.options import MAX_TIMEOUT_S
from cujit.emulator.call_log import RUNTIME_ASKS, RequestedFunction, open_notes, read_needs
from cujit.emulator.environment import environment_of
from cujit.emulator.settings import EmulatorSettings
from cujit.errors import CujitError, spell
from cujit.values import replace

T = TypeVar("T")

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that come to this process alone; the terminal sends SIGINT and SIGQUIT to the command, too."""


@click.command("emulate", cls=Command, context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--cc", default="9.0", metavar="X.Y", help="Compute capability of the device. Default: 9.0.")
@click.option(
    "--check",
    metavar="WHAT",
    help="Errors to check kernels for: memory, race, sync, init, a comma-separated list of these, or all.",
)
@click.option(
    "--threads",
    type=click.IntRange(min=1),
    metavar="N",
    help="Number of CPU cores that run blocks. Default: all cores.",
)
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, MAX_TIMEOUT_S, min_open=True),
    metavar="SECONDS",
    help="Stop a launch that runs longer than this, or a process in which a call waits longer than this for Python's "
    "GIL.",
)
@click.option(
    "--log",
    default="",
    metavar="FILE",
    help="Append each driver call and its result to FILE. To log to standard error, use - as FILE.",
)
@click.option(
    "--errors",
    type=click.Choice(["late", "now"]),
    default="late",
    help="When to report a kernel fault: late (in a later call, as on a GPU) or now (in the launch call). Default: "
    "late.",
)
@click.option("--unsupported", is_flag=True, help="Print a table of the unsupported driver calls at the end.")
def command(words: Sequence[str], unsupported: bool, errors: str, log: str, **options: Any) -> None:
    """Run a CuPy, Numba, or other CUDA program without a GPU.

    cujit replaces the CUDA driver and the PTX assembler. COMMAND and all processes that it starts see a single device.
    cujit exits with the exit status of COMMAND.
    """
    place = os.path.abspath(log) if log not in ("", "-") else log
    outer = EmulatorSettings.from_environment()
    settings = EmulatorSettings.of(**options, log=place, errors_now=errors == "now").inside(outer)
    if not words[0]:
        raise click.UsageError("COMMAND is empty")
    if place not in ("", "-"):
        os.close(open_notes(place) or 0)  # before a process fails that knows no better than to say so by a number
    try:
        status = _run_noted(words, settings, outer) if unsupported else _become(words, settings)
    except OSError as e:
        status = _not_started(words[0], e)
    if status < 0:
        with contextlib.suppress(OSError):  # of one that nobody may handle
            signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    click.get_current_context().exit(status)


def _become(words: Sequence[str], settings: EmulatorSettings) -> NoReturn:
    """Replace this process by a command.

    Raises:
        OSError: the command doesn't exist or can't be executed.
    """
    environment = {**os.environ, **environment_of(settings)}
    _by_shell_if_need_be(words, lambda command: os.execvpe(command[0], [*command], environment))
    raise AssertionError("the program didn't start")


def _run_noted(words: Sequence[str], settings: EmulatorSettings, outer: EmulatorSettings) -> int:
    """Run a command, print its requests, add them to an enclosing emulation, and return its exit status.

    Raises:
        OSError: the command doesn't exist or can't be executed.
    """
    with temporary_directory() as folder:
        file = write_file(folder / "needs", b"")
        status = _run(words, {**os.environ, **environment_of(replace(settings, needs=str(file)))})
        _print_functions(read_needs(file))
        if outer.needs:
            with open(outer.needs, "ab", buffering=0) as around:  # in place: others add lines, too
                around.write(file.read_bytes())
    return status


_SHELL = "/bin/sh"


def _by_shell_if_need_be(words: Sequence[str], run: Callable[[Sequence[str]], T]) -> T:
    """Execute a command. If it is a script without an interpreter line, execute it with the shell.

    Source: POSIX.1-2017, exec, of execvp() and [ENOEXEC].

    Raises:
        OSError: the command doesn't exist or can't be executed.
    """
    try:
        return run(words)
    except OSError as e:
        if e.errno != errno.ENOEXEC:
            raise
    return run([_SHELL, shutil.which(words[0]) or words[0], *words[1:]])


_CANNOT_RUN, _NOT_FOUND = 126, 127
"""Exit statuses of what runs commands. Source: POSIX.1-2017, env, "Exit Status"."""


def _not_started(word: str, error: OSError) -> int:
    """Report why a command was not started, with a hint, and return the exit status."""
    is_missing, is_file, quoted = error.errno in (errno.ENOENT, errno.ENOTDIR), os.path.isfile(word), shlex.quote(word)
    words = f"{word} can't run: {error.strerror}"
    if is_missing:
        words = f"there is no command named {spell(word)}"
        if is_file and "/" in word:
            words = f"{word} can't run: the interpreter in its first line doesn't exist"
    if is_file and word.endswith(".py"):
        try_ = f"cujit emulate python {quoted}"
    elif is_file:
        try_ = f"chmod +x {quoted}" if not is_missing else "correct its first line" if "/" in word else f"./{quoted}"
    else:
        try_ = "check that it is installed and in PATH" if is_missing else "name a program"
    print_error(str(CujitError(words, help=try_)))
    return _NOT_FOUND if is_missing else _CANNOT_RUN


def _run(words: Sequence[str], environment: dict[str, str]) -> int:
    """Run a command, forward signals to it, and return its exit status, which is negative if a signal ended it."""
    process = _by_shell_if_need_be(words, lambda command: subprocess.Popen([*command], env=environment))

    def pass_on(number: int, _frame: object) -> None:
        process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    before |= {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _print_functions(found: Sequence[RequestedFunction]) -> None:
    """Report on standard error which functions were called, and which were refused or failed. Standard output belongs
    to the command.
    """
    rows = [
        (need.name, str(need.refused or ""), ", ".join(f"{error} ({count})" for error, count in need.errors.items()))
        for need in found
        if need.refused or need.errors
    ]
    refused = sum(bool(need.refused) for need in found)
    note(f"{len(found)} functions of the driver were called, of which {refused} are not emulated")
    if rows and rows[0][0] == RUNTIME_ASKS:
        note(f"  {RUNTIME_ASKS}: a library of NVIDIA's tests the driver; NVIDIA's CUDA runtime accepts only NVIDIA's")
    width = max((len(name) for name, *_ in rows), default=0)
    for name, calls, answered in [("function", "refused", "errors"), *rows] if rows else ():
        note(f"  {name:{width}}  {calls:>7}  {answered}".rstrip())
