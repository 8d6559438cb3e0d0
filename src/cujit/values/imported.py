"""Modules of other people's that the process has imported, and that cujit does not import itself."""

from __future__ import annotations

import sys

from cujit.values.typed import Any


def imported(name: str) -> Any:
    """Return the module that the process has imported under a name, or None.

    A module that another thread is importing lacks names, so it counts as not imported yet.

    Args:
        name: the full name, such as ``logging``.

    Source: Python's import system, ``importlib._bootstrap._find_and_load``: ``__spec__._initializing``.
    """
    module = sys.modules.get(name)
    return None if getattr(getattr(module, "__spec__", None), "_initializing", False) else module
