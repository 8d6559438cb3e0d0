"""Functions of native code, for modules that are below the one that loads it."""

from __future__ import annotations

from cujit.values.typed import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

LOADED: dict[str, Callable[..., Any]] = {}
"""The functions by name; empty until ``devices.launcher.library`` has loaded them, and where it can't."""
