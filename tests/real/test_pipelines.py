"""Pipelines of Hopper in CUDA C++: right, silent under every check, and their mistakes are found.

The numbers are small and whole, so that every order of addition gives the same.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from cujit.loading import Module, load
from cujit.program import Source, compile
from real.running import HERE, Array, rng

Prepared = tuple[cujit.Launch, tuple[Any, ...], Any, Array]
"""A launch, its arguments, the array of the result, and what is right."""


@functools.cache
def kernels(device: Device, file: str, fault: str = "RIGHT") -> Module:
    """Load a file for Hopper with a planted fault, or skip where it does not run."""
    if device.is_gpu and device.arch.number < 90:
        pytest.skip(f"{device} is not a Hopper")
    image = compile(Source.cuda(HERE / file), arch="compute_90a", define={"FAULT": fault}, lineinfo=True)
    return load(image, device)


@functools.cache
def checked() -> Device:
    """Make a device with all checks, which keeps its compiled kernels for several tests."""
    return cujit.cpu(check="all")


def whole(shape: tuple[int, ...], dtype: npt.DTypeLike, seed: int) -> Array:
    return rng(seed).integers(-4, 5, shape).astype(dtype)


def specialised(device: Device, fault: str = "RIGHT", rows: int = 11) -> Prepared:
    """Prepare a warp group that brings rows, and two others that add them up."""
    data = whole((2, rows, 256), np.float32, rows)
    out = device.zeros((2, 256), np.float32)
    right = np.einsum("brk,r->bk", data, np.arange(1, rows + 1, dtype=np.float32))[:, ::-1]
    launch = kernels(device, "pipelines.cu", fault)["specialised"].prepare(2, 384)
    return launch, (device.array(data), out, rows), out, right


def multistage(device: Device, fault: str = "RIGHT", steps: int = 4) -> Prepared:
    """Prepare a product in three stages of copies."""
    m, n, k = 128, 64, 32 * steps
    a, b = whole((m, k), np.float16, 1), whole((k, n), np.float16, 2)
    c = device.zeros((m, n), np.float32)
    launch = kernels(device, "pipelines.cu", fault)["multistage"].prepare((n // 64, m // 64), 128)
    right = a.astype(np.float32) @ b.astype(np.float32)
    return launch, (device.array(a), device.array(b), c, m, n, k), c, right


def fed_by_tma(device: Device, fault: str = "RIGHT", sizes: tuple[int, int, int] = (100, 72, 200)) -> Prepared:
    """Prepare a product by wgmma that tensor maps feed."""
    m, n, k = sizes
    a, b = whole((m, k), np.float16, 1), whole((n, k), np.float16, 2)
    c = device.zeros((m, n), np.float32)
    maps = [device.tensor_map(device.array(z), (64, 64), swizzle=128) for z in (a, b)]
    launch = kernels(device, "pipelines.cu", fault)["fed_by_tma"].prepare((-(-n // 64), -(-m // 64)), 160)
    return launch, (*maps, c, m, n, k), c, a.astype(np.float32) @ b.astype(np.float32).T


def shared_out(device: Device, fault: str = "RIGHT") -> Prepared:
    """Prepare a cluster of which each block loads a part for all."""
    data = rng(3).integers(0, 1000, (32, 32)).astype(np.int32)
    out = device.zeros((8, 16, 32), np.int32)
    launch = kernels(device, "pipelines.cu", fault)["shared_out"].prepare(8, 64)
    right = [data[b // 4 * 16 : b // 4 * 16 + 16][::-1] + b % 4 for b in range(8)]
    return launch, (device.tensor_map(device.array(data), (4, 32)), out), out, np.array(right)


PREPARED = {prepare.__name__: prepare for prepare in (specialised, multistage, fed_by_tma, shared_out)}
EACH = pytest.mark.parametrize("name", PREPARED)


def check_result(prepared: Prepared) -> None:
    """Launch a kernel and compare its result with NumPy's."""
    launch, arguments, out, right = prepared
    launch(*arguments)
    np.testing.assert_array_equal(out.numpy(), right)


def test_transposition_by_tensor_maps(device: Device) -> None:
    data = rng(1).normal(size=(76, 40)).astype(np.float32)
    x, y = device.array(data), device.zeros((40, 76), np.float32)
    from_, to = device.tensor_map(x, (32, 32), swizzle=128), device.tensor_map(y, (32, 32))
    kernels(device, "transpose.cu")["transpose"][(2, 3), 32](from_, to)
    np.testing.assert_array_equal(y.numpy(), data.T)


@pytest.mark.parametrize("rows", [1, 3, 11])
def test_producer_warpgroup_feeds_two_consumers(device: Device, rows: int) -> None:
    check_result(specialised(device, rows=rows))


@pytest.mark.parametrize("steps", [1, 4])
def test_product_in_three_stages_of_copies(device: Device, steps: int) -> None:
    check_result(multistage(device, steps=steps))


@pytest.mark.parametrize("sizes", [(64, 64, 64), (100, 72, 200)], ids=str)
def test_wgmma_product_with_tensor_maps(device: Device, sizes: tuple[int, int, int]) -> None:
    check_result(fed_by_tma(device, sizes=sizes))


def test_each_block_of_a_cluster_loads_a_part_for_all(device: Device) -> None:
    check_result(shared_out(device))


@pytest.mark.usefixtures("unoptimised")
@EACH
def test_pipeline_is_right_and_silent_under_all_checks(name: str) -> None:
    check_result(PREPARED[name](checked()))


@pytest.mark.usefixtures("unoptimised")
@EACH
def test_twenty_schedules_of_a_pipeline_give_the_same(name: str) -> None:
    launch, arguments, _, _ = PREPARED[name](cujit.cpu())
    report = launch.under_schedules(*arguments, schedules=20)
    assert report.equal, report


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize(
    ("name", "fault", "kind"),
    [
        ("specialised", "NO_WAIT", "race"),
        ("specialised", "NO_WAIT_FOR_ROOM", "race"),
        ("specialised", "WRONG_PHASE", "race"),
        ("specialised", "TOO_FEW_BYTES", "deadlock"),
        ("specialised", "TOO_MANY_BYTES", "deadlock"),
        ("specialised", "NEXT_TILE", "race"),
        ("specialised", "NO_FENCE_OF_BARRIERS", "race"),
        ("multistage", "NO_WAIT", "race"),
        ("multistage", "NO_WAIT_FOR_ROOM", "race"),
        ("multistage", "NEXT_TILE", "race"),
        ("fed_by_tma", "NO_WAIT", "race"),
        ("fed_by_tma", "NO_WAIT_FOR_ROOM", "race"),
        ("fed_by_tma", "WRONG_PHASE", "race"),
        ("fed_by_tma", "TOO_FEW_BYTES", "deadlock"),
        ("fed_by_tma", "TOO_MANY_BYTES", "deadlock"),
        ("fed_by_tma", "NEXT_TILE", "race"),
        ("fed_by_tma", "NO_FENCE_OF_BARRIERS", "race"),
        ("fed_by_tma", "NO_FENCE_OF_PRODUCTS", "race"),
        ("shared_out", "NO_FENCE_OF_BARRIERS", "race"),
        ("shared_out", "RELAXED", "race"),
        ("shared_out", "NO_WAIT", "race"),
        ("shared_out", "WRONG_PHASE", "race"),
        ("shared_out", "TOO_FEW_BYTES", "race"),
        ("shared_out", "TOO_MANY_BYTES", "deadlock"),
        ("shared_out", "NEXT_TILE", "memory"),
    ],
)
def test_pipeline_mistake_is_found_with_its_line(name: str, fault: str, kind: str) -> None:
    launch, arguments, _, _ = PREPARED[name](checked(), fault)
    with pytest.raises(KernelFaultError) as caught:
        launch(*arguments)
    assert caught.value.kind == kind, str(caught.value)
    assert "pipelines.cu:" in str(caught.value)
