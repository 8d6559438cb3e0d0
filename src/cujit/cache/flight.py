"""One maker per key among the threads of a process."""

from __future__ import annotations

import _thread
import math
import time
from collections.abc import Callable

from cujit.errors import ToolCrashError, ToolTimeoutError
from cujit.threads import Condition
from cujit.values import dataclass, field
from cujit.values.typed import ClassVar, Generic, TypeVar

T = TypeVar("T")

_SLICE_S = 0.05
"""How long a flight may go unnoticed that ends without notifying anybody: a signal handler ended its thread."""


@dataclass(eq=False)
class Flight(Generic[T]):
    """Work in progress: its name and key, the thread that performs it, and its result.

    The thread holds ``running``, which C code releases whatever a signal handler raises. If the work is done or
    abandoned without a result and an error, its thread was interrupted.
    """

    label: str = ""
    wish: object = None
    thread: int = field(default_factory=_thread.get_ident)
    running: _thread.LockType = field(default_factory=_thread.allocate_lock)
    done: bool = False
    results: list[T] = field(default_factory=list)
    error: Exception | None = None

    @property
    def changed(self) -> Condition:
        """The event that wakes waiting threads. The first waiting thread creates it, because most flights have none."""
        kept: Condition | None = vars(self).get("_changed")
        return vars(self).setdefault("_changed", Condition()) if kept is None else kept

    def land(self) -> None:
        """Mark the work as finished, and wake the waiting threads."""
        self.done = True  # first: whoever makes ``changed`` after the next line looks at this
        if "_changed" in vars(self):
            with self.changed:
                self.changed.notify_all()


class SingleFlight(Generic[T]):
    """Work in progress in this process, by key."""

    not_shared: ClassVar[tuple[type[Exception], ...]] = (ToolTimeoutError, ToolCrashError)
    """What is of the thread that did the work, and not of the work."""

    def __init__(self) -> None:
        self._guard = _thread.allocate_lock()
        self._under_way: dict[object, Flight[T]] = {}

    def run(self, key: object, work: Callable[[], T], timeout_s: float) -> tuple[T, bool]:
        """Do the work, or wait for the thread that does it, and return the result and whether this call waited.

        An exception of the work is raised in every waiting thread. Some exceptions concern only one thread: a
        ``KeyboardInterrupt``, the end of its time, or the death of its separate process. Another thread then does the
        work. After ``timeout_s``, or if the work requests its own key, the work is done a second time.
        """
        while True:
            mine: Flight[T] = Flight()
            with mine.running:
                with self._guard:
                    flight = self._claim(key, mine)
                if flight is mine:
                    return self._lead(key, mine, work), False
            if flight.thread == _thread.get_ident() or not awaited(flight, timeout_s):
                return work(), False
            if flight.error is not None:
                raise fresh(flight.error)
            if flight.results:
                return flight.results[0], True

    def _claim(self, key: object, mine: Flight[T]) -> Flight[T]:
        """Return the flight of a key that is under way, otherwise ``mine``. Call this inside ``mine.running``."""
        flight = self._under_way.get(key)
        if flight is None or not flight.running.locked():
            flight = self._under_way[key] = mine
        return flight

    def _lead(self, key: object, flight: Flight[T], work: Callable[[], T]) -> T:
        try:
            result = work()
            flight.results.append(result)
            return result
        except self.not_shared:
            raise
        except Exception as e:
            flight.error = e
            raise
        finally:
            with self._guard:
                if self._under_way.get(key) is flight:
                    del self._under_way[key]
            flight.land()

    def after_fork(self) -> None:
        """Forget, in a forked child, the work of threads that are not there."""
        self._guard = _thread.allocate_lock()
        self._under_way = {}


def awaited(flight: Flight[T], timeout_s: float = math.inf) -> bool:
    """Wait until a flight ends, and return False if the wait takes too long."""
    end = time.monotonic() + timeout_s
    with flight.changed:
        while not flight.done and flight.running.locked():
            left_s = end - time.monotonic()
            if left_s <= 0:
                return False
            flight.changed.wait(min(left_s, _SLICE_S))
    return True


def fresh(error: Exception) -> Exception:
    """Return a copy of an exception, so that each thread has its own traceback, or the exception if it
    can't be copied.
    """
    try:
        from copy import copy  # start-up: for what failed

        again = copy(error)
    except Exception:  # an exception whose class takes other arguments than it keeps
        return error
    again.__cause__, again.__suppress_context__ = error.__cause__, error.__suppress_context__
    return again
