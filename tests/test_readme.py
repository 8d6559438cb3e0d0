"""What the README shows is run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from cujit.cli import main
from cujit.devices.process import process_devices

_README = (Path(__file__).parents[1] / "README.md").read_text()
_ON_CPU, _ON_GPU = re.findall(r"```python\n(.*?)```", _README, re.DOTALL)
(_SESSION,) = re.findall(r"```console\n(.*?)```", _README, re.DOTALL)
_EXPECTED = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0]


def _run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    return names


def test_readme_is_short() -> None:
    assert _README.count("\n") < 120


def test_ten_lines_on_the_cpu_run(capsys: pytest.CaptureFixture[str]) -> None:
    names = _run(_ON_CPU)
    assert names["y"].tolist() == _EXPECTED
    shown = re.search(r"print\(y\) +# (.*)", _ON_CPU)
    assert shown
    assert capsys.readouterr().out.strip() == shown[1]


def test_the_same_runs_on_the_cpu_device_when_that_is_asked_for() -> None:
    assert "cujit.gpu(0)" in _ON_GPU
    names = _run(_ON_GPU.replace("cujit.gpu(0)", "cujit.cpu()"))
    assert names["y"].numpy().tolist() == _EXPECTED


@pytest.mark.gpu
def test_the_same_runs_on_a_gpu() -> None:
    if not process_devices().gpus():
        pytest.skip("no GPU here")
    assert _run(_ON_GPU)["y"].numpy().tolist() == _EXPECTED


def test_session_prints_what_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes and register counts belong to one version of the toolkit: numbers count as equal, arrays do not."""
    monkeypatch.chdir(tmp_path)
    kernel = re.search(r'jit\("""\n(.*?)"""', _ON_CPU, re.DOTALL)
    assert kernel
    Path("axpy.cu").write_text(kernel[1])
    for line, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", _SESSION, re.MULTILINE):
        program, *arguments = shlex.split(line)
        assert program == "cujit"
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        assert _without_numbers(result.output) == _without_numbers(shown)
    assert str(np.array(_EXPECTED)) in _SESSION


def _without_numbers(text: str) -> str:
    text = re.sub(r"(?<![\w.])\d[\d,]*(?![\w.])", "N", text)
    return re.sub(r"[ ─\n]+", " ", text).strip()
