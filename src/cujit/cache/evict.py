"""Eviction: a shared counter of the cache's bytes, and deletion of the least recently used entries by one process at a
time.
"""

from __future__ import annotations

import os
import struct
import time

from cujit.cache.filesystem import UntrustedFileError, byte_lock, read_trusted
from cujit.cache.store import Store
from cujit.values import NamedTuple
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_COUNTER = struct.Struct("<qq")  # bytes in the cache, Unix time of the last count
_COUNTER_LOCK, _EVICTOR_LOCK = 0, 64
_COUNTER_WAIT_S = 1.0
_DAY_S = 86400
_LOW_WATER = 0.8
_ROUNDS = 8


class _Usage(NamedTuple):
    total_bytes: int
    counted_s: int


class Evictor:
    """Size limit of a store for all processes that write to it. The file ``usage`` of the root contains the counter.

    If a process dies between writing an entry and the counter, the counter is wrong until the next count. A count takes
    place at least once a day. On a file system that other machines share, only ``trim`` counts and deletes entries.
    """

    def __init__(self, store: Store, cap_bytes: int) -> None:
        """Keep ``store`` at ``cap_bytes``."""
        self._store = store
        self.cap_bytes = cap_bytes

    @property
    def _path(self) -> Path:
        return self._store.root / "usage"

    def has_room(self, size: int) -> bool:
        """Return whether to write an entry of ``size`` bytes.

        Don't write it if the store has twice its limit, because eviction is then too slow for the writers. Don't write
        it either if the next eviction would delete it immediately.

        Raises:
            OSError: the counter can't be read.
        """
        if size > _LOW_WATER * self.cap_bytes:
            return False
        if self.used_bytes() + size <= 2 * self.cap_bytes or self._store.is_remote:
            return True
        self._evict(int(_LOW_WATER * self.cap_bytes))
        return self.used_bytes() + size <= 2 * self.cap_bytes

    def added(self, size: int) -> None:
        """Count an entry of ``size`` bytes, and evict if that is too much.

        Raises:
            OSError: the counter cannot be written, or an entry not be deleted.
        """
        if self._store.is_remote:
            return
        with byte_lock(self._path, self._store.trust, _COUNTER_LOCK, _COUNTER_WAIT_S) as fd:
            counted = fd is not None
            if fd is not None:
                usage = _read(fd)
                usage = _Usage(usage.total_bytes + size, usage.counted_s)
                _write(fd, usage)
        if not counted or usage.total_bytes > self.cap_bytes or abs(time.time() - usage.counted_s) > _DAY_S:
            self._evict(int(_LOW_WATER * self.cap_bytes))

    def used_bytes(self) -> int:
        """Read the counter, which is exact only after a count.

        Raises:
            OSError: the counter cannot be read.
        """
        try:
            return _parse(read_trusted(self._path, self._store.trust, _COUNTER.size, head=True)[0]).total_bytes
        except (FileNotFoundError, UntrustedFileError):
            return 0

    def trim(self, to_bytes: int) -> int:
        """Delete the least recently used entries until ``to_bytes`` are left, and return the number of deleted bytes.

        Raises:
            CacheRefusedError: other users could have written to the root.
            OSError: an entry can't be deleted.
        """
        if not self._store.is_there():
            return 0
        with byte_lock(self._path, self._store.trust, _EVICTOR_LOCK, _COUNTER_WAIT_S):
            return self._sweep(to_bytes, to_bytes)

    def _evict(self, low_bytes: int) -> None:
        """Evict, unless another process is evicting. Check again after releasing the lock, so that no
        excess is missed.
        """
        for _ in range(_ROUNDS):
            with byte_lock(self._path, self._store.trust, _EVICTOR_LOCK, 0) as fd:
                if fd is None:
                    return
                self._sweep(self.cap_bytes, low_bytes)
            if self.used_bytes() <= self.cap_bytes:
                return

    def _sweep(self, cap_bytes: int, low_bytes: int) -> int:
        """Count all entries, delete entries down to ``low_bytes`` if there are more than ``cap_bytes``, and set the
        counter.

        Bytes that other processes added to the counter in the meantime are added again. They may count twice, but are
        never missed.
        """
        before = self.used_bytes()
        self._store.remove_stale()
        entries = sorted(self._store.entries(), key=lambda entry: entry.used_s)
        total = sum(entry.size_bytes for entry in entries)
        freed = 0
        if total > cap_bytes:
            for entry in entries:
                if total - freed <= low_bytes:
                    break
                self._store.delete(entry.digest)
                freed += entry.size_bytes
        with byte_lock(self._path, self._store.trust, _COUNTER_LOCK, _COUNTER_WAIT_S) as fd:
            if fd is not None:
                meanwhile = max(0, _read(fd).total_bytes - before)
                _write(fd, _Usage(total - freed + meanwhile, int(time.time())))
        return freed


def _read(fd: int) -> _Usage:
    return _parse(os.pread(fd, _COUNTER.size, 0))


def _parse(data: bytes) -> _Usage:
    if len(data) != _COUNTER.size:
        return _Usage(0, 0)
    total, counted = _COUNTER.unpack(data)
    return _Usage(max(0, total), counted)


def _write(fd: int, usage: _Usage) -> None:
    os.pwrite(fd, _COUNTER.pack(min(usage.total_bytes, 2**62), usage.counted_s), 0)
