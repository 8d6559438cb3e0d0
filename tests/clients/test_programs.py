"""Programs of each client of the driver, as somebody with a GPU wrote them: none knows of cujit.

They check their own numbers against NumPy's. `make clients` has all clients; elsewhere those run whose client is there.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from cujit.emulator import library_files
from cujit.emulator.settings import EmulatorSettings
from emulator.programs import compiled, emulated

FOLDER = Path(__file__).with_name("programs")

CLIENTS = {
    "bindings_driver": "cuda.bindings",
    "core_program": "cuda.core",
    "cutile_add": "cuda.tile",
    "cutile_programs": "cuda.tile",
    "numba_jit": "numba_cuda",
    "numba_mlir_jit": "numba_cuda_mlir",
    "stumpy_gpu": "stumpy",
    "taichi_kernels": "taichi",
    "triton_kernels": "triton",
}


def test_each_program_has_a_client() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == {*CLIENTS}


@pytest.mark.parametrize(
    ("name", "cc"), [*((name, (9, 0)) for name in CLIENTS), ("cutile_programs", (8, 9))], ids=lambda value: str(value)
)
def test_program_runs_unchanged(name: str, cc: tuple[int, int]) -> None:
    if find_spec(CLIENTS[name]) is None:
        pytest.skip(f"{CLIENTS[name]} is not installed: `make clients`")
    done = emulated(sys.executable, FOLDER / f"{name}.py", settings=EmulatorSettings(cc=cc), timeout_s=600)
    assert done.returncode == 0, done.stdout + done.stderr


def test_c_program_runs_unchanged(tmp_path: Path) -> None:
    program = compiled(
        tmp_path / "program", (FOLDER / "driver_in_c.c").read_text(), library_files.folder() / library_files.SONAME
    )
    done = emulated(program)
    assert done.returncode == 0, done.stdout + done.stderr
