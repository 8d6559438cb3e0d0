"""Forks in a process with threads: the state that a child resets, and the locks that a fork waits for.

A child has a copy of all memory, but only the thread that forked. Locks that other threads held stay locked.
"""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable

from cujit.values.imported import forget_imports_of_others, imports_of_others
from cujit.values.typed import TYPE_CHECKING, Any, Protocol, TypeVar

__all__ = ["Lock", "cached_property", "fork_lock", "on_fork_child", "once", "register_reset", "single_flight_cache"]

F = TypeVar("F", bound=Callable[..., Any])

if TYPE_CHECKING or sys.version_info >= (3, 12):
    from functools import cached_property
else:

    class cached_property(functools.cached_property):  # noqa: N801 - its name elsewhere
        """A property that is computed once, without the lock that it has before Python 3.12.

        One lock serves a property of all objects: a child would wait for ever where another thread held it at the fork.
        """

        def __get__(self, instance: Any, owner: Any = None) -> Any:
            """Return the cached value, or compute it. Two threads may both compute a value, but only the first is
            stored.
            """
            if instance is None:
                return self
            kept = instance.__dict__
            if self.attrname not in kept:
                kept.setdefault(self.attrname, self.func(instance))
            return kept[self.attrname]


class _Forked(Protocol):
    def after_fork(self) -> None: ...


class Lock(type(threading.RLock())):  # type: ignore[misc]  # in C, where no signal handler runs
    """A re-entrant lock that is unlocked in a forked child, unless the thread that forked holds it.

    Use it for state that is consistent at every moment, such as a table of results. A child lacks the unfinished
    changes of other threads.
    """

    def __init__(self) -> None:
        register_reset(self)

    def after_fork(self) -> None:
        """Open it, in a child."""
        if not self._is_owned():
            self._at_fork_reinit()


_LIVING: weakref.WeakSet[_Forked] = weakref.WeakSet()


def register_reset(item: _Forked) -> None:
    """Call ``item.after_fork()`` in every forked child, for as long as the item exists."""
    _LIVING.add(item)


def single_flight_cache(most: int = sys.maxsize) -> Callable[[F], F]:
    """Return a decorator that calls a function once for each set of arguments. The first thread calls the function, and
    the other threads wait.

    ``functools.lru_cache`` lets several first threads call the function, and then stores the last result. With it, 16
    threads that compiled in parallel wrote four recordings of one process. A call that raises is repeated. The cache
    stores at most ``most`` results.
    """

    def decorated(make: F) -> F:
        made = functools.lru_cache(most)(make)
        lock = Lock()

        @functools.lru_cache(most)  # in front of the lock, so that what is there costs no more than from a cache
        @functools.wraps(made)
        def kept(*arguments: Any, **named: Any) -> Any:
            with lock:
                made(*arguments, **named)
                return made(*arguments, **named)  # what is kept: a handler of a signal may have asked in between

        return kept  # type: ignore[return-value]

    return decorated


def once(make: F) -> F:
    """Return a function without arguments that calls ``make`` once per process, as ``single_flight_cache`` does."""
    return single_flight_cache()(make)


_CALLED: list[Callable[[], object]] = []


def on_fork_child(call: Callable[[], object]) -> None:
    """Call a function in every forked child, after every object that begins again there."""
    _CALLED.append(call)


def fork_lock(acquire: Callable[[], object], release: Callable[[], object]) -> None:
    """Make a fork wait for a lock that other code acquires. No thread may hold it while waiting for another lock."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(before=acquire, after_in_parent=release, after_in_child=release)


_WAITED_FOR = sys.stdlib_module_names | {"cuda", "cujit", "elftools", "llvmlite", "lz4", "numpy", "zstandard"}
"""What children need. A program's own module may wait, in its import, for the thread that forks."""

_LONGEST_IMPORT_S = 5.0


def _wait_for_imports() -> None:
    """Make a fork wait while other threads import the modules that cujit imports on first use.

    A child has no use for half a module: it would have to import it again.
    """
    end = time.monotonic() + _LONGEST_IMPORT_S
    while any(name.partition(".")[0] in _WAITED_FOR for name in imports_of_others()) and time.monotonic() < end:
        time.sleep(0.001)


def _in_child() -> None:
    forget_imports_of_others()
    items = list(_LIVING)
    for item in sorted(items, key=lambda item: not isinstance(item, Lock)):  # which others may take
        item.after_fork()
    for call in _CALLED:
        call()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_wait_for_imports, after_in_child=_in_child)
