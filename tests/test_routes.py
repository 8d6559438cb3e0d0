"""Every snippet of docs/routes.md runs, on every device that it can run on, and is under ten lines."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from llvm_ir import module
from tile_code import needs_tiles

PAGE = (Path(__file__).parents[1] / "docs" / "routes.md").read_text()
ROUTES = dict(re.findall(r"^## (.+?)\n.*?```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE))
FILES = Path(__file__).parent / "goldens" / "device"
SCALE = 'extern "C" __global__ void scale(float *x, float a, int n) { if (threadIdx.x < n) x[threadIdx.x] *= a; }'
THRICE = module("define float @thrice(float %x) {\n  %y = fmul float %x, 3.0\n  ret float %y\n}\n")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The files that the snippets name, as the working directory."""
    (tmp_path / "scale.cu").write_text(SCALE)
    (tmp_path / "scale.ll").write_text(THRICE)
    for name in ("device.o", "libdevice.a"):
        shutil.copy(FILES / name, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("route", list(ROUTES))
def test_snippet_runs(route: str, device: Device) -> None:
    code = ROUTES[route]
    if "# needs a GPU" in code and not device.is_gpu:
        pytest.skip("this route needs a GPU")
    if "# needs tileiras" in code and needs_tiles.args[0]:
        pytest.skip(needs_tiles.kwargs["reason"])
    space: dict[str, object] = {"device": device, "__name__": "snippet"}
    exec(compile(code, route, "exec"), space)
    kernel = space.get("kernel")
    if isinstance(kernel, cujit.Kernel):
        x = device.array(np.arange(5, dtype=np.float32))
        kernel[1, 32](x, 3.0, 5)
        assert x.numpy().tolist() == [0, 3, 6, 9, 12]


@pytest.mark.parametrize("route", list(ROUTES))
def test_snippet_is_short(route: str) -> None:
    code = re.sub(r'code = """.*?"""', "", ROUTES[route], flags=re.DOTALL)
    lines = [line for line in code.splitlines() if line and not line.startswith(("import", "from", "#"))]
    assert len(lines) < 10


def test_every_route_has_a_snippet() -> None:
    assert list(ROUTES) == re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
    assert len(ROUTES) >= 9


@pytest.mark.usefixtures("folder")
def test_link_across_languages_is_equal_on_every_device(device: Device) -> None:
    space: dict[str, object] = {"device": device}
    exec(compile(ROUTES["LLVM IR and CUDA C++ in one kernel"], "route", "exec"), space)
    image = space["cubin" if device.is_gpu else "ptx"]
    assert isinstance(image, cujit.Artifact)
    x = device.array(np.array([1.25], np.float32))
    cujit.load(image, device)["k"][1, 1](x)
    assert x.numpy().tolist() == [3.75]
