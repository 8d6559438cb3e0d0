"""Video instructions: scalar and SIMD, and what is left of the integers."""

from __future__ import annotations

from cujit.devices.cpu.emit.registry import Rules

__all__ = ["register"]


def register(rules: Rules) -> None:
    """Add the rules of this family."""
