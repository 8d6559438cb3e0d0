"""Limits of a piece of work, and whether it runs in a separate process."""

from __future__ import annotations

import math
import time

from cujit.errors import OptionError, spell
from cujit.errors.hints import Hint
from cujit.values import NamedTuple
from cujit.values.typed import Any

_LIMITS = ("timeout_s", "isolate", "memory_mib")
_LONGEST_S = 1e9
_MOST_MIB = 1 << 34


class WorkLimits(NamedTuple):
    """Time and memory limits of work, and whether a separate process does it.

    ``timeout_s`` is in seconds, and ``until`` is the end on the clock of ``time.monotonic``. ``memory_mib`` is the
    address space of the separate process in MiB (``RLIMIT_AS``), including libraries and stacks. None means no limit.
    """

    timeout_s: float | None = None
    isolate: bool = False
    memory_mib: int | None = None
    until: float | None = None

    @classmethod
    def of(cls, timeout_s: object = None, isolate: object = False, memory_mib: object = None) -> WorkLimits:
        """Check the user's limits, and start the time.

        Raises:
            OptionError: a value has the wrong type or isn't positive, or a memory limit has no separate process.
        """
        if not isinstance(isolate, bool):
            raise OptionError(f"isolate is {spell(isolate)}, expected True or False")
        seconds = None if timeout_s is None else _seconds(timeout_s)
        if memory_mib is not None:
            if type(memory_mib) is not int or not 0 < memory_mib <= _MOST_MIB:
                raise OptionError(f"memory_mib is {spell(memory_mib)}, expected an int of at least 1, in MiB")
            if not isolate:
                raise OptionError(
                    "memory_mib limits a separate process, but isolate is not set",
                    help=Hint("isolate=True, memory_mib=4096", shell="add both: --isolate --memory 4096"),
                    code="option-conflict",
                )
            return cls(seconds, isolate, memory_mib, _end(seconds))
        return cls(seconds, isolate, None, _end(seconds))

    @property
    def left_s(self) -> float | None:
        """The remaining seconds, 0 after the time is over, or None without a limit."""
        return None if self.until is None else max(0.0, self.until - time.monotonic())


def take_limits(more: Any) -> dict[str, Any]:
    """Remove the limits from the keywords of a call, and return them as keywords of ``WorkLimits.of``."""
    return {name: more.pop(name) for name in _LIMITS if name in more}


def _seconds(given: object) -> float:
    try:
        seconds = math.nan if isinstance(given, bool | str | bytes) else float(given)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        seconds = math.nan
    if not 0 < seconds <= _LONGEST_S:
        raise OptionError(
            f"timeout_s is {spell(given)}, expected a positive number of seconds",
            help=Hint("timeout_s=30", shell="--timeout 30"),
        )
    return seconds


def _end(seconds: float | None) -> float | None:
    return None if seconds is None else time.monotonic() + seconds
