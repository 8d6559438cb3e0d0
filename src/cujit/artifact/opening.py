"""Images as users pass them: an Artifact, a loaded Module, bytes, text, or the path of a file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from cujit.artifact.artifact import Artifact, is_buffer
from cujit.errors import ArgumentError, CompileError, FormatError
from cujit.errors.hints import Hint


def open_image(image: object, verb: str) -> Artifact:
    """Return the Artifact that ``verb`` was called with. A str with several lines is PTX or LLVM IR.

    For an object with an ``artifact``, such as a loaded Module, return this Artifact.

    Raises:
        FormatError: the bytes have an unknown format.
        OptionError: the value is not a file name.
        ArgumentError: the value has a different type.
        FileError: the file can't be read.
    """
    if isinstance(image, Artifact):
        return image
    if is_buffer(image) or (isinstance(image, str) and ("\n" in image or not image)):
        return Artifact.of(image)  # type: ignore[arg-type]
    if isinstance(image, (str, os.PathLike)):
        return Artifact.open(image)
    held = getattr(image, "artifact", None)
    if isinstance(held, Artifact):
        return held
    raise ArgumentError(
        f"{verb} expects an Artifact, a Module, bytes, text or a path, not {type(image).__name__}",
        help=f"cujit.{verb}('axpy.fatbin')",
    )


def require_content(name: str, kernels: Iterable[str], variables: Iterable[str], *, is_part: bool) -> None:
    """Reject a source without kernels and variables. With ``is_part``, accept it, because it is linked later.

    Raises:
        CompileError: the source has neither kernels nor variables.
    """
    if not is_part and not any(True for names in (kernels, variables) for _ in names):
        raise CompileError(
            f"{name} contains no kernel or variable to load",
            help=Hint(
                "declare the kernel with __global__; for a template, list its instances: names=['kernel<float>']",
                shell="declare the kernel with __global__; for a template, list its instances: <-n> 'kernel<float>'",
            ),
        )


@contextmanager
def naming(artifact: Artifact) -> Iterator[None]:
    """Add the name of the image to format errors that readers raise.

    Raises:
        FormatError: as raised inside, with the name in its message.
    """
    try:
        yield
    except FormatError as e:
        if artifact.name and artifact.name not in e.message:
            e.message = f"{artifact.name}: {e.message}"
            e.args = (e.message,)
        raise
