"""``cujit embed``: an image as a Python module that loads itself, or as a C header."""

from __future__ import annotations

from pathlib import Path

import click

from cujit.artifact import Artifact
from cujit.artifact.embedding import c_identifier
from cujit.cli.console import note
from cujit.cli.files import file_argument, output_option
from cujit.formats.mangling import entity_name
from cujit.inspection.read import inspect
from cujit.values import replace


@click.command("embed")
@file_argument
@output_option("The Python module or the header to write.", required=True)
@click.option(
    "-l",
    "--language",
    type=click.Choice(["python", "c"]),
    default="python",
    show_default=True,
    help="python: a module that loads itself; c: a header of C99 and C++.",
)
@click.option(
    "-n",
    "--name",
    metavar="NAME",
    help="How the names in a header begin; without it, what the header is called.",
)
def command(file: Path, output: Path, language: str, name: str | None) -> None:
    """Write an image (PTX, cubin, fatbin, LTO-IR) into a Python module that loads itself, or into a C header.

    The module has artifact() and load(device=None). PTX stays readable; binaries are compressed. The header has
    NAME_image, an aligned array that the driver takes as it is, NAME_SIZE, and a constant for the lowered name of every
    kernel.
    """
    artifact = Artifact.open(file)
    if language == "python":
        text = artifact.to_python()
    else:
        text = _with_names(artifact).to_c(name or c_identifier(output.stem))
    output.write_text(text)
    note(f"{output}: {output.stat().st_size:,} bytes, {artifact.kind.value} of {len(artifact.data):,}")


def _with_names(artifact: Artifact) -> Artifact:
    """Name the kernels as the image alone tells them, for a file keeps none; overloads by their lowered names."""
    lowered = list(dict.fromkeys(kernel.name for kernel in inspect(artifact).kernels))
    plain = [entity_name(name) or name for name in lowered]
    names = {n if plain.count(n) == 1 else low: low for n, low in zip(plain, lowered, strict=True)}
    return replace(artifact, names=names)
