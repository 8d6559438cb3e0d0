"""A pipeline of tensor maps and wgmma in four stages: right, silent under every check, and its mistakes are found."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from real.running import HERE, Array, rng

M, N, K = 256, 128, 640
SHARED = 4 * (128 + 64) * 64 * 2 + 128 * 64 * 4 + 64


@functools.cache
def module(device: Device) -> cujit.Module:
    """Load the program of this test on a device, once."""
    return cujit.load(cujit.compile(cujit.Source.cuda(HERE / "hopper.cu"), arch="compute_90a", lineinfo=True), device)


@functools.cache
def checked() -> Device:
    """Make a device with all checks, which keeps its compiled kernel for several tests."""
    return cujit.cpu(check="all")


def prepared(device: Device, fault: int = 0) -> tuple[cujit.Launch, tuple[Any, ...], Array]:
    """Prepare a product: the launch, its arguments, and what is right."""
    a, b = (rng(seed).integers(-3, 4, (rows, K)).astype(np.float32) for seed, rows in ((1, M), (2, N)))
    halves = [device.array(x.astype(np.float16)) for x in (a, b)]
    out = device.zeros((M, N), np.float32)
    maps = [device.tensor_map(x, (rows, 64), swizzle=128) for x, rows in zip(halves, (128, 64), strict=True)]
    launch = module(device)["product"].prepare((N // 64, M // 128), 384, shared_bytes=SHARED + 1024)
    return launch, (*maps, device.tensor_map(out, (128, 64)), K, fault), a @ b.T


def product(device: Device, fault: int = 0) -> tuple[Array, Array]:
    """Multiply; return what came of it, and what is right."""
    launch, arguments, expected = prepared(device, fault)
    launch(*arguments)
    return arguments[2].source.numpy(), expected


def test_product_in_four_stages_is_right(device: Device) -> None:
    if device.is_gpu and device.arch.number != 90:
        pytest.skip(f"{device} is not a Hopper")
    np.testing.assert_array_equal(*product(device))


@pytest.mark.usefixtures("unoptimised")
def test_hopper_kernel_is_right_and_silent_under_all_checks() -> None:
    np.testing.assert_array_equal(*product(checked()))


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize(
    ("fault", "kind", "words"),
    [
        (1, "race", "wgmma.mma_async"),
        (2, "race", "cp.async.bulk.tensor"),
        (3, "memory", "wgmma.mma_async"),
        (4, "race", "no fence.proxy.async"),
        (5, "race", "which an asynchronous copy still writes"),
        (6, "race", "which an asynchronous copy still writes"),
        (7, "deadlock", "lacks 16 bytes"),
        (8, "race", "until wgmma.wait_group"),
        (9, "race", "which an asynchronous copy still writes"),
        (10, "deadlock", "arrivals"),
        (11, "race", "no fence.mbarrier_init or fence.proxy.async"),
        (12, "race", "no wgmma.fence comes"),
    ],
    ids=[
        "no wait for the full stage",
        "no wait for the empty stage",
        "a descriptor too far",
        "no fence",
        "the wrong phase",
        "too few bytes expected",
        "too many bytes expected",
        "no wait for the products",
        "a descriptor of the next tile",
        "the wrong phase of an empty stage",
        "no fence of the barriers",
        "no fence of the products",
    ],
)
def test_hopper_mistakes_are_found_with_their_line(fault: int, kind: str, words: str) -> None:
    with pytest.raises(KernelFaultError) as caught:
        product(checked(), fault)
    assert caught.value.kind == kind, str(caught.value)
    assert words in str(caught.value)
    assert "hopper.cu:" in str(caught.value)


@pytest.mark.usefixtures("unoptimised")
def test_twenty_schedules_give_the_same_product() -> None:
    launch, arguments, _ = prepared(cujit.cpu())
    report = launch.under_schedules(*arguments, schedules=20)
    assert report.equal, report
