"""Machine code for launches, one piece for each layout of parameters, shared by all kernels of the process.

It is made beside the launches, so that nobody waits for LLVM: until it is there, launches go by hand.
"""

from __future__ import annotations

import functools
import threading
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from cujit.devices.backend import Finish
from cujit.devices.launcher.finish import Parameters
from cujit.devices.launcher.layout import Layout
from cujit.errors import MissingError
from cujit.forks import Lock, begins_anew

if TYPE_CHECKING:  # what writes and compiles IR is imported for the first launch that is compiled
    from cujit.devices.jit import NativeFunction
    from cujit.devices.launcher.runtime import Runtime

__all__ = ["LaunchCode", "Wanted", "code_now", "code_soon", "launch_code"]

_LEVEL = 0
"""LLVM's optimisation level: the code is a row of calls, which no optimisation makes shorter."""


@dataclass(frozen=True)
class LaunchCode:
    """The launch of one layout and what it calls; whoever runs it keeps this."""

    function: NativeFunction
    runtime: Runtime

    @property
    def address(self) -> int:
        """Where the code is: a function of the signature of vectorcall."""
        return self.function.address


@functools.lru_cache(maxsize=1024)
def launch_code(
    layout: Layout, finish: Finish, state_offset: int, parameters: Parameters = Parameters.BUFFER
) -> LaunchCode:
    """Compile the launch of a layout, once.

    Raises:
        MissingError: llvmlite is not installed.
    """
    # Start-up: code from the cache is not emitted anew.
    from cujit.devices.launcher.emit import SYMBOL, emit
    from cujit.devices.launcher.runtime import compile_text, runtime

    needed = runtime(finish)
    text = emit(layout, needed.functions, state_offset, parameters)
    return LaunchCode(compile_text(text, SYMBOL, _LEVEL), needed)


# -- beside the launches ----------------------------------------------------------------------------------

_CALLS_BEFORE = 3
"""Launches of a layout that go by hand before its code is compiled: a process that launches a few times, as one with a
warm cache may, never imports LLVM (92 ms) nor compiles with it (122 ms; both on a slow machine of two cores)."""


class Wanted(NamedTuple):
    """What code is asked for: what ``launch_code`` takes."""

    layout: Layout
    finish: Finish
    state_offset: int


class _Compiler:
    """Compiles one piece at a time, in threads that end with it."""

    def __init__(self) -> None:
        self._made: dict[Wanted, LaunchCode | None] = {}
        self._begun: set[Wanted] = set()
        self._asked: Counter[Wanted] = Counter()
        self._busy = Lock()
        begins_anew(self)

    def after_fork(self) -> None:
        """Begin anew in a child: the threads stayed behind."""
        self._begun.clear()

    def now(self, wanted: Wanted) -> LaunchCode | None:
        with self._busy:
            if wanted not in self._made:
                try:
                    self._made[wanted] = launch_code(*wanted)
                except MissingError:
                    self._made[wanted] = None
            return self._made[wanted]

    def soon(self, wanted: Wanted) -> LaunchCode | None:
        if wanted not in self._made and wanted not in self._begun:
            self._asked[wanted] += 1
            if self._asked[wanted] <= _CALLS_BEFORE:
                return None
            self._begun.add(wanted)
            try:
                threading.Thread(target=self.now, args=(wanted,), name="cujit-launcher").start()
            except RuntimeError:  # no thread is to be had, or Python is about to end
                self._begun.discard(wanted)
        return self._made.get(wanted)


@functools.cache
def _compiler() -> _Compiler:
    return _Compiler()


def code_now(wanted: Wanted) -> LaunchCode | None:
    """Compile a launch, or find it compiled; None if there is no LLVM."""
    return _compiler().now(wanted)


def code_soon(wanted: Wanted) -> LaunchCode | None:
    """Give a launch that is compiled; or None, and have it compiled beside once it was asked for some times."""
    return _compiler().soon(wanted)
