"""Servers of launches that begin otherwise than ours."""

from __future__ import annotations

from cujit.reproducer import fork_server

__all__ = ["WITHOUT_FILTERS", "serving_after"]

_BEGIN = fork_server._BEGIN


def serving_after(code: str) -> str:
    """Write what a server begins with that runs some code first."""
    after = f"child.serve = lambda *given: (exec({code!r}, {{}}), serve(*given))"
    return _BEGIN.replace("begin()", f"from cujit.reproducer import child; serve = child.serve; {after}; begin()")


WITHOUT_FILTERS = serving_after("import platform; platform.machine = lambda: 'riscv64'")
"""On a system for which no filter of system calls is written."""
