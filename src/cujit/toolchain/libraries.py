"""What the libraries share: bindings found or missed in one sentence, and handles owned in one place."""

from __future__ import annotations

import importlib
import threading
import weakref
from collections.abc import Callable
from types import TracebackType
from typing import Any

from cujit.errors import ClosedError, ToolchainNotFoundError

__all__ = ["Handle", "Ledger", "load_binding", "missing_library", "open_library"]


def load_binding(name: str, library: str) -> Any:
    """Import ``cuda.bindings.<name>``, the door to NVIDIA's ``library``; opens no library yet.

    Raises:
        ToolchainNotFoundError: cuda-bindings is not installed, or has no such module.
    """
    try:
        return importlib.import_module(f"cuda.bindings.{name}")
    except ImportError as e:
        raise missing_library(library, e) from e


def missing_library(library: str, reason: BaseException) -> ToolchainNotFoundError:
    """Say that ``library`` is not installed, or is there and does not open, and which extra brings it."""
    first_line = str(reason).strip().split("\n", 1)[0]
    return ToolchainNotFoundError(
        f"{library} is not installed, or does not open: {first_line}",
        help="pip install cujit[cu13] brings compiler, linker and headers (cujit[cu12] for CUDA 12.9)",
    )


def open_library(library: str, first_call: Callable[[], Any]) -> Any:
    """Make the first call into a library, which is where cuda.bindings opens it.

    Raises:
        ToolchainNotFoundError: the library is not there, does not open, or lacks the function.
    """
    try:
        return first_call()
    except (RuntimeError, OSError) as e:
        # cuda.bindings says DynamicLibNotFoundError or FunctionNotFoundError, both RuntimeErrors.
        raise missing_library(library, e) from e


class Ledger:
    """Counts the handles of one library that are open now. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live = 0

    @property
    def live(self) -> int:
        """How many handles are open."""
        return self._live

    def opened(self) -> None:
        """Count one handle more."""
        with self._lock:
            self._live += 1

    def closed(self) -> None:
        """Count one handle less."""
        with self._lock:
            self._live -= 1


class Handle:
    """One handle of a C library: released once, by ``close``, by ``with``, or when nothing refers to it."""

    def __init__(self, what: str, raw: Any, destroy: Callable[[Any], object], ledger: Ledger) -> None:
        self._what = what
        self._raw = raw
        ledger.opened()
        self._release = weakref.finalize(self, _release, raw, destroy, ledger)
        self._release.atexit = False  # the process takes its memory back; libraries may be gone by then

    @property
    def raw(self) -> Any:
        """The handle as cuda.bindings takes it.

        Raises:
            ClosedError: it was released.
        """
        if not self._release.alive:
            raise ClosedError(f"this {self._what} is closed")
        return self._raw

    @property
    def closed(self) -> bool:
        """Whether it was released."""
        return not self._release.alive

    def close(self) -> None:
        """Release the handle; again is harmless."""
        self._release()

    def __enter__(self) -> Handle:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _release(raw: Any, destroy: Callable[[Any], object], ledger: Ledger) -> None:
    try:
        destroy(raw)
    finally:
        ledger.closed()
