"""The pytest plugin: the fixtures ``device`` and ``cujit_budget``, the marker ``cujit``, coverage of CUDA sources.

pytest loads this file in every run where cujit is installed, so it imports nothing of cujit before a fixture is used.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from cujit.values import NamedTuple

if TYPE_CHECKING:
    from cujit.budget.budgets import Budgets
    from cujit.budget.report import BudgetReport
    from cujit.devices.device import Device

CheckBudget = Callable[..., "BudgetReport"]
_PROPERTY = "cujit_budget"
_SWITCH = "cujit_budget_report"
_COVERED = "cujit_coverage"
_EMULATE = "cujit_emulate"

_SETTINGS = (
    (
        "cujit_device",
        "where tests with the fixture `device` run: cpu, gpu, all; without it cpu, and gpu if there is one",
    ),
    (
        "cujit_check",
        "what the CPU device looks for in tests with the fixture `device`: memory, race, sync, init, all, none",
    ),
    ("cujit_emulated", "what --cujit-emulate emulates: 'cc=8.0 check=memory,race threads=2 timeout_s=10 errors_now=1'"),
    (_COVERED, "write which lines of CUDA source ran on the CPU device, for lcov, to this file"),
)
_SWITCHES = (
    (_EMULATE, "have CUDA programs find cujit's emulator where they look for a driver, in all processes of the run"),
    (_SWITCH, "print what every kernel that cujit_budget checked uses of its budget"),
    ("cujit_coverage_exact", "for the coverage, compile without optimisation"),
)
_MARKER = (
    "cujit(devices, check, threads, timeout_s, schedules): where a test with the fixture `device` may run (cpu, gpu, "
    "all), and the CPU device's checks, threads, longest launch in seconds, and number of schedules to run it under"
)


def _import_as_ever(pluginmanager: pytest.PytestPluginManager) -> None:
    """Import cujit's modules as without pytest. It otherwise rewrites the ``assert`` of all packages that ship a
    plugin.

    cujit imports on several threads, and ``ast.parse``, by which pytest rewrites, fails on two threads at once in
    Python 3.11 ("AST constructor recursion depth mismatch"). pytest 9 has no public way to say so.
    """
    hook = getattr(pluginmanager, "rewrite_hook", None)
    marked = getattr(hook, "_must_rewrite", None)
    if isinstance(marked, set):
        marked.discard("cujit")
        getattr(hook, "_marked_for_rewrite_cache", {}).clear()


def pytest_addoption(parser: pytest.Parser, pluginmanager: pytest.PytestPluginManager) -> None:
    """Add the options, ``--cujit-device`` and so on, and the settings of the same names."""
    _import_as_ever(pluginmanager)
    group = parser.getgroup("cujit")
    for name, text in _SETTINGS:
        group.addoption("--" + name.replace("_", "-"), dest=name, default=None, metavar="WHAT", help=text)
        parser.addini(name, text, default="")
    for name, text in _SWITCHES:
        group.addoption("--" + name.replace("_", "-"), dest=name, action="store_true", help=text)
        parser.addini(name, text, type="bool", default=False)


def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Start the emulator before any ``conftest.py`` is imported; other processes have it from the environment.

    Raises:
        pytest.UsageError: the settings are wrong, or a driver is loaded already.
    """
    options = early_config.known_args_namespace
    if not (getattr(options, _EMULATE, False) or early_config.getini(_EMULATE)) or "CUJIT_EMULATE" in os.environ:
        return
    # Start-up: pytest loads this file in every run.
    from cujit.emulator.settings import EmulatorSettings
    from cujit.emulator.start import start
    from cujit.errors import CujitError

    words = getattr(options, "cujit_emulated", None) or early_config.getini("cujit_emulated")
    try:
        start(EmulatorSettings.parse(str(words)))
    except CujitError as e:
        raise pytest.UsageError(f"--cujit-emulate: {e}") from None


def pytest_configure(config: pytest.Config) -> None:
    """Add the marker, and the collectors that the options request.

    Raises:
        pytest.UsageError: an option has an invalid value.
    """
    config.addinivalue_line("markers", _MARKER)
    _kinds(_setting(config, "cujit_device"), pytest.UsageError, "--cujit-device")
    if _switched(config, _SWITCH):
        config.pluginmanager.register(_Table(), "cujit-budget-report")
    if _setting(config, _COVERED):
        exact = _switched(config, "cujit_coverage_exact")
        config.pluginmanager.register(_Covered(config, _setting(config, _COVERED), exact), "cujit-coverage")


def _setting(config: pytest.Config, name: str) -> str:
    """Return the value from the command line or the configuration, or an empty string."""
    return str(config.getoption(name) or config.getini(name))


def _switched(config: pytest.Config, name: str) -> bool:
    return bool(config.getoption(name) or config.getini(name))


# -- devices ----------------------------------------------------------------------------------------------

_KINDS = ("cpu", "gpu")
_KEYS = ("devices", "check", "threads", "timeout_s", "schedules")
_CHECK = "all"


class _WantedFixture(NamedTuple):
    """Where a test runs, and how the CPU device is made."""

    kind: str
    check: str = _CHECK
    threads: int | None = None
    timeout_s: float | None = None
    schedule: int | None = None


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(call: pytest.CallInfo[None]) -> None:
    """Hide the frames of cujit if a test fails with an error of cujit; ``--full-trace`` shows them."""
    for entry in call.excinfo.traceback if call.excinfo is not None else ():
        module = entry.frame.f_globals
        if str(module.get("__name__")).startswith("cujit."):
            module["__tracebackhide__"] = _is_ours


def _is_ours(error: pytest.ExceptionInfo[BaseException] | None) -> bool:
    from cujit.errors import CujitError  # start-up: for tests that fail

    return error is not None and isinstance(error.value, CujitError)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test that uses ``device`` on the requested devices.

    Raises:
        pytest.Collector.CollectError: the marker ``cujit`` has unknown arguments.
    """
    if "cujit_device" not in metafunc.fixturenames:
        return
    allowed, marked = _marked(metafunc.definition)
    requested = _kinds(_setting(metafunc.config, "cujit_device"), pytest.UsageError, "--cujit-device")
    check = marked.get("check") or _setting(metafunc.config, "cujit_check") or _CHECK
    cases = [
        pytest.param(
            _WantedFixture(kind, check, marked.get("threads"), marked.get("timeout_s"), seed),
            id=kind if seed is None else f"{kind}-schedule-{seed}",
            marks=[pytest.mark.skip(reason=reason)] if reason else [],
        )
        for kind, reason in _cases(allowed or _KINDS, requested)
        for seed in (range(marked["schedules"]) if kind == "cpu" and marked.get("schedules") else (None,))
    ]
    metafunc.parametrize("cujit_device", cases, indirect=True)


def _marked(item: pytest.Function) -> tuple[tuple[str, ...] | None, dict[str, Any]]:
    """Read the markers of a test, nearest first: the devices that it may use, and the other arguments."""
    marked: dict[str, Any] = {}
    for marker in item.iter_markers("cujit"):
        if marker.args or marker.kwargs.keys() - set(_KEYS):
            raise pytest.Collector.CollectError(
                f"{item.nodeid}: pytest.mark.cujit supports only the keywords {', '.join(_KEYS)}, not {marker!r}"
            )
        marked = {**marker.kwargs, **marked}
    devices = marked.pop("devices", None)
    text = devices if isinstance(devices, str) else ",".join(map(str, devices or ()))
    return _kinds(text, pytest.Collector.CollectError, f"{item.nodeid}: devices of pytest.mark.cujit"), marked


def _kinds(text: str, error: type[Exception], what: str) -> tuple[str, ...] | None:
    """Parse ``cpu``, ``gpu``, ``cpu,gpu``, or ``all``. Return None without a value."""
    if not text:
        return None
    if text == "all":
        return _KINDS
    kinds = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
    if not set(kinds) <= set(_KINDS):
        raise error(f"{what} must be cpu, gpu or all, not {text!r}")
    return kinds


def _cases(allowed: Sequence[str], requested: Sequence[str] | None) -> list[tuple[str, str]]:
    """List the devices that a test runs on, each with the reason why it is skipped there, or ""."""
    cases = []
    for kind in allowed:
        if requested is not None and kind not in requested:
            continue
        if kind == "cpu" or tuple(requested or ()) == ("gpu",) or _has_gpu():
            cases.append((kind, ""))  # where nothing but the GPU will do, its absence is an error
        elif requested is not None or "cpu" not in allowed:
            cases.append((kind, "there is no GPU"))
    only = " or ".join(allowed)
    return cases or [(allowed[0], f"it runs on {only} only, and --cujit-device={','.join(requested or ())} was said")]


def _has_gpu() -> bool:
    from cujit.devices.process import process_devices  # start-up: pytest loads this file in every run

    return bool(process_devices().gpus())


@pytest.fixture
def cujit_device(request: pytest.FixtureRequest) -> Device:
    """The device that a test runs on: the CPU device with its checks, and the first GPU if there is one.

    ``device`` is the same, under a name that a project may give to something of its own.
    """
    from cujit.devices.process import process_devices  # start-up: pytest loads this file in every run

    devices = process_devices()
    wish: _WantedFixture = getattr(request, "param", None) or _WantedFixture(
        "cpu", _setting(request.config, "cujit_check") or _CHECK
    )
    check = None if wish.check == "none" else wish.check
    if wish.kind == "gpu":
        return devices.gpu()
    watchers = []
    if wish.schedule is not None:
        from cujit.devices.cpu.observe.scheduling import Schedule  # start-up: for tests that ask for one

        watchers.append(Schedule(wish.schedule))
    return devices.cpu(wish.threads, watchers, check=check, timeout_s=wish.timeout_s)


@pytest.fixture
def device(cujit_device: Device) -> Device:
    """The device that a test runs on: the CPU device with its checks, and the first GPU if there is one."""
    return cujit_device


# -- coverage ---------------------------------------------------------------------------------------------


class _Covered:
    """Collects the lines of CUDA source that the tests run, in all processes of pytest-xdist."""

    def __init__(self, config: pytest.Config, file: str, exact: bool) -> None:
        # Start-up: pytest loads this file in every run.
        from cujit.devices.cpu.observe.coverage import Coverage
        from cujit.devices.process import process_devices

        self._file = os.path.join(config.invocation_params.dir, file)
        self._devices = process_devices()
        self._coverage = Coverage(exact=exact)
        self._devices.watch(self._coverage)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add the counts of a process of pytest-xdist."""
        found = getattr(node, "workeroutput", {}).get(_COVERED)
        if found:
            self._coverage.merge(json.loads(found))

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file. A process of pytest-xdist passes its counts to the controller."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_COVERED] = json.dumps(self._coverage.dump())
        else:
            self._coverage.save(self._file)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Report how many lines ran."""
        counts = [count for lines in self._coverage.lines().values() for count in lines.values()]
        ran = sum(count > 0 for count in counts)
        terminalreporter.write_line(
            f"cujit coverage: {ran} of {len(counts)} lines of CUDA ran; written to {self._file}"
        )

    def pytest_unconfigure(self) -> None:
        """Stop watching."""
        self._devices.watch(None)


# -- budgets ----------------------------------------------------------------------------------------------


@pytest.fixture
def cujit_budget(request: pytest.FixtureRequest) -> CheckBudget:
    """Check budgets: ``cujit_budget(what, registers=64, spills=0)``, or with Budgets as for ``cujit.budget.check``.

    A ``Profile`` is held by what kernels cost: ``cujit_budget(profile, sectors_per_request=4.5, bank_conflicts=0)``.
    ``kernel``, ``arch`` and ``on`` are as for ``cujit.budget.check``, whose report it gives back. When the test fails,
    what its kernels use is shown with the failure.
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
        # Start-up: pytest loads this file in every run.
        from cujit.budget.budgets import Budget, examine
        from cujit.errors import OptionError

        if budget is not None and limits:
            raise OptionError(
                f"the marker sets a budget in addition to the limits {', '.join(limits)}",
                help="move all limits into the Budget",
                code="option-conflict",
            )
        if unknown := [name for name in limits if name not in Budget.__dataclass_fields__]:
            known = ", ".join(Budget.__dataclass_fields__)
            raise OptionError(f"unknown limit {', '.join(unknown)}", help=f"use one of {known}", code="option-unknown")
        report = examine(what, Budget(**limits) if budget is None else budget, kernel=kernel, arch=arch, on=on)
        _keep(request.node, report)
        return report.require()

    return check_budget


def _keep(item: pytest.Item, report: BudgetReport) -> None:
    """Attach a report to the test: as a section of its failure, and as a property for xdist and JUnit XML."""
    item.add_report_section("call", "cujit budget", str(report))
    rows = [{"cells": row.cells, "verdict": row.verdict} for row in report.rows]
    item.user_properties.append((_PROPERTY, json.dumps({"image": report.name, "rows": rows})))


class _Table:
    """The table at the end of a run."""

    def __init__(self) -> None:
        self._checked: dict[str, list[dict[str, Any]]] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Add the rows of a finished test."""
        if report.when == "teardown":
            found = [json.loads(str(value)) for name, value in report.user_properties if name == _PROPERTY]
            self._checked.setdefault(report.nodeid, []).extend(found)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the rows by test, sorted by name."""
        terminalreporter.section("cujit budgets")
        checks = [(node, check) for node in sorted(self._checked) for check in self._checked[node]]
        if not checks:
            terminalreporter.write_line("no budget was checked")
            return
        from cujit.budget.report import COLUMNS, aligned  # start-up: pytest loads this file in every run

        for node, check in checks:
            terminalreporter.write_line(f"{node}: {check['image']}")
            lines = aligned([COLUMNS, *(row["cells"] for row in check["rows"])])
            for line, verdict in zip(lines, ["ok", *(row["verdict"] for row in check["rows"])], strict=True):
                terminalreporter.write_line(line, red=verdict != "ok")
