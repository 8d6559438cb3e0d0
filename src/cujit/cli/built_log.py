"""``--log``: what the assembler wrote when a file was built, which alone tells spills."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from cujit.artifact import Artifact

__all__ = ["LOG", "open_built"]

LOG = click.Path(exists=True, dir_okay=False, path_type=Path)


def open_built(path: Path, log: Path | None) -> Artifact:
    """Open an image with the log of its build, if there is one.

    Raises:
        FormatError: the image is of no kind that cujit knows.
        OSError: a file cannot be read.
    """
    image = Artifact.open(path)
    return image if log is None else replace(image, log=log.read_text(errors="replace"))
