"""Handles of C libraries: every open one is in its library's ledger, and is released once."""

from __future__ import annotations

import threading
import weakref
from typing import Any, ClassVar, TypeVar

from cujit.errors import ClosedError
from cujit.forks import Lock

H = TypeVar("H", bound="LibraryHandle")


class HandleNumber(int):
    """An open handle: ``what`` describes it, and ``raw`` is its value for the bindings.

    It differs from a later handle at the same address. ``lock`` is held during a call, so that no other thread destroys
    a handle in use. ``kept`` are objects that the library may refer to.
    """

    what: str
    raw: Any
    lock: threading.RLock
    kept: list[object]

    @classmethod
    def of(cls, what: str, raw: Any) -> HandleNumber:
        """Wrap a handle that a library has just made."""
        number = cls(int(raw))
        number.what, number.raw, number.lock, number.kept = what, raw, threading.RLock(), []
        return number


class HandleLedger:
    """The handles of one library that are open now, by number. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._open: dict[int, HandleNumber] = {}

    @property
    def live(self) -> int:
        """How many handles are open."""
        return len(self._open)

    def opened(self, handle: HandleNumber) -> None:
        """Enter a handle."""
        with self._lock:
            self._open[int(handle)] = handle

    def closed(self, handle: HandleNumber) -> None:
        """Strike a handle out."""
        with self._lock:
            if self._open.get(int(handle)) is handle:
                del self._open[int(handle)]

    def find(self, number: int) -> HandleNumber | None:
        """Return the open handle with this number. A HandleNumber finds only itself."""
        found = self._open.get(int(number))
        return None if isinstance(number, HandleNumber) and found is not number else found


class LibraryHandle:
    """A handle of a C library, released once: by ``close``, by ``with``, or by its last reference."""

    destroy: ClassVar[staticmethod[[int], object]]
    """The documented call that releases it."""

    def __init__(self, raw: int) -> None:
        assert isinstance(raw, HandleNumber)
        self._raw = raw
        self._release = weakref.finalize(self, type(self).destroy, raw)
        self._release.atexit = False  # the process takes its memory back; libraries may be gone by then

    @property
    def raw(self) -> HandleNumber:
        """The handle for the documented calls.

        Raises:
            ClosedError: the handle was released.
        """
        if not self._release.alive:
            raise ClosedError(f"this {self._raw.what} is closed")
        return self._raw

    @property
    def closed(self) -> bool:
        """Whether it was released."""
        return not self._release.alive

    def close(self) -> None:
        """Release the handle; again is harmless."""
        self._release()

    def __enter__(self: H) -> H:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()
