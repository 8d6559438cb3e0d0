"""Machine code for launches, shared by all kernels of the process.

It is made beside the launches, so that nobody waits for LLVM: until it is there, launches go by hand.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections import Counter
from typing import TYPE_CHECKING

from cujit.devices.backend import Finish
from cujit.devices.launcher.cpython import Callables
from cujit.devices.launcher.state import LaunchState
from cujit.errors import MissingError
from cujit.forks import Lock, begins_anew, once
from cujit.values import NamedTuple, dataclass

if TYPE_CHECKING:  # what writes and compiles IR is imported for the first launch that is compiled
    from cujit.devices.jit import NativeFunction


@dataclass(frozen=True)
class LaunchCode:
    """The entry of a launch, what starts its kernel, and what finds a kernel's launches; whoever runs it keeps this."""

    function: NativeFunction
    finish: NativeFunction
    index: NativeFunction

    def attach(self, callables: Callables, launch: object, state: LaunchState) -> None:
        """Have a call of ``launch``, which keeps this and the state, run the machine code."""
        state.finish = self.finish.address
        callables.attach(launch, self.function.address, ctypes.addressof(state))


@functools.cache
def launch_code(finish: Finish, state_offset: int) -> LaunchCode:
    """Compile the launch of a kind of place and of callables, once.

    Raises:
        MissingError: llvmlite is not installed, or the launcher is not written for this processor.
    """
    from cujit.devices.launcher import runtime  # start-up: brings LLVM, without which launches go by hand

    return LaunchCode(runtime.native("launch", state_offset), runtime.finish(finish), runtime.native("index"))


# -- beside the launches ----------------------------------------------------------------------------------

_CALLS_BEFORE = 3
"""Launches of a layout that go by hand before there is machine code: a process that launches a few times, as one with a
warm cache may, never imports LLVM (92 ms) nor compiles with it (122 ms; both on a slow machine of two cores)."""


class Wanted(NamedTuple):
    """What code is asked for: what ``launch_code`` takes."""

    finish: Finish
    state_offset: int


class _Compiler:
    """Compiles one piece at a time, in threads that end with it."""

    def __init__(self) -> None:
        self._made: dict[Wanted, LaunchCode | None] = {}
        self._begun: set[Wanted] = set()
        self._asked: Counter[object] = Counter()
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

    def soon(self, wanted: Wanted, layout: object) -> LaunchCode | None:
        if wanted not in self._made and wanted not in self._begun:
            self._asked[layout] += 1
            if self._asked[layout] <= _CALLS_BEFORE:
                return None
            self._begun.add(wanted)
            try:
                threading.Thread(target=self.now, args=(wanted,), name="cujit-launcher").start()
            except RuntimeError:  # no thread is to be had, or Python is about to end
                self._begun.discard(wanted)
        return self._made.get(wanted)


@once
def _compiler() -> _Compiler:
    return _Compiler()


def code_now(wanted: Wanted) -> LaunchCode | None:
    """Compile a launch, or find it compiled; None if there is no LLVM."""
    return _compiler().now(wanted)


def code_soon(wanted: Wanted, layout: object) -> LaunchCode | None:
    """Give a launch that is compiled; or None, and have it compiled beside once a layout asked for it some times."""
    return _compiler().soon(wanted, layout)
