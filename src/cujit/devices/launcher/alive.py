"""One word that machine code reads before a launch: whether the module is still loaded, and in this process."""

from __future__ import annotations

import ctypes

from cujit.forks import begins_anew

ALIVE = 1
"""The word of a module that machine code may run. Any other value sends the call to the route written in Python,
which finds out what is the matter."""

_CLOSED = 0
_FORKED = 2


class Alive:
    """Whether a loaded module may be run; ``address`` is where machine code reads it, an ``int32``.

    In a forked process it says no: a GPU's context does not survive a fork, and the CPU device has no threads there.
    """

    def __init__(self) -> None:
        self._word = ctypes.c_int32(ALIVE)
        begins_anew(self)

    @property
    def address(self) -> int:
        """Where the word is."""
        return ctypes.addressof(self._word)

    def close(self) -> None:
        """The module is unloaded."""
        self._word.value = _CLOSED

    def after_fork(self) -> None:
        """This process is a copy of the one that loaded the module."""
        if self._word.value == ALIVE:
            self._word.value = _FORKED
