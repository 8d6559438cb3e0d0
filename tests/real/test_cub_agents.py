"""Agents of cub's device-wide algorithms are silent over partial tiles, and a wrong size is found.

``test_cub_device.py`` has the others.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import cujit
from cujit.errors import KernelFaultError

pytestmark = pytest.mark.usefixtures("unoptimised")
_SIZES = (1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 255, 257, 511, 512, 513, 639, 640, 1023, 1024, 1025, 1500)
"""A tile has 512 elements."""


@pytest.fixture(scope="module")
def image() -> cujit.Artifact:
    return cujit.compile(cujit.Source.cuda(Path(__file__).parent / "cub_agents.cu"), arch="compute_80")


def test_agent_of_a_reduction_is_silent(image: cujit.Artifact) -> None:
    device = cujit.cpu(1, check="all")
    kernel = cujit.load(image, device)["reduce"]
    for n in _SIZES:
        x, out = np.random.default_rng(n).integers(-99, 99, n).astype(np.int32), device.zeros(1, np.int32)
        kernel[1, 128](device.array(x), out, np.int32(n), np.int32(0))
        assert out.numpy()[0] == x.sum(), n


def test_agent_of_a_scan_looks_back_and_is_silent(image: cujit.Artifact) -> None:
    device = cujit.cpu(1, check="all")
    kernels = cujit.load(image, device)
    for n in (1, 511, 512, 513, 1543):
        x, out, states = np.arange(n, dtype=np.int32), device.empty(n, np.int32), device.empty(1024, np.uint8)
        kernels["prepare"][1, 128](states, np.int32(n))
        kernels["scan"][-(-n // 512), 128](device.array(x), out, states, np.int32(n))
        np.testing.assert_array_equal(out.numpy(), 7 + np.cumsum(x) - x)


def test_scan_looks_back_under_every_schedule(image: cujit.Artifact) -> None:
    device = cujit.cpu()
    kernels = cujit.load(image, device)
    n, tiles = 40 * 512 + 7, 41  # more tiles than a warp looks back at once
    x, out, states = np.arange(n, dtype=np.int32), device.zeros(n, np.int32), device.zeros(1024, np.uint8)
    kernels["prepare"][1, 128](states, np.int32(n))
    launch = kernels["scan"].prepare(tiles, 128)
    arguments = device.array(x), out, states, np.int32(n)
    report = launch.under_schedules(*arguments, schedules=10)
    assert report.equal, report
    launch(*arguments)
    np.testing.assert_array_equal(out.numpy(), 7 + np.cumsum(x) - x)


@pytest.mark.parametrize(("check", "room"), [("memory", 0), ("init", 8)])
def test_oversized_input_is_found(check: str, room: int, image: cujit.Artifact) -> None:
    device = cujit.cpu(1, check=check)
    x, out = device.empty(129 + room, np.int32), device.zeros(1, np.int32)
    x[:129].fill(1)
    with pytest.raises(KernelFaultError) as caught:  # noqa: PT012 - the host finds what is raw
        cujit.load(image, device)["reduce"][1, 128](x, out, np.int32(129), np.int32(1))
        out.numpy()
    assert caught.value.kind == check
