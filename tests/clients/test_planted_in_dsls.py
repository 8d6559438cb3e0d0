"""A bound that is too large, planted in a kernel of each language in Python, is found at its line.

Each program of ``planted`` takes the length of its array, which has 256 numbers. `make clients` has all of them.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from cujit.emulator.settings import EmulatorSettings
from emulator.programs import emulated

FOLDER = Path(__file__).with_name("planted")

LANGUAGES = {"numba_mlir": "numba_cuda_mlir", "cutile": "cuda.tile", "cute": "cutlass", "tiles": "tilelang"}


def test_each_language_has_a_program() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {*LANGUAGES}


@pytest.mark.parametrize("name", LANGUAGES)
def test_bound_that_is_too_large_is_found_at_its_line(name: str, tmp_path: Path) -> None:
    if find_spec(LANGUAGES[name]) is None:
        pytest.skip(f"{LANGUAGES[name]} is not installed: `make clients`")
    program = FOLDER / f"{name}.py"
    command, settings = (sys.executable, program), EmulatorSettings(check="memory")
    variables = {"TILELANG_CACHE_DIR": str(tmp_path), "TVM_CACHE_DIR": str(tmp_path)}
    good, wrong = (
        emulated(*command, str(length), settings=settings, timeout_s=300, variables=variables, folder=tmp_path)
        for length in (256, 384)
    )
    assert good.returncode == 0, good.stdout + good.stderr
    assert "cujit" not in good.stderr
    assert wrong.returncode != 0
    assert "just past the end of the 1,024-byte array" in wrong.stderr, wrong.stderr
    assert _place(program, wrong.stdout) in wrong.stderr, wrong.stderr


def _place(program: Path, printed: str) -> str:
    """Say where the load stands: in the program, or in the CUDA C++ that it prints, before which NVRTC has a line."""
    for number, line in enumerate(program.read_text().splitlines(), 1):
        if line.endswith("# out of bounds"):
            return f"{program}:{number}"
    number = next(number for number, line in enumerate(printed.splitlines(), 2) if "tile[((int)threadIdx.x)] =" in line)
    return f"tvm_kernels:{number}"
