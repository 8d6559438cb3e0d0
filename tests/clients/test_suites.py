"""The tests that clients publish: what fails is listed with a reason, and nothing else fails.

Each line of ``expected/CLIENT.txt`` is a test, then two blanks and the reason. What passes does not stand in it, unless
the reason begins with "now and then", and the list does not grow: ``_MOST`` says how long each may be. Only
`make clients` runs them, or a part of numba-cuda's: ``CUJIT_CLIENTS=numba.cuda.tests.nrt``. cuda.core, cuda.bindings,
numba-cuda-mlir and Triton publish no tests in their wheels, and no archives of their sources.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tarfile
from importlib.metadata import version
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
"""What numba-cuda's tests of cases take from a file that is not in the wheel."""

_MOST = {"numba_cuda": 9, "stumpy": 0}
"""How many tests may be listed, by client; whoever makes a list shorter makes its number smaller."""

_OUTCOME = re.compile(r"^(?:SUB)?(FAILED|ERROR|PASSED)(?:\(.*?\))? (\S+\.py\S*)", re.MULTILINE)

published = pytest.mark.skipif("CUJIT_CLIENTS" not in os.environ, reason="`make clients` runs it")


def _expected(client: str) -> dict[str, str]:
    lines = (_EXPECTED / f"{client}.txt").read_text().splitlines()
    rows = (line.partition("  ") for line in lines if line and not line.startswith("#"))
    return {test: reason.strip() for test, _, reason in rows}


def _fails_as_expected(client: str, folder: Path, *words: str | Path, begin: str = "", **variables: str) -> None:
    """Run pytest in a folder, and hold what fails to the list; names of tests there leave out how they ``begin``."""
    options = ["-q", "-rA", "--tb=no", "-n", "auto", "--dist", "loadscope", "-p", "no:cujit", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, *words]
    done = emulated(*command, timeout_s=7200, variables=variables, folder=folder)
    assert "crashed" not in done.stdout, done.stdout[-3000:]
    outcomes: dict[str, list[str]] = {"PASSED": [], "FAILED": [], "ERROR": []}
    for outcome, test in _OUTCOME.findall(done.stdout):
        outcomes[outcome].append(test.rpartition(begin)[2] if begin else test)
    failed, passed = {*outcomes["FAILED"], *outcomes["ERROR"]}, len(outcomes["PASSED"])
    expected = _expected(client)
    assert passed, done.stdout[-3000:] + done.stderr[-3000:]
    assert failed - expected.keys() == set()
    ran = {test.partition("::")[0] for tests in outcomes.values() for test in tests}
    listed = {each for each, reason in expected.items() if not reason.startswith("now and then")}
    assert {each for each in listed - failed if each.partition("::")[0] in ran} == set(), "these pass now"
    print(f"{client}: {passed} passed, {len(failed)} failed as expected ({passed / (passed + len(failed)):.1%})")
    assert passed / (passed + len(failed)) >= 0.97 or os.environ["CUJIT_CLIENTS"] != "1"


def test_every_expected_failure_has_a_reason_and_their_list_does_not_grow() -> None:
    lists = {path.stem: _expected(path.stem) for path in _EXPECTED.glob("*.txt")}
    assert all(reason for listed in lists.values() for reason in listed.values())
    assert {client: len(listed) for client, listed in lists.items()} == _MOST


@published
def test_the_tests_of_numba_cuda_fail_only_where_it_is_known(tmp_path: Path) -> None:
    settings = tmp_path / "pytest.ini"
    settings.write_text("[pytest]\nconsider_namespace_packages = true\n")
    (tmp_path / "numba_settings.py").write_text(_FIXTURE)
    asked = os.environ["CUJIT_CLIENTS"].split(",") if os.environ["CUJIT_CLIENTS"] != "1" else ["numba.cuda.tests"]
    root = next(iter(importlib.util.find_spec("numba_cuda").submodule_search_locations))  # type: ignore[union-attr,arg-type]
    # Tests of its cache look for files beside their sources, and pytest for a conftest.py where it is started.
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    words = ["-c", settings, "-p", "numba_settings", "--rootdir", root, "--pyargs", *asked]
    _fails_as_expected("numba_cuda", tmp_path, *words, begin="numba/cuda/tests/", NUMBA_CACHE_DIR="", PYTHONPATH=path)


@published
def test_the_tests_of_stumpy_on_a_gpu_pass(tmp_path: Path) -> None:
    wanted = ["--quiet", "--no-deps", "--no-binary", "stumpy", f"stumpy=={version('stumpy')}"]
    subprocess.run([sys.executable, "-m", "pip", "download", *wanted], cwd=tmp_path, check=True, timeout=600)
    with tarfile.open(next(tmp_path.glob("stumpy-*.tar.gz"))) as archive:
        archive.extractall(tmp_path, filter="data")
    tests = next(tmp_path.glob("stumpy-*/tests"))
    files = [*tests.glob("test_gpu_*.py"), tests / "test_precision.py"]
    _fails_as_expected("stumpy", tests, *(path.name for path in files))
