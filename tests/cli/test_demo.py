from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeAlias

import pytest
from click.testing import Result

from cujit.cli import demo
from cujit.devices.process import process_devices
from cujit.program import toolchain

Cujit: TypeAlias = Callable[..., Result]


def test_demo_rate_counts_bytes_read_and_written() -> None:
    assert demo._rate(demo.DemoResult(0, "", 1e-3)) == pytest.approx(12.58, abs=0.01)  # three times 4 MiB


def test_demo_builds_every_architecture_and_gets_right_results(cujit: Cujit) -> None:
    result = cujit("demo", "--device", "cpu", "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    arches = [i["arch"] for i in told["images"] if i["kind"] == "cubin"]
    assert arches == [f"sm_{n}" for n in toolchain().nvrtc.arches]
    assert len(arches) >= 6
    assert [i["kind"] for i in told["images"] if i["kind"] != "cubin"] == ["ptx", "ptx"]
    assert all(k["registers"] > 0 for i in told["images"] for k in i.get("kernels", ()))
    assert (told["wrong"], told["elements"]) == (0, 1 << 20)
    assert told["launch_s"] > 0
    assert told["device"]["name"] == "cpu"
    assert told["device"]["why"] == "asked for"


def test_demo_describes_its_steps(cujit: Cujit) -> None:
    result = cujit("demo", "--device", "cpu")
    assert result.exit_code == 0, result.stderr
    for text in (
        "sm_90 ",
        "compressed",
        "(asked for)",
        "\nregisters  ",
        "\ntime  ",
        "all 1,048,576 elements equal",
    ):
        assert text in result.stdout


@pytest.mark.gpu
def test_demo_without_a_gpu_explains_its_device(cujit: Cujit) -> None:
    result = cujit("demo", "--json")
    chosen = json.loads(result.stdout)["device"]
    if process_devices().gpus():
        assert chosen["why"] == "the first GPU"
    else:
        assert chosen["name"] == "cpu"
        assert "driver" in chosen["why"]


def test_wrong_numbers_end_in_status_1(cujit: Cujit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "SOURCE", demo.SOURCE.replace("+ y[i]", "- y[i]"))
    monkeypatch.setattr(demo, "TARGETS", ("portable",))
    result = cujit("demo", "--device", "cpu")
    assert result.exit_code == 1
    assert "elements differ from NumPy's; the first is y[1] = 2.0, not 4.0" in result.stderr


def test_missing_device_ends_in_status_3(cujit: Cujit, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(demo, "TARGETS", ("portable",))
    assert cujit("demo", "--device", "cuda:99").exit_code == 3
