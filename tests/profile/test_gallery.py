"""The kernels of the gallery: right, silent under all checks, and with the advice and the counters of the page."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

import cujit

ROOT = Path(__file__).parents[2]
GALLERY: dict[str, Any] = runpy.run_path(str(ROOT / "examples/gallery/gallery.py"))
GOLDEN: dict[str, Any] = json.loads((ROOT / "tests/goldens/gallery.json").read_text())


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", GALLERY["KERNELS"])
def test_gallery_kernel_has_the_figures_of_its_page(name: str) -> None:
    _, kernels = GALLERY["profiled"](name)
    naive, optimized = ({**GALLERY["counters"](kernel)} for kernel in kernels)
    assert {"naive": naive, "optimized": optimized} == GOLDEN[name]["counters"]
    assert GALLERY["advice_of"](kernels[0]) == GOLDEN[name]["advice"] != {}


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("name", GALLERY["KERNELS"])
def test_gallery_kernel_is_silent_under_all_checks(name: str) -> None:
    small = {
        "reduction": 4096,
        "histogram": 4096,
        "scan": 16,
        "softmax": 8,
        "layer_norm": 8,
        "transpose": 32,
        "sort": 1,
    }
    GALLERY["run"](name, cujit.cpu(check="all"), small.get(name, GALLERY["KERNELS"][name].small))


def test_gallery_command_writes_figures_and_a_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures, report = tmp_path / "figures.json", tmp_path / "report.html"
    GALLERY["main"](["sort", "--json", str(figures), "--report", str(report)])
    assert json.loads(figures.read_text())["sort"]["counters"] == GOLDEN["sort"]["counters"]
    assert "Sort" in report.read_text()
    assert "divergent branches: 10,727 -> 0" in capsys.readouterr().out


@pytest.mark.gpu
@pytest.mark.parametrize("name", GALLERY["KERNELS"])
def test_gallery_kernel_is_right_on_a_gpu(name: str, gpu: cujit.Device) -> None:
    GALLERY["run"](name, gpu, GALLERY["KERNELS"][name].small)
