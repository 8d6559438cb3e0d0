"""``cujit retarget``: PTX of another version, or for another architecture."""

from __future__ import annotations

from pathlib import Path

import click

from cujit.artifact import Artifact, Kind
from cujit.cli.compiler_options import arch_option
from cujit.cli.console import json_option
from cujit.cli.files import file_argument, kind_of_output, output_option, write_image
from cujit.formats.ptx.retarget import retarget


@click.command("retarget")
@file_argument
@output_option("The PTX to write.", required=True)
@click.option("--ptx", "version", metavar="VERSION", help="The version: 8.4. A driver takes its own and older.")
@arch_option(
    "The lowest architecture that shall run it: compute_80.",
)
@json_option
def command(file: Path, output: Path, version: str | None, arch: str | None, as_json: bool) -> None:
    """Give the PTX in FILE another version, another target, or both, where all that it uses allows that.

    What is newer than that is listed, with its line and what introduced it; nothing but the two words is changed.
    """
    if version is None and arch is None:
        raise click.UsageError("say --ptx, --arch, or both")
    kind_of_output(output, None, (Kind.PTX,))
    write_image(retarget(Artifact.open(file), version=version, arch=arch), output, as_json)
