"""Bug reports: launches of wrong kernels, saved on a GPU, are rerun here under checks, which name what is wrong."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from cujit import reproducer
from cujit.errors import KernelFaultError
from raising import raises

TESTS = Path(__file__).resolve().parents[1]
MAKER = TESTS / "golden-makers" / "saved_launch.py"
GOLDENS = TESTS / "goldens" / "saved"
LARGEST_BYTES = 12_000


class Named(NamedTuple):
    """What a check has to say of a saved launch."""

    check: str
    kind: str
    line: int
    values: tuple[str, ...]


BUGS = {
    "rms_norm": Named("race", "race", 9, ("4 bytes",)),
    "softmax": Named("memory", "memory", 7, ("8,192 bytes", "argument 1 (const float*)")),
    "lookup": Named("memory", "memory", 4, ("argument",)),
}  # fmt: skip


@pytest.fixture(scope="session")
def saved_here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of the launches as their maker saves them on the CPU device."""
    folder = tmp_path_factory.mktemp("saved")
    command = [sys.executable, str(MAKER), "--device", "cpu", "--out", str(folder)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    return folder


def _is_named(path: Path) -> None:
    bug = BUGS[path.stem]
    assert path.stat().st_size < LARGEST_BYTES
    with raises(KernelFaultError, f"fault-{bug.kind}", *bug.values) as e:
        reproducer.run(path, check=bug.check)
    assert (e.value.kernel, e.value.kind) == (path.stem, bug.kind)
    assert re.search(rf"\b{path.stem}\.cu:{bug.line}\b", str(e.value))


@pytest.mark.parametrize("name", BUGS)
def test_launch_saved_for_the_goldens_is_named(saved_here: Path, name: str) -> None:
    _is_named(saved_here / f"{name}.launch")


def test_result_of_a_launch_is_saved_with_it(saved_here: Path) -> None:
    told = json.loads((saved_here / "made.json").read_text())
    assert {"device", "driver", "date", *BUGS} == told.keys()
    # A GPU reads other memory past the end of the array; here the array ends where a guard page begins.
    assert "the end of the 8,192 bytes" in told["softmax"]["error"]
    assert "an invalid or misaligned address" in told["lookup"]["error"]


@pytest.mark.parametrize("path", sorted(GOLDENS.glob("*.launch")), ids=lambda path: path.stem)
def test_launch_saved_on_a_gpu_is_named(path: Path) -> None:
    assert reproducer.open(path).device.startswith("cuda")
    _is_named(path)


def test_page_has_the_results_of_a_gpu(saved_here: Path) -> None:
    folder = GOLDENS if GOLDENS.exists() else saved_here
    command = [sys.executable, str(MAKER), "--page", "--out", str(folder)]
    section = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = re.findall(r"^\| `(\w+)`: .+ \| .+ \| `--check (\w+)`: .+:(\d+) \|$", section, re.MULTILINE)
    assert rows == [(name, bug.check, str(bug.line)) for name, bug in BUGS.items()]
    page = (TESTS.parent / "docs" / "reproducer.md").read_text()
    assert (section in page) == GOLDENS.exists()
