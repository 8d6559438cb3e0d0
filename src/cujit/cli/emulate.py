"""``cujit emulate``: a command whose processes find the emulator where they look for a driver."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from cujit.cli.console import note
from cujit.devices.options import MAX_TIMEOUT_S
from cujit.emulator.notes import AskedFunction, read_needs
from cujit.emulator.settings import EmulatorSettings
from cujit.emulator.starting import environment_of

_PASSED_ON = (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2)
"""Signals that come to this process alone; the terminal sends SIGINT and SIGQUIT to the command, too."""


@click.command("emulate", context_settings={"allow_interspersed_args": False})
@click.argument("words", metavar="COMMAND...", nargs=-1, required=True, type=click.UNPROCESSED)
@click.option("--cc", default="9.0", show_default=True, metavar="X.Y", help="The compute capability of the device.")
@click.option(
    "--check",
    metavar="WHAT",
    help="Look for mistakes in kernels: memory, race, sync, init, several with commas between, or all.",
)
@click.option("--threads", type=click.IntRange(min=1), metavar="N", help="Cores that run blocks; all without it.")
@click.option(
    "--timeout",
    "timeout_s",
    type=click.FloatRange(0, MAX_TIMEOUT_S, min_open=True),
    metavar="SECONDS",
    help="End a launch that takes longer.",
)
@click.option("--log", default="", metavar="FILE", help="Add every call and its answer to a file; - is standard error.")
@click.option(
    "--errors",
    type=click.Choice(["late", "now"]),
    default="late",
    show_default=True,
    help="Whether a kernel's fault is answered by a later call, as on a GPU, or by its launch.",
)
@click.option("--needs", is_flag=True, help="End with a table of what was asked of the driver and refused.")
def command(words: Sequence[str], needs: bool, errors: str, log: str, **said: Any) -> None:
    """Run a CUDA program with no GPU: its driver, and the last step of its compilers, are cujit's.

    COMMAND and all processes that it starts see one device. The exit status is the command's.
    """
    place = os.path.abspath(log) if log not in ("", "-") else log
    settings = EmulatorSettings.of(**said, log=place, errors_now=errors == "now")
    if not needs:
        os.execvpe(words[0], [*words], {**os.environ, **environment_of(settings)})
    with tempfile.TemporaryDirectory(prefix="cujit-needs-") as folder:
        file = Path(folder, "needs")
        file.touch()
        settings = EmulatorSettings.of(**said, log=place, errors_now=errors == "now", needs=str(file))
        status = _run(words, {**os.environ, **environment_of(settings)})
        _tell(read_needs(file))
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    click.get_current_context().exit(status)


def _run(words: Sequence[str], environment: dict[str, str]) -> int:
    """Run a command, which gets the signals that come meanwhile; give its status, below 0 where a signal ended it."""
    process = subprocess.Popen([*words], env=environment)

    def pass_on(number: int, _frame: object) -> None:
        process.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in _PASSED_ON}
    before |= {number: signal.signal(number, signal.SIG_IGN) for number in (signal.SIGINT, signal.SIGQUIT)}
    try:
        return process.wait()
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _tell(found: Sequence[AskedFunction]) -> None:
    """Say on standard error what was asked, and what was not answered well; standard output is the command's."""
    rows = [
        (need.name, str(need.refused or ""), ", ".join(f"{error} ({count})" for error, count in need.errors.items()))
        for need in found
        if need.refused or need.errors
    ]
    refused = sum(bool(need.refused) for need in found)
    note(f"{len(found)} functions of the driver were called, of which {refused} are not emulated")
    width = max((len(name) for name, *_ in rows), default=0)
    for name, calls, answered in [("function", "refused", "errors"), *rows] if rows else ():
        note(f"  {name:{width}}  {calls:>7}  {answered}".rstrip())
