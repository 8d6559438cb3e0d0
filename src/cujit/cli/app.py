"""The command ``cujit``: its commands by task, and how an error becomes a message and an exit status."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Iterator
from typing import Any

import click

from cujit.cli.common import common_options, environment_text, with_common
from cujit.cli.console import FINDINGS, JSON, print_error, print_json
from cujit.cli.exit_codes import ExitCode, exit_code_of
from cujit.cli.help import RENAMED_COMMANDS, CommandGroup
from cujit.errors import CujitError, KernelFaultError, alike
from cujit.version import __version__

TASKS = {
    "Get started": ("demo", "doctor", "explain", "migrate", "completion"),
    "Compile and link": ("compile", "build", "bundle", "link", "retarget"),
    "Run": ("run", "emulate"),
    "Profile and inspect": ("profile", "explore", "inspect", "occupancy"),
    "Verify": ("budget", "compat"),
    "Cache and distribute": ("cache", "pack", "worklist", "farm", "embed"),
}
"""The commands by task, in the order of the help; each is the ``command`` of the file of its name."""

COMMANDS = tuple(name for names in TASKS.values() for name in names)


class Commands(CommandGroup):
    """A group that imports a command when it is called, and prints errors of cujit without a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of the commands, in the order of the help."""
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command and return it, or return None if no command has this name."""
        del ctx
        name = RENAMED_COMMANDS.get(cmd_name, cmd_name)
        if name not in COMMANDS:
            return None
        command: click.Command = importlib.import_module(f"cujit.cli.{name}").command
        return with_common(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by task, each with the first sentence of its help."""
        width = max(map(len, COMMANDS))
        with formatter.section("Commands"):
            for task, names in TASKS.items():
                found = [(name, self.get_command(ctx, name)) for name in names]
                with formatter.section(task):
                    rows = [(f"{name:{width}}", one.get_short_help_str(limit=1000)) for name, one in found if one]
                    formatter.write_dl(rows)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the command line; if it is empty, print the overview and exit with the status of wrong usage."""
        if not args and not ctx.resilient_parsing:
            click.echo(overview(), err=True)
            ctx.exit(ExitCode.USAGE)
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; if no command has this name, suggest the nearest names."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            near = alike(args[0], self.list_commands(ctx))
            ctx.fail(f"no command '{args[0]}'" + (f"; did you mean {' or '.join(near)}?" if near else ""))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a command; an error of cujit ends in its exit status."""
        try:
            with _collecting(ctx):
                return super().invoke(ctx)
        except CujitError as e:
            if e.help:
                from cujit.cli.shell_hints import for_the_shell  # start-up: for who errs

                e.help = for_the_shell(e.help, ctx.invoked_subcommand or "")
            story = e.story if isinstance(e, KernelFaultError) else None
            if ctx.meta.get(JSON):
                more = {} if story is None else {"story": story.to_json()}
                print_json({"error": {"code": e.code, "message": e.message, "help": e.help, **more}})
            print_error(str(e), e.code)
            if story is not None:
                click.echo(f"\n{story}", err=True)
            ctx.exit(exit_code_of(e))

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line. Read and write errors, including those of the last flush, end in exit status 1.

        A closed pipe is not an error, because the reader has stopped reading.
        """
        try:
            try:
                return super().main(*args, **extra)
            finally:
                if sys.stdout is not None and not sys.stdout.closed:
                    sys.stdout.flush()
        except OSError as e:
            _forget_output()
            if e.errno != errno.EPIPE:
                place = f"{os.fsdecode(e.filename)}: " if isinstance(e.filename, (str, bytes)) else ""
                with contextlib.suppress(OSError):
                    print_error(f"{place}{e.strerror or e}")
            sys.exit(ExitCode.WRONG_INPUT)


@contextlib.contextmanager
def _collecting(ctx: click.Context) -> Iterator[None]:
    """Write the findings of a command when it ends if ``--findings`` requests them."""
    ended: BaseException | None = None
    try:
        yield
    except BaseException as e:
        ended = e
        raise
    finally:
        target = ctx.meta.get(FINDINGS)
        if target is not None:
            target.write(ended)


def _forget_output() -> None:
    """Discard buffered standard output, because the interpreter would fail to write it at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:  # in place: a device
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


def overview() -> str:
    """Return the text that ``cujit`` prints without a command."""
    width = max(map(len, TASKS)) + 1
    tasks = "\n".join(f"  {(task + ':').ljust(width)}  {', '.join(names)}" for task, names in TASKS.items())
    return f"""cujit {__version__}: {main.help}

Usage: cujit [OPTIONS] COMMAND [ARGS]...

{tasks}

Run cujit demo to try it, cujit doctor to check this machine,
cujit --help for all commands, and cujit COMMAND --help for one."""


_EXIT = """\b
Exit status:
  0  success
  1  wrong input, or a check that failed
  2  wrong usage
  3  a required library or driver is missing"""


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"{environment_text()}\n\n{_EXIT}",
    params=common_options(),
)
@click.version_option(__version__, prog_name="cujit")
def main() -> None:
    """Compile CUDA at run time, and run it on a GPU or on the CPU."""
