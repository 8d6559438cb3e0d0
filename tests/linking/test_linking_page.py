"""The snippets of docs/linking.md run, one after the other, on every device."""

from __future__ import annotations

import numpy as np

import cujit
from cujit.devices.device import Device
from pages import Page
from releases import links_to_ltoir

PAGE = Page("linking.md")


def test_snippets_run(device: Device) -> None:
    codes = [code for _, code in PAGE.snippets() if links_to_ltoir() or 'to="ltoir", arch' not in code]
    space = PAGE.run("\n".join(codes), device=device)
    kernel = space["kernel"]
    assert isinstance(kernel, cujit.Kernel)
    x = device.array(np.arange(4, dtype=np.float32))
    kernel[1, 32](x, 3.0, 4)
    assert x.numpy().tolist() == [0, 3, 6, 9]
