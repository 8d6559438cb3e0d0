"""``cujit compat``: which entries of an image would load where, before anything is run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from cujit.cli.arches import arches_option
from cujit.cli.console import json_option, print_json, print_table
from cujit.cli.exit_codes import ExitCode
from cujit.cli.files import file_argument
from cujit.cli.help import Command
from cujit.cli.shell_hints import for_the_shell
from cujit.devices.cuda.compat import Verdict, compat, driver_version, release_name
from cujit.values import attributes


@click.command("compat", cls=Command)
@file_argument
@click.option("--driver", metavar="BRANCH", help="Driver branch, such as 580.")
@click.option(
    "--cuda", metavar="VERSION", help="CUDA version of the driver, such as 13.0, as an alternative to --driver."
)
@arches_option("Architecture of the GPU, such as sm_90.", "-a", "arches")
@json_option
@click.pass_context
def command(
    ctx: click.Context, file: Path, driver: str | None, cuda: str | None, arches: Sequence[str], as_json: bool
) -> None:
    """Check whether an image loads on a given driver and GPU.

    FILE is a cubin, PTX, or a fatbin. Without --driver, --cuda, or --arch, cujit prints what each entry requires. The
    exit status is 1 if there is a GPU on which no entry loads.
    """
    if driver is not None and cuda is not None:
        raise click.UsageError("--driver and --cuda are mutually exclusive")
    version = driver_version(driver or cuda)
    found = {arch: compat(file, driver=version, device=arch) for arch in arches or (None,)}
    if as_json:
        listed = [(arch, verdict) for arch, verdicts in found.items() for verdict in verdicts]
        print_json([{**attributes(verdict, "entry loads picked why help"), "arch": arch} for arch, verdict in listed])
    else:
        for arch, verdicts in found.items():
            _print_verdicts(
                verdicts, " and ".join(filter(None, (version and f"a driver of {release_name(version)}", arch)))
            )
    if not all(any(verdict.loads for verdict in verdicts) for verdicts in found.values()):
        ctx.exit(ExitCode.WRONG_INPUT)


def _print_verdicts(verdicts: list[Verdict], where: str) -> None:
    rows = [(v.entry, _state(v), v.why) for v in verdicts]
    styles = ["bold green" if v.picked else "" if v.loads else "red" for v in verdicts]
    print_table(("entry", "loads", "why" if not where else f"on {where}"), rows, styles=styles)
    for verdict in verdicts:
        if verdict.help:
            click.echo(f"{verdict.entry}: {for_the_shell(verdict.help)}")


def _state(verdict: Verdict) -> str:
    return "this one" if verdict.picked else "yes" if verdict.loads else "no"
