"""What the README shows is run."""

from __future__ import annotations

import json
import re
import runpy
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from cujit.cli import main
from cujit.cli.app import COMMANDS
from cujit.devices.process import process_devices
from cujit.errors import KernelFaultError

_ROOT = Path(__file__).parents[1]
_README = (_ROOT / "README.md").read_text()
_ON_CPU, _ON_GPU = re.findall(r"```python\n(.*?)```", _README, re.DOTALL)
(_SESSION,) = re.findall(r"```console\n(.*?)```", _README, re.DOTALL)
_EXPECTED = [1.0, 3.0, 5.0, 7.0, 9.0, 11.0, 13.0, 15.0]


def _kernel() -> str:
    found = re.search(r'jit\("""\n(.*?)"""', _ON_CPU, re.DOTALL)
    assert found
    return found[1]


def _run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(code, "README.md", "exec"), names)
    return names


def test_readme_is_short() -> None:
    assert _README.count("\n") <= 120


def test_readme_has_ten_lines_two_commands_and_three_pictures() -> None:
    assert _ON_CPU.count("\n") in (10, 11)
    makefile = (_ROOT / "Makefile").read_text()
    assert "`make test`" in _README
    assert "\ntest: " in makefile
    assert "`cujit demo`" in _README
    assert "demo" in COMMANDS
    pictures = re.findall(r'srcset="(docs/images/(\w+)-dark\.svg)"><img src="(docs/images/(\w+)-light\.svg)"', _README)
    assert [name for _, name, _, same in pictures if name == same] == ["speed", "headers", "profile"]
    assert all((_ROOT / path).is_file() for dark, _, light, _ in pictures for path in (dark, light))


def test_pictures_show_what_the_pages_say() -> None:
    """``python docs/images/figures.py`` draws them anew."""
    space = runpy.run_path(str(_ROOT / "docs/images/figures.py"))
    for name, draw in space["PICTURES"].items():
        for shade, colors in (("light", space["LIGHT"]), ("dark", space["DARK"])):
            assert (_ROOT / f"docs/images/{name}-{shade}.svg").read_text() == draw(colors), name
    rows = [row for row in space["table"]("cpu.md", "kernel") if all(row)]
    assert len(rows) == 9
    shown = (_ROOT / "docs/images/profile-light.svg").read_text()
    assert [shown.count(f">{said}</text>") for said in ("32 sectors", "32 wavefronts", "1 wavefront")] == [1, 1, 3]
    assert "each warp&#x27;s store at transpose.cu:3 moves 32 sectors for 128 bytes" in shown
    for name, *times in rows:
        assert f">{name}</text>" in (_ROOT / "docs/images/speed-dark.svg").read_text()
        for said in times:
            assert f"<title>{said}</title>" in (_ROOT / "docs/images/speed-dark.svg").read_text()


def test_alternative_texts_have_the_numbers_of_the_pictures() -> None:
    space = runpy.run_path(str(_ROOT / "docs/images/figures.py"))
    rows = [[float(cell) for cell in row[1:]] for row in space["table"]("cpu.md", "kernel") if all(row)]
    one, all_, pocl = (f"{min(column):g} to {max(column):g}" for column in zip(*rows, strict=True))
    assert f"On 2 cores, the CUDA kernels run {one} times as fast as C" in " ".join(_README.split())
    assert f"C on 2 cores: {one} times. C on 16 cores: {all_} times. PoCL on 16 cores: {pocl} times" in _README
    times = [row[1:] for row in space["table"]("cache.md", "CPU ms") if "without" not in row[0]]
    first, second = ([f"{float(said):,g}" for said in column] for column in zip(*times, strict=True))
    shown = "{} ms from a pack, {} ms from the cache, {} ms from the compiler"
    assert f"First kernel of a process: {shown.format(*first)}. Second kernel: {shown.format(*second)}" in _README


def test_ten_lines_on_the_cpu_run(capsys: pytest.CaptureFixture[str]) -> None:
    names = _run(_ON_CPU)
    assert names["y"].tolist() == _EXPECTED
    shown = re.search(r"print\(y\) +# (.*)", _ON_CPU)
    assert shown
    assert capsys.readouterr().out.strip() == shown[1]


@pytest.fixture
def saved_kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("axpy.cu").write_text(_kernel())


@pytest.mark.usefixtures("saved_kernel")
def test_example_runs_on_the_cpu_device_on_request() -> None:
    assert "cujit.gpu(0)" in _ON_GPU
    names = _run(_ON_GPU.replace("cujit.gpu(0)", "cujit.cpu()"))
    assert names["y"].numpy().tolist() == _EXPECTED


@pytest.mark.gpu
@pytest.mark.usefixtures("saved_kernel")
def test_example_runs_on_a_gpu() -> None:
    if not process_devices().gpus():
        pytest.skip("no GPU here")
    assert _run(_ON_GPU)["y"].numpy().tolist() == _EXPECTED


@pytest.mark.usefixtures("saved_kernel")
def test_session_prints_what_is_shown() -> None:
    """Sizes and register counts belong to one version of the toolkit: numbers count as equal, arrays do not."""
    for line, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", _SESSION, re.MULTILINE):
        program, *arguments = shlex.split(line)
        assert program == "cujit"
        result = CliRunner().invoke(main, arguments)
        assert result.exit_code == 0, result.output
        assert _without_numbers(result.output) == _without_numbers(shown)
    assert str(np.array(_EXPECTED)) in _SESSION


def test_checks_and_explicit_launches_work_as_the_page_says() -> None:
    check = 'device=cujit.cpu(check="memory")'
    assert f"`{check}`" in _README
    assert "`axpy[grid, block](2.0, x, y, x.size)`" in _README
    grid = _ON_CPU.replace("axpy.over(x.size)(", "axpy[2, 4](").replace('device="cpu"', check)
    assert _run(grid)["y"].tolist() == _EXPECTED
    with pytest.raises(KernelFaultError) as caught:
        _run(grid.replace("axpy[2, 4]", "axpy[3, 4]").replace("y, x.size)", "y, 12)"))
    assert "block (2, 0, 0), thread (0, 0, 0)" in str(caught.value)
    assert "source.cu:4" in str(caught.value)


def test_argument_index_is_explained_and_belongs_to_y() -> None:
    assert "`--print 3` prints the third argument" in _README
    (arguments,) = re.findall(r"(--arg .*) --print 3", _SESSION)
    assert arguments.split("--arg ")[1:][2].strip() == "ones:f32:8"


def _without_numbers(text: str) -> str:
    text = re.sub(r"(?<![\w.])\d[\d,]*(?![\w.])", "N", text)
    return re.sub(r"[ ─\n]+", " ", text).strip()


def _tables(text: str) -> dict[str, list[str]]:
    """Return the cells of every row of every table, by its first cell."""
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    return {row[0]: row[1:] for row in rows}


def test_comparison_has_the_figures_of_the_performance_page() -> None:
    """Which were measured: ``benchmarks/peers.json`` has them, and docs/launch.md those of launches."""
    compared = _tables(_README.partition("## Comparison")[2].partition("## ")[0])
    page = _tables((_ROOT / "docs/performance.md").read_text().partition("## Compared with other tools")[2])
    tools = compared.pop("")
    assert page[""] == tools
    del compared["---"], compared["Kernel language"]
    assert len(compared) >= 4
    for what, cells in compared.items():
        assert cells == page[what], what
    record = json.loads((_ROOT / "benchmarks/peers.json").read_text())
    measured = {what: row for part in record.values() for what, row in part["rows"].items()}
    for what, cells in compared.items():
        assert {tool: cell for tool, cell in zip(tools, cells, strict=True) if cell != "not measured"} == measured[what]
    life = json.loads((_ROOT / "tests/goldens/life.json").read_text())["medians"]["templates, each"]
    loaded = measured[
        "Time to load a small cached template in a running process and launch it once, in ms (lower is better)"
    ]
    assert (loaded["cujit"], loaded["CuPy"]) == tuple(f"{life[tool] / 1e3:.2f}" for tool in ("cujit", "cupy"))
    launches = (_ROOT / "docs/launch.md").read_text()
    for words, tool in (("cujit arrays", "cujit"), ("cuda.core,.*?", "cuda.core"), ("CuPy `RawKernel`", "CuPy")):
        found = re.search(rf"\| {words} \| ([\d.]+ to [\d.]+) \|", launches)
        assert found
        assert (
            found[1]
            == measured["Time per launch on an H200, relative to calling `cuLaunchKernel` from C (lower is better)"][
                tool
            ]
        )


def test_claims_tried_without_a_gpu_still_hold() -> None:
    peers = runpy.run_path(str(_ROOT / "benchmarks/peers.py"))
    for what, programs in peers["PROBES"].items():
        assert peers["answer"](programs["cujit"]) == ("yes", ""), what
    assert peers["answer"]("raise SystemExit('why')") == ("no", "why")
