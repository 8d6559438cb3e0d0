"""Files of the package that aren't modules, next to the modules: headers, bitcode, native code, and pages.

If the package is imported from a zip, they can't be opened there. They are then extracted once to a private directory.
Every process compares this directory with the zip before using it.
"""

from __future__ import annotations

import contextlib
import os

from cujit.errors import MissingError
from cujit.forks import once
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGE = os.path.dirname(os.path.dirname(__file__))
_ARCHIVE: str | None = getattr(globals().get("__loader__"), "archive", None)
"""The zip that this package is imported from; None if it lies in a directory."""


def data_path(*parts: str) -> str:
    """Return the path of a file or directory of the package.

    Args:
        parts: its place below the package's directory.

    Raises:
        MissingError: the package is in a zip, and its files cannot be extracted.
    """
    return os.path.join(_extracted() if _ARCHIVE else _PACKAGE, *parts)


@once
def _extracted() -> str:
    """Extract the package or find an earlier extraction, and return the directory."""
    import hashlib  # start-up: for packages in a zip
    import tempfile  # start-up: as above

    assert _ARCHIVE
    try:
        files = dict(_files(_ARCHIVE))
        digest = hashlib.sha256(repr(files).encode()).hexdigest()[:16]
        directory = os.path.join(tempfile.gettempdir(), f"cujit-package-{os.getuid()}-{digest}")
        if not _is_private(directory):
            directory = _directory_of_this_process()
        for name, data in files.items():
            _write(os.path.join(directory, name), data)
    except OSError as e:
        raise MissingError(
            f"cujit's files are in {_ARCHIVE} and can't be extracted: {e}",
            help="set TMPDIR to a directory that this process can write to, or install cujit as files",
        ) from e
    return directory


def _files(archive: str) -> Iterator[tuple[str, bytes]]:
    """Return the files of the package in a zip, including its modules, which identify generated code."""
    import zipfile  # start-up: as above

    below = _PACKAGE[len(archive) :].strip(os.sep) + "/"
    with zipfile.ZipFile(archive) as opened:
        for name in opened.namelist():
            if name.startswith(below) and not name.endswith(("/", ".pyc")) and ".." not in name.split("/"):
                yield name[len(below) :], opened.read(name)


def _is_private(directory: str) -> bool:
    """Create a directory if it doesn't exist, and return whether only this user can write to it."""
    import stat  # start-up: as above

    with contextlib.suppress(FileExistsError):
        os.mkdir(directory, 0o700)
    found = os.lstat(directory)
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _directory_of_this_process() -> str:
    """Create a directory that is removed when this process ends. Forked children use it without removing it."""
    import atexit  # start-up: as above
    import shutil  # start-up: as above
    import tempfile  # start-up: as above

    made, owner = tempfile.mkdtemp(prefix="cujit-package-"), os.getpid()  # in place: before the import
    atexit.register(lambda: shutil.rmtree(made, ignore_errors=True) if os.getpid() == owner else None)
    return made


def _write(path: str, data: bytes) -> None:
    """Ensure that a file has the given bytes. A file that already has them is left unchanged."""
    try:
        with open(path, "rb") as file:
            if file.read() == data:
                return
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    temporary = f"{path}.{os.getpid()}"
    with open(temporary, "wb") as file:  # in place: the package is not imported yet
        file.write(data)
    os.replace(temporary, path)  # in place: as above
