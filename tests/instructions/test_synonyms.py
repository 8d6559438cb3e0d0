"""Words that change nothing change nothing: scenes with such words leave what a GPU left without them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from cujit.arch import Arch
from cujit.devices.device import Device
from instructions.scene import GOLDENS, difference, every_scene, golden_of, run_scene
from instructions.synonyms import rewritten_scenes

_SHARDS = 8


@pytest.mark.usefixtures("unoptimised")
@pytest.mark.parametrize("shard", range(_SHARDS))
def test_neutral_modifiers_change_nothing(shard: int, device: Device) -> None:
    with np.load(GOLDENS) as file:
        goldens = dict(file)
    found = []
    for name, text in list(rewritten_scenes().items())[shard::_SHARDS]:
        scene = every_scene()[name.rpartition(" ")[0]]
        expected = golden_of(scene, goldens)
        if expected is None or (device.is_gpu and Arch.parse(scene.target).number > device.arch.number):
            continue
        changed = replace(scene, name=name, ptx=text)
        found.append(difference(changed, run_scene(device, changed), expected))
    assert len(found) > 10
    assert not any(found), "\n".join(line for line in found if line)
