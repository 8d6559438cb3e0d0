"""Operating system functions: files that others may modify, byte locks, remote file systems, and living processes."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import math
import mmap
import os
import stat
import struct
import time
import weakref
from collections.abc import Iterator

from cujit.cache.trust import Trust
from cujit.values import later
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import pathlib
    import re
    from pathlib import Path
else:
    pathlib = later("pathlib")  # start-up: a hit works with text
    re = later("re")  # start-up: few calls need it

_LOCK = struct.Struct("hhqqi4x")  # struct flock with 64-bit offsets, fcntl(2)

# Types as /proc/self/mountinfo names them, of file systems that other machines share.
_REMOTE = frozenset(
    {
        *("9p", "afs", "beegfs", "ceph", "cifs", "cvmfs2", "glusterfs", "gpfs", "lustre", "nfs", "nfs4", "orangefs"),
        *("panfs", "pvfs2", "smb3", "smbfs", "vboxsf", "virtiofs", "wekafs"),
        *("fuse.ceph", "fuse.cvmfs2", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs"),
    }
)
_SINGLY = 6
"""As many pieces as it takes to open a pack and to read a few records: who wants no more does not wait for the rest."""
_WHOLE_BYTES = 64 << 20
_HUGE_BYTES = 2 << 20
"""A large page of x86-64 and AArch64. To get memory in pages of 4 KiB takes several times as long as to read a file."""


OPEN_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
"""How a file is opened that others may have made: no link is followed, and no FIFO is waited for."""


class UntrustedFileError(Exception):
    """A file that is not a regular file, too large, or that others could have written."""


def read_trusted(path: str | Path, trust: Trust, max_bytes: int, head: bool = False) -> tuple[bytes, os.stat_result]:
    """Read a whole file of at most ``max_bytes``, or with ``head`` at most that much of it, without following a link.

    Raises:
        UntrustedFileError: it is a link, no regular file, too large, or others could have written it.
        OSError: it cannot be read.
    """
    fd, status = open_trusted(path, trust)
    try:
        if status.st_size > max_bytes and not head:
            raise UntrustedFileError(f"the file is {status.st_size} bytes long; the maximum is {max_bytes}")
        return _read(fd, min(status.st_size, max_bytes)), status
    except OSError as e:
        e.filename = path
        raise
    finally:
        os.close(fd)


def open_trusted(path: str | Path, trust: Trust) -> tuple[int, os.stat_result]:
    """Open a file for reading, without following a link.

    Raises:
        UntrustedFileError: it is a link, no regular file, or others could have written it.
        OSError: it cannot be opened.
    """
    try:
        fd = os.open(path, OPEN_FLAGS)
    except OSError as e:
        if e.errno in (errno.ELOOP, errno.ENXIO):  # a symbolic link; a socket
            raise UntrustedFileError("the path is a symbolic link or a socket") from e
        raise
    try:
        status = os.fstat(fd)
        objection = "is not a regular file" if not stat.S_ISREG(status.st_mode) else trust.objection(status)
        if objection:
            raise UntrustedFileError(f"it {objection}")
    except BaseException:
        os.close(fd)
        raise
    return fd, status


def _read(fd: int, size: int) -> bytes:
    data = os.read(fd, size)
    if len(data) == size:
        return data
    pieces = [data]
    while data and (rest := size - sum(map(len, pieces))):
        data = os.read(fd, rest)
        pieces.append(data)
    return b"".join(pieces)


class OpenFile:
    """A file that stays open. Pieces are read individually at first, and later the whole file if it has up to 64 MiB.

    The file isn't mapped, because the system ends a process (SIGBUS) that reads a truncated or unreadable page of a
    mapping. Data that was read stays valid.
    """

    def __init__(self, fd: int, status: os.stat_result) -> None:
        """Take ownership of a descriptor, and close it when this object is freed."""
        self._fd = fd
        self._size = status.st_size
        self._singly = _SINGLY if self._size <= _WHOLE_BYTES else math.inf
        self._whole: memoryview | None = None
        weakref.finalize(self, _close, fd, (status.st_dev, status.st_ino))

    def read(self, at: int, size: int) -> memoryview:
        """Read up to this many bytes from the offset ``at``.

        Raises:
            OSError: the bytes can't be read, there is not enough memory, or the descriptor was closed elsewhere.
        """
        if self._whole is None:
            self._singly -= 1
            if self._singly >= 0:
                return _piece(self._fd, at, size)
            self._whole = _piece(self._fd, 0, self._size)
        return self._whole[at : at + size]


def _close(fd: int, identity: tuple[int, int]) -> None:
    """Close a descriptor, unless others did, and another file has its number now."""
    with contextlib.suppress(OSError):
        status = os.fstat(fd)
        if (status.st_dev, status.st_ino) == identity:
            os.close(fd)


def _piece(fd: int, at: int, size: int) -> memoryview:
    if size < _HUGE_BYTES:
        return memoryview(os.pread(fd, size, at))
    # What is no multiple of it Linux (6.18) begins anywhere: 11 MB take 640 faults then, and not 6, and twice the time.
    whole = -(-size // _HUGE_BYTES) * _HUGE_BYTES
    memory = mmap.mmap(-1, whole, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(
        OSError, AttributeError
    ):  # a system without: 4 KiB at a time take longer than to read them
        memory.madvise(mmap.MADV_HUGEPAGE)
    view, got = memoryview(memory)[:size], 0
    while got < size and (more := os.preadv(fd, [view[got:]], at + got)):
        got += more
    return view[:got].toreadonly()


def open_permanent(path: Path, trust: Trust) -> int:
    """Open a small file that is never deleted, such as a lock, for reading and writing; make it if need be.

    Raises:
        OSError: it cannot be opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # in place: locks are taken in it
    fd = os.open(path, flags, trust.file_mode)
    if trust.gid is not None:
        with contextlib.suppress(OSError):  # another member made it, with the right mode
            os.fchmod(fd, trust.file_mode)  # whatever the umask is
    return fd


def try_lock(fd: int, offset: int) -> bool:
    """Lock one byte of a file for this open file description, and return False if another description has locked it.

    The kernel releases the lock when the description is closed, even if the process dies. Source: fcntl(2), "Open file
    description locks".

    Raises:
        OSError: this file system has no locks.
    """
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0))
    except OSError as e:
        if e.errno in (errno.EAGAIN, errno.EACCES):
            return False
        raise
    return True


def unlock(fd: int, offset: int) -> None:
    """Release the lock on the byte, even if a forked child still has the file description open.

    Raises:
        OSError: this file system has no locks.
    """
    fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _LOCK.pack(fcntl.F_UNLCK, os.SEEK_SET, offset, 1, 0))


@contextlib.contextmanager
def byte_lock(path: Path, trust: Trust, offset: int, wait_s: float) -> Iterator[int | None]:
    """Lock one byte of a permanent file, waiting at most ``wait_s``, and yield its descriptor, or None if it stays
    locked.

    Raises:
        OSError: the file can't be opened, or its file system has no locks.
    """
    fd = open_permanent(path, trust)
    try:
        end = time.monotonic() + wait_s
        while not (taken := try_lock(fd, offset)) and time.monotonic() < end:
            time.sleep(0.0005)
        yield fd if taken else None
    finally:
        os.close(fd)


def is_remote(path: Path | str) -> bool:
    """Return whether other machines share the file system that ``path`` is on. False if that cannot be determined.

    Raises:
        OSError: ``path`` or the list of mounts cannot be read.
    """
    return _is_remote(str(path), os.stat(path).st_dev)


@functools.lru_cache(maxsize=64)
def _is_remote(_path: str, device: int) -> bool:
    """Return whether a directory is on a remote file system. The mount list is read once per process
    and file system.
    """
    wanted = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", errors="replace") as file:
            lines = file.read().splitlines()
    except FileNotFoundError:  # a container may have no /proc
        return False
    for line in lines:
        fields = line.split(" ")  # Source: proc_pid_mountinfo(5): the third is the device, the type is after " - "
        if len(fields) > 2 and fields[2] == wanted:
            return fields[fields.index("-") + 1] in _REMOTE if "-" in fields else False
    return False
