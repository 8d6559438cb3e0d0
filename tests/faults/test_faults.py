"""A fault at calls to the system: a file is whole, an error is one of cujit's, and nothing temporary is left.

``CUJIT_FAULTS=all`` (``make faults``) has every call fail with every errno; else some calls fail with one.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import null_driver

ALL = os.environ.get("CUJIT_FAULTS") == "all"
STEPS = {"pack": 40, "recording": 16, "worklist": 16, "farm": 45, "pull": 70}
"""Of so many calls one fails, in the scenarios of the ordinary suite."""
MORE = ("packed", "push", "report", "launch", "reproducer")


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not null_driver.is_buildable():
        pytest.skip("needs the compiler of the wheel ziglang")
    path = tmp_path_factory.mktemp("faults") / "faults.so"
    source = Path(__file__).with_name("library.c")
    options = "-std=gnu11", "-O1", "-fPIC", "-shared", "-fvisibility=hidden"
    command = [sys.executable, "-m", "ziglang", "cc", *options, str(source), "-o", str(path)]
    subprocess.run(command, check=True, capture_output=True)
    return path


@pytest.mark.parametrize("scenarios", [[f"{name}:0"] for name in (*STEPS, *MORE)] if ALL else [
    [f"{name}:{step}" for name, step in STEPS.items()]
])  # fmt: skip
def test_fault_leaves_files_whole_and_raises_cujits_error(scenarios: list[str], library: Path) -> None:
    script = Path(__file__).with_name("scenarios.py")
    path = os.pathsep.join([str(script.parents[1]), *map(os.path.abspath, sys.path)])
    done = subprocess.run(
        [sys.executable, str(script), *scenarios],
        env={**os.environ, "PYTHONPATH": path, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for outcomes in json.loads(done.stdout).values():
        assert outcomes["wrong"] == []
        missed = outcomes["runs"] - outcomes["faults"]  # where threads make fewer calls in a run than in the first
        assert missed <= max(1, 0.05 * outcomes["runs"]) < outcomes["runs"]
