"""An image as users give it: an Artifact, bytes, PTX text, or the path of a file."""

from __future__ import annotations

import os
from pathlib import Path

from cujit.artifact import Artifact
from cujit.errors import ArgumentError, LoadError

__all__ = ["open_image"]


def open_image(image: object, verb: str) -> Artifact:
    """Take what ``verb`` was given; a str of more than one line is PTX.

    Raises:
        FormatError: the bytes are of no kind that cujit knows.
        ArgumentError: it is none of these.
        LoadError: the file cannot be read.
    """
    if isinstance(image, Artifact):
        return image
    if isinstance(image, (bytes, bytearray, memoryview)) or (isinstance(image, str) and "\n" in image):
        return Artifact.of(image)
    if not isinstance(image, (str, os.PathLike)):
        raise ArgumentError(f"{verb} takes an Artifact, bytes or a path, not {type(image).__name__}")
    try:
        return Artifact.open(image)
    except OSError as e:
        raise LoadError(f"{Path(image)} cannot be read: {e.strerror or e}") from e
