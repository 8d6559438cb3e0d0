"""The tests that clients ship in their wheels: what fails is listed with a reason, and nothing else fails.

Each line of ``expected/CLIENT.txt`` is a test, or the beginning of several, then two blanks and the reason. What passes
does not stand in it. Only `make clients` runs them, or parts: ``CUJIT_CLIENTS=numba.cuda.tests.cudadrv``.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest

from emulator.programs import emulated

_EXPECTED = Path(__file__).with_name("expected")
_FIXTURE = """
import pytest

@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    request.cls._dump_failed_filechecks = False
"""
"""What its tests of cases take from a file that is not in the wheel."""

_OUTCOME = re.compile(r"^(?:SUB)?(FAILED|ERROR|PASSED)(?:\(.*?\))? (\S+\.py\S*)", re.MULTILINE)


def _expected(client: str) -> dict[str, str]:
    lines = (_EXPECTED / f"{client}.txt").read_text().splitlines()
    rows = (line.partition("  ") for line in lines if line and not line.startswith("#"))
    return {test: reason.strip() for test, _, reason in rows}


def test_every_expected_failure_has_a_reason() -> None:
    for path in _EXPECTED.glob("*.txt"):
        assert all(_expected(path.stem).values()), path.name


@pytest.mark.skipif("CUJIT_CLIENTS" not in os.environ, reason="`make clients` runs it")
def test_the_tests_of_numba_cuda_fail_only_where_it_is_known(tmp_path: Path) -> None:
    settings = tmp_path / "pytest.ini"
    settings.write_text("[pytest]\nconsider_namespace_packages = true\n")
    (tmp_path / "numba_settings.py").write_text(_FIXTURE)
    asked = os.environ["CUJIT_CLIENTS"].split(",") if os.environ["CUJIT_CLIENTS"] != "1" else ["numba.cuda.tests"]
    words: list[str | Path] = [
        sys.executable,
        "-m",
        "pytest",
        "-c",
        settings,
        "-q",
        "-rA",
        "-n",
        "auto",
        "--dist",
        "loadscope",
        "-p",
    ]
    root = next(iter(importlib.util.find_spec("numba_cuda").submodule_search_locations))  # type: ignore[union-attr,arg-type]
    words += ["no:cujit", "-p", "numba_settings", "--tb=no", "--rootdir", root, "--pyargs", *asked]
    # Tests of its cache look for files beside their sources, and pytest for a conftest.py where it is started.
    variables = {"NUMBA_CACHE_DIR": "", "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    done = emulated(*words, timeout_s=7200, variables=variables, folder=tmp_path)
    outcomes: dict[str, list[str]] = {"PASSED": [], "FAILED": [], "ERROR": []}
    for outcome, test in _OUTCOME.findall(done.stdout):
        outcomes[outcome].append(test.partition("numba/cuda/tests/")[2])
    failed = {*outcomes["FAILED"], *outcomes["ERROR"]}
    expected = _expected("numba_cuda")
    known = {test for test in failed if any(test.startswith(each) for each in expected)}
    assert "crashed" not in done.stdout, done.stdout[-3000:]
    assert len(outcomes["PASSED"]) > 20, done.stdout[-3000:] + done.stderr[-3000:]
    assert failed - known == set()
    ran = {test.partition("::")[0] for tests in outcomes.values() for test in tests}
    gone = {each for each in expected if each.partition("::")[0] in ran and not any(t.startswith(each) for t in failed)}
    assert gone == set(), "these pass now"
    print(f"numba-cuda: {len(outcomes['PASSED'])} passed, {len(failed)} failed as expected")
