"""The recorder of tensor copies: what ends a process takes nothing else with it, and what worked is written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the recorder forks")

TESTS = Path(__file__).parents[1]

# The copies of a recorder without a GPU: each is its own number.
SCRIPT = """
import os, sys, time
from pathlib import Path
import numpy as np
from devices import tensor_record
from devices.tensor_table import Case

def run(device, case):
    if case.name == "kills":
        os._exit(9)
    if case.name == "hangs":
        time.sleep(60)
    if case.name == "raises":
        raise ValueError("refused")
    return np.array([case.at])

def case(name, at=0):
    return Case(name, (), (), (), at=at)

tensor_record.run, tensor_record.gpu = run, lambda: None
tensor_record._origin = lambda: np.array("nowhere")
tensor_record._EACH_S, tensor_record._ALL_S = map(int, sys.argv[2:])
tensor_record.FAMILIES = {
    "a": (case("one", 1), case("kills"), case("two", 2), case("raises"), case("three", 3)),
    "b": (case("four", 4), case("hangs"), case("five", 5)),
}
tensor_record.CASES = tuple(c for cases in tensor_record.FAMILIES.values() for c in cases)
sys.exit(tensor_record.main(Path(sys.argv[1])))
"""


@pytest.fixture
def golden(tmp_path: Path) -> Path:
    return tmp_path / "tensor.npz"


def recorded(golden: Path, each_s: int, all_s: int) -> tuple[str, dict[str, object]]:
    command = [sys.executable, "-c", SCRIPT, str(golden), str(each_s), str(all_s)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=TESTS)
    assert done.returncode == 0, done.stderr
    with np.load(golden) as arrays:
        return done.stdout, {name: arrays[name].tolist() for name in arrays}


def test_failed_copy_does_not_affect_others(golden: Path) -> None:
    said, arrays = recorded(golden, 1, 30)
    assert arrays == {"origin": "nowhere", "one": [1], "two": [2], "three": [3], "four": [4], "five": [5]}
    for line in ("kills: its process ended", "raises: ValueError: refused", "hangs: no answer in time"):
        assert f"failed: {line}\n" in said
    assert "5 of 8 copies from nowhere; without ['kills', 'raises', 'hangs']" in said


def test_recording_writes_partial_results_at_the_time_limit(golden: Path) -> None:
    said, arrays = recorded(golden, 60, 3)
    assert arrays == {"origin": "nowhere", "one": [1], "four": [4]}
    assert "2 of 8 copies" in said
