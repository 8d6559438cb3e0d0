"""Texts that were compiled with lines, written where profilers and debuggers find them."""

from __future__ import annotations

import os
import posixpath
from pathlib import Path

from cujit.artifact.writing import write_file
from cujit.compiler.request import Request
from cujit.errors import FileError
from cujit.forks import once_each

_WITH_LINES = ("lineinfo", "debug")


class SourceFiles:
    """Writes the text of each source that has no file, and its headers in memory, into a directory by their names.

    A program made of a text lies in ``/cujit-source``, which does not exist: ``ncu --source-folders`` and cuda-gdb's
    ``set substitute-path`` say what stands for it. Of several texts of one name the last is there.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._written: dict[Path, str] = {}

    def heard(self, request: Request, *_: object) -> None:
        """Hear of a request, whether it was compiled or found.

        Raises:
            FileError: a file cannot be written.
        """
        source = request.source
        if source.language != "cuda" or not any(map(request.options.get, _WITH_LINES)):
            return
        for name, text in (*source.headers, *(() if source.path else ((source.name, source.text),))):
            path = self._directory / posixpath.normpath(f"/{name}").lstrip("/")  # never out of the directory
            if self._written.get(path) != text or not path.exists():
                _write(path, text)
                self._written[path] = text


def _write(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_file(path, text)
    except OSError as e:
        message = f"CUJIT_SOURCES: {path} cannot be written: {os.strerror(e.errno or 0)}"
        raise FileError(message, help="CUJIT_SOURCES=<a directory of yours>") from e


@once_each(8)
def source_files_of(directory: str) -> SourceFiles:
    """Give the writer of the process for the directory that ``CUJIT_SOURCES`` names."""
    return SourceFiles(Path(os.path.abspath(os.path.expanduser(directory))))
