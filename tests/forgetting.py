"""Forget what a process has kept, so that a test begins without it."""

from __future__ import annotations

from typing import Any

__all__ = ["forget"]


def forget(function: Any) -> None:
    """Let a function of ``forks.single_flight_cache`` or ``functools.cache`` be called again for known arguments."""
    while hasattr(function, "__wrapped__"):
        getattr(function, "cache_clear", bool)()
        function = function.__wrapped__
