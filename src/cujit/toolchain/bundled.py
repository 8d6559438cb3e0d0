"""The headers inside NVRTC 13.5, installed once for each user and build of NVRTC.

NVRTC can also remove or overwrite such headers. Both operations delete all files in the directory (``nvrtc.h``, 13.5),
so cujit never calls them. NVRTC writes to a new directory, which cujit renames when it is complete.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator

from cujit.toolchain.headers import BUNDLE, BUNDLES
from cujit.toolchain.nvrtc import nvrtcError, nvrtcInstallBundledHeaders

_NEW = ".new-"
_MOST_WAIT_S = 60.0
_MARKER = ".nvrtc_headers_version"
_NAME = re.compile(r"\d+\.\d+-[0-9a-f]{16}")


def install_bundle(directory: str) -> str:
    """Install the headers into a directory unless another process did. Return an empty string or the reason for a
    failure.
    """
    parent = os.path.dirname(directory)
    try:
        os.makedirs(parent, 0o700, exist_ok=True)
        status = os.stat(parent)
        if status.st_uid != os.geteuid() or status.st_mode & 0o022:
            return f"{parent}: others can write to it ({BUNDLE})"
        with _alone(parent) as is_alone:
            if os.path.exists(f"{directory}/{_MARKER}"):
                return ""
            if is_alone:
                _sweep(parent)
            return _install(parent, directory)
    except (OSError, nvrtcError) as e:
        return f"{directory}: {e} ({BUNDLE})"


def _install(parent: str, directory: str) -> str:
    new = tempfile.mkdtemp(prefix=_NEW, dir=parent)  # in place: NVRTC writes them
    try:
        result, log = nvrtcInstallBundledHeaders(new, 0)
        if result:
            return f"{directory}: {(log or b'').decode(errors='replace') or result.name} ({BUNDLE})"
        if os.path.exists(f"{directory}/{_MARKER}"):  # from a process that did not wait for this one
            return ""
        with contextlib.suppress(FileNotFoundError):  # what is there has no marker: somebody has damaged it
            os.rename(directory, f"{new}/damaged")  # in place: set aside
        os.rename(new, directory)  # in place: it is complete
        shutil.rmtree(f"{directory}/damaged", ignore_errors=True)
        return ""
    finally:
        shutil.rmtree(new, ignore_errors=True)


def bundle_bytes(cache_directory: str) -> int:
    """Return how many bytes the headers have that were installed in a cache directory.

    Raises:
        OSError: the directory cannot be read.
    """
    return sum(_size(path) for path in _installed(cache_directory))


def remove_bundles(cache_directory: str) -> int:
    """Remove the installed headers from a cache directory, and return their size in bytes.

    A concurrent compile may miss a header. The next compile installs the headers again.

    Raises:
        OSError: the directory can't be read, a file can't be removed, or another process installs headers for a minute.
    """
    freed = 0
    if not _installed(cache_directory):
        return freed
    parent = f"{cache_directory}/{BUNDLES}"
    with _alone(parent) as is_alone:
        if not is_alone:
            raise TimeoutError(f"another process is installing headers into {parent}")
        _sweep(parent)
        for path in _installed(cache_directory):
            freed += _size(path)
            new = tempfile.mkdtemp(prefix=_NEW, dir=parent)  # in place: it leaves at once, for whoever looks for it
            os.rename(path, f"{new}/removed")  # in place: set aside
            shutil.rmtree(new)
    return freed


def _installed(cache_directory: str) -> list[str]:
    """List the directories of headers that the user of this process has installed."""
    parent = f"{cache_directory}/{BUNDLES}"
    try:
        if os.lstat(parent).st_uid != os.geteuid():
            return []
        return sorted(f"{parent}/{name}" for name in os.listdir(parent) if _NAME.fullmatch(name))
    except (FileNotFoundError, NotADirectoryError):
        return []


def _size(directory: str) -> int:
    return sum(os.lstat(f"{folder}/{name}").st_size for folder, _, names in os.walk(directory) for name in names)


def _sweep(parent: str) -> None:
    """Remove the files of killed processes. While this process holds the lock, no other process writes to the
    directory.
    """
    for name in os.listdir(parent):
        if name.startswith(_NEW):
            shutil.rmtree(f"{parent}/{name}", ignore_errors=True)


@contextlib.contextmanager
def _alone(parent: str) -> Iterator[bool]:
    """Hold the lock of a directory, or continue without it after a minute, and yield which. The lock is released at
    exit.
    """
    fd = os.open(f"{parent}/lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)  # in place: a lock
    try:
        yield _is_taken(fd)
    finally:
        os.close(fd)


def _is_taken(fd: int) -> bool:
    end = time.monotonic() + _MOST_WAIT_S
    with contextlib.suppress(OSError):  # a file system without locks
        while time.monotonic() < end:
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            time.sleep(0.02)
    return False
