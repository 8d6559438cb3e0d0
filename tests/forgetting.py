"""Forget what a process has kept, so that a test begins without it."""

from __future__ import annotations

from typing import Any

__all__ = ["forget"]


def forget(function: Any) -> None:
    """Have a function of ``cujit.forks.once_each`` or ``functools.cache`` called again, whatever it was asked for."""
    while hasattr(function, "__wrapped__"):
        getattr(function, "cache_clear", bool)()
        function = function.__wrapped__
