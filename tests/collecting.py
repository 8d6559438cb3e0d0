"""Each process of the tests begins to collect at another place, so that they share the work of the first import.

pytest rewrites the assertions of each file that is new, and Python compiles what it imports; both keep the result for
the other processes. All collect the same tests and have them in the same order.
"""

from __future__ import annotations

import os
from typing import Any

import pytest

__all__: list[str] = []

_NUMBER = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_PROCESSES = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    """Turn what a directory has by the process's share."""
    report = yield
    if _NUMBER and isinstance(collector, pytest.Dir):
        begin = len(report.result) * _NUMBER // _PROCESSES
        report.result = [*report.result[begin:], *report.result[:begin]]
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files in one order; the tests of a file stay in theirs."""
    if _PROCESSES > 1:
        items.sort(key=lambda item: item.path)
