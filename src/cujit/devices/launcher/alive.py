"""One word that native code reads before a launch: whether the module is still loaded, and in this process."""

from __future__ import annotations

import ctypes

from cujit.forks import Lock, in_child, once

ALIVE = 1
"""The word of a module that native code may run. Any other value sends the call to the route written in Python,
which finds out what is the matter."""

_CLOSED = 0
_FORKED = 2
_WORDS = 512


class Alive:
    """Whether a loaded module may be run; ``address`` is where native code reads it, an ``int32``.

    In a forked process it says no: a GPU's context does not survive a fork, and the CPU device has no threads there.
    """

    __slots__ = ("_free", "_index", "_slab", "address")

    def __init__(self) -> None:
        slabs = _slabs()
        self._free, (self._slab, self._index) = slabs.free, slabs.take()
        self.address = ctypes.addressof(self._slab) + 4 * self._index
        """Where the word is."""

    def close(self) -> None:
        """The module is unloaded."""
        self._slab[self._index] = _CLOSED

    def __del__(self) -> None:
        self.close()
        self._free.append((self._slab, self._index))


class _Slabs:
    """The words of all modules of the process, which a forked child finds together."""

    def __init__(self) -> None:
        self.all: list[ctypes.Array[ctypes.c_int32]] = []
        self.free: list[tuple[ctypes.Array[ctypes.c_int32], int]] = []
        self._lock = Lock()
        in_child(self._after_fork)

    def take(self) -> tuple[ctypes.Array[ctypes.c_int32], int]:
        """Take a word that nobody has, and say in it that its module may be run."""
        with self._lock:
            if not self.free:
                slab = (ctypes.c_int32 * _WORDS)()
                self.all.append(slab)
                self.free.extend((slab, index) for index in range(_WORDS))
            slab, index = self.free.pop()
        slab[index] = ALIVE
        return slab, index

    def _after_fork(self) -> None:
        """Say in every word of a module that this process is a copy of the one that loaded it."""
        for slab in self.all:
            for index, word in enumerate(slab):
                if word == ALIVE:
                    slab[index] = _FORKED


@once
def _slabs() -> _Slabs:
    return _Slabs()
