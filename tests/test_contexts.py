"""How this suite shares a GPU's context (``contexts.py``): one test that ends something takes no other with it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ALONE = """
import os, signal
import pytest

@pytest.mark.ends_context
def test_that_kills_its_process():
    os.kill(os.getpid(), signal.SIGKILL)

@pytest.mark.ends_context
@pytest.mark.parametrize("name", ["a b", "c/d[e]"])
def test_that_skips(name):
    pytest.skip(f"because of {name}")

def test_after_it():
    assert "CUJIT_TEST_ALONE" not in os.environ
"""

LOST = """
import numpy as np
import pytest
import cujit

CODE = 'extern "C" __global__ void stray(int *p, long long i) { p[i] = 1; }'

def writes(at):
    device = cujit.gpu()
    cujit.jit(CODE, device=device)["stray"][1, 1](device.zeros(4, np.int32), at)

@pytest.mark.gpu
@pytest.mark.ends_context
def test_apart():
    writes(1 << 44)
    with pytest.raises(cujit.errors.DriverError):
        cujit.gpu().synchronize()

@pytest.mark.gpu
@pytest.mark.parametrize("at", [0, 1 << 44, 1, 2])
def test_writes(at):
    writes(at)

def test_of_the_cpu_device():
    assert cujit.cpu().array([1]).numpy().tolist() == [1]
"""


def outcome(folder: Path, code: str, *options: str) -> str:
    """Run a file of tests with this suite's plugin; give what pytest says."""
    folder.joinpath("test_it.py").write_text(code)
    folder.joinpath("conftest.py").write_text('pytest_plugins = ("contexts",)\n')
    folder.joinpath("pytest.ini").write_text("[pytest]\nmarkers =\n    gpu:\n    ends_context:\n")
    tests = Path(__file__).parent
    paths = [str(tests.parent / "src"), str(tests), os.environ.get("PYTHONPATH", "")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "CUJIT_TEST_ALONE"):
        environment.pop(name, None)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rs", *options, "test_it.py"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=240)
    return done.stdout + done.stderr


def test_crashing_test_affects_no_other(tmp_path: Path) -> None:
    said = outcome(tmp_path, ALONE, "--shuffle", "5")
    assert "its process ended with -9" in said
    assert "because of a b" in said
    assert "because of c/d[e]" in said
    assert "1 failed, 1 passed, 2 skipped" in said


@pytest.mark.gpu
@pytest.mark.usefixtures("gpu")
def test_lost_context_skips_the_rest_with_one_report(tmp_path: Path) -> None:
    said = outcome(tmp_path, LOST)
    where = "test_it.py::test_writes[17592186044416]"
    assert "this test ended the GPU's context (CUDA_ERROR_ILLEGAL_ADDRESS): mark it ends_context" in said
    assert said.count(f"the GPU's context was lost in {where}; 2 tests after it were skipped") == 1
    assert "4 passed, 2 skipped, 1 error" in said
