"""Conversions to and from 8-, 6- and 4-bit floats, tf32 and packed integers."""

from __future__ import annotations

from cujit.devices.cpu.emit.registry import Rules

__all__ = ["register"]


def register(rules: Rules) -> None:
    """Add the rules of this family."""
