"""Seven kernels through the whole of cujit, equal to numpy on every device and for PTX of every generation."""

from __future__ import annotations

import numpy as np
import pytest

from cujit.devices.arrays.array import DeviceArray
from cujit.devices.device import Device
from cujit.loading import load
from cujit.program import Source, build, compile
from kernels.cases import CASES, OPTIONS, SOURCE, Array, Case


def run(case: Case, device: Device, target: str) -> tuple[Array, ...]:
    """Compile for one target, launch, and bring the outputs back."""
    artifact = compile(Source.cuda(SOURCE), arch=target, names=[case.kernel], options=OPTIONS)
    arguments = [device.array(a) if isinstance(a, np.ndarray) else a for a in case.arguments]
    load(artifact, device)[case.kernel][case.grid, case.block](*arguments)
    outputs = [arguments[k] for k in case.outputs]
    return tuple(a.numpy() for a in outputs if isinstance(a, DeviceArray))


def assert_equals_reference(case: Case, got: tuple[Array, ...]) -> None:
    expected = case.reference()
    assert len(got) == len(expected)
    for mine, theirs in zip(got, expected, strict=True):
        np.testing.assert_array_equal(mine, theirs)


@pytest.mark.parametrize("target", ["compute_75", "compute_80", "compute_90", "compute_100", "compute_120"])
@pytest.mark.parametrize("case", CASES, ids=lambda c: c.kernel)
def test_cpu_device_equals_numpy_for_ptx_of_every_generation(case: Case, target: str, cpu: Device) -> None:
    assert_equals_reference(case, run(case, cpu, target))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.kernel)
def test_every_device_equals_numpy_to_the_last_bit(case: Case, device: Device) -> None:
    assert_equals_reference(case, run(case, device, "compute_75"))


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.kernel)
def test_every_device_selects_its_image_of_a_fatbin(case: Case, device: Device) -> None:
    targets = ["sm_80", "sm_90", "compute_80"]
    fatbin = build(Source.cuda(SOURCE), targets, names=[case.kernel], options=OPTIONS)
    arguments = [device.array(a) if isinstance(a, np.ndarray) else a for a in case.arguments]
    load(fatbin, device)[case.kernel][case.grid, case.block](*arguments)
    got = tuple(arguments[k].numpy() for k in case.outputs)
    assert_equals_reference(case, got)
