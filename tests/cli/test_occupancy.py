from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from click.testing import CliRunner, Result

from cujit.arch import Arch
from cujit.cli.occupancy import command
from cujit.devices.device import Device
from cujit.errors import (
    ArchError,
    ArgumentError,
    CujitError,
    DriverNotFoundError,
    LaunchError,
    MissingError,
    NameNotFoundError,
)
from cujit.program import build
from raising import raises

Occupancy: TypeAlias = Callable[..., Result]
CODE = """
extern "C" __global__ void axpy(float a, const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"""


@pytest.fixture
def occupancy(monkeypatch: pytest.MonkeyPatch) -> Occupancy:
    """Run the verb as on a machine without a GPU; errors of cujit come through."""
    from cujit.cli import occupancy as verb

    class NoDevices:
        def gpus(self) -> tuple[Device, ...]:
            raise DriverNotFoundError("no driver")

    monkeypatch.setattr(verb, "process_devices", NoDevices)

    def run(*arguments: object) -> Result:
        return CliRunner().invoke(command, [str(a) for a in arguments], catch_exceptions=False)

    return run


@pytest.fixture
def fatbin(tmp_path: Path) -> Path:
    return build(CODE, ["sm_80", "sm_90", "compute_80"]).save(tmp_path / "axpy.fatbin")


def rows(result: Result) -> dict[int, Any]:
    return {row["block"]: row for row in json.loads(result.stdout)["rows"]}


def test_table_over_block_sizes_marks_the_best(occupancy: Occupancy, fatbin: Path) -> None:
    result = occupancy(fatbin, "--on", "H200")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0] == "axpy on H200 (sm_90), 132 multiprocessors"
    cells = {line.split()[0]: line for line in lines[3:] if line.strip()[:1].isdigit()}
    assert list(map(int, cells)) == [32, 64, 96, 128, 160, 192, 224, 256, 320, 384, 448, 512, 640, 768, 896, 1024]
    assert "best" in cells["1024"]
    assert result.stdout.count("best") == 1
    assert cells["32"].startswith("   32 ")  # to the right, below its head
    assert cells["32"].split()[1:] == ["50.0%", "32", "32", "of", "64", "blocks", "4,224"]
    assert "driver" not in result.stdout


def test_json_has_every_number(occupancy: Occupancy, fatbin: Path) -> None:
    result = occupancy(fatbin, "--on", "A100", "--block", 96, "--block", 1024, "--grid", 1000, "--json")
    data = json.loads(result.stdout)
    assert data["schema"] == 1
    head = {name: data[name] for name in ("kernel", "gpu", "arch", "processors", "best_block", "max_threads")}
    assert head == {
        "kernel": "axpy",
        "gpu": "A100",
        "arch": "sm_80",
        "processors": 108,
        "best_block": 1024,
        "max_threads": 1024,
    }
    assert set(rows(result)) == {96, 1024}
    assert rows(result)[96]["active_blocks"] == 21
    assert rows(result)[96]["limited_by"] == ["warps"]
    assert rows(result)[1024]["waves"]["rounds"] == 5
    assert rows(result)[1024]["cooperative_blocks"] == 216


def test_occupancy_of_numbers_needs_no_file(occupancy: Occupancy) -> None:
    arguments = ("--registers", 72, "--static-shared-bytes", 16384, "--on", "rtx 5090", "--shared-per-thread", 16)
    found = rows(occupancy(*arguments, "--json"))
    assert found[160]["shared_bytes"] == 2560
    assert found[160]["limited_by"] == ["registers", "shared memory"]
    assert found[160]["next_step"] == {
        "blocks": 6,
        "occupancy": 0.625,
        "registers": 64,
        "shared_bytes": 16000,
        "barriers": None,
    }
    text = occupancy(*arguments).stdout
    assert "registers ≤ 64, shared ≤ 16,000" in text


def test_better_block_size_than_requested_is_reported(occupancy: Occupancy) -> None:
    result = occupancy("--registers", 40, "--on", "H200", "--block", 1024)
    assert "a block of 768 would give 75.0%" in result.stdout
    assert "best" not in result.stdout


def test_equally_good_block_size_is_not_reported(occupancy: Occupancy) -> None:
    result = occupancy("--registers", 32, "--on", "H200", "--block", 256)
    assert "100.0%" in result.stdout
    assert "would give" not in result.stdout


def test_kernel_that_cannot_run_is_reported(occupancy: Occupancy) -> None:
    result = occupancy("--registers", 32, "--on", "H200", "--shared-bytes", 300_000)
    assert "no block of this kernel runs there" in result.stdout
    assert "best" not in result.stdout


def test_cluster_occupancy_is_printed(occupancy: Occupancy) -> None:
    assert rows(occupancy("--registers", 32, "--on", "H200", "--cluster", 4, "--json"))[1024]["clusters_bound"] == 66
    assert "clusters at most" in occupancy("--registers", 32, "--on", "H200", "--cluster", 4).stdout


def test_sizes_are_written_as_for_a_launch(occupancy: Occupancy) -> None:
    def of(*shape: str) -> object:
        return json.loads(occupancy("--registers", 32, "--on", "H200", *shape, "--json").stdout)

    flat = of("--block", "256", "--grid", "4096", "--cluster", "4")
    assert of("--block", "16x16", "--grid", "64x64", "--cluster", "2,2") == flat
    assert of("--block", "16x16") != flat
    assert occupancy("--registers", 32, "--on", "H200", "--block", "16x").exit_code == 2


def test_missing_file_error_names_the_needed_options(occupancy: Occupancy) -> None:
    assert occupancy("--registers", 32).exit_code == 2
    result = occupancy("--on", "H200")
    assert result.exit_code == 2
    assert "--registers and --on" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        (("--on", "H300"), ArchError, ("arch", "GPU", "H300")),
        (("--on", "H200", "--kernel", "axpi"), NameNotFoundError, ("name-not-found", "axpi")),
        (("--on", "H200", "--block", "2000"), LaunchError, ("block-size", "GPU", "1024")),
        ((), ArchError, ("arch-mismatch", "sm_80", "sm_90")),
    ],
    ids=["gpu", "kernel", "block", "no gpu"],
)
def test_wrong_input_raises_cujits_errors(
    occupancy: Occupancy, fatbin: Path, arguments: tuple[str, ...], error: type[CujitError], message: tuple[str, ...]
) -> None:
    with raises(error, *message):
        occupancy(fatbin, *arguments)


def test_cpu_device_is_refused(fatbin: Path) -> None:
    with raises(ArgumentError, "device-mismatch", "GPUs", "on='sm_90'"):
        CliRunner().invoke(command, [str(fatbin), "--on", "cpu"], catch_exceptions=False)


def test_plot_is_written(occupancy: Occupancy, fatbin: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    light, dark = tmp_path / "light.svg", tmp_path / "dark.svg"
    assert occupancy(fatbin, "--on", "H200", "--block", 256, "--plot", light).exit_code == 0
    assert occupancy(fatbin, "--on", "H200", "--block", 256, "--plot", dark, "--dark").exit_code == 0
    assert light.read_text() != dark.read_text()


def test_driver_failure_is_reported_and_cujits_result_shown(
    occupancy: Occupancy, fatbin: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from cujit.cli import occupancy as verb

    class Gpu:
        name = "cuda:0"
        arch = Arch.parse("sm_90")

    class OneGpu:
        def gpus(self) -> tuple[Gpu, ...]:
            return (Gpu(),)

    def fails(*_arguments: object) -> None:
        raise MissingError("it is asleep")

    monkeypatch.setattr(verb, "process_devices", OneGpu)
    monkeypatch.setattr(verb, "load", fails)
    result = occupancy(fatbin, "--on", "H200", "--json")
    assert "cujit couldn't query the driver of cuda:0: it is asleep" in result.stderr
    assert "driver_occupancy" not in result.stdout


@pytest.mark.gpu
def test_drivers_result_is_printed_next_to_cujits(gpu: Device, tmp_path: Path) -> None:
    path = build(CODE, [gpu.arch]).save(tmp_path / "axpy.fatbin")
    result = CliRunner().invoke(command, [str(path), "--on", gpu.name, "--json"], catch_exceptions=False)
    for row in rows(result).values():
        assert row["driver_occupancy"] == row["occupancy"], row
    text = CliRunner().invoke(command, [str(path), "--on", gpu.name], catch_exceptions=False).stdout
    assert "driver" in text
