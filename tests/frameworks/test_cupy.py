"""Modules of CuPy taken, and ours given to CuPy. Without a GPU, CuPy says what it would load, and cujit runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.errors import ArgumentError, FormatError, MissingError, UnsupportedError
from cujit.integrations.cupy_modules import module_of, raw_module
from raising import raises

SOURCE = """
#include "by.h"
template <class T> __global__ void scale(T *x, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) x[i] *= BY + EXTRA;
}
extern "C" __global__ void fill(float *x, float value) { x[threadIdx.x] = value; }
"""


@pytest.fixture(scope="module")
def cupy() -> Any:
    """The package cupy."""
    return pytest.importorskip("cupy")


@pytest.fixture
def options(tmp_path: Path) -> tuple[str, ...]:
    """Options as CuPy takes them: of the dialect, a macro, and a directory with a header."""
    (tmp_path / "by.h").write_text("#define BY 2")
    return ("-std=c++17", f"-I{tmp_path}", "-DEXTRA=1")


@pytest.mark.parametrize("place", ["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def test_cupy_module_is_accepted_with_options_and_names(cupy: Any, options: tuple[str, ...], place: str) -> None:
    if place != "cpu" and not cupy.cuda.is_available():
        pytest.skip("CuPy has no GPU here")
    raw = cupy.RawModule(code=SOURCE, options=options, name_expressions=["scale<float>", "scale<int>"])
    module, device = module_of(raw, place), cujit.cpu() if place == "cpu" else cujit.gpu(0)
    for name in ("float32", "int32"):
        x = device.array(np.ones(100, name))
        module["scale<float>" if name == "float32" else "scale<int>"].over(100)(x, 100)
        assert x.numpy().tolist() == [3] * 100
    assert "-I" not in str(module.artifact.provenance)  # which would keep it out of the cache


def test_every_spelling_of_a_directory_is_accepted(cupy: Any, options: tuple[str, ...], tmp_path: Path) -> None:
    for more in (("-I", str(tmp_path)), (f"--include-path={tmp_path}",), (f"-I={tmp_path}",)):
        raw = cupy.RawModule(code=SOURCE, options=(options[0], *more, options[2]), name_expressions=("scale<int>",))
        assert "scale<int>" in module_of(raw, "cpu")


def test_cupy_kernel_is_accepted(cupy: Any) -> None:
    raw = cupy.RawKernel('extern "C" __global__ void five(int *x) { *x = 5; }', "five")
    x = np.zeros(1, np.int32)
    module_of(raw, "cpu")[raw.name][1, 1](x)
    assert x.tolist() == [5]


def test_image_is_passed_to_cupy_and_back(cupy: Any) -> None:
    artifact = cujit.compile('extern "C" __global__ void five(int *x) { *x = 5; }', arch="compute_75")
    raw = raw_module(artifact)
    assert isinstance(raw, cupy.RawModule)
    assert Path(raw.file_path).read_bytes() == artifact.data
    assert raw_module(artifact.data).file_path == raw.file_path
    x = np.zeros(1, np.int32)
    module_of(raw, "cpu")["five"][1, 1](x)
    assert x.tolist() == [5]


@pytest.mark.gpu
def test_cupy_runs_the_image(cupy: Any) -> None:
    if not cupy.cuda.is_available():
        pytest.skip("CuPy has no GPU here")
    source = "template <class T> __global__ void fill(T *x, T value) { x[threadIdx.x] = value; }"
    arch = cujit.gpu(0).arch
    images = [cujit.compile(source, arch=a, names=["fill<float>"]) for a in (arch, arch.virtual)]
    images.append(cujit.build(source, targets=[str(arch), "compute_75"], names=["fill<float>"]))
    for image in images:
        x = cupy.zeros(32, dtype=np.float32)
        raw_module(image).get_function(image.names["fill<float>"])((1,), (32,), (x, np.float32(7)))
        assert x.get().tolist() == [7.0] * 32


@pytest.mark.gpu
def test_both_launch_the_same_kernel_of_a_cupy_module(cupy: Any, options: tuple[str, ...]) -> None:
    if not cupy.cuda.is_available():
        pytest.skip("CuPy has no GPU here")
    raw = cupy.RawModule(code=SOURCE, options=options, name_expressions=["scale<float>"])
    x = cupy.ones(100, dtype=np.float32)
    theirs = raw.get_function("scale<float>")
    theirs((1,), (128,), (x, np.int32(100)))
    module_of(raw)["scale<float>"].over(100, stream=cupy.cuda.get_current_stream())(x, 100)
    module_of(theirs)[theirs.name].over(100, stream=cupy.cuda.get_current_stream())(x, 100)
    assert x.get().tolist() == [27.0] * 100


def test_module_not_compiled_by_nvrtc_is_refused(cupy: Any) -> None:
    code = 'extern "C" __global__ void k() {}'
    with raises(UnsupportedError, "unsupported", "RawModule", "nvcc"):
        module_of(cupy.RawModule(code=code, backend="nvcc"))
    with raises(UnsupportedError, "unsupported", "RawKernel", "nvcc"):
        module_of(cupy.RawKernel(code, "k", backend="nvcc"))


def test_other_objects_are_refused(cupy: Any) -> None:  # noqa: ARG001 - it is skipped where there is none
    with raises(ArgumentError, "argument", "RawModule", "RawKernel", "'code'"):
        module_of("code")
    with raises(FormatError, "format", "CuPy", "ltoir"):
        raw_module(cujit.compile('extern "C" __global__ void k() {}', to="ltoir", arch="lto_90"))


def test_missing_cupy_is_reported_with_an_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cupy", None)
    with raises(MissingError, "missing", "CuPy") as e:
        raw_module(b"")
    assert "pip install cupy" in str(e.value.help)


def test_files_are_removed_with_their_process(cupy: Any) -> None:  # noqa: ARG001 - as above
    code = (
        "import os, cujit; from cujit.integrations.cupy_modules import raw_module\n"
        "raw = raw_module(cujit.compile('extern \"C\" __global__ void k() {}', arch='compute_75'))\n"
        "if os.fork() == 0: raise SystemExit\n"
        "os.wait(); assert os.path.exists(raw.file_path); print(raw.file_path)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not Path(done.stdout.strip()).parent.exists()
