"""Input and output files of the commands: kinds, names, and build logs."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import click

from cujit.artifact import Artifact, ImageKind
from cujit.cli.console import add_findings, note, print_json, shown_bytes
from cujit.compiler.backends.diagnostics import parse_log
from cujit.errors import CujitError
from cujit.values import replace

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
"""A file that is there."""

ENDINGS = {
    f".{kind.value}": kind
    for kind in (ImageKind.PTX, ImageKind.CUBIN, ImageKind.LTOIR, ImageKind.OPTIXIR, ImageKind.TILEIR, ImageKind.FATBIN)
}
"""What the ending of a file that is written says of it; any other ending says nothing."""

_MAKERS = {
    ImageKind.PTX: "cujit compile and cujit link make PTX",
    ImageKind.CUBIN: "cujit compile and cujit link make cubins",
    ImageKind.LTOIR: "cujit compile and cujit link make LTO-IR",
    ImageKind.OPTIXIR: "cujit compile makes OptiX IR",
    ImageKind.TILEIR: "cujit compile makes Tile IR",
    ImageKind.FATBIN: "cujit build and cujit bundle make fatbins",
}

file_argument = click.argument("file", type=FILE)


def output_option(help: str, **more: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds ``-o`` and ``--output`` to a command, as ``output``: the file that it writes."""
    writable = click.Path(dir_okay=False, path_type=Path)
    return click.option("-o", "--output", type=writable, metavar="FILE", help=help, **more)


def folder_option(help: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Return a decorator that adds ``--into`` to a command, as ``folder``: the directory that it writes to."""
    writable = click.Path(file_okay=False, path_type=Path)
    return click.option("--into", "folder", required=True, type=writable, metavar="DIR", help=help)


def complete_kernel(context: click.Context, _parameter: click.Parameter, begun: str) -> list[str]:
    """Return the kernels of FILE with a prefix, for shell completion, or none if the file can't be read.

    bash inserts a completion unchanged, so that ``axpy<float>`` is quoted here. Other shells add their own quotes.
    """
    # An option without its value ends what click reads, so that the words before it are still as they were typed.
    file = next((Path(word) for word in context.args if Path(word).is_file()), None)
    if file is None:
        return []
    try:
        found = sorted(name for name in _kernels(file) if name.startswith(begun))
    except (CujitError, OSError, UnicodeDecodeError):
        return []
    is_bash = os.environ.get("_CUJIT_COMPLETE", "").startswith("bash")
    if not is_bash or os.environ.get("COMP_WORDS", "").endswith((f"'{begun}", f'"{begun}')):
        return found
    return [shlex.quote(name) for name in found]


def _kernels(file: Path) -> list[str]:
    # start-up: for shells that complete
    from cujit.compiler.inputs.kernels import plain_kernels
    from cujit.inspection.read import inspect

    if file.suffix in (".cu", ".cuh"):
        return list(plain_kernels(file.read_text()))
    return list({kernel.display for kernel in inspect(file).kernels})


def open_built(path: Path, log: Path | None) -> Artifact:
    """Open an image with the assembler's log (``--assembler-log``), which is the only source for spills.

    Raises:
        FormatError: the format of the image is unknown.
        OSError: a file can't be read.
    """
    image = Artifact.open(path)
    return image if log is None else replace(image, log=log.read_text(errors="replace"))


def kind_of_output(output: Path | None, stated: ImageKind | None, made: Collection[ImageKind]) -> ImageKind | None:
    """Return the kind from the extension of ``output`` or from ``stated``, or None if neither specifies a kind.

    Raises:
        click.UsageError: the extension and ``stated`` differ, or the kind is not in ``made``.
    """
    ending = ENDINGS.get(output.suffix.lower()) if output is not None else None
    if ending is not None and stated is not None and ending is not stated:
        raise click.UsageError(f"{output} ends in a suffix for {ending.value}, but you asked for {stated.value}")
    if ending is not None and ending not in made:
        raise click.UsageError(
            f"{output}: this command writes {' or '.join(kind.value for kind in made)}; {_MAKERS[ending]}"
        )
    return stated or ending


def note_log(image: Artifact) -> None:
    """Print the log of an image's tools on standard error."""
    if image.log.strip():
        note(image.log.strip())
        add_findings(parse_log(image.log))


def write_image(image: Artifact, output: Path, as_json: bool, **more: object) -> None:
    """Write an image and print its path. The log of its tools goes to standard error.

    Raises:
        FileError: the file can't be written.
    """
    path = image.save(output)
    note_log(image)
    if as_json:
        about = {"output": str(path), "kind": image.kind.value, "arch": str(image.arch) if image.arch else None}
        print_json({**about, "bytes": len(image), **more})
        return
    of = f" for {image.arch}" if image.arch else ""
    click.echo(f"{path}: {image.kind.value}{of}, {shown_bytes(len(image))} bytes")
