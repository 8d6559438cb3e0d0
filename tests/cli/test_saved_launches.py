"""Saved launches on the command line: written by ``--save``, run again by ``run`` and ``profile``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from click.testing import Result

Cujit: TypeAlias = Callable[..., Result]

CODE = r"""extern "C" __device__ int printf(const char *, ...);
extern "C" __global__ void copy(const float *x, float *y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i]; else if (i == n && x[-1] == 2.5f) y[0] = 2.5f;
    if (i == 0) printf("copied\033[2J\n");
}
"""


@pytest.fixture
def bug(cujit: Cujit) -> str:
    Path("copy.cu").write_text(CODE)
    arguments = ("--arg", "ones:f32:256", "--arg", "zeros:f32:256", "--arg", "256")
    done = cujit(
        "run",
        "copy.cu",
        "--device",
        "cpu",
        "--grid",
        "5",
        "--block",
        "64",
        "--check",
        "none",
        *arguments,
        "--save",
        "bug.launch",
    )
    assert done.exit_code == 0, done.stderr
    assert "bug.launch: cujit run bug.launch runs this launch again" in done.stderr
    return "bug.launch"


def test_saved_launch_runs_with_its_grid_and_arguments(cujit: Cujit, bug: str) -> None:
    done = cujit("run", bug, "--device", "cpu", "--print", "2", "--out", "2=y.npy", "--time")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("copied\ufffd[2J\n[1. 1.")
    assert "copy on cpu: grid 5x1x1, block 64x1x1, as it was saved on cpu" in done.stderr
    assert "the launch took" in done.stderr
    assert np.load("y.npy").tolist() == [1.0] * 256


def test_saved_launch_json_has_every_part(cujit: Cujit, bug: str) -> None:
    done = cujit("run", bug, "--device", "cpu", "--print", "2", "--trace", "0,1", "--json")
    said = json.loads(done.stdout)
    assert said["kernel"] == "copy"
    assert said["grid"] == [5, 1, 1]
    assert said["arrays"] == {"2": [1.0] * 256}
    assert said["printed"] == "copied\x1b[2J\n"
    assert said["trace"][0]["thread"] == [1, 0, 0]


def test_check_names_the_bug(cujit: Cujit, bug: str) -> None:
    done = cujit("run", bug, "--check", "memory", "--trace", "4,0")
    assert done.exit_code == 1
    assert "the 1,024 bytes of argument 1 (const float*)" in done.stderr
    assert "copy.cu:4" in done.stderr
    assert "the launch ended early" in done.stdout


def test_saved_launch_is_profiled_with_its_source(cujit: Cujit, bug: str) -> None:
    Path("copy.cu").unlink()
    done = cujit("profile", bug)
    assert done.exit_code == 0, done.stderr
    line = next(line for line in done.stdout.splitlines() if line.startswith("copy.cu:4"))
    assert "if (i < n) y[i] = x[i];" in line
    compared = cujit("profile", bug, "--against", bug, "--json")
    assert json.loads(compared.stdout)["measures"]["warps"]["difference"] == 0


@pytest.mark.parametrize(
    "options",
    [("--grid", "4"), ("--arg", "1"), ("--kernel", "copy"), ("--repeat", "2"), ("--save", "again"), ("-D", "N=1")],
)
def test_saved_values_cannot_be_specified_again(cujit: Cujit, bug: str, options: tuple[str, str]) -> None:
    done = cujit("run", bug, *options)
    assert done.exit_code == 2
    assert "doesn't apply to a saved launch, which already contains its kernel" in done.stderr
    if options[0] not in ("--repeat", "--save"):
        assert cujit("profile", bug, *options).exit_code == 2


def test_scalar_arguments_are_not_printed(cujit: Cujit, bug: str) -> None:
    assert "argument 3 is not an array" in cujit("run", bug, "--device", "cpu", "--print", "3").stderr
    assert "there is no argument 4: copy has 3" in cujit("run", bug, "--device", "cpu", "--out", "4=y.npy").stderr


def test_truncated_saved_launch_is_reported(cujit: Cujit, bug: str) -> None:
    Path("cut.launch").write_bytes(Path(bug).read_bytes()[:500])
    done = cujit("run", "cut.launch")
    assert done.exit_code == 1
    assert "cut.launch: the saved launch is 500 bytes long, but declares" in done.stderr


@pytest.mark.usefixtures("bug")
def test_failed_launch_explains_how_to_save_it(cujit: Cujit) -> None:
    arguments = ("--arg", "ones:f32:256", "--arg", "zeros:f32:256", "--arg", "256")
    done = cujit("run", "copy.cu", "--grid", "5", "--block", "64", *arguments, "--check", "memory")
    assert done.exit_code == 1
    assert "save it with --save bug.launch" in done.stderr
