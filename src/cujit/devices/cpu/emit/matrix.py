"""Products of matrices by a warp: ``mma``, ``wmma``, and what moves their fragments."""

from __future__ import annotations

from cujit.devices.cpu.emit.registry import Rules

__all__ = ["register"]


def register(rules: Rules) -> None:
    """Add the rules of this family."""
