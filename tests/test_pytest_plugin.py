"""The pytest plugin, in runs of pytest of its own."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from cujit.budget import Budget, examine
from cujit.program import compile

pytest_plugins = ["pytester"]

Tests: TypeAlias = Callable[..., pytest.RunResult]

CODE = r"""
extern "C" __global__ void sum(float* p) {
    __shared__ float tile[256];
    tile[threadIdx.x] = p[threadIdx.x];
    __syncthreads();
    p[threadIdx.x] = tile[255 - threadIdx.x];
}
"""
WITHIN = """
def test_within(cujit_budget):
    report = cujit_budget(IMAGE, shared_bytes=1100)
    assert report.rows[0].slack == 76
"""
OVER = """
def test_wide(cujit_budget):
    cujit_budget(IMAGE, shared_bytes=1000, registers=255)
"""
LATER = """
def test_later(cujit_budget):
    cujit_budget(IMAGE, shared_bytes=1100)
    assert False
"""
OTHERS = """
import pytest
from cujit.budget import Budget
from cujit.errors import OptionError

def test_mapping(cujit_budget):
    report = cujit_budget(IMAGE, {"s*": Budget(occupancy=0.6, block=1024)}, kernel="sum", arch="sm_80", on="RTX 3090")
    assert [row.measured for row in report.rows] == [32 / 48]

def test_both(cujit_budget):
    with pytest.raises(OptionError, match="a budget and registers beside it"):
        cujit_budget(IMAGE, Budget(registers=255), registers=64)

def test_slip(cujit_budget):
    with pytest.raises(OptionError, match="no limit is called register"):
        cujit_budget(IMAGE, register=64)
"""
# The plugin may be installed as an entry point too; it cannot be there twice.
PLUGIN = ("-p", "no:cujit", "-p", "cujit.pytest_plugin", "-p", "no:cacheprovider", "-p", "no:hypothesispytest")


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = compile(CODE, arch="sm_80").save(tmp_path_factory.mktemp("plugin") / "k.cubin")
    assert examine(path, Budget(shared_bytes=0)).rows[0].measured == 1024
    return path


@pytest.fixture
def tests(pytester: pytest.Pytester, image: Path) -> Tests:
    """Write a file of tests and run it with the plugin."""

    def run(text: str, *arguments: str) -> pytest.RunResult:
        pytester.makepyfile(test_it=f"IMAGE = {str(image)!r}\n{text}")
        return pytester.runpytest(*PLUGIN, *arguments)

    return run


def test_a_test_within_its_budget_passes_and_prints_nothing(tests: Tests) -> None:
    result = tests(WITHIN)
    result.assert_outcomes(passed=1)
    assert "cujit budget" not in result.stdout.str()


def test_a_kernel_over_its_budget_fails_at_the_line_of_the_test(tests: Tests) -> None:
    result = tests(OVER)
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [
            r">\s+cujit_budget\(IMAGE",
            r"E\s+cujit\.errors\.BudgetError: k\.cubin: 1 over budget, of 2 limits of 1 kernel",
            r"E\s+sum\s+sm_80\s+shared_bytes\s+1,000\s+1,024\s+24 over",
            r"-+ Captured cujit budget call -+",
            r"\s+sum\s+sm_80\s+registers\s+255\s+\d+\s+\d+ left",
        ]
    )
    assert "budget.py" not in result.stdout.str()  # the frames of cujit are hidden


def test_a_test_that_fails_otherwise_shows_the_slack(tests: Tests) -> None:
    result = tests(LATER)
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r"-+ Captured cujit budget call -+", r"\s+sum\s+sm_80\s+shared_bytes.*76 left"])


def test_budgets_are_taken_as_check_takes_them(tests: Tests) -> None:
    tests(OTHERS).assert_outcomes(passed=3)


@pytest.mark.parametrize("asked", ["switch", "setting", "switch under xdist"])
def test_a_table_of_everything_is_printed_if_asked(tests: Tests, pytester: pytest.Pytester, asked: str) -> None:
    switch = ["--cujit-budget-report"]
    if asked == "switch under xdist":
        switch += ["-n", "1"]
    if asked == "setting":
        pytester.makeini("[pytest]\ncujit_budget_report = true\n")
        switch = []
    result = tests(WITHIN + OVER, *switch)
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.re_match_lines(
        [
            r"=+ cujit budgets =+",
            r".*::test_wide: k\.cubin",
            r"\s+kernel\s+arch\s+what\s+allowed\s+is\s+slack",
            r"\s+sum\s+sm_80\s+registers",
            r"\s+sum\s+sm_80\s+shared_bytes\s+1,000\s+1,024\s+24 over",
            r".*::test_within: k\.cubin",
            r"\s+sum\s+sm_80\s+shared_bytes\s+1,100\s+1,024\s+76 left",
        ]
    )
    assert result.stdout.str().count("::test_within: ") == 1


def test_a_report_without_checks_says_so(tests: Tests) -> None:
    result = tests("def test_nothing(): pass", "--cujit-budget-report")
    result.assert_outcomes(passed=1)
    result.stdout.re_match_lines([r"=+ cujit budgets =+", "no budget was checked"])


def test_junit_xml_has_the_rows(tests: Tests, pytester: pytest.Pytester) -> None:
    tests(WITHIN, "--junit-xml=out.xml").assert_outcomes(passed=1)
    (found,) = ElementTree.parse(pytester.path / "out.xml").iter("property")
    assert found.get("name") == "cujit_budget"
    assert '"76 left"' in (found.get("value") or "")


def test_fixture_and_switches_explain_themselves(pytester: pytest.Pytester) -> None:
    fixtures = pytester.runpytest(*PLUGIN, "--fixtures").stdout.str()
    assert "cujit_budget(what, registers=64, spills=0)" in fixtures
    usage = pytester.runpytest(*PLUGIN, "--help").stdout.str()
    assert "--cujit-budget-report" in usage
    assert "cujit_budget_report (bool)" in usage


def test_loading_the_plugin_imports_nothing_else_of_cujit() -> None:
    code = (
        "import sys, pytest; before = set(sys.modules); import cujit.pytest_plugin; "
        "print(*sorted(set(sys.modules) - before))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # What pytest and the standard library load is no matter of ours; numpy and the like would be.
    loaded = {name for name in done.stdout.split() if not name.startswith(("json", "_json"))}
    assert loaded == {"cujit", "cujit.version", "cujit.pytest_plugin"}


def test_a_run_that_does_not_use_it_imports_nothing_either(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "import sys\ndef test_it(): assert {n for n in sys.modules if n.startswith('cujit')} <= "
        "{'cujit', 'cujit.version', 'cujit.pytest_plugin'}"
    )
    pytester.runpytest_subprocess(*PLUGIN).assert_outcomes(passed=1)
