"""The pytest plugin: the fixture ``cujit_budget``, and a table of everything that it checked.

pytest loads this file in every run where cujit is installed, so it imports nothing of cujit before the fixture is used.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from cujit.budget import Budgets
    from cujit.budgetreport import BudgetReport

__all__ = ["CheckBudget", "cujit_budget", "pytest_addoption", "pytest_configure"]

CheckBudget = Callable[..., "BudgetReport"]
_PROPERTY = "cujit_budget"
_SWITCH = "cujit_budget_report"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--cujit-budget-report`` and the setting ``cujit_budget_report``."""
    text = "print what every kernel that cujit_budget checked uses of its budget"
    parser.getgroup("cujit").addoption("--cujit-budget-report", dest=_SWITCH, action="store_true", help=text)
    parser.addini(_SWITCH, text, type="bool", default=False)


def pytest_configure(config: pytest.Config) -> None:
    """Collect the rows of this run, if they were asked for."""
    if config.getoption(_SWITCH) or config.getini(_SWITCH):
        config.pluginmanager.register(_Table(), "cujit-budget-report")


@pytest.fixture
def cujit_budget(request: pytest.FixtureRequest) -> CheckBudget:
    """Check budgets: ``cujit_budget(what, registers=64, spills=0)``, or with Budgets as ``cujit.check`` takes them.

    ``kernel``, ``arch`` and ``on`` are as for ``cujit.check``, whose report it gives back. When the test fails, what
    its kernels use is shown with the failure.
    """

    def check_budget(
        what: object,
        budget: Budgets | None = None,
        *,
        kernel: Any = None,
        arch: Any = None,
        on: Any = None,
        **limits: Any,
    ) -> BudgetReport:
        __tracebackhide__ = True
        from cujit.budget import Budget, examine
        from cujit.errors import OptionError

        if budget is not None and limits:
            raise OptionError(f"a budget and {', '.join(limits)} beside it", help="put all limits into the Budget")
        if unknown := [name for name in limits if name not in Budget.__dataclass_fields__]:
            known = ", ".join(Budget.__dataclass_fields__)
            raise OptionError(f"no limit is called {', '.join(unknown)}", help=f"there is {known}")
        report = examine(what, Budget(**limits) if budget is None else budget, kernel=kernel, arch=arch, on=on)
        _keep(request.node, report)
        return report.require()

    return check_budget


def _keep(item: pytest.Item, report: BudgetReport) -> None:
    """Leave a report with the test: as a section of its failure, and as a property, which xdist and JUnit XML carry."""
    item.add_report_section("call", "cujit budget", str(report))
    rows = [{"cells": row.cells, "verdict": row.verdict} for row in report.rows]
    item.user_properties.append((_PROPERTY, json.dumps({"image": report.name, "rows": rows})))


class _Table:
    """The table at the end of a run."""

    def __init__(self) -> None:
        self._checked: dict[str, list[dict[str, Any]]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the rows of a test when it is over."""
        if report.when == "teardown":
            found = [json.loads(str(value)) for name, value in report.user_properties if name == _PROPERTY]
            self._checked.setdefault(report.nodeid, []).extend(found)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print them by test, in the order of their names."""
        terminalreporter.section("cujit budgets")
        checks = [(node, check) for node in sorted(self._checked) for check in self._checked[node]]
        if not checks:
            terminalreporter.write_line("no budget was checked")
            return
        from cujit.budgetreport import COLUMNS, aligned

        for node, check in checks:
            terminalreporter.write_line(f"{node}: {check['image']}")
            lines = aligned([COLUMNS, *(row["cells"] for row in check["rows"])])
            for line, verdict in zip(lines, ["ok", *(row["verdict"] for row in check["rows"])], strict=True):
                terminalreporter.write_line(line, red=verdict != "ok")
