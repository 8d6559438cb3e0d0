"""``cujit embed``: an image as a Python module that loads itself."""

from __future__ import annotations

from pathlib import Path

import click

from cujit.artifact import Artifact
from cujit.cli.console import note

__all__ = ["command"]


@click.command("embed")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    required=True,
    metavar="FILE",
    help="The Python module to write.",
)
def command(file: Path, output: Path) -> None:
    """Write an image (PTX, cubin, fatbin, LTO-IR) into a Python module that loads itself.

    The module has artifact() and load(device=None). PTX stays readable; binaries are compressed.
    """
    artifact = Artifact.open(file)
    output.write_text(artifact.to_python())
    note(f"{output}: {output.stat().st_size:,} bytes, {artifact.kind.value} of {len(artifact.data):,}")
