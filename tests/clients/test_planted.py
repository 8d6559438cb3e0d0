"""Bugs planted in programs of clients are found by the checks, with their line of Python; the right ones pass."""

from __future__ import annotations

import os
import re
import subprocess
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

@cuda.jit(lineinfo=True)
def parted(x):
    i = cuda.threadIdx.x
    if i < PART:
        cuda.syncthreads()
        x[i] += 1
    else:
        x[i] += 1
        cuda.syncthreads()  # apart

@cuda.jit(lineinfo=True)
def counted(x, ones):
    count = cuda.shared.array(1, float32)
    i = cuda.threadIdx.x
    if i == 0:
        count[0] = 0
    cuda.syncthreads()
    ADD  # of many
    cuda.syncthreads()
    if i == 0:
        ones[0] = count[0]

@cuda.jit(lineinfo=True)
def halved(x, y):
    i = cuda.grid(1)
    y[i] = x[i] / 2  # never written

x = cuda.to_device(np.arange(64, dtype=np.float32))
doubled[1, 128](x, LENGTH)
turned[1, 64](x)
parted[1, 64](x)
assert (x.copy_to_host() == 2 * np.arange(64)[::-1] + 1).all()
ones = cuda.to_device(np.zeros(1, np.float32))
counted[1, 64](x, ones)
assert ones.copy_to_host()[0] == 64
y, z = cuda.device_array(64, np.float32), cuda.device_array(64, np.float32)
y[:WRITTEN] = x[:WRITTEN]
halved[1, 64](y, z)
assert (z.copy_to_host() == np.arange(64)[::-1] + .5).all()
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

@triton.jit
def summed(x, out, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    tl.store(out, tl.sum(tl.load(x + at, mask=at < n, other=0.0)))  # never written

TURN = tl.constexpr(  # in one line: the compiler counts those of the text as lines of this file
    "{ .reg .u32 %place, %other; .shared .align 4 .b32 room[128];"
    "mov.u32 %place, room; mov.u32 %other, %tid.x; shl.b32 %other, %other, 2; add.u32 %place, %place, %other;"
    "st.shared.b32 [%place], $1; BARRIER"
    "mov.u32 %place, room; sub.u32 %other, 508, %other; add.u32 %place, %place, %other;"
    "ld.shared.b32 $0, [%place]; }"
)

@triton.jit
def turned(x):
    at = tl.arange(0, 128)
    values = tl.load(x + at)
    values = tl.inline_asm_elementwise(TURN, "=r,r", [values], tl.float32, is_pure=False, pack=1)  # race
    tl.store(x + at, values)

MEET = tl.constexpr(
    "{ .reg .pred %first; .reg .u32 %i; mov.u32 %i, %tid.x; setp.lt.u32 %first, %i, PART; mov.b32 $0, $1;"
    "@%first bra HERE; bar.sync 0; bra ON; HERE: bar.sync 0; ON: }"
)

@triton.jit
def parted(x):
    at = tl.arange(0, 128)
    values = tl.load(x + at)
    values = tl.inline_asm_elementwise(MEET, "=r,r", [values], tl.float32, is_pure=False, pack=1)  # apart
    tl.store(x + at, values)

triton.runtime.driver.active.get_current_device()
x = Array(np.arange(128, dtype=np.float32))
turned[(1,)](x, num_warps=4)
parted[(1,)](x, num_warps=4)
out = np.empty(128, np.float32)
error, = driver.cuMemcpyDtoH(out.ctypes.data, x.pointer, x.nbytes)
assert int(error) == 0 and (out == np.arange(128)[::-1]).all()
x = Array(np.arange(100, dtype=np.float32))
doubled[(1,)](x, LENGTH, BLOCK=128)
out = np.empty(100, np.float32)
error, = driver.cuMemcpyDtoH(out.ctypes.data, x.pointer, x.nbytes)
assert int(error) == 0 and (out == 2 * np.arange(100)).all()
_, x.pointer = driver.cuMemAlloc(x.nbytes)
driver.cuMemcpyHtoD(x.pointer, out.ctypes.data, 4 * WRITTEN)
total = Array(np.zeros(1, np.float32))
summed[(1,)](x, total, 100, BLOCK=128)
error, = driver.cuMemcpyDtoH(out.ctypes.data, total.pointer, 4)
assert int(error) == 0 and out[0] == 9900
"""


_NOTEBOOK = """
import linecache
import cujit
cujit.emulate(check="memory")
names = {"__name__": "__main__"}
for number, cell in enumerate(open(CELLS).read().split("# %%"), 1):
    name = f"<cell {number}>"
    linecache.cache[name] = len(cell), None, cell.splitlines(keepends=True), name
    try:
        exec(compile(cell, name, "exec"), names)
        print(number, "good")
    except Exception as e:
        print(number, e)
"""

_CELLS = """
import numpy as np
from numba import cuda
# %%
@cuda.jit(lineinfo=True)
def doubled(x, n):
    i = cuda.grid(1)
    if i < n:
        x[i] *= 2  # out of bounds
x = cuda.to_device(np.arange(64, dtype=np.float32))
# %%
doubled[1, 128](x, 64)
cuda.synchronize()
# %%
doubled[1, 128](x, 128)
cuda.synchronize()
"""

_TESTS = """
import multiprocessing
import numpy as np
import pytest
from numba import cuda

@cuda.jit(lineinfo=True)
def doubled(x, n):
    i = cuda.grid(1)
    if i < n:
        x[i] *= 2  # out of bounds

def work(length):
    x = cuda.to_device(np.arange(64, dtype=np.float32))
    doubled[1, 128](x, length)
    assert (x.copy_to_host() == 2 * np.arange(64)).all()

@pytest.mark.parametrize("length", [64, 128])
@pytest.mark.parametrize("way", ["spawn", "forkserver"])
def test_in_a_child(way, length):
    child = multiprocessing.get_context(way).Process(target=work, args=(length,))
    child.start()
    child.join()
    assert child.exitcode == 0

@pytest.mark.parametrize("length", [64, 128])
def test_here(length):
    work(length)
"""

_CORE = """
import sys
import numpy as np
from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch

CODE = '''
extern "C" __global__ void scale(float* x, int n) {
    if (threadIdx.x < n)
        x[threadIdx.x] *= 2;
}'''

def work(length):
    device = Device()
    device.set_current()
    options = ProgramOptions(arch=f"sm_{device.arch}", lineinfo=True, name="scale.cu")
    kernel = Program(CODE, "c++", options).compile("cubin").get_kernel("scale")
    x = device.allocate(256, stream=device.default_stream)
    launch(device.default_stream, LaunchConfig(grid=1, block=128), kernel, x, np.int32(length))
    device.default_stream.sync()

if __name__ == "__main__":
    import multiprocessing
    for way in ("spawn", "fork", "forkserver"):
        for length in (64, 65):
            child = multiprocessing.get_context(way).Process(target=work, args=(length,))
            child.start()
            child.join()
            print(way, length, child.exitcode, flush=True)
"""


def _line(text: str, mark: str) -> int:
    return next(number for number, line in enumerate(text.splitlines(), 1) if line.endswith(f"# {mark}"))


@pytest.mark.parametrize(
    ("client", "text", "wrong", "check", "mark"),
    [
        ("numba_cuda", _NUMBA, {"LENGTH": "128"}, "memory", "out of bounds"),
        ("numba_cuda", _NUMBA, {"BARRIER": "pass"}, "race", "race"),
        ("numba_cuda", _NUMBA, {"ADD": "count[0] += 1"}, "race", "of many"),
        ("numba_cuda", _NUMBA, {"PART": "16"}, "sync", "apart"),
        ("numba_cuda", _NUMBA, {"WRITTEN": "60"}, "init", "never written"),
        ("triton", _TRITON, {"LENGTH": "128"}, "memory", "out of bounds"),
        ("triton", _TRITON, {"BARRIER": ""}, "race", "race"),
        ("triton", _TRITON, {"PART": "16"}, "sync", "apart"),
        ("triton", _TRITON, {"WRITTEN": "99"}, "init", "never written"),
    ],
    ids=[
        *("numba bounds", "numba no barrier", "numba race", "numba barrier of some", "numba not written"),
        *("triton bounds", "triton no barrier", "triton barrier of some", "triton not written"),
    ],
)
def test_planted_bug_is_found_at_its_line_and_fix_is_silent(
    client: str, text: str, wrong: dict[str, str], check: str, mark: str, tmp_path: Path
) -> None:
    if find_spec(client) is None:
        pytest.skip(f"{client} is not installed: `make clients`")
    good = {
        "numba_cuda": {
            "LENGTH": "64",
            "BARRIER": "cuda.syncthreads()",
            "ADD": "cuda.atomic.add(count, 0, 1)",
            "WRITTEN": "64",
        },
        "triton": {"LENGTH": "100", "BARRIER": "bar.sync 0;", "WRITTEN": "100"},
    }[client] | {"PART": "32"}
    for words in (good, {**good, **wrong}):
        program = tmp_path / str(words is good) / "planted.py"
        program.parent.mkdir()
        program.write_text(_filled(text, words))
        done = emulated(
            sys.executable, program, settings=EmulatorSettings(check=check), timeout_s=300,
            variables={"NUMBA_CUDA_WARN_ON_IMPLICIT_COPY": "0", "TRITON_CACHE_DIR": str(program.parent)},
        )  # fmt: skip
        if words is good:
            assert done.returncode == 0, done.stdout + done.stderr
            assert "cujit" not in done.stderr
        else:
            assert done.returncode != 0
            assert f"{program}:{_line(text, mark)}" in done.stderr, done.stderr


def _filled(text: str, words: dict[str, str]) -> str:
    for name, value in words.items():
        text = text.replace(name, value)
    return text


def test_notebook_continues_to_the_planted_bug(tmp_path: Path) -> None:
    if find_spec("numba_cuda") is None:
        pytest.skip("numba_cuda is not installed: `make clients`")
    (tmp_path / "cells").write_text(_CELLS)
    program = f"CELLS = {str(tmp_path / 'cells')!r}\n{_NOTEBOOK}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=300, check=False)
    *good, last = done.stdout.splitlines()
    assert (done.returncode, good) == (0, ["1 good", "2 good", "3 good"]), done.stdout + done.stderr
    assert last.startswith("4 ")
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in last
    assert f"<cell 2>:{_line(_CELLS.split('# %%')[1], 'out of bounds')}" in done.stderr, done.stderr


_PAGE = Path(__file__).parents[2] / "docs/emulate.md"
_FOR_CI = re.findall(r"^- run: (cujit emulate .* pytest)$", _PAGE.read_text(), re.MULTILINE)
_BY_PLUGIN = "pytest --cujit-emulate --cujit-emulated check=memory"


@pytest.mark.parametrize("command", [*_FOR_CI, _BY_PLUGIN, f"{_BY_PLUGIN} -n 2"])
def test_planted_bug_fails_tests_in_workers_and_children(command: str, tmp_path: Path) -> None:
    if find_spec("numba_cuda") is None:
        pytest.skip("numba_cuda is not installed: `make clients`")
    (tmp_path / "test_doubled.py").write_text(_TESTS)
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [*command.split(), "-p", "no:cacheprovider"],
        cwd=tmp_path, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    parts = re.split(r"^_+ (?=test_)", done.stdout.partition("short test summary")[0], flags=re.MULTILINE)[1:]
    found = {part.split()[0]: part for part in parts}
    wrong = ["test_here[128]", "test_in_a_child[forkserver-128]", "test_in_a_child[spawn-128]"]
    assert sorted(found) == wrong, done.stdout + done.stderr
    line = f"test_doubled.py:{_line(_TESTS, 'out of bounds')}"
    assert all(line in found[each] for each in wrong), done.stdout


def test_page_contains_a_line_for_ci() -> None:
    assert len(_FOR_CI) == 1


def test_children_of_every_start_method_find_the_bug(tmp_path: Path) -> None:
    program = tmp_path / "scaling.py"
    program.write_text(_CORE)
    done = emulated(sys.executable, program, settings=EmulatorSettings(check="memory"))
    lines = [f"{way} {length} {length - 64}" for way in ("spawn", "fork", "forkserver") for length in (64, 65)]
    assert done.stdout.splitlines() == lines, done.stdout + done.stderr
    assert done.stderr.count("scale.cu:4") == 3, done.stderr


@pytest.mark.skipif(find_spec("numba_cuda") is None, reason="numba-cuda is not installed")
def test_simulator_page_shows_a_bug_that_is_found(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs/how-to/numba-simulator.md").read_text()
    code = page.partition("```python")[2].partition("\n")[2].partition("```")[0]
    for text, status in ((code, 1), (code.replace("i <= x.size", "i < x.size"), 0)):
        (tmp_path / "test_scale.py").write_text(text)
        command = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "test_scale.py")
        done = emulated(*command, settings=EmulatorSettings(check="memory,race"), folder=tmp_path)
        said = done.stdout + done.stderr
        assert done.returncode == status, said
        assert ("just past the end of the 400-byte array" in said) == bool(status), said
        assert ("test_scale.py:9" in said) == bool(status), said
