"""How many processors of the host a process may use."""

from __future__ import annotations

import os


def allowed_processors() -> int:
    """Count the processors that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
