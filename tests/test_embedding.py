"""Images as Python modules: everything comes back, and the module loads itself."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from cujit.artifact import Artifact, Kind
from cujit.devices.base import Device
from cujit.program import Source, build, compile

AXPY = Source.cuda(
    """template <class T> __global__ void axpy(T a, const T *x, T *y, int n) {
        int i = threadIdx.x;
        if (i < n) y[i] += a * x[i];
    }""",
    name="axpy.cu",
)
NAMES = ["axpy<float>", "axpy<double>"]


def imported(text: str, folder: Path) -> ModuleType:
    path = folder / "_kernels.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location("_kernels", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("to", ["ptx", "cubin", "ltoir", "fatbin"])
def test_an_image_of_every_kind_comes_back_with_all_that_is_known_of_it(to: str, tmp_path: Path) -> None:
    image = build(AXPY, ["sm_80", "compute_75"], names=NAMES) if to == "fatbin" else compile(AXPY, to=to, names=NAMES)
    back = imported(image.to_python(), tmp_path).artifact()
    assert (back.kind, back.data, back.arch) == (image.kind, image.data, image.arch)
    assert dict(back.names) == dict(image.names)
    assert dict(back.signatures) == dict(image.signatures)
    assert back.tool == image.tool


def test_the_module_loads_itself_on_every_device(device: Device, tmp_path: Path) -> None:
    module = imported(build(AXPY, ["sm_80", "sm_90", "compute_75"], names=NAMES).to_python(), tmp_path)
    x, y = device.array(np.arange(8.0)), device.array(np.ones(8))
    module.load(device)["axpy<double>"][1, 32](2.0, x, y, 8)
    assert y.numpy().tolist() == [1 + 2.0 * k for k in range(8)]


def test_ptx_stays_readable_text() -> None:
    text = compile(AXPY, to="ptx", names=NAMES).to_python()
    assert ".entry _Z4axpyIfEvT_" in text
    assert max(map(len, text.splitlines())) < 400


def test_ptx_that_would_break_out_of_its_quotes_is_packed(tmp_path: Path) -> None:
    data = b'.version 8.0\n.target sm_80\n// """ + __import__("os").abort() + r"""\n'
    module = imported(Artifact(Kind.PTX, data).to_python(), tmp_path)
    assert module.artifact().data == data


def test_a_name_cannot_smuggle_code_into_the_module(tmp_path: Path) -> None:
    name = "x': 1}; raise SystemExit('taken')  # \n\"\"\" {0} %s \\"
    module = imported(
        Artifact(Kind.PTX, b".version 8.0\n", names={name: name}, tool=name, name=name).to_python(), tmp_path
    )
    assert name in module.artifact().names


def test_the_command_writes_the_module(tmp_path: Path) -> None:
    source = compile(AXPY, to="cubin", arch="sm_90", names=NAMES).save(tmp_path / "k.cubin")
    out = tmp_path / "k.py"
    subprocess.run([sys.executable, "-m", "cujit", "embed", str(source), "-o", str(out)], check=True)
    assert imported(out.read_text(), tmp_path).artifact().data == source.read_bytes()
