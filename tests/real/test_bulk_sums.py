"""Reductions in bulk: blocks add rows to the same sums, and boxes to the same tensor.

The numbers are small and whole, so that every order of addition gives the same. A copy that a GPU refuses ends its
context.
"""

from __future__ import annotations

import numpy as np
import pytest

from cujit.devices.device import Device
from real.running import rng, run

pytestmark = pytest.mark.ends_context

SHAPE, BOX = (20, 44), (8, 16)
BOXES = {"inside": (4, 8), "over the end": (6, 15), "beside": (7, 8)}
"""Blocks, and the first row of their boxes; each begins 8 columns behind the one before it."""


@pytest.fixture(autouse=True)
def _hopper(device: Device) -> None:
    if device.is_gpu and device.arch.number < 90:
        pytest.skip(f"{device} is not a Hopper")


def test_blocks_add_rows_to_the_same_sums(device: Device) -> None:
    data = rng(4).integers(-4, 5, (7, 128)).astype(np.float32)
    _, sums = run(device, "bulk_sums.cu", "add_rows", 7, 64, data, np.zeros(128, np.float32))
    np.testing.assert_array_equal(sums, data.sum(0))


@pytest.mark.parametrize("where", BOXES)
def test_blocks_add_boxes_to_the_same_tensor(device: Device, where: str) -> None:
    blocks, y = BOXES[where]
    data = rng(4).integers(-4, 5, (blocks, *BOX)).astype(np.float32)
    plane = device.array(np.ones(SHAPE, np.float32))
    run(device, "bulk_sums.cu", "add_boxes", blocks, 64, device.tensor_map(plane, BOX), data, y)
    expected = np.ones((SHAPE[0] + BOX[0], 64), np.float32)
    for block in range(blocks):
        expected[y : y + BOX[0], block * 8 : block * 8 + BOX[1]] += data[block]
    np.testing.assert_array_equal(plane.numpy(), expected[: SHAPE[0], : SHAPE[1]])
