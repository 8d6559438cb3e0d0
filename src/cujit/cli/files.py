"""Files that verbs are given: what they read, what they write, and the log of a build."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from cujit.artifact import Artifact

FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
"""A file that is there."""

file_argument = click.argument("file", type=FILE)


def output_option(help: str, **more: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a verb ``-o`` and ``--output``, as ``output``: the file that it writes."""
    writable = click.Path(dir_okay=False, path_type=Path)
    return click.option("-o", "--output", type=writable, metavar="FILE", help=help, **more)


def open_built(path: Path, log: Path | None) -> Artifact:
    """Open an image with what the assembler wrote when it was built (``--log``), which alone tells spills.

    Raises:
        FormatError: the image is of no kind that cujit knows.
        OSError: a file cannot be read.
    """
    image = Artifact.open(path)
    return image if log is None else replace(image, log=log.read_text(errors="replace"))
