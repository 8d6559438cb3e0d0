"""Every scene, on every device, against what a GPU left in its arrays (``tests/goldens/scenes.npz``)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from cujit.arch import Arch
from cujit.devices.device import Device
from instructions.scene import GOLDENS, Scene, difference, every_scene, golden_of, run_scene

Array = npt.NDArray[Any]


@pytest.fixture(scope="module")
def goldens() -> dict[str, Array]:
    """What the GPU left, by scene and array."""
    if not GOLDENS.exists():
        return {}
    with np.load(GOLDENS) as file:
        return {name: file[name] for name in file.files}


@pytest.mark.parametrize("name", every_scene())
def test_device_leaves_what_the_gpu_left(name: str, device: Device, goldens: dict[str, Array]) -> None:
    scene = every_scene()[name]
    if device.is_gpu and Arch.parse(scene.target).number > device.arch.number:
        pytest.skip(f"{scene.target} does not run on {device}")
    got = run_scene(device, scene)
    expected = golden_of(scene, goldens)
    if expected is None:
        pytest.skip("no GPU has recorded this scene yet (tests/instructions/record_scenes.py)")
    found = difference(scene, got, expected)
    assert not found, found


def _scene(arrays: tuple[Array, ...], within: float = 0.0) -> Scene:
    return Scene("made up", "", arrays, 1, 32, within=within)


def test_one_bit_difference_is_reported_with_its_place() -> None:
    a, b = np.array([[1, 2], [3, 4]], np.uint8), np.array([[1, 2], [3, 5]], np.uint8)
    assert difference(_scene((a,)), [a], [b]) == "made up: array 0 at [1, 1] is 0x4 and not 0x5; 1 of 4 differ"
    zero, minus = np.zeros(1, np.float32), -np.zeros(1, np.float32)
    assert "array 1 at [0]" in difference(_scene((a, zero)), [a, zero], [a, minus])
    nan, other = np.full(1, np.nan, np.float32), np.array([0x7FC00001], np.uint32).view(np.float32)
    assert difference(_scene((nan,)), [nan], [other]) == "made up: array 0 at [0] is nan and not nan; 1 of 1 differ"


def test_floats_may_differ_by_the_bound_at_most() -> None:
    a = np.array([1.0, 1000.0, np.inf, 0.0], np.float32)
    assert difference(_scene((a,), 1e-3), [a], [a + np.float32(0.0005)]) == ""
    assert "array 0 at [1]" in difference(_scene((a,), 1e-3), [a], [np.array([1, 1002, np.inf, 0], np.float32)])
    assert "array 0 at [2]" in difference(_scene((a,), 1e-3), [a], [np.array([1, 1000, 7, 0], np.float32)])
