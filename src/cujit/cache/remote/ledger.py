"""The ledger of a root, which records the signer of each entry from a shared cache, so that entries can be revoked."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Sequence
from pathlib import Path

from cujit.cache.filesystem import UntrustedFileError, read_trusted
from cujit.cache.hints import Hints
from cujit.cache.key import is_digest
from cujit.cache.remote.signing import KeyFile
from cujit.cache.store import Root, Store
from cujit.errors import CacheRefusedError, FormatError

_MOST_BYTES = 1 << 28
_DIRECTORY = "signers"


class Ledger:
    """Files ``signers/<key id>`` of a root, with a line for each entry that this key signed."""

    def __init__(self, store: Store, trust: Path | str, hints: Hints | None) -> None:
        """Set the root, the file of trusted keys, and the place of the note about the last check."""
        self._store = store
        self._keys = KeyFile(trust)
        self._hints = hints
        self._directory = store.root / _DIRECTORY

    def note(self, signer: str, digest: str) -> None:
        """Record the signer of an entry before it is stored.

        Raises:
            OSError: the signer can't be recorded, so the entry must not be stored.
        """
        with contextlib.suppress(FileExistsError):
            os.mkdir(self._directory, self._store.trust.directory_mode)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC  # in place: by whole lines
        fd = os.open(self._directory / signer, flags, self._store.trust.file_mode)
        try:
            line = f"\n{digest}\n".encode()  # on a line of its own also where another process was cut off
            if os.write(fd, line) < len(line):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        finally:
            os.close(fd)

    def settle(self) -> int:
        """Delete the entries of keys that are no longer trusted, and return the number of entries.

        If neither the key file nor the list of signers has changed, nothing else is read.

        Raises:
            CacheRefusedError: the keys can't be read, or other users could have written to the ledger.
            OSError: an entry can't be deleted.
        """
        if not self._store.is_there() or not os.path.lexists(self._directory):
            return 0
        name = f"signers-{hashlib.sha256(os.fsencode(os.path.abspath(self._keys.path))).hexdigest()[:32]}"
        if self._hints is not None and self._hints.get(name) == self._stamp():
            return 0
        try:
            keys = self._keys.read()
        except FormatError as e:
            raise CacheRefusedError(e.message, help=e.help) from e
        gone = sum(self._evict(one) for one in _signers(self._store) if not keys.believes(one))
        if self._hints is not None:
            self._hints.put(name, self._stamp())
        return gone

    def _stamp(self) -> bytes:
        return b"%s %d" % (self._keys.stamp(), os.stat(self._directory).st_mtime_ns)

    def _evict(self, signer: str) -> int:
        gone = sum(self._store.delete(digest) for digest in _by(self._store, signer))
        os.unlink(self._directory / signer)
        return gone


def brought(roots: Sequence[Root]) -> set[str]:
    """Return the keys of all entries that came from a shared cache.

    Raises:
        CacheRefusedError: other users could have written to the ledger.
        OSError: the ledger can't be read.
    """
    found: set[str] = set()
    for store in roots:
        if isinstance(store, Store):
            with contextlib.suppress(FileNotFoundError):
                found.update(*(_by(store, signer) for signer in _signers(store)))
    return found


def forget(store: Store) -> None:
    """Delete the ledger of a root that has no entries any more.

    Raises:
        OSError: it cannot be deleted.
    """
    with contextlib.suppress(FileNotFoundError):
        for signer in _signers(store):
            os.unlink(store.root / _DIRECTORY / signer)


def _signers(store: Store) -> list[str]:
    return [name for name in os.listdir(store.root / _DIRECTORY) if is_digest(name)]


def _by(store: Store, signer: str) -> set[str]:
    """Return the keys of the entries that a signer has provided. A truncated line does not count."""
    path = store.root / _DIRECTORY / signer
    try:
        data = read_trusted(path, store.trust, _MOST_BYTES, head=True)[0]
    except UntrustedFileError as e:
        raise CacheRefusedError(f"can't use {path}: {e}", help="run cujit cache clear, and delete the file") from e
    return set(filter(is_digest, data.decode("ascii", "replace").split("\n")))
