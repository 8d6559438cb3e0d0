"""Extraction of the images of a file to separate files, always inside the specified directory."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click

from cujit.artifact import ImageKind
from cujit.artifact.writing import write_file
from cujit.cli.console import note, print_json
from cujit.errors import FileError, FormatError
from cujit.inspection.values import ImageInfo

_ENDINGS = {
    ImageKind.PTX: "ptx",
    ImageKind.CUBIN: "cubin",
    ImageKind.LTOIR: "ltoir",
    ImageKind.OPTIXIR: "optixir",
    ImageKind.NVVMIR: "ll",
    ImageKind.TILEIR: "tileir",
    ImageKind.OTHER: "bin",
}
_UNSAFE = re.compile(r"[^A-Za-z0-9_+-]+")
_LONGEST_STEM = 80


def extract(images: Iterable[tuple[ImageInfo, str]], directory: Path, *, as_json: bool) -> None:
    """Write each image to ``directory``, and print the paths.

    The PTX in a cubin becomes a separate file. Unreadable images are named on standard error and skipped. An existing
    file with the same name is replaced, and a symbolic link is replaced without following it.

    Raises:
        FileError: the directory or a file can't be written.
    """
    taken: set[str] = set()
    written = []
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as e:
        message = f"{directory} can't be written: {e.strerror or e}"
        raise FileError(message, filename=str(directory), errno=e.errno) from e
    for image, source, ending, read in _files(images):
        try:
            data = read()
        except FormatError as e:
            note(f"not written: image {image.index} of {source}, {image}: {image.error or e.message}")
            continue
        path = directory / _unique(_name(image, source, ending), taken)
        write_file(path, data, links="replace")
        written.append(path)
        if not as_json:
            click.echo(str(path))
    if as_json:
        print_json({"schema": 1, "written": [str(path) for path in written]})


def _files(images: Iterable[tuple[ImageInfo, str]]) -> Iterator[tuple[ImageInfo, str, str, Callable[[], bytes]]]:
    """Return the files to write for each image: the origin, the extension, and the tool that reads them."""
    for image, source in images:
        yield image, source, _ENDINGS[image.kind], image.payload
        if image.kind is ImageKind.CUBIN and image.carries_ptx:
            yield image, source, "recovered.ptx", lambda image=image: image.ptx().encode()  # type: ignore[misc]


def _name(image: ImageInfo, source: str, ending: str) -> str:
    """Return a file name such as ``axpy.2.sm_90a.cubin``: the original file, the index, and the architecture."""
    stem = _UNSAFE.sub("_", Path(source).stem).strip("_")[:_LONGEST_STEM] or "image"
    arch = f".{image.arch}" if image.arch else ""
    return f"{stem}.{image.index}{arch}.{ending}"


def _unique(name: str, taken: set[str]) -> str:
    """Return a name, with a number after its stem if another file of this run has it."""
    stem, _, rest = name.partition(".")
    candidate, number = name, 1
    while candidate in taken:
        number += 1
        candidate = f"{stem}-{number}.{rest}"
    taken.add(candidate)
    return candidate
