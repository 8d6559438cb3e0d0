"""A pipeline of tensor maps and wgmma in four stages: right, silent under every check, and its mistakes are found."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from real.running import HERE, Array, rng

M, N, K = 256, 128, 640
SHARED = 4 * (128 + 64) * 64 * 2 + 128 * 64 * 4 + 64


@functools.cache
def program(fault: int) -> cujit.Artifact:
    """Compile the pipeline with a mistake planted, 0 without."""
    source = cujit.Source.cuda(HERE / "hopper.cu")
    return cujit.compile(source, arch="compute_90a", define={"FAULT": fault}, lineinfo=True)


def product(device: Device, fault: int = 0) -> tuple[Array, Array]:
    """Multiply; give what came of it, and what is right."""
    a, b = (rng(seed).integers(-3, 4, (rows, K)).astype(np.float32) for seed, rows in ((1, M), (2, N)))
    halves = [device.array(x.astype(np.float16)) for x in (a, b)]
    out = device.zeros((M, N), np.float32)
    maps = [device.tensor_map(x, (rows, 64), swizzle=128) for x, rows in zip(halves, (128, 64), strict=True)]
    kernel = cujit.load(program(fault), device)["product"]
    launch = kernel.prepare((N // 64, M // 128), 384, shared_bytes=SHARED + 1024)
    launch(*maps, device.tensor_map(out, (128, 64)), K)
    return out.numpy(), a @ b.T


def test_a_product_in_four_stages_is_right(device: Device) -> None:
    if device.is_gpu and device.arch.number != 90:
        pytest.skip(f"{device} is no Hopper")
    np.testing.assert_array_equal(*product(device))


@pytest.mark.parametrize("check", ["memory", "race", "init", "sync", "all"])
def test_it_is_right_and_silent_under_every_check(check: str) -> None:
    np.testing.assert_array_equal(*product(cujit.cpu(check=check)))


@pytest.mark.parametrize(
    ("fault", "check", "kind", "words"),
    [
        (1, "race", "race", "wgmma.mma_async"),
        (2, "race", "race", "cp.async.bulk.tensor"),
        (4, "race", "race", "no fence.proxy.async"),
        (3, "memory", "memory", "wgmma.mma_async"),
    ],
    ids=["no wait for the full stage", "no wait for the empty stage", "no fence", "a descriptor too far"],
)
def test_a_planted_mistake_is_found_with_its_line(fault: int, check: str, kind: str, words: str) -> None:
    with pytest.raises(KernelFaultError) as caught:
        product(cujit.cpu(check=check), fault)
    assert caught.value.kind == kind, str(caught.value)
    assert words in str(caught.value)
    assert "hopper.cu:" in str(caught.value)
