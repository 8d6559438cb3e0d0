"""One word that native code reads before a launch: whether the module is still loaded, and in this process."""

from __future__ import annotations

import ctypes

from cujit.devices.launcher.cpython import BYTES
from cujit.forks import on_fork_child

PROCESS = ctypes.c_uint64(1)
"""The number of this process: a forked child counts on. Native code runs modules whose word is this number."""

_CLOSED = 0


def _count() -> None:
    PROCESS.value += 1


on_fork_child(_count)


class LivenessFlag:
    """A flag that is set while a loaded module may be used. Native code reads it as a ``uint64`` at ``address``.

    In a forked process the flag is cleared, because a GPU context doesn't survive a fork. The CPU device has no threads
    in a forked process either. The word is in an unshared bytes object, which native code can create quickly.
    """

    __slots__ = ("word",)

    def __init__(self, word: bytes | None = None) -> None:
        self.word = bytes(PROCESS) if word is None else word

    @property
    def address(self) -> int:
        """Where the word is, as long as the flag, or its word, lives."""
        return id(self.word) + BYTES

    def close(self) -> None:
        """The module is unloaded."""
        ctypes.c_uint64.from_address(self.address).value = _CLOSED
