"""Random CUDA C++ programs do on the CPU device what a slow interpreter says, which shares no code with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.loading import load
from cujit.program import compile
from property.effort import times
from property.mistakes import MISTAKES
from property.programs import BLOCK, COUNTERS, GRID, WORDS, Program, inputs

GOLDEN = Path(__file__).parents[1] / "goldens" / "programs.json"
_ENOUGH = 24
"""Programs that find every mistake."""


def _ptx(program: Program) -> str:
    return compile(program.source, arch="compute_90", to="ptx", fmad=False).text


@pytest.mark.parametrize("seed", range(times(4)))
def test_a_random_program_does_what_the_oracle_says(seed: int, cpu: Device) -> None:
    program = Program(seed)
    out = np.zeros(GRID * BLOCK * WORDS + COUNTERS, np.uint32)
    load(_ptx(program).encode(), cpu)["k"][GRID, BLOCK](inputs(), out)
    np.testing.assert_array_equal(out, program.run())


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs as PTX, with what the oracle says of each."""
    made = tmp_path_factory.mktemp("programs")
    for seed in range(_ENOUGH if times(1) > 1 else 3):
        program = Program(seed)
        (made / f"{seed:02}.ptx").write_text(_ptx(program))
        np.save(made / f"{seed:02}.npy", program.run())
    return made


@pytest.mark.parametrize("number", range(len(MISTAKES)) if times(1) > 1 else (6, 12))
def test_the_oracle_finds_a_mistake_in_code_generation(number: int, folder: Path) -> None:
    program = Path(__file__).with_name("mistakes.py")
    tests = str(Path(__file__).parents[1])
    environment = os.environ | {"CUJIT_CACHE": "0", "PYTHONPATH": os.pathsep.join([tests, *sys.path])}
    done = subprocess.run([sys.executable, program, folder, str(number)], env=environment, timeout=300, check=False)
    assert done.returncode not in (0, 3), MISTAKES[number]  # 3: the piece is no longer there


@pytest.mark.parametrize("seed", range(times(20)))
def test_the_oracle_says_what_a_gpu_computed(seed: int) -> None:
    recorded = json.loads(GOLDEN.read_text())["0"]
    key = sorted(recorded, key=int)[seed % len(recorded)]
    assert zlib.crc32(Program(int(key)).run().tobytes()) == recorded[key]


def test_there_are_thirty_mistakes() -> None:
    assert len(MISTAKES) == 30
