"""Write files completely: to a temporary file in the same directory, which is then renamed.

A killed process leaves its temporary files behind. Their names identify the process, so that the next process that
writes to the same directory can remove them.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import math
import os
import stat
import time
from collections.abc import Iterator

from cujit.artifact.reading import path_of, shown_path
from cujit.errors import CujitError, FileError
from cujit.values import later
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import pathlib
    import re
    from pathlib import Path
    from typing import BinaryIO, Literal, TypeAlias

    Links: TypeAlias = Literal["follow", "replace", "refuse"]
    """Whether the file is written that a symbolic link leads to, or the link is replaced, or it is an error."""
else:
    pathlib = later("pathlib")  # start-up: a hit works with text
    re = later("re")  # start-up: few calls need it

_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})
"""What link(2) gives on a file system without hard links."""

_TEMPORARY = ".cujit-"
_TEMPORARY = r"([0-9a-f]{8}|unknown)-([0-9]+)-([0-9]+)-[0-9a-f]{16}"  # compiled when it is first used: start-up
_DESCRIPTORS = r"/proc/[0-9]+(/task/[0-9]+)?/fd"
_DAY_S = 86400.0
_MOST_SWEPT = 10_000
_MOST_LINKS = 40
_KEPT_ATTRIBUTES = ("user.", "system.posix_acl_access")
_HELPS = {
    errno.EBUSY: "write to a directory, because a single mounted file can't be replaced",
    errno.EROFS: "name a file in a directory that you can write to",
    errno.EACCES: "name a file and a directory that you can write to",
    errno.EPERM: "name a file and a directory that you can write to",
}

_swept: set[str] = set()
"""The directories from which this process has removed what others left."""


# -- files ----------------------------------------------------------------------------------------------------


def write_file(given: object, data: bytes | str, *, mode: int | None = None, links: Links = "follow") -> Path:
    """Write a file completely or not at all, and return its path. Text is written as UTF-8.

    Raises:
        OptionError: the argument is not a path.
        FileError: the file can't be written and is unchanged. ``filename`` contains its path.
    """
    with replacing(given, mode=mode, links=links) as file:
        file.write(data.encode() if isinstance(data, str) else data)
    return pathlib.Path(path_of(given))


@contextlib.contextmanager
def replacing(
    given: object, *, mode: int | None = None, links: Links = "follow", is_new: bool = False
) -> Iterator[BinaryIO]:
    """Open a file that replaces ``given`` at the end of the block. After an error, the old file is unchanged.

    A regular file keeps its permissions, its group, and its access control list. With ``links="follow"``, devices,
    FIFOs, and ``/dev/stdout`` are written directly. Other hard links keep the old content.

    Args:
        given: the path.
        mode: permissions of the new file, regardless of the umask. Default: the permissions of the old file.
        links: whether to follow a symbolic link or replace it.
        is_new: whether an existing file is an error.

    Raises:
        OptionError: the argument is not a path.
        FileError: the file can't be written.
    """
    path = path_of(given)
    target = path
    try:
        target = _followed(path) if links == "follow" else path
        old = _status(target)
        if links == "follow" and _is_in_place(old):
            opened = _in_place(target)
        else:
            _require_replaceable(path, target, old, links)
            opened = _temporary_file(target, old, mode, is_new)
        with opened as file:
            yield file
    except OSError as e:
        is_ours = e.filename is None or e.filename == target or os.path.basename(e.filename).startswith(_TEMPORARY)
        if isinstance(e, CujitError) or not is_ours:  # what is read for it cannot be read
            raise
        message = f"{shown_path(path)} can't be written: {e.strerror or e}"
        raise FileError(message, filename=path, errno=e.errno, help=_HELPS.get(e.errno or 0)) from None


def publish(temporary: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Link or rename a complete file to its final name if no file has that name yet. The temporary name may remain.

    Raises:
        FileExistsError: a file already has the final name.
        OSError: the file can't be linked or renamed.
    """
    try:
        os.link(temporary, path)
    except OSError as e:
        if e.errno not in _NO_LINKS:
            raise
        os.replace(temporary, path)


def _followed(path: str) -> str:
    """Follow symbolic links to a file, or to a link that stands for a file descriptor."""
    for _ in range(_MOST_LINKS):
        if not os.path.islink(path) or re.fullmatch(_DESCRIPTORS, _directory(path)):
            return path
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    raise _refused(errno.ELOOP)


def _directory(path: str) -> str:
    return os.path.realpath(os.path.dirname(path))


def _refused(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except FileNotFoundError:
        return None


def _is_in_place(old: os.stat_result | None) -> bool:
    return old is not None and not stat.S_ISREG(old.st_mode) and not stat.S_ISDIR(old.st_mode)


def _require_replaceable(path: str, target: str, old: os.stat_result | None, links: Links) -> None:
    if not path:
        raise _refused(errno.ENOENT)
    if not os.path.basename(path) or (old is not None and stat.S_ISDIR(old.st_mode)):
        raise _refused(errno.EISDIR)
    if old is None or links == "replace":
        return
    if not stat.S_ISREG(old.st_mode):
        raise _refused(errno.ELOOP if stat.S_ISLNK(old.st_mode) else errno.EINVAL)
    if not os.access(target, os.W_OK, effective_ids=os.access in os.supports_effective_ids):
        raise _refused(errno.EACCES)


@contextlib.contextmanager
def _in_place(path: str) -> Iterator[BinaryIO]:
    if _directory(path) == f"/proc/{os.getpid()}/fd":  # opened anew, a file would be cut off that others write, too
        fd = os.dup(int(os.path.basename(path)))
    else:
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOCTTY | os.O_CLOEXEC)
    with os.fdopen(fd, "wb") as file:
        yield file


@contextlib.contextmanager
def _temporary_file(target: str, old: os.stat_result | None, mode: int | None, is_new: bool) -> Iterator[BinaryIO]:
    directory = os.path.dirname(target)  # relative paths stay so: nobody may have to look at what is above
    _sweep(directory or os.curdir)
    temporary = os.path.join(directory, _TEMPORARY + temporary_name())
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        with os.fdopen(os.open(temporary, flags, 0o666 if old is None and mode is None else 0o600), "wb") as file:
            yield file
            file.flush()
            _give_rights(file.fileno(), target, old, mode)
            os.fsync(file.fileno())  # a full disk or a quota may show only here
        if is_new:
            publish(temporary, target)
        else:
            os.replace(temporary, target)
    except BaseException:
        _remove(temporary)
        raise
    if is_new:
        _remove(temporary)


def _give_rights(fd: int, target: str, old: os.stat_result | None, mode: int | None) -> None:
    """Make a new file readable and writable by the same users as the old one, or set the permissions in ``mode``."""
    if mode is None and old is not None and stat.S_ISREG(old.st_mode):
        with contextlib.suppress(OSError):  # only root gives a file away, and others only to their groups
            os.fchown(fd, old.st_uid if os.geteuid() == 0 else -1, old.st_gid)
        mode = stat.S_IMODE(old.st_mode)
        os.fchmod(fd, mode)
        with contextlib.suppress(OSError):  # a file system without
            for name in os.listxattr(target):
                if name.startswith(_KEPT_ATTRIBUTES):
                    os.setxattr(fd, name, os.getxattr(target, name))
    elif mode is not None:
        os.fchmod(fd, mode)


# -- what is temporary ----------------------------------------------------------------------------------------


def make_temporary_directory() -> Path:
    """Create a private directory in the system's directory for temporary files.

    Raises:
        FileError: the directory can't be created.
    """
    import tempfile  # start-up: a hit needs none

    try:
        directory = os.path.realpath(tempfile.gettempdir())
        _sweep(directory)
        path = os.path.join(directory, _TEMPORARY + temporary_name())
        os.mkdir(path, 0o700)
    except OSError as e:
        message = f"can't create a temporary directory: {e.strerror or e}"
        help = "set TMPDIR to a directory that you can write to"
        raise FileError(message, filename=e.filename or "", errno=e.errno, help=help) from None
    return pathlib.Path(path)


@contextlib.contextmanager
def temporary_directory() -> Iterator[Path]:
    """Create a directory as ``make_temporary_directory`` does, and remove it at the end of the block.

    Raises:
        FileError: the directory can't be created.
    """
    path = make_temporary_directory()
    try:
        yield path
    finally:
        _remove(str(path))


def temporary_name() -> str:
    """Return a new name for a temporary file. The name identifies the machine and the process."""
    return f"{_boot()}-{_namespace()}-{os.getpid()}-{os.urandom(8).hex()}"


def is_temporary(name: str) -> bool:
    """Return whether ``temporary_name`` created this name in any process."""
    return re.fullmatch(_TEMPORARY, name) is not None


def is_stale(name: str, age_s: float, longest_s: float = _DAY_S) -> bool:
    """Return whether a temporary file is abandoned: its process is dead, or is unknown and the file is a day old.

    A living process may have the number of a dead process. Files older than ``longest_s`` seconds are therefore always
    stale.
    """
    match = re.fullmatch(_TEMPORARY, name)
    if match is None:
        return False
    boot, namespace, pid = match.groups()
    if boot == "unknown" or boot != _boot() or namespace != _namespace():
        return age_s > _DAY_S
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    return age_s > longest_s


def _sweep(directory: str) -> None:
    """Remove the files that killed processes of this user left in a directory, once per process."""
    known = os.path.realpath(directory)
    if known in _swept:
        return
    _swept.add(known)
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in itertools.islice(entries, _MOST_SWEPT):
            if entry.name.startswith(_TEMPORARY):
                status = entry.stat(follow_symlinks=False)
                longest_s = math.inf if stat.S_ISDIR(status.st_mode) else _DAY_S  # some directories live as long
                is_old = is_stale(entry.name.removeprefix(_TEMPORARY), time.time() - status.st_mtime, longest_s)
                if is_old and status.st_uid == os.geteuid():
                    _remove(entry.path)


def _remove(path: str) -> None:
    with contextlib.suppress(OSError):
        if not os.path.isdir(path) or os.path.islink(path):
            os.unlink(path)
            return
        import shutil  # start-up: a hit needs none

        shutil.rmtree(path, ignore_errors=True)


@functools.cache
def _boot() -> str:
    try:
        return pathlib.Path("/proc/sys/kernel/random/boot_id").read_text()[:8]
    except OSError:
        return "unknown"


@functools.cache
def _namespace() -> str:
    try:
        return str(os.stat("/proc/self/ns/pid").st_ino)
    except OSError:
        return "0"
