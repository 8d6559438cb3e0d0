"""Sources of compiles with line information, written where profilers and debuggers find them."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable
from pathlib import Path

from cujit.artifact.writing import write_file
from cujit.compiler.recorded import own_headers, places_of
from cujit.compiler.request import Request
from cujit.errors import MEMORY, FileError
from cujit.forks import single_flight_cache

_WITH_LINES = ("lineinfo", "debug")


class SourceFiles:
    """Writes sources and their headers into a directory under the names in images.

    The names are in ``/cujit-source``, which doesn't exist. Map it with ``ncu --source-folders`` or cuda-gdb's ``set
    substitute-path``. Texts are written, and files become symbolic links. The last of several with equal names remains.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._written: dict[Path, str] = {}

    def on_compile(self, request: Request, *_: object) -> None:
        """Hear of a request, whether it was compiled or found.

        Raises:
            FileError: a file can't be written.
        """
        source = request.source
        if source.language != "cuda" or not any(map(request.options.get, _WITH_LINES)):
            return
        for name, text in (*source.headers, *(() if source.path else ((source.name, source.text),))):
            path = self._place(name)
            if self._written.get(path) != text or not path.exists():
                _put(path, write_file, text)
                self._written[path] = text
        for name, target in _own_files(request).items():
            path = self._place(name)
            if not path.is_symlink() or os.readlink(path) != target:
                _put(path, _link, target)

    def _place(self, name: str) -> Path:
        return self._directory / posixpath.normpath(f"/{name}").lstrip("/")  # never out of the directory


def _own_files(request: Request) -> dict[str, str]:
    """Return the user's files that a compile could read, by their names below ``/cujit-source``."""
    paths = [*own_headers(request), *filter(None, [request.source.path])]
    return {
        (recorded + path.removeprefix(directory)).removeprefix(f"{MEMORY}/"): path
        for recorded, directory in reversed(places_of(request))
        for path in paths
        if path.startswith(f"{directory}/")
    }


def _link(path: Path, target: str) -> None:
    path.unlink(missing_ok=True)
    path.symlink_to(target)


def _put(path: Path, put: Callable[[Path, str], object], what: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        put(path, what)
    except OSError as e:
        message = f"CUJIT_SOURCES: {path} can't be written: {os.strerror(e.errno or 0)}"
        raise FileError(message, help="set CUJIT_SOURCES to a directory that you can write to") from e


@single_flight_cache(8)
def source_files_of(directory: str) -> SourceFiles:
    """Return the process's writer for the directory that ``CUJIT_SOURCES`` names."""
    return SourceFiles(Path(os.path.abspath(os.path.expanduser(directory))))
