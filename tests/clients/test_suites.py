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
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from cujit.emulator import library_files
from emulator.programs import emulated

_EXPECTED = Path(__file__).with_name("expected")
_FIXTURE = """
import pytest

@pytest.fixture(scope="class")
def initialize_from_pytest_config(request):
    request.cls._dump_failed_filechecks = False
"""
"""What numba-cuda's tests of cases take from a file that is not in the wheel."""

_MOST = {"numba_cuda": 9, "pycuda": 3, "stumpy": 0}
"""How many tests may be listed, by client; whoever makes a list shorter makes its number smaller."""

_MOST_AGAIN = 10

_OUTCOME = re.compile(r"^(?:SUB)?(FAILED|ERROR|PASSED)(?:\(.*?\))? (\S+\.py\S*)", re.MULTILINE)

published = pytest.mark.skipif("CUJIT_CLIENTS" not in os.environ, reason="`make clients` runs it")


def _expected(client: str) -> dict[str, str]:
    lines = (_EXPECTED / f"{client}.txt").read_text().splitlines()
    rows = (line.partition("  ") for line in lines if line and not line.startswith("#"))
    return {test: reason.strip() for test, _, reason in rows}


def _ended(folder: Path, workers: str, words: Sequence[str | Path], **variables: str) -> tuple[set[str], set[str]]:
    """Run pytest in a folder, where no worker dies; give the tests that passed whole, and those that did not."""
    options = ["-q", "-rA", "--tb=no", "-n", workers, "--dist", "loadscope", "-p", "no:cujit", "-p", "no:cacheprovider"]
    command = [sys.executable, "-m", "pytest", *options, *words]
    done = emulated(*command, timeout_s=7200, variables=variables, folder=folder)
    assert "crashed" not in done.stdout, done.stdout[-3000:]
    found = _OUTCOME.findall(done.stdout)
    assert found, done.stdout[-3000:] + done.stderr[-3000:]
    failed = {test for outcome, test in found if outcome != "PASSED"}
    return {test for _, test in found} - failed, failed


def _fails_as_expected(
    client: str, folder: Path, options: Sequence[str | Path], asked: Sequence[str], home: Path, **variables: str
) -> None:
    """Run tests that lie at home, and hold what fails to the list.

    Many of them give a process half a minute by the clock, so what fails and is not listed is asked once more, alone.
    """
    expected = _expected(client)

    def run(workers: str, words: Sequence[str]) -> tuple[set[str], set[str]]:
        passed, failed = _ended(folder, workers, [*options, *words], **variables)
        return {_name(test, home) for test in passed}, {_name(test, home) for test in failed}

    passed, failed = run("auto", asked)
    again = failed - expected.keys()
    if 0 < len(again) <= _MOST_AGAIN:
        better, still = run("0", [f"{home}/{test}" for test in sorted(again)])
        print(f"{client}: asked once more, alone: {', '.join(sorted(again))}")
        passed, failed = passed | (better & again), (failed - again) | still
    assert failed - expected.keys() == set()
    ran = {test.partition("::")[0] for test in passed | failed}
    listed = {each for each, reason in expected.items() if not reason.startswith("now and then")}
    assert {each for each in listed - failed if each.partition("::")[0] in ran} == set(), "these pass now"
    share = len(passed) / (len(passed) + len(failed))
    print(f"{client}: {len(passed)} passed, {len(failed)} failed as expected ({share:.1%})")
    assert share >= 0.97 or os.environ["CUJIT_CLIENTS"] != "1"


def _name(test: str, home: Path) -> str:
    """Say where a test lies from home on; pytest says it from another folder on, or from somewhere below."""
    file, *rest = test.split("::")
    parts = Path(file).parts
    tails = (Path(*parts[k:]) for k in range(len(parts)))
    return "::".join([str(next(tail for tail in tails if (home / tail).is_file())), *rest])


def test_every_expected_failure_has_a_reason() -> None:
    lists = {path.stem: _expected(path.stem) for path in _EXPECTED.glob("*.txt")}
    assert all(reason for listed in lists.values() for reason in listed.values())
    assert {client: len(listed) for client, listed in lists.items()} == _MOST


@published
def test_numba_cuda_tests_fail_only_where_expected(tmp_path: Path) -> None:
    settings = tmp_path / "pytest.ini"
    settings.write_text("[pytest]\nconsider_namespace_packages = true\n")
    (tmp_path / "numba_settings.py").write_text(_FIXTURE)
    asked = os.environ["CUJIT_CLIENTS"].split(",") if os.environ["CUJIT_CLIENTS"] != "1" else ["numba.cuda.tests"]
    root = next(iter(importlib.util.find_spec("numba_cuda").submodule_search_locations))  # type: ignore[union-attr,arg-type]
    # Tests of its cache look for files beside their sources, and pytest for a conftest.py where it is started.
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    options = ["-c", settings, "-p", "numba_settings", "--rootdir", root, "--pyargs"]
    home = Path(root, "numba/cuda/tests")
    _fails_as_expected("numba_cuda", tmp_path, options, asked, home, NUMBA_CACHE_DIR="", PYTHONPATH=path)


def _sources(name: str, release: str, folder: Path) -> Path:
    """Unpack the sources of a client in a folder; give where they lie."""
    wanted = ["--quiet", "--no-deps", "--no-binary", name, f"{name}=={release}"]
    subprocess.run([sys.executable, "-m", "pip", "download", *wanted], cwd=folder, check=True, timeout=600)
    with tarfile.open(next(folder.glob(f"{name}-*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return next(path for path in folder.glob(f"{name}-*") if path.is_dir())


_PYCUDA = re.findall(
    r"^pycuda==(.*)$", Path(__file__).with_name("requirements").joinpath("sources.txt").read_text(), re.M
)
_OF_GIGABYTES = "test_curand_wrappers_8gb", "test_curand_wrappers_16gb", "test_big_array_elementwise"
"""Tests that take 13 GB of memory and more, which a machine of 24 GB may not have left."""


@pytest.fixture
def pycuda(tmp_path: Path) -> Path:
    """Build PyCUDA with the headers of the toolkit's wheels, for the emulator's driver; give the folder of sources."""
    toolkit = Path(next(iter(importlib.util.find_spec("nvidia.cu13").submodule_search_locations)))  # type: ignore[union-attr,arg-type]
    links, home = tmp_path / "links", tmp_path / "home"
    links.mkdir()
    (links / "libcuda.so").symlink_to(library_files.folder() / library_files.SONAME)
    (links / "libcurand.so").symlink_to(next(toolkit.glob("lib/libcurand.so.*")))
    words = {"CPATH": f"{toolkit}/include", "LIBRARY_PATH": str(links), "LD_RUN_PATH": f"{toolkit}/lib"}
    sources = _sources("pycuda", _PYCUDA[0], tmp_path)
    command: list[str | Path] = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target"]
    subprocess.run([*command, home, sources], env=os.environ | words, check=True, timeout=1800)
    return sources


@published
def test_tests_of_pycuda_fail_only_where_it_is_known(pycuda: Path, tmp_path: Path) -> None:
    path = f"{tmp_path / 'home'}:{os.environ.get('PYTHONPATH', '')}"
    options: list[str | Path] = [
        "--rootdir",
        pycuda / "test",
        "-k",
        " and ".join(f"not {name}" for name in _OF_GIGABYTES),
    ]
    asked = ["test_driver.py", "test_gpuarray.py", "test_cumath.py"]
    variables = {"PYTHONPATH": path, "XDG_CACHE_HOME": str(tmp_path / "kept")}
    _fails_as_expected("pycuda", pycuda / "test", options, asked, pycuda / "test", **variables)


@published
def test_tests_of_stumpy_on_a_gpu_pass(tmp_path: Path) -> None:
    tests = _sources("stumpy", version("stumpy"), tmp_path) / "tests"
    files = [*tests.glob("test_gpu_*.py"), tests / "test_precision.py"]
    _fails_as_expected("stumpy", tests, (), [path.name for path in files], tests)
