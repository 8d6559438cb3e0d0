"""The process's limit of stack, kept through compiles that change it.

NVRTC raises the soft limit to the hard one while it compiles, and puts back what it found. It does not after a
compile that failed, and one that began while another ran finds, and leaves, the raised limit: then a process has no
limit of stack, nor have those that it starts, and an endless recursion takes the machine's memory before it ends.

Source: NVRTC user guide, ``--modify-stack-limit``; measured with NVRTC 13.5.
"""

from __future__ import annotations

import sys
import threading
from types import TracebackType

if sys.platform != "win32":
    import resource

__all__ = ["StackLimitKeeper"]


class StackLimitKeeper:
    """A context that any number of threads may be in; the last to leave puts back what the first found."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._found = (0, 0)

    def __enter__(self) -> None:
        if sys.platform == "win32":  # it has no such limits
            return
        with self._lock:
            if not self._inside:
                self._found = resource.getrlimit(resource.RLIMIT_STACK)
            self._inside += 1

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if sys.platform == "win32":
            return
        with self._lock:
            self._inside -= 1
            if not self._inside and resource.getrlimit(resource.RLIMIT_STACK) != self._found:
                resource.setrlimit(resource.RLIMIT_STACK, self._found)
