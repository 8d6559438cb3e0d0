"""Attention in tiles of cp.async, a sum over a cluster, tiles that leave by tensor stores: mistakes are found."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from real.running import HERE, Array, rng

pytestmark = pytest.mark.usefixtures("unoptimised")
NAMES = ("attention", "cluster_sum", "stored")
EACH = pytest.mark.parametrize("name", NAMES)
KEYS, PART, TILES = 75, 300, 5


@functools.cache
def module(device: Device) -> cujit.Module:
    """Load the kernels on a device, once."""
    if device.is_gpu and device.arch.number < 90:
        pytest.skip(f"{device} is not a Hopper")
    return cujit.load(cujit.compile(cujit.Source.cuda(HERE / "epilogues.cu"), arch="compute_90", lineinfo=True), device)


@functools.cache
def checked() -> Device:
    """Make a device with all checks, which keeps its compiled kernels for several tests."""
    return cujit.cpu(check="all")


Prepared = tuple[cujit.Launch, tuple[Any, ...], Any, Array]


def attention(device: Device, fault: int) -> Prepared:
    """Prepare attention of 64 queries: the launch, its arguments, the array of the result, and what is right."""
    q, k, v = (rng(s).normal(size=(n, 64)).astype(np.float16) for s, n in ((1, 64), (2, KEYS), (3, KEYS)))
    weights = np.exp(q.astype(np.float32) @ k.astype(np.float32).T / 8)
    right = weights @ v.astype(np.float32) / weights.sum(axis=1, keepdims=True)
    out = device.zeros(q.shape, np.float32)
    return module(device)["attention"][1, 128], (*map(device.array, (q, k, v)), out, KEYS, fault), out, right


def cluster_sum(device: Device, fault: int) -> Prepared:
    """Prepare sums of two clusters of four blocks, as ``attention``."""
    x = rng(4).integers(-4, 5, 8 * PART).astype(np.float32)
    out = device.zeros(2, np.float32)
    arguments = (device.array(x), out, PART, fault)
    return module(device)["cluster_sum"][8, 128], arguments, out, x.reshape(2, -1).sum(axis=1)


def stored(device: Device, fault: int) -> Prepared:
    """Prepare squares that two blocks store in tiles, as ``attention``."""
    x = rng(5).normal(size=(2 * TILES, 8, 32)).astype(np.float32)
    out = device.zeros((2 * TILES * 8, 32), np.float32)
    right = x * x + np.tile(np.arange(TILES, dtype=np.float32), 2)[:, None, None]
    arguments = (device.tensor_map(out, (8, 32)), device.array(x), TILES, fault)
    return module(device)["stored"][2, 64], arguments, out, right.reshape(out.shape)


PREPARED = {"attention": attention, "cluster_sum": cluster_sum, "stored": stored}


def check_result(device: Device, name: str) -> None:
    """Launch a kernel and compare its result with NumPy's."""
    launch, arguments, out, right = PREPARED[name](device, 0)
    launch(*arguments)
    near = 5e-3 if name == "attention" else 1e-6
    np.testing.assert_allclose(out.numpy(), right, rtol=near, atol=near)


@EACH
def test_result_is_right(device: Device, name: str) -> None:
    check_result(device, name)


@EACH
def test_epilogue_is_right_and_silent_under_all_checks(name: str) -> None:
    check_result(checked(), name)


@EACH
def test_twenty_schedules_give_the_same_result(name: str) -> None:
    launch, arguments, _, _ = PREPARED[name](cujit.cpu(), 0)
    report = launch.under_schedules(*arguments, schedules=20, contract="off")
    assert report.equal, report


MISTAKES = {
    ("attention", 1): ("no wait for the tile", {"race"}),
    ("attention", 2): ("no barrier behind the wait", {"race"}),
    ("attention", 3): ("keys of two stages too far", {"memory"}),
    ("attention", 4): ("keys that are not there", {"memory"}),
    ("attention", 5): ("no barrier before the next tile", {"race"}),
    ("cluster_sum", 1): ("no wait for the parts", {"race"}),
    ("cluster_sum", 2): ("a byte count that never comes", {"deadlock"}),
    ("cluster_sum", 3): ("a place behind the shared memory", {"memory"}),
    ("stored", 1): ("no fence for the asynchronous proxy", {"race"}),
    ("stored", 2): ("no wait before the buffer is written again", {"race"}),
    ("stored", 3): ("no barrier before the store", {"race"}),
    ("stored", 4): ("no wait at the end", {"race"}),
}


@pytest.mark.parametrize(("name", "fault"), MISTAKES, ids=[text for text, _ in MISTAKES.values()])
def test_planted_mistake_is_found_with_its_line(name: str, fault: int) -> None:
    launch, arguments, _, _ = PREPARED[name](checked(), fault)
    with pytest.raises(KernelFaultError) as caught:
        launch(*arguments)
    assert caught.value.kind in MISTAKES[name, fault][1], str(caught.value)
    assert "epilogues.cu:" in str(caught.value), str(caught.value)
