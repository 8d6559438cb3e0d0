"""How many random cases a property is held to: few in every run, many in ``make fuzz-kernels``."""

from __future__ import annotations

import os

__all__ = ["times"]


def times(usual: int) -> int:
    """Give the number of examples: ``usual``, times the environment's ``CUJIT_EFFORT``."""
    return usual * int(os.environ.get("CUJIT_EFFORT", "1"))
