"""One maker per key among the threads of a process."""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from cujit.errors import ToolCrashError, ToolTimeoutError

__all__ = ["Flights", "fresh"]

T = TypeVar("T")


@dataclass(eq=False)
class _Flight(Generic[T]):
    """Work under way: who does it, and what came of it. ``done`` without either: its thread was interrupted."""

    thread: int = field(default_factory=threading.get_ident)
    done: threading.Event = field(default_factory=threading.Event)
    results: list[T] = field(default_factory=list)
    error: Exception | None = None


class Flights(Generic[T]):
    """The work under way in this process, by key."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._under_way: dict[str, _Flight[T]] = {}

    def run(self, digest: str, work: Callable[[], T], timeout_s: float) -> tuple[T, bool]:
        """Do the work, or wait for the thread that does it; also tells whether it was waited for.

        An exception of the work is raised in every thread that waited. One that only ends a thread
        (``KeyboardInterrupt``) stays there, and so does the end of its time or of its own process apart; another thread
        does the work then. After ``timeout_s``, and where the work
        of a key asks for the same key, it is done a second time.
        """
        while True:
            with self._guard:
                flight = self._under_way.get(digest)
                if flight is None:
                    flight = self._under_way[digest] = _Flight()
                    break
            if flight.thread == threading.get_ident() or not flight.done.wait(timeout_s):
                return work(), False
            if flight.error is not None:
                raise fresh(flight.error)
            if flight.results:
                return flight.results[0], True
        return self._lead(digest, flight, work), False

    def _lead(self, digest: str, flight: _Flight[T], work: Callable[[], T]) -> T:
        try:
            result = work()
            flight.results.append(result)
            return result
        except (ToolTimeoutError, ToolCrashError):
            raise
        except Exception as e:
            flight.error = e
            raise
        finally:
            with self._guard:
                if self._under_way.get(digest) is flight:
                    del self._under_way[digest]
            flight.done.set()

    def after_fork(self) -> None:
        """Forget, in a forked child, the work of threads that are not there."""
        self._guard = threading.Lock()
        self._under_way = {}


def fresh(error: Exception) -> Exception:
    """Make an exception like this one, so that each thread has its own traceback; itself where it cannot be copied."""
    try:
        again = copy.copy(error)
    except Exception:  # an exception whose class takes other arguments than it keeps
        return error
    again.__cause__, again.__suppress_context__ = error.__cause__, error.__suppress_context__
    return again
