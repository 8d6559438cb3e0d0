"""Bugs planted in programs of clients are found by the checks, with their line of Python; the right ones pass."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from cujit.emulator.settings import EmulatorSettings
from emulator.programs import emulated

_NUMBA = """
import numpy as np
from numba import cuda, float32

@cuda.jit(lineinfo=True)
def doubled(x, n):
    i = cuda.grid(1)
    if i < n:
        x[i] *= 2  # out of bounds

@cuda.jit(lineinfo=True)
def turned(x):
    tile = cuda.shared.array(64, float32)
    i = cuda.threadIdx.x
    tile[i] = x[i]
    BARRIER
    x[i] = tile[63 - i]  # race

x = cuda.to_device(np.arange(64, dtype=np.float32))
doubled[1, 128](x, LENGTH)
turned[1, 64](x)
assert (x.copy_to_host() == 2 * np.arange(64)[::-1]).all()
"""

_TRITON = """
import numpy as np
import triton
import triton.language as tl
from cuda.bindings import driver

class Array:
    def __init__(self, data):
        self.dtype, self.nbytes, self.kind = "fp32", data.nbytes, data
        _, self.pointer = driver.cuMemAlloc(data.nbytes)
        driver.cuMemcpyHtoD(self.pointer, data.ctypes.data, data.nbytes)
    def data_ptr(self):
        return int(self.pointer)

@triton.jit
def doubled(x, n, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + at, mask=at < n, other=0.0)  # out of bounds
    tl.store(x + at, 2 * values, mask=at < n)

triton.runtime.driver.active.get_current_device()
x = Array(np.arange(100, dtype=np.float32))
doubled[(1,)](x, LENGTH, BLOCK=128)
out = np.empty(100, np.float32)
error, = driver.cuMemcpyDtoH(out.ctypes.data, x.pointer, x.nbytes)
assert int(error) == 0 and (out == 2 * np.arange(100)).all()
"""


def _line(text: str, mark: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if line.endswith(f"# {mark}"))


@pytest.mark.parametrize(
    ("client", "text", "right", "wrong", "check", "mark"),
    [
        ("numba_cuda", _NUMBA, {"LENGTH": "64"}, {"LENGTH": "128"}, "memory", "out of bounds"),
        ("numba_cuda", _NUMBA, {"BARRIER": "cuda.syncthreads()"}, {"BARRIER": "pass"}, "race", "race"),
        ("triton", _TRITON, {"LENGTH": "100"}, {"LENGTH": "128"}, "memory", "out of bounds"),
    ],
    ids=["numba bounds", "numba race", "triton bounds"],
)
def test_a_planted_bug_is_found_with_its_line_and_the_right_program_is_silent(
    client: str, text: str, right: dict[str, str], wrong: dict[str, str], check: str, mark: str, tmp_path: Path
) -> None:
    if find_spec(client) is None:
        pytest.skip(f"{client} is not installed: `make clients`")
    good = {"LENGTH": "64", "BARRIER": "cuda.syncthreads()", **right}
    for words in (good, {**good, **wrong}):
        program = tmp_path / f"planted_{words is good}.py"
        program.write_text(_filled(text, words))
        done = emulated(
            sys.executable, program, settings=EmulatorSettings(check=check), timeout_s=300,
            variables={"NUMBA_CUDA_WARN_ON_IMPLICIT_COPY": "0", "TRITON_CACHE_DIR": str(tmp_path / "triton")},
        )  # fmt: skip
        if words is good:
            assert done.returncode == 0, done.stdout + done.stderr
            assert "cujit" not in done.stderr
        else:
            assert done.returncode != 0
            assert f"{program.name}:{_line(text, mark)}" in done.stderr, done.stderr


def _filled(text: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        text = text.replace(name, value)
    return text
