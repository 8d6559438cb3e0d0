"""Files as users name them. Every public function reads paths here, so that mistakes raise the same
errors everywhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator

from cujit.errors import CujitError, FileError, OptionError, spell

BOM = b"\xef\xbb\xbf"
"""What some editors write before a text in UTF-8."""

_OTHER = {
    stat.S_IFDIR: "a directory",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFSOCK: "a socket",
}
_READ_YOURSELF = "read it yourself, and pass its bytes"

_QUOTED_SUFFIXES = (
    ".cu", ".cuh", ".c", ".cc", ".cpp", ".cxx", ".h", ".hh", ".hpp", ".hxx", ".inl", ".ipp", ".ll", ".py",
)  # fmt: skip
_MOST_QUOTED_BYTES = 1 << 20
_given: set[str] = set()
"""The directories of the files that the user named to this process, and the include directories."""


def path_of(given: object) -> str:
    """Return a path as a str. Bytes that are not UTF-8 are encoded as in Python's file system functions.

    Raises:
        OptionError: the object is neither text nor a path, or the name is invalid.
    """
    try:
        path = os.fsdecode(given) if isinstance(given, os.PathLike) else given
        if isinstance(path, str) and "\0" not in path and os.fsencode(path) is not None:
            return path
    except (TypeError, ValueError):
        pass
    raise OptionError(
        f"expected a path, not {type(given).__name__} {spell(given)}",
        help="pass a str or a pathlib.Path; for bytes, call Artifact.of",
    )


def shown_path(path: str) -> str:
    """Spell a path so that it can be printed: bytes that are no UTF-8 as ``\\xff``."""
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def read_file(given: object) -> bytes:
    """Read a regular file. Pipes and devices, which could block, raise an error.

    Raises:
        OptionError: the argument is not a path.
        FileError: the file doesn't exist, can't be read, or is a directory, a FIFO, or a device.
    """
    path = path_of(given)
    allow_quotes(os.path.dirname(os.path.abspath(path)))
    return _read(path)


def allow_quotes(directory: str) -> None:
    """Allow messages and pages to quote the sources below a directory that the user gave."""
    _given.add(directory)


def quoted_lines(file: str) -> list[str]:
    """Return the lines of a source that an image names, or none if the user didn't specify its directory.

    An untrusted image can name any file, and users share pages. cujit therefore quotes a file only if it has the
    extension of a source, isn't hidden, and lies below a directory that the user specified. Notebook cells and the
    sources of saved launches are texts, which cujit always quotes.
    """
    import linecache  # start-up: few calls quote a source

    known = linecache.cache.get(file)
    if known is not None and len(known) == 4 and known[1] is None:
        return known[2]
    try:
        path = os.path.realpath(file)
        if not path.endswith(_QUOTED_SUFFIXES) or not any(_is_below(path, given) for given in list(_given)):
            return []
        if os.stat(path).st_size > _MOST_QUOTED_BYTES:
            return []
        return _read(path).decode("utf-8", "replace").splitlines(keepends=True)
    except (OSError, FileError, ValueError):
        return []


def _is_below(path: str, directory: str) -> bool:
    below = os.path.relpath(path, os.path.realpath(directory))
    return directory != os.sep and not any(part.startswith(".") for part in below.split(os.sep))


def _read(path: str) -> bytes:
    shown = shown_path(path)
    try:
        # O_NONBLOCK: a FIFO without a writer would hold us up here.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            mode = os.fstat(fd).st_mode
            if stat.S_IFMT(mode) in _OTHER:
                raise no_file(path, mode)
            with os.fdopen(fd, "rb", closefd=False) as file:
                return file.read()
        finally:
            os.close(fd)
    except OSError as e:
        if isinstance(e, FileError):
            raise
        if e.errno == errno.ENXIO:  # what opening a socket says
            raise _no_file(path, "a socket") from None
        raise FileError(
            f"can't read {shown or repr(path)}: {e.strerror or e}",
            filename=path,
            errno=e.errno,
            help=_where(path) if e.errno == errno.ENOENT else None,
        ) from None


@contextlib.contextmanager
def file_errors() -> Iterator[None]:
    """Convert errors of the operating system about files into cujit's errors.

    Raises:
        FileError: an OSError was raised inside.
    """
    try:
        yield
    except OSError as e:
        if isinstance(e, CujitError | ConnectionError | TimeoutError):
            raise
        path = os.fsdecode(e.filename) if isinstance(e.filename, str | bytes | os.PathLike) else ""
        what = shown_path(path) or "a file"
        message = f"{what} can't be read or written: {e.strerror or e}"
        raise FileError(message, filename=path, errno=e.errno) from e


def without_bom(text: str) -> str:
    """Remove the byte order mark that some editors write before a text."""
    return text.removeprefix("\ufeff")


def no_file(path: str, mode: int) -> FileError:
    """Return the error for a path that exists but isn't a regular file. ``mode`` is the mode from its status."""
    return _no_file(path, _OTHER.get(stat.S_IFMT(mode), "no regular file"))


def _no_file(path: str, what: str) -> FileError:
    number = errno.EISDIR if what == "a directory" else errno.EINVAL
    help = None if what == "a directory" else _READ_YOURSELF
    return FileError(f"can't read {shown_path(path)}: it is {what}", filename=path, errno=number, help=help)


def _where(path: str) -> str:
    if os.path.isabs(path):
        return "check the path"
    try:
        directory = shown_path(os.getcwd())
    except OSError:
        directory = "it no longer exists"
    return f"cujit looks for a relative path in the working directory, {directory}; a one-line str is a path"
