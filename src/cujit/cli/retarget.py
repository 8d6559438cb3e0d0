"""``cujit retarget``: PTX of another version, or for another architecture."""

from __future__ import annotations

from pathlib import Path

import click

from cujit.artifact import Artifact, ImageKind
from cujit.cli.arches import arch_option
from cujit.cli.console import json_option
from cujit.cli.files import file_argument, kind_of_output, output_option, write_image
from cujit.cli.help import Command
from cujit.formats.ptx.retarget import retarget


@click.command("retarget", cls=Command)
@file_argument
@output_option("PTX file to write.", required=True)
@click.option(
    "--ptx-version",
    "version",
    metavar="VERSION",
    help="PTX version to set, such as 8.4. A driver loads PTX of its own version and of older versions.",
)
@arch_option(
    "Lowest architecture on which the PTX must run, such as compute_80.",
)
@json_option
def command(file: Path, output: Path, version: str | None, arch: str | None, as_json: bool) -> None:
    """Change the PTX version or the target of a PTX file.

    cujit changes only the .version and .target directives. If an instruction in FILE requires a newer version or
    target, cujit lists the instruction with its line number and fails.
    """
    if version is None and arch is None:
        raise click.UsageError("specify --ptx-version, --arch, or both")
    kind_of_output(output, None, (ImageKind.PTX,))
    write_image(retarget(Artifact.open(file), version=version, arch=arch), output, as_json)
