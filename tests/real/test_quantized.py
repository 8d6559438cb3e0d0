"""Products with weights of four bits, and attention over pages: right, silent under every check, mistakes are found."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import cujit
from cujit.devices.device import Device
from cujit.errors import KernelFaultError
from real.running import HERE, Array, rng

N, K = 64, 160
HEADS, SEQUENCES, WIDTH, PAGE, PAGES, MOST = 2, 3, 64, 8, 16, 6
LENGTHS = np.array([37, 8, 1], np.int32)
BOTH = pytest.mark.parametrize("name", ["product", "attention"])


@functools.cache
def module(device: Device) -> cujit.Module:
    """Load both kernels on a device, once."""
    return cujit.load(cujit.compile(cujit.Source.cuda(HERE / "quantized.cu"), arch="compute_80", lineinfo=True), device)


@functools.cache
def checked() -> Device:
    """Make a device with all checks, which keeps its compiled kernels for several tests."""
    return cujit.cpu(check="all")


def packed(weights: Array) -> Array:
    """Pack rows and columns of numbers from -8 to 7 as the lanes of ``mma`` have them, eight in a word."""
    lane, pair = np.arange(32), np.arange(8)
    # Of a word, bits 4 p and 16 + 4 p have two numbers that follow each other in a column, p from 0 to 3.
    row = 16 * (pair // 2 % 2)[:, None] + 8 * (pair % 2)[:, None] + 2 * (lane % 4)
    shift = np.array([0, 4, 8, 12])
    words = np.zeros((K // 32, N // 8, 32), np.uint32)
    for step, block in np.ndindex(words.shape[:2]):
        tile = weights[step * 32 : step * 32 + 32, block * 8 : block * 8 + 8] + 8
        for p in range(4):
            for half in range(2):
                words[step, block] |= tile[row[p] + half, lane // 4].astype(np.uint32) << np.uint32(
                    shift[p] + 16 * half
                )
    return words


def product(device: Device, fault: int) -> tuple[cujit.Launch, tuple[Any, ...], Any, Array]:
    """Prepare a product: the launch, its arguments, the array of the result, and what is right."""
    a = rng(1).integers(-3, 4, (16, K)).astype(np.float16)
    weights = rng(2).integers(-8, 8, (K, N))
    scales = (2.0 ** rng(3).integers(-2, 2, (K // 32, N))).astype(np.float16)
    right = a.astype(np.float32) @ (weights * np.repeat(scales, 32, axis=0)).astype(np.float32)
    out = device.zeros((16, N), np.float32)
    launch = module(device)["product"][N // 32, 128]
    return launch, (*map(device.array, (a, packed(weights), scales)), out, N, K, fault), out, right


def attention(device: Device, fault: int) -> tuple[cujit.Launch, tuple[Any, ...], Any, Array]:
    """Prepare attention over pages that lie in any order: the launch, its arguments, the result, and what is right."""
    q = rng(1).normal(size=(SEQUENCES, HEADS, WIDTH)).astype(np.float16)
    keys, values = (rng(s).normal(size=(PAGES, HEADS, PAGE, WIDTH)).astype(np.float16) for s in (2, 3))
    pages = np.full((SEQUENCES, MOST), 1 << 20, np.int32)
    numbers = iter(rng(4).permutation(PAGES))
    right = np.zeros(q.shape, np.float32)
    for s, length in enumerate(LENGTHS):
        used = [next(numbers) for _ in range(-(-int(length) // PAGE))]
        pages[s, : len(used)] = used
        for h in range(HEADS):
            k, v = (x[used, h].reshape(-1, WIDTH)[:length].astype(np.float32) for x in (keys, values))
            weights = np.exp(k @ q[s, h].astype(np.float32) / 8)
            right[s, h] = weights @ v / weights.sum()
    out = device.zeros(q.shape, np.float32)
    arrays: tuple[Array, ...] = (q, keys, values, pages, LENGTHS)
    launch = module(device)["attention"][(HEADS, SEQUENCES), 128]
    return launch, (*map(device.array, arrays), out, MOST, fault), out, right


PREPARED = {"product": product, "attention": attention}


def check_result(device: Device, name: str) -> None:
    """Launch a kernel and compare its result with NumPy's."""
    launch, arguments, out, right = PREPARED[name](device, 0)
    launch(*arguments)
    np.testing.assert_allclose(
        out.numpy(), right, rtol=0 if name == "product" else 1e-3, atol=0 if name == "product" else 1e-4
    )


@BOTH
def test_result_is_right(device: Device, name: str) -> None:
    check_result(device, name)


@pytest.mark.usefixtures("unoptimised")
@BOTH
def test_product_is_right_and_silent_under_all_checks(name: str) -> None:
    check_result(checked(), name)


@pytest.mark.usefixtures("unoptimised")
@BOTH
def test_twenty_schedules_give_the_same_result(name: str) -> None:
    launch, arguments, _, _ = PREPARED[name](cujit.cpu(), 0)
    report = launch.under_schedules(*arguments, schedules=20)
    assert report.equal, report


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize(
    ("name", "fault", "kinds"),
    [
        ("product", 1, {"race"}),
        ("product", 2, {"race"}),
        ("product", 3, {"memory"}),
        ("product", 4, {"race"}),
        ("product", 5, {"memory"}),
        ("attention", 1, {"memory"}),
        ("attention", 2, {"memory"}),
        ("attention", 3, {"race", "init"}),
    ],
    ids=[
        "wait for a group less",
        "no barrier",
        "matrix off by all stages",
        "matrix of the next stage",
        "copy of the next tile",
        "a page too many",
        "the next page of the table",
        "no barrier at the end",
    ],
)
def test_planted_mistake_is_found_with_its_line(name: str, fault: int, kinds: set[str]) -> None:
    launch, arguments, _, _ = PREPARED[name](checked(), fault)
    with pytest.raises(KernelFaultError) as caught:
        launch(*arguments)
    assert caught.value.kind in kinds, str(caught.value)
    assert "quantized.cu:" in str(caught.value)
