"""The options of every command (``-q``, ``-v``, ``--color``, ``--findings``) and the end of the help."""

from __future__ import annotations

import os
from typing import Any

import click

from cujit.cli.console import FINDINGS, QUIET
from cujit.cli.environment import VARIABLES


def environment_text() -> str:
    """Return the variables as the end of the help lists them."""
    width = max(len(one.name) for one in VARIABLES)
    return "\b\nEnvironment variables:\n" + "\n".join(f"  {one.name:{width}}  {one.described}" for one in VARIABLES)


def _color(ctx: click.Context, _parameter: click.Parameter, when: str | None) -> None:
    color = {"always": True, "never": False}.get(when or "")
    if color is None and ctx.color is None and os.environ.get("NO_COLOR"):
        color = False
    if color is not None:
        # Of both: an error is printed when the command is behind us.
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


def _findings(ctx: click.Context, parameter: click.Parameter, to: str | None) -> None:
    if to is not None:
        from cujit.cli.findings import read_target  # start-up: for --findings

        ctx.meta[FINDINGS] = read_target(ctx, parameter, to)


def common_options() -> list[click.Option]:
    """Return the options that every command has."""
    more: dict[str, Any] = {"expose_value": False, "is_eager": True}
    when = click.Choice(["auto", "always", "never"])
    return [
        click.Option(["-q", "--quiet"], is_flag=True, callback=_quiet, help="Hide warnings and progress.", **more),
        click.Option(
            ["-v", "--verbose"], is_flag=True, callback=_verbose, help="Print what cujit compiles and loads.", **more
        ),
        click.Option(
            ["--findings"],
            metavar="FILE",
            callback=_findings,
            help="Write errors and warnings to FILE.sarif (SARIF) or FILE.xml (JUnit). "
            "If FILE is github, print annotations.",
            **more,
        ),
        click.Option(["--color"], type=when, callback=_color, help="When to use colors. Default: auto.", **more),
    ]


def with_common(command: click.Command) -> click.Command:
    """Return a command that has the common options, as has each command below it."""
    if not any(option.name == "quiet" for option in command.params):
        command.params += common_options()
    if isinstance(command, click.Group):
        for one in command.commands.values():
            with_common(one)
    return command
