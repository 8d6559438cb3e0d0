"""Random programs of CUDA C++ and PTX do on the CPU device what slow interpreters say, which share no code with it."""

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
from cujit.program import compile
from property.effort import times
from property.mistakes import MISTAKES
from property.oracles import Outcomes, cpp_outcomes, cpp_text, ptx_outcomes, ptx_results, ptx_text
from property.programs import Program
from property.ptx_interpreter import Module as Interpreted

GOLDEN = Path(__file__).parents[1] / "goldens" / "programs.json"
_ENOUGH = 24
"""Programs that find every mistake."""


def _hold(outcomes: Outcomes) -> None:
    for seed, (expected, found) in outcomes.items():
        np.testing.assert_array_equal(found, expected, f"seed {seed}")


@pytest.mark.parametrize("first", range(0, times(4), 4))
def test_random_program_matches_the_oracle(first: int, cpu: Device) -> None:
    _hold(cpp_outcomes(range(first, first + 4), cpu, more=False))


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("first", range(0, times(12), 4))
def test_random_ptx_matches_the_interpreter(first: int, cpu: Device) -> None:
    _hold(ptx_outcomes(range(first, first + 4), cpu))


@pytest.mark.parametrize("first", range(0, times(2), 2))
def test_random_cpp_with_halves_and_recursion_matches_oracle(first: int, cpu: Device) -> None:
    _hold(cpp_outcomes(range(first, first + 2), cpu))


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Programs of C++ and of PTX as PTX, with what the oracles say of each."""
    made = tmp_path_factory.mktemp("programs")
    for seed in range(_ENOUGH if times(1) > 1 else 3):
        program = Program(seed)
        ptx = compile(cpp_text({seed: program}), arch="compute_90", to="ptx", fmad=False).text
        text = ptx_text([seed])
        results = program.run(), ptx_results(seed, Interpreted(text).launch)
        for kind, written, result in zip(("cpp", "ptx"), (ptx, text), results, strict=True):
            (made / f"{kind}-{seed:02}.ptx").write_text(written)
            np.save(made / f"{kind}-{seed:02}.npy", result)
    return made


@pytest.mark.parametrize("number", range(len(MISTAKES)) if times(1) > 1 else (6, 12))
def test_oracle_finds_a_mistake_in_code_generation(number: int, folder: Path) -> None:
    program = Path(__file__).with_name("mistakes.py")
    tests = str(Path(__file__).parents[1])
    own = {"CUJIT_CACHE": "0", "CUJIT_CPU_OPTIMIZE": "0", "PYTHONPATH": os.pathsep.join([tests, *sys.path])}
    done = subprocess.run(
        [sys.executable, program, folder, str(number)], env=os.environ | own, timeout=300, check=False
    )
    assert done.returncode not in (0, 3), MISTAKES[number]  # 3: the piece is no longer there


@pytest.mark.parametrize("seed", range(times(20)))
def test_oracle_matches_a_gpu(seed: int) -> None:
    recorded = json.loads(GOLDEN.read_text())["0"]
    key = sorted(recorded, key=int)[seed % len(recorded)]
    assert zlib.crc32(Program(int(key)).run().tobytes()) == recorded[key]


def test_list_has_forty_mistakes() -> None:
    assert len(MISTAKES) == 40
