"""What the process has imported, and is importing just now."""

from __future__ import annotations

import importlib
import sys
from _thread import get_ident

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


def find_spec(name: str) -> Any:
    """Find a top-level module as ``importlib.util.find_spec`` does, and import nothing, not even ``importlib.util``."""
    if name in sys.modules:
        return getattr(sys.modules[name], "__spec__", None)
    found = (finder.find_spec(name, None) for finder in sys.meta_path)
    return next(filter(None, found), None)


def imports_of_others() -> list[str]:
    """List the modules that other threads are importing.

    Source: ``importlib._bootstrap``, ``_module_locks``: the locks that threads hold or wait for.
    """
    locks, me = _locks(), get_ident()
    return [name for name, lock in list(locks.items()) if getattr(lock(), "owner", None) not in (None, me)]


def forget_imports_of_others() -> None:
    """Forget, in a forked child, what other threads of the parent were importing; the child imports it again.

    Python leaves the lock of such a module closed in the child, which would wait for it forever.
    """
    for name in imports_of_others():
        _locks().pop(name, None)
        if imported(name) is None:
            sys.modules.pop(name, None)


def _locks() -> dict[str, Any]:
    return getattr(getattr(importlib, "_bootstrap", None), "_module_locks", {})
