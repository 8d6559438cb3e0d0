"""Products of matrices by a warp: ``mma``, ``wmma``, ``wgmma``, and what moves their fragments."""

from __future__ import annotations

from cujit.devices.cpu.emit import matrix_mma, matrix_move, matrix_wgmma, matrix_wmma
from cujit.devices.cpu.emit.registry import Rules

__all__ = ["register"]


def register(rules: Rules) -> None:
    """Add the rules of this family."""
    for part in (matrix_mma, matrix_wmma, matrix_wgmma, matrix_move):
        part.register(rules)
