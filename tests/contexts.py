"""How tests share a GPU's context, which ends for the whole process when one kernel fails.

A test that can end it is marked ``ends_context`` and gets a process of its own. Where another one ends it, that test
fails and says so, and those after it are skipped. ``--shuffle SEED`` runs the tests in any order.
"""

from __future__ import annotations

import functools
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from cujit.devices.device import Device
from cujit.devices.process import process_devices
from cujit.errors import DriverError

__all__: list[str] = []

_ALONE = "CUJIT_TEST_ALONE"
"""Set in the process of a test that has one of its own."""
_ALONE_S = 240
_WAS_LOST = "the GPU's context was lost in "

_lost_in: str = ""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="run the tests in the order that this seed gives")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    seed = config.getoption("--shuffle")
    if seed is not None:
        random.Random(seed).shuffle(items)


# -- tests with a process of their own --------------------------------------------------------------------


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if pyfuncitem.get_closest_marker("ends_context") is None or _runs_on_cpu(pyfuncitem) or os.environ.get(_ALONE):
        return None
    _run_alone(pyfuncitem)
    return True


def _runs_on_cpu(item: pytest.Function) -> bool:
    """Whether it is the instance of a test for every device that a GPU has no part in."""
    chosen: dict[str, Any] = item.callspec.params if hasattr(item, "callspec") else {}
    return chosen.get("device") == "cpu"


def _run_alone(item: pytest.Function) -> None:
    """Run one test in a new process, and pass, skip or fail as it did there."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.xml")
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", item.nodeid]
        environment = {**os.environ, _ALONE: "1"}
        for name in ("PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST", "PYTEST_ADDOPTS"):
            environment.pop(name, None)
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, cwd=item.config.rootpath, env=environment, timeout=_ALONE_S
            )
        except subprocess.TimeoutExpired:
            pytest.fail(f"its process did not end in {_ALONE_S} s", pytrace=False)
        said = f"{done.stdout[-8000:]}\n{done.stderr[-4000:]}"
        if not report.exists():
            pytest.fail(f"its process ended with {done.returncode}\n{said}", pytrace=False)
        cases = list(ElementTree.parse(report).iter("testcase"))
    skipped = [case.find("skipped") for case in cases]
    if done.returncode or len(cases) != 1:
        pytest.fail(f"in a process of its own:\n{said}", pytrace=False)
    if skipped[0] is not None:
        pytest.skip(skipped[0].get("message", ""))


# -- a context that was lost ------------------------------------------------------------------------------


def pytest_runtest_setup(item: pytest.Item) -> None:
    if _lost_in and item.get_closest_marker("gpu") is not None:
        pytest.skip(_WAS_LOST + _lost_in)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Any:
    global _lost_in
    result = yield
    if item.get_closest_marker("gpu") is not None and not _lost_in and not os.environ.get(_ALONE):
        why = _fault()
        if why:
            _lost_in = item.nodeid
            pytest.fail(f"this test ended the GPU's context ({why}): mark it ends_context", pytrace=False)
    return result


def _fault() -> str:
    """Say what a kernel of this process has done to the context; nothing if all is well."""
    try:
        for gpu in _gpus():
            gpu.synchronize()
    except DriverError as e:
        return e.result or e.message
    return ""


@functools.cache
def _gpus() -> tuple[Device, ...]:
    return process_devices().gpus()


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say once where the context was lost, of all that was skipped after it."""
    reasons: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", ()):
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else ""
        if _WAS_LOST in reason:
            reasons[reason] = reasons.get(reason, 0) + 1
    for reason, count in reasons.items():
        terminalreporter.write_line(f"{reason}; {count} tests after it were skipped", red=True)
