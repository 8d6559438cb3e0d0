"""Asynchronous copies, done at once, and ``mbarrier``."""

from __future__ import annotations

from cujit.devices.cpu.emit.registry import Rules

__all__ = ["register"]


def register(rules: Rules) -> None:
    """Add the rules of this family."""
