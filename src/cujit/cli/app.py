"""The command ``cujit``: which verbs there are, and how an error becomes a message and an exit status."""

from __future__ import annotations

import importlib
from typing import Any

import click

from cujit.cli.console import complain
from cujit.cli.exit_codes import ExitCode, exit_code_of
from cujit.errors import CujitError
from cujit.version import __version__

__all__ = ["VERBS", "main"]

VERBS = ("demo", "build", "run", "embed", "doctor")
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
        return command

    def invoke(self, ctx: click.Context) -> Any:
        """Run a verb; an error of cujit, or a file that cannot be read or written, ends in its exit status."""
        try:
            return super().invoke(ctx)
        except CujitError as e:
            complain(str(e))
            ctx.exit(exit_code_of(e))
        except OSError as e:
            if e.filename is None:  # a closed pipe, which click ends quietly
                raise
            complain(f"{e.filename}: {e.strerror}")
            ctx.exit(ExitCode.WRONG_INPUT)


@click.group(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Exit status: 0 good, 1 the input is wrong, 2 usage, 3 the machine lacks something.",
)
@click.version_option(__version__, prog_name="cujit")
def main() -> None:
    """Compile CUDA at run time, and run it on a GPU or on the CPU."""
