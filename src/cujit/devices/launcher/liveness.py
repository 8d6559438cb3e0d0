"""One word that native code reads before a launch: whether the module is still loaded, and in this process."""

from __future__ import annotations

import ctypes

from cujit.forks import Lock, on_fork_child, once

ALIVE = 1
"""The word of a module that native code may run. Any other value sends the call to the route written in Python,
which finds out what is the matter."""

_CLOSED = 0
_FORKED = 2
_WORDS = 512


class LivenessFlag:
    """Whether a loaded module may be run; ``address`` is where native code reads it, an ``int32``.

    In a forked process it says no: a GPU's context does not survive a fork, and the CPU device has no threads there.
    """

    __slots__ = ("_free", "_place", "_slab", "address")

    def __init__(self) -> None:
        slabs = _slabs()
        self._free, self._place = slabs.free, slabs.take()
        self._slab, index, self.address = self._place
        self._slab[index] = ALIVE

    def close(self, word: int = _CLOSED) -> None:  # kept here: globals are None when Python ends
        """The module is unloaded."""
        self._slab[self._place[1]] = word

    def __del__(self) -> None:
        self.close()
        self._free.append(self._place)


class _Slabs:
    """The words of all modules of the process, which a forked child finds together."""

    def __init__(self) -> None:
        self.all: list[ctypes.Array[ctypes.c_int32]] = []
        self.free: list[tuple[ctypes.Array[ctypes.c_int32], int, int]] = []
        """The words that nobody has: the slab, the number in it, the address."""
        self._lock = Lock()
        on_fork_child(self._after_fork)

    def take(self) -> tuple[ctypes.Array[ctypes.c_int32], int, int]:
        """Take a word that nobody has."""
        try:
            return self.free.pop()
        except IndexError:  # none is left
            slab = (ctypes.c_int32 * _WORDS)()
            begin = ctypes.addressof(slab)
            with self._lock:
                self.all.append(slab)
            self.free.extend((slab, index, begin + 4 * index) for index in range(_WORDS))
        return self.take()

    def _after_fork(self) -> None:
        """Mark every word of a module: this process is a copy of the process that loaded it."""
        for slab in self.all:
            for index, word in enumerate(slab):
                if word == ALIVE:
                    slab[index] = _FORKED


@once
def _slabs() -> _Slabs:
    return _Slabs()
