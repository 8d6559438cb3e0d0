"""Products whose tiles several blocks share: right, silent under every check, and their mistakes are found."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cujit
from cujit.devices.arrays.array import DeviceArray
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from cujit.kernel import Launch
from real.running import HERE, Array, rng

M, N, K = 64, 32, 192
BOTH = pytest.mark.parametrize("name", ["stream_k", "split_k"])
MISTAKES = {
    "no wait for the last copy": (1, "race"),
    "the stage after the right one": (3, "race"),
    "no wait for other blocks": (4, "race"),
    "a tile too far": (6, "memory"),
    "no fence before the flag": (7, "race"),
}
"""Mistakes of both kernels: the number of the fault and the kind of the finding."""


@functools.cache
def module(device: Device) -> cujit.Module:
    """Load the program of this test on a device, once."""
    return cujit.load(cujit.compile(cujit.Source.cuda(HERE / "products.cu"), arch="compute_80", lineinfo=True), device)


@functools.cache
def checked() -> Device:
    """Make a device with all checks, which keeps its compiled kernels for several tests."""
    return cujit.cpu(check="all")


def prepared(device: Device, name: str, fault: int = 0) -> tuple[Launch, tuple[object, ...]]:
    """Prepare a product: the launch and its arguments; ``c`` is the third of them."""
    halves = [device.array(rng(seed).integers(-3, 4, (rows, K)).astype(np.float16)) for seed, rows in ((1, M), (2, N))]
    grid = (5,) if name == "stream_k" else (N // 32, M // 32, 3)
    parts = device.empty(5 * 32 * 32 if name == "stream_k" else 3 * M * N, np.float32)
    if fault == 4:
        parts.copy_from(np.full(parts.shape, np.nan, np.float32))
    flags = device.zeros(8, np.int32 if name == "stream_k" else np.uint32)
    launch = module(device)[name][grid, 128]
    return launch, (*halves, device.array(np.full((M, N), np.nan, np.float32)), M, N, K, parts, flags, fault)


def product(device: Device, name: str, fault: int = 0) -> tuple[Array, Array]:
    """Multiply, twice if the kernel sets its flags back; return the product, and NumPy's."""
    launch, arguments = prepared(device, name, fault)
    for _ in range(2 if name == "split_k" else 1):
        launch(*arguments)
    a, b, c = (x.numpy() for x in arguments[:3] if isinstance(x, DeviceArray))
    return c, a.astype(np.float32) @ b.T.astype(np.float32)


@BOTH
def test_product_shared_between_blocks_is_right(device: Device, name: str) -> None:
    np.testing.assert_array_equal(*product(device, name))


@pytest.mark.usefixtures("unoptimised")
@BOTH
def test_product_is_right_and_silent_under_all_checks(name: str) -> None:
    np.testing.assert_array_equal(*product(checked(), name))


@pytest.mark.usefixtures("unoptimised")
@BOTH
def test_twenty_schedules_give_the_same_product(name: str) -> None:
    launch, arguments = prepared(cujit.cpu(), name)
    report = launch.under_schedules(*arguments, schedules=20)
    assert report.equal, report


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize(
    ("name", "fault", "kind"),
    [
        *(
            pytest.param(name, *MISTAKES[words], id=f"{name}-{words}")
            for name in ("stream_k", "split_k")
            for words in MISTAKES
        ),
        pytest.param("stream_k", 2, "race", id="stream_k-no barrier before the next copy"),
        pytest.param("split_k", 5, "init", id="split_k-no barrier after the flag"),
        pytest.param("split_k", 8, "race", id="split_k-a block too few expected"),
    ],
)
def test_checks_find_a_mistake_with_its_line(name: str, fault: int, kind: str) -> None:
    with pytest.raises(KernelFaultError) as caught:
        product(checked(), name, fault)
    assert caught.value.kind == kind, str(caught.value)
    assert "products.cu:" in str(caught.value)


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize(
    "name", ["stream_k", "split_k"], ids=["no wait for other blocks", "the highest block taken for the last"]
)
def test_schedules_find_a_mistake_between_blocks(name: str) -> None:
    launch, arguments = prepared(cujit.cpu(), name, fault=4)
    report = launch.under_schedules(*arguments, schedules=20)
    assert not report.equal
    assert "products.cu:" in str(report)
