"""Images that cujit built with CUDA 12.9, for every GPU from sm_50 to sm_121, are read here and run where they can."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from cujit.artifact import Artifact
from cujit.devices.cuda.compat import compat
from cujit.devices.device import Device
from cujit.errors import CujitError
from cujit.formats.fatbin import EntryKind, FatbinEntry, read_fatbin
from cujit.formats.mangling import entity_name
from cujit.inspection.read import inspect
from cujit.inspection.usage import usage
from cujit.loading import load
from cujit.occupancy.subject import of as occupancy
from cujit.program import Source, build, toolchain
from raising import raises

GOLDENS = Path(__file__).parent / "goldens" / "cuda12"
EVERY = GOLDENS / "every.fatbin"
NUMBERS = (50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90, 100, 101, 103, 120, 121)
FATBIN = read_fatbin(EVERY.read_bytes())
CUBINS = [entry for entry in FATBIN.entries if entry.kind is EntryKind.CUBIN]


def assert_computes(image: Artifact | Path | bytes, device: Device) -> None:
    with load(image, device) as module:
        x, y = device.array(np.arange(100.0)), device.array(np.ones(100))
        module["axpy<double>"].over(100)(3.0, x, y, 100)
        assert y.numpy().tolist() == [1 + 6.0 * k for k in range(100)]
        values = np.random.default_rng(5).integers(0, 256, 1000, np.uint8)
        bins = device.array(np.zeros(16, np.uint32))
        for _ in range(2):
            module["count"][1, 64](device.array(values), 1000, bins)
        assert bins.numpy().tolist() == np.bincount(values & 15, minlength=16).tolist()
        assert module.variable("total").numpy().view(np.uint32).tolist() == [2000]


def test_every_image_and_kernel_is_read() -> None:
    seen = inspect(EVERY)
    assert not seen.errors
    held = {(image.kind.value, str(image.arch)) for image in seen}
    numbers = (*NUMBERS, "90a", "100f")
    assert held == {("ptx", "compute_50"), *(("cubin", f"sm_{number}") for number in numbers)}
    for image in seen:
        assert sorted(entity_name(kernel.name) or "" for kernel in image.kernels) == ["axpy<double>", "count"]
        assert sorted(variable.name for variable in image.variables) == ["factor", "total"]


@pytest.mark.parametrize("entry", CUBINS, ids=lambda entry: str(entry.arch))
def test_usage_and_occupancy_exist_for_every_architecture(entry: FatbinEntry) -> None:
    used = usage(entry.payload())["count"]
    assert (used.shared_bytes, used.barriers, used.stack_bytes, used.spill_store_bytes) == (64, 1, 0, 0)
    assert used.registers in range(8, 33)
    told = occupancy(EVERY, 64, kernel="count", on=entry.arch)
    assert told.active_blocks >= 16


@pytest.mark.parametrize("number", NUMBERS)
def test_each_gpu_of_the_time_uses_its_own_sass(number: int) -> None:
    picked = [verdict.entry for verdict in compat(EVERY, driver="12.9", device=f"sm_{number}") if verdict.picked]
    assert picked == [{90: "cubin sm_90a", 100: "cubin sm_100f"}.get(number, f"cubin sm_{number}")]


def test_later_gpus_compile_the_oldest_ptx() -> None:
    for device in ("sm_88", "sm_110"):
        picked = [verdict.entry for verdict in compat(EVERY, driver="13.0", device=device) if verdict.picked]
        assert picked == ["ptx compute_50"]


@pytest.mark.parametrize("name", ["every.fatbin", "oldest.ptx"])
def test_images_compute_the_right_results(device: Device, name: str) -> None:
    assert_computes(GOLDENS / name, device)


@pytest.mark.gpu
@pytest.mark.parametrize("entry", FATBIN.entries, ids=str)
def test_image_runs_on_a_gpu_or_explains_why_not(entry: FatbinEntry, gpu: Device) -> None:
    image = Artifact.of(entry.payload())
    arch = entry.arch
    assert arch is not None
    if arch.runs_on(gpu.arch):
        assert_computes(image, gpu)
        return
    with raises(CujitError, "load", arch, gpu.arch):
        load(image, gpu)


@pytest.mark.gpu
def test_linked_cubin_for_an_old_gpu_is_refused_by_name(gpu: Device) -> None:
    with raises(CujitError, "load", "sm_60"):
        load(GOLDENS / "linked.cubin", gpu)


def test_toolkit_12_9_builds_equal_images() -> None:
    if toolchain().nvrtc.version != (12, 9):
        pytest.skip("this is another toolkit; `make toolkits` has that of 12.9")
    source = Source.cuda(GOLDENS / "kernels.cu", name="kernels.cu")
    fatbin = build(source, ["sm_50", "sm_72", "compute_50"], names=["axpy<double>"], compress=True)
    made = {(entry.kind, entry.arch): entry.payload() for entry in read_fatbin(fatbin.data).entries}
    kept = {(entry.kind, entry.arch): entry.payload() for entry in FATBIN.entries}
    assert {what: kept[what] for what in made} == made
