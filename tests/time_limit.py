"""``make quick`` ends in time: CUJIT_QUICK_UNTIL is the Unix time from which tests are left out."""

from __future__ import annotations

import os
import time
from typing import Any

import pytest

_UNTIL = float(os.environ.get("CUJIT_QUICK_UNTIL", "inf"))
_LEFT_OUT = "make quick has no time left"


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    if time.time() > _UNTIL:
        pytest.skip(_LEFT_OUT)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    skipped = terminalreporter.stats.get("skipped", ())
    if left := sum(_LEFT_OUT in str(report.longrepr) for report in skipped):
        terminalreporter.write_line(f"{_LEFT_OUT}: {left} tests were left out; make test runs all")
