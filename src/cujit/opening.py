"""An image as users give it: an Artifact, a loaded Module, bytes, text, or the path of a file."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cujit.artifact import Artifact
from cujit.errors import ArgumentError, FormatError, LoadError

__all__ = ["naming", "open_image"]


def open_image(image: object, verb: str) -> Artifact:
    """Take what ``verb`` was given; a str of more than one line is PTX or LLVM IR.

    What holds an Artifact as its ``artifact``, as a loaded Module does, stands for that one.

    Raises:
        FormatError: the bytes are of no kind that cujit knows.
        OptionError: no file can be called so.
        ArgumentError: it is none of these.
        LoadError: the file cannot be read.
    """
    if isinstance(image, Artifact):
        return image
    if isinstance(image, (bytes, bytearray, memoryview)) or (isinstance(image, str) and "\n" in image):
        return Artifact.of(image)
    if isinstance(image, (str, os.PathLike)):
        try:
            return Artifact.open(image)
        except OSError as e:
            raise LoadError(f"{Path(image)} cannot be read: {e.strerror or e}") from e
    held = getattr(image, "artifact", None)
    if isinstance(held, Artifact):
        return held
    raise ArgumentError(
        f"{verb} takes an Artifact, a Module, bytes, text or a path, not {type(image).__name__}",
        help=f"cujit.{verb}('axpy.fatbin')",
    )


@contextmanager
def naming(artifact: Artifact) -> Iterator[None]:
    """Put the name of the image before what its readers find wrong with its bytes.

    Raises:
        FormatError: as it was raised inside, with the name in its message.
    """
    try:
        yield
    except FormatError as e:
        if artifact.name and artifact.name not in e.message:
            e.message = f"{artifact.name}: {e.message}"
            e.args = (e.message,)
        raise
