"""``cujit embed``: writes an image as a Python module that loads itself, or as a C header."""

from __future__ import annotations

from pathlib import Path

import click

from cujit.artifact import Artifact
from cujit.artifact.embedding import c_identifier
from cujit.artifact.writing import write_file
from cujit.cli.console import note
from cujit.cli.files import file_argument, output_option
from cujit.cli.help import Command
from cujit.formats.mangling import entity_name
from cujit.inspection.read import inspect
from cujit.values import replace


@click.command("embed", cls=Command)
@file_argument
@output_option("Python module or C header to write.", required=True)
@click.option(
    "-l",
    "--language",
    type=click.Choice(["python", "c"]),
    default="python",
    help="Language of the output: a self-loading Python module (python) or a C99 and C++ header (c). Default: python.",
)
@click.option(
    "-p",
    "--prefix",
    "name",
    metavar="PREFIX",
    help="Prefix of the names in a header. Default: the name of the header.",
)
def command(file: Path, output: Path, language: str, name: str | None) -> None:
    """Turn an image into a Python module or a C header.

    FILE is PTX, a cubin, a fatbin, or LTO-IR. The Python module defines artifact() and load(device=None). PTX is stored
    as text, and binaries are compressed. The header defines PREFIX_image (an aligned array that you can pass to the
    driver), PREFIX_SIZE, and a constant with the lowered name of each kernel.
    """
    artifact = Artifact.open(file)
    if language == "python":
        text = artifact.to_python()
    else:
        text = _with_names(artifact).to_c(name or c_identifier(output.stem))
    write_file(output, text)
    note(f"{output}: {len(text.encode()):,} bytes, {artifact.kind.value} of {len(artifact.data):,}")


def _with_names(artifact: Artifact) -> Artifact:
    """Add the kernel names that the image contains, because a file has no name map. Overloads keep
    their lowered names.
    """
    lowered = list(dict.fromkeys(kernel.name for kernel in inspect(artifact).kernels))
    plain = [entity_name(name) or name for name in lowered]
    names = {n if plain.count(n) == 1 else low: low for n, low in zip(plain, lowered, strict=True)}
    return replace(artifact, names=names)
