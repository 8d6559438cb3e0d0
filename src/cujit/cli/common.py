"""What every verb takes, ``-q``, ``-v`` and ``--color``, and the variables of the environment that all of them obey."""

from __future__ import annotations

import os
from typing import Any

import click

from cujit.cli.console import QUIET

VARIABLES = {
    "CUJIT_CACHE": "0 turns the cache off",
    "CUJIT_CACHE_DIR": "the directory of the cache; ~/.cache/cujit if unset",
    "CUJIT_CACHE_BYTES": "the most that it holds: 500MB, 4GiB; 2GiB if unset",
    "CUJIT_CACHE_ROOTS": "directories and packs that are only read",
    "CUJIT_COMPILE": "what is done about what no cache has: auto, warn, never, never-jit",
    "CUJIT_TUNE": "what is done about what was not tuned: auto, never, again",
    "CUJIT_RECORD": "a directory to write down in what is compiled",
    "CUJIT_REMOTE": "the shared cache: https://…, s3://…, file:///…",
    "CUJIT_TRUST": "the file of keys that are believed there",
    "CUJIT_REMOTE_WAIT_S": "seconds to wait in vain for it; 0.15 if unset",
    "CUJIT_CPU_OPTIMIZE": "0 has the CPU device compile without optimising",
    "CUJIT_DUMP": "stages of the CPU device's compiler to print the result of",
    "CUJIT_PERF": "1 shows kernels of the CPU device to perf and gdb",
    "CUDA_HOME": "a toolkit to look for, where no wheel brings it",
    "NO_COLOR": "anything but nothing is --color never",
}
"""Variables of the environment, as the help says them."""


def environment_text() -> str:
    """Write the variables for the end of the help."""
    width = max(map(len, VARIABLES))
    return "\b\nEnvironment variables\n" + "\n".join(f"  {name:{width}}  {means}" for name, means in VARIABLES.items())


def _color(ctx: click.Context, _parameter: click.Parameter, when: str | None) -> None:
    color = {"always": True, "never": False}.get(when or "")
    if color is None and ctx.color is None and os.environ.get("NO_COLOR"):
        color = False
    if color is not None:
        # Of both: an error is printed when the verb is behind us.
        ctx.color = ctx.find_root().color = color


def _quiet(ctx: click.Context, _parameter: click.Parameter, is_quiet: bool) -> None:
    if is_quiet:
        ctx.meta[QUIET] = True


def _verbose(ctx: click.Context, _parameter: click.Parameter, is_verbose: bool) -> None:
    if not is_verbose:
        return
    import logging  # start-up: for -v

    class ToStandardError(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            click.echo(f"{record.name}: {record.getMessage()}", err=True)

    logger, handler = logging.getLogger("cujit"), ToStandardError()
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)

    def end() -> None:
        logger.removeHandler(handler)
        logger.setLevel(before)

    ctx.call_on_close(end)


def common_options() -> list[click.Option]:
    """Make the options that every verb takes."""
    more: dict[str, Any] = {"expose_value": False, "is_eager": True}
    when = click.Choice(["auto", "always", "never"])
    return [
        click.Option(
            ["-q", "--quiet"], is_flag=True, callback=_quiet, help="Print no warnings and no progress.", **more
        ),
        click.Option(
            ["-v", "--verbose"], is_flag=True, callback=_verbose, help="Print what is compiled and found.", **more
        ),
        click.Option(["--color"], type=when, callback=_color, help="When to print in colours; auto if unsaid.", **more),
    ]


def with_common(command: click.Command) -> click.Command:
    """Give a verb, and each verb below it, the options that all of them take."""
    if not any(option.name == "quiet" for option in command.params):
        command.params += common_options()
    if isinstance(command, click.Group):
        for one in command.commands.values():
            with_common(one)
    return command
