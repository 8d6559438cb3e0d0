"""The snippets of docs/linking.md run, one after the other, on every device."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

import cujit
from cujit.devices.device import Device

PAGE = (Path(__file__).parents[2] / "docs" / "linking.md").read_text()


def test_the_snippets_run(device: Device) -> None:
    space: dict[str, object] = {"device": device, "__name__": "snippet"}
    for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL):
        exec(compile(code, "linking.md", "exec"), space)
    kernel = space["kernel"]
    assert isinstance(kernel, cujit.Kernel)
    x = device.array(np.arange(4, dtype=np.float32))
    kernel[1, 32](x, 3.0, 4)
    assert x.numpy().tolist() == [0, 3, 6, 9]
