"""Locks that let one process of a node compile each key: one byte per key in one permanent file.

The lock only saves work. A process that can't get the lock, or waits too long for it, works without it.
"""

from __future__ import annotations

import contextlib
import enum
import os
import threading
import time
from collections.abc import Callable, Iterator

from cujit.cache.filesystem import open_permanent, try_lock, unlock
from cujit.cache.store import Store
from cujit.cache.trust import Trust
from cujit.errors import CacheRefusedError
from cujit.values import dataclass, later
from cujit.values.hashing import sha256
from cujit.values.typed import TYPE_CHECKING

if TYPE_CHECKING:
    import pathlib
    from pathlib import Path
else:
    pathlib = later("pathlib")  # start-up: a hit works with text

_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.0005, 0.02


class Hold(enum.Enum):
    """How a piece of work started."""

    FIRST = "first"
    """Nobody else was at it."""
    WAITED = "waited"
    """Somebody else was at it, and is done or dead: look again before working."""
    WITHOUT = "without"
    """There is no lock here, or its holder took too long."""


@dataclass(eq=False)
class _Descriptor:
    """An open lock file; ``fd`` is -1 once it is closed, and in a forked child."""

    fd: int


class KeyLocks:
    """Locks by key. Any number of threads and processes may use them. Call ``after_fork`` in a forked child."""

    def __init__(self, path: Callable[[], Path], trust: Trust) -> None:
        """Lock bytes of the file that ``path()`` returns when the first lock is requested."""
        self._path = path
        self._trust = trust
        self._open: set[_Descriptor] = set()
        self._guard = threading.Lock()

    @contextlib.contextmanager
    def hold(
        self, digest: str, timeout_s: float, ready: Callable[[], bool], failed: Callable[[OSError], None]
    ) -> Iterator[Hold]:
        """Hold the lock for the key ``digest`` (hex) during the body, or continue without it.

        While another process holds the lock, call ``ready()`` repeatedly, and stop waiting when it returns True.
        ``failed`` contains the reason if the system has no locks or no file for them.
        """
        offset = int(digest[:14], 16)
        try:
            descriptor = self._opened()
        except OSError as e:
            failed(e)
            descriptor = _Descriptor(-1)
        try:
            yield self._wait(descriptor, offset, timeout_s, ready, failed)
        finally:
            self._close(descriptor, offset)

    def _opened(self) -> _Descriptor:
        descriptor = _Descriptor(open_permanent(self._path(), self._trust))
        with self._guard:
            self._open.add(descriptor)
        return descriptor

    @staticmethod
    def _wait(
        held: _Descriptor, offset: int, timeout_s: float, ready: Callable[[], bool], failed: Callable[[OSError], None]
    ) -> Hold:
        end, pause, waited = time.monotonic() + timeout_s, _FIRST_PAUSE_S, False
        try:
            while held.fd >= 0:
                if try_lock(held.fd, offset):
                    return Hold.WAITED if waited else Hold.FIRST
                if time.monotonic() >= end:
                    break
                time.sleep(pause)
                waited, pause = True, min(2 * pause, _LONGEST_PAUSE_S)
                if ready():
                    return Hold.WAITED
        except OSError as e:
            failed(e)
        return Hold.WITHOUT

    def _close(self, held: _Descriptor, offset: int) -> None:
        with self._guard:
            self._open.discard(held)
            fd, held.fd = held.fd, -1
        if fd < 0:
            return
        with contextlib.suppress(OSError):
            unlock(fd, offset)  # a child that was forked in between may have the description open still
        with contextlib.suppress(OSError):
            os.close(fd)

    def after_fork(self) -> None:
        """Drop the parent's locks in a forked child. The child closes their descriptors and never unlocks them."""
        self._guard = threading.Lock()
        for descriptor in self._open:
            fd, descriptor.fd = descriptor.fd, -1
            with contextlib.suppress(OSError):
                os.close(fd)
        self._open = set()


def lock_file(store: Store, runtime_dir: Path | str | None) -> Path:
    """Return the path of the lock file of a cache: in its root, or on this machine if other machines share the root.

    On this machine, the file is in ``runtime_dir`` ($XDG_RUNTIME_DIR) if this user owns it, otherwise in a private
    directory below the directory for temporary files. All processes that use the same root choose the same file.

    Raises:
        OSError: there is no place for it.
    """
    if not store.is_remote:
        return store.root / "lock"
    name = f"cujit-lock-{sha256(os.fsencode(os.path.realpath(store.root))).hexdigest()[:16]}"
    if runtime_dir is not None and _is_private(pathlib.Path(runtime_dir), store.trust):
        return pathlib.Path(runtime_dir, name)
    import tempfile  # it takes long, and only a remote root needs it

    private = pathlib.Path(tempfile.gettempdir()) / f"cujit-{store.trust.uid}"
    with contextlib.suppress(FileExistsError):
        os.mkdir(private, 0o700)
    if not _is_private(private, store.trust):
        raise PermissionError(f"other users can write to {private}")
    return private / name


def _is_private(directory: Path, trust: Trust) -> bool:
    own = Trust(trust.uid, frozenset((trust.uid,)))
    try:
        status = os.lstat(directory)
        Trust.of_process().check_root(directory)
    except (OSError, CacheRefusedError):
        return False
    return not own.objection(status)
