"""Forget what a process has kept, so that a test begins without it."""

from __future__ import annotations

import inspect
from collections.abc import Callable

__all__ = ["forget"]


def forget(function: Callable[..., object]) -> None:
    """Have a function of ``cujit.forks.once_each`` or ``functools.cache`` called again, whatever it was asked for."""

    def ended(layer: Callable[..., object]) -> bool:
        getattr(layer, "cache_clear", bool)()
        return False

    inspect.unwrap(function, stop=ended)
