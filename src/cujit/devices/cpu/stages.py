"""Compiler stages: the callbacks that receive the result of each stage, and the output of ``CUJIT_DUMP``."""

from __future__ import annotations

import functools
import os
import sys
import time
from collections.abc import Callable
from typing import TypeVar

from cujit.errors import OptionError, spell
from cujit.values import dataclass
from cujit.values.imported import imported

_T = TypeVar("_T")

STAGES = ("flatten", "blocks", "uniformity", "fission", "plan", "emit")
"""The stages in order, as ``pipeline`` has them."""

DUMP_VARIABLE = "CUJIT_DUMP"
_TIMES, _ALL = "times", "all"


@dataclass(frozen=True)
class Stage:
    """A finished stage: its name, the kernel, the wall time in seconds, and a function that returns
    its result as text.
    """

    name: str
    kernel: str
    seconds: float
    text: Callable[[], str]


_LOOKERS: list[Callable[[Stage], object]] = []


def show_stages(look: Callable[[Stage], object]) -> None:
    """Call ``look`` after every stage of every kernel that is compiled from now on."""
    _LOOKERS.append(look)


def stage(name: str, kernel: str, make: Callable[[], _T], write: Callable[[_T], str]) -> _T:
    """Run one stage, show its result, and return the result.

    Raises:
        Ended: a stop of the work was requested.
    """
    stopping = imported("cujit.toolchain.stopping")
    stop = None if stopping is None else stopping.current_stop()
    if stop is not None and stop.is_requested:
        raise stopping.Ended
    begin = time.perf_counter()
    made = make()
    done = Stage(name, kernel, time.perf_counter() - begin, functools.partial(write, made))
    for look in _LOOKERS:
        look(done)
    _dump(done)
    return made


def dumped() -> frozenset[str]:
    """Return which stages the environment requests to print. ``times`` is among them if it requests only times.

    Raises:
        OptionError: there is no such stage.
    """
    setting = os.environ.get(DUMP_VARIABLE)
    if not setting:
        return frozenset()
    names = frozenset(name.strip() for name in setting.split(","))
    unknown = sorted(names - {*STAGES, _TIMES, _ALL})
    if unknown:
        raise OptionError(
            f"{DUMP_VARIABLE} contains the unknown stage {spell(unknown[0])}",
            help=f"set {DUMP_VARIABLE} to one or several of {', '.join(STAGES)}, {_TIMES} and {_ALL}",
            code="option-unknown",
        )
    return names | (frozenset(STAGES) if _ALL in names else frozenset())


def _dump(done: Stage) -> None:
    names = dumped()
    if names and sys.stderr is not None:
        text = f"{done.text()}\n" if done.name in names else ""
        if text or _TIMES in names:
            sys.stderr.write(f"; {done.name} of {done.kernel}: {1e3 * done.seconds:.2f} ms\n{text}")
