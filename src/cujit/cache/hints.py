"""Hints: facts about the files of this machine that a process stores for later processes. They are never required."""

from __future__ import annotations

import contextlib
import os
import stat

from cujit.artifact.writing import is_stale, is_temporary, temporary_name
from cujit.cache.filesystem import UntrustedFileError, read_trusted
from cujit.cache.store import Store
from cujit.errors import CacheRefusedError
from cujit.values.hashing import sha256

_LONGEST_NAME = 121
_LARGEST_BYTES = 4 << 20
_MOST = 256
_ALL_BYTES = 32 << 20
_NO_USE = (OSError, CacheRefusedError, UntrustedFileError, ValueError)


class Hints:
    """Bytes by name, in ``hints/`` of a writable root. For a root on another machine, the user's runtime directory
    holds them.

    No method raises an exception: a hint that can't be read or written doesn't exist. At most 256 hints with 32 MiB in
    total are kept. The least recently written hints are deleted first.
    """

    def __init__(self, store: Store, runtime_dir: str | None) -> None:
        self._store = store
        self._runtime_dir = runtime_dir

    def get(self, name: str) -> bytes | None:
        """Return the bytes stored under a name of letters, digits, and hyphens, or None."""
        if not _is_name(name):
            return None
        try:
            if not self._store.is_there():
                return None
            directory = self._directory()
            if directory is None or self._store.trust.objection(os.lstat(directory)):
                return None
            return read_trusted(f"{directory}/{name}", self._store.trust, _LARGEST_BYTES)[0]
        except _NO_USE:
            return None

    def has(self, name: str) -> bool:
        """Return whether there is a file under a name, without reading it."""
        try:
            directory = self._directory() if _is_name(name) and self._store.is_there() else None
            return directory is not None and os.path.lexists(f"{directory}/{name}")
        except _NO_USE:
            return False

    def put(self, name: str, data: bytes) -> None:
        """Keep bytes under a name, whole or not at all."""
        if not _is_name(name) or len(data) > _LARGEST_BYTES:
            return
        with contextlib.suppress(*_NO_USE):
            if not self._store.prepare():
                return
            directory = self._directory()
            if directory is None:
                return
            with contextlib.suppress(FileExistsError):
                os.mkdir(directory, self._store.trust.directory_mode)
            if self._store.trust.objection(os.lstat(directory)):
                return
            self._write(directory, name, data)
            _tidy(directory, _MOST, _ALL_BYTES)

    def clear(self) -> None:
        """Delete every hint."""
        with contextlib.suppress(*_NO_USE):
            directory = self._directory() if self._store.is_there() else None
            if directory is not None:
                _tidy(directory, 0, 0)

    def _directory(self) -> str | None:
        """Return the directory of the hints, which may not exist yet, or None if there is no directory on this machine.

        Raises:
            OSError: there is no root.
        """
        store = self._store
        if not store.is_remote:
            return f"{store.place}/hints"
        if self._runtime_dir is None:
            return None
        store.trust.check_root(self._runtime_dir)
        name = sha256(os.fsencode(os.path.realpath(store.place))).hexdigest()[:16]
        return f"{self._runtime_dir}/cujit-hints-{name}"

    def _write(self, directory: str, name: str, data: bytes) -> None:
        temporary = f"{directory}/{temporary_name()}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC  # in place: without fsync
        fd = os.open(temporary, flags, 0o600)
        try:
            with open(fd, "wb") as file:  # in place: as above
                file.write(data)
            os.chmod(temporary, self._store.trust.file_mode)
            os.replace(temporary, f"{directory}/{name}")  # in place: as above
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise


def _tidy(directory: str, most: int, all_bytes: int) -> None:
    """Delete the oldest hints above the limits, and the temporary files of dead processes. Other files remain."""
    found = []
    with os.scandir(directory) as files:
        for file in files:
            with contextlib.suppress(FileNotFoundError):
                status = file.stat(follow_symlinks=False)
                if stat.S_ISREG(status.st_mode) and (_is_name(file.name) or is_temporary(file.name)):
                    found.append((status.st_mtime, status.st_size, file.name))
    newest, used = max((mtime for mtime, _, _ in found), default=0.0), 0
    for count, (mtime, size, name) in enumerate(sorted(found, reverse=True)):
        used += size
        if count >= most or used > all_bytes or is_stale(name, newest - mtime):
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{directory}/{name}")


def _is_name(name: str) -> bool:
    is_word = name.isascii() and name.replace("-", "0").isalnum()
    return is_word and name[0].isalpha() and len(name) <= _LONGEST_NAME
