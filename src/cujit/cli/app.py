"""The command ``cujit``: which verbs there are, and how an error becomes a message and an exit status."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
from typing import Any

import click

from cujit.cli.common import common_options, environment_text, with_common
from cujit.cli.console import complain
from cujit.cli.exit_codes import ExitCode, exit_code_of
from cujit.errors import CujitError, alike
from cujit.version import __version__

VERBS = (
    "demo",
    "compile",
    "build",
    "bundle",
    "link",
    "retarget",
    "run",
    "emulate",
    "profile",
    "explore",
    "embed",
    "inspect",
    "occupancy",
    "check",
    "compat",
    "cache",
    "pack",
    "worklist",
    "farm",
    "doctor",
    "completion",
)
"""The verbs, in the order of the help; each is the ``command`` of the file of its name."""


class Verbs(click.Group):
    """A group that imports a verb when it is asked for, and prints errors of cujit without a traceback."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Give the verbs in their order."""
        del ctx
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a verb."""
        del ctx
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"cujit.cli.{cmd_name}").command
        return with_common(command)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the verbs, each with the whole first sentence of its help."""
        verbs = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.get_short_help_str(limit=1000)) for name, verb in verbs if verb])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the verb; of one that there is not, name what is like it."""
        if args and not args[0].startswith("-") and self.get_command(ctx, args[0]) is None:
            near = alike(args[0], self.list_commands(ctx))
            ctx.fail(f"no verb '{args[0]}'" + (f"; did you mean {' or '.join(near)}?" if near else ""))
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb; an error of cujit ends in its exit status."""
        try:
            return super().invoke(ctx)
        except CujitError as e:
            if e.help:
                from cujit.cli.speech import for_the_shell  # start-up: for who errs

                e.help = for_the_shell(e.help, ctx.invoked_subcommand or "")
            complain(str(e))
            ctx.exit(exit_code_of(e))

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command line; what cannot be read or written, up to the last flush, ends in exit status 1.

        A closed pipe is not complained of: whoever reads has seen enough.
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
                    complain(f"{place}{e.strerror or e}")
            sys.exit(ExitCode.WRONG_INPUT)


def _forget_output() -> None:
    """Send what is still in the buffer of standard output nowhere, or the interpreter fails on it when it ends."""
    try:
        sys.stdout.flush()
    except OSError:
        with contextlib.suppress(OSError, ValueError), open(os.devnull, "wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())


_EXIT = "Exit status: 0 good, 1 the input is wrong, 2 usage, 3 the machine lacks something."


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog=f"{environment_text()}\n\n{_EXIT}",
    params=common_options(),
)
@click.version_option(__version__, prog_name="cujit")
def main() -> None:
    """Compile CUDA at run time, and run it on a GPU or on the CPU."""
