"""Says what the tests cost: CPU seconds by folder, those of their processes and of the children that ended.

`make test` prints them last. ``CUJIT_COSTS=20`` prints the 20 most costly files as well.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path, PurePosixPath
from typing import Any

import pytest

from cujit.reproducer import fork_server

__all__ = ["add", "spent_by"]

_spent: Counter[str] = Counter()
"""CPU milliseconds by file."""


_of_others = 0.0


def add(seconds: float) -> None:
    """Count what a process spent that has not ended, or is a child of one that has not."""
    global _of_others
    _of_others += seconds


def spent_by(process: int) -> float:
    """Give the CPU seconds of a process that lives, with those of its children that have ended."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _now() -> float:
    times = os.times()
    servers = sum(spent_by(server.process.pid) for server in tuple(fork_server._living.values()))
    return times.user + times.system + times.children_user + times.children_system + servers + _of_others


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Any:
    begin = _now()
    result = yield
    _spent[item.nodeid.partition("::")[0]] += round(1e3 * (_now() - begin))
    return result


def pytest_sessionfinish(session: pytest.Session) -> None:
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["costs"] = dict(_spent)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what a process of the tests spent."""
    _spent.update(getattr(node, "workeroutput", {}).get("costs", {}))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    folders: Counter[str] = Counter()
    for file, spent in _spent.items():
        folders["/".join(PurePosixPath(file).parts[:-1][:3])] += spent
    most = int(os.environ.get("CUJIT_COSTS", "0") or 0)
    for title, costs in (("folder", folders.most_common()), ("file", _spent.most_common(most))):
        shown = ", ".join(f"{name} {spent / 1e3:.0f}" for name, spent in costs if spent >= 500)
        if shown:
            terminalreporter.line(f"CPU seconds by {title}: {shown}; {sum(_spent.values()) / 1e3:.0f} in all")
