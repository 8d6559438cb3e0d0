"""Take the pictures of ``docs/report.md`` beside this file: ``python docs/images/report.py``.

A transpose is reported for an H200 and opened in Chromium, 1440 and 800 pixels wide, in light and dark. It needs
Playwright, Chromium on the PATH, and Pillow, which matplotlib brings; another browser gives other pixels.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
from transposing import CODE, chromium, opened, take

import cujit
import cujit.profile
import cujit.report

_N = 256
_COLOURS = 96


def main() -> None:
    """Take all of them."""
    profile = cujit.profile.Profile()
    device = cujit.cpu(profile=profile)
    module = cujit.jit(CODE, device=device, name="transpose.cu")
    x, y = device.array(np.ones((_N, _N), np.float32)), device.zeros((_N, _N), np.float32)
    module["transpose"][(_N // 32, _N // 32), (32, 32)](x, y, _N)
    report = cujit.report.of(module, profile=profile.kernels[0], on="H200")
    with tempfile.TemporaryDirectory() as directory, chromium() as browser:
        page = Path(directory) / "report.html"
        page.write_text(report.html())
        for shade in ("light", "dark"):
            for name, width, height in (("report", 1440, 1280), ("report_narrow", 800, 1480)):
                shown = opened(browser, page.as_uri(), shade, width, height)
                shown.locator(".lines.source .row .digits").nth(8).click()  # the line that costs most
                take(shown, f"{name}-{shade}", _COLOURS)


if __name__ == "__main__":
    main()
