"""Take the pictures of ``docs/report.md`` beside this file: ``python docs/images/report.py``.

A transpose is reported for an H200 and opened in Chromium, 1440 and 800 pixels wide, in light and dark. It needs
Playwright, Chromium on the PATH, and Pillow, which matplotlib brings; another browser gives other pixels.
"""

from __future__ import annotations

import io
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Browser, sync_playwright

import cujit
import cujit.profile
import cujit.report

_PLACE = Path(__file__).parent
_N = 256
_COLOURS = 96
_CODE = """extern "C" __global__ void transpose(const float *x, float *y, int n) {
    __shared__ float s[32][32];
    int column = blockIdx.x * 32 + threadIdx.x;
    int row = blockIdx.y * 32 + threadIdx.y;
    s[threadIdx.y][threadIdx.x] = x[row * n + column];
    __syncthreads();
    row = blockIdx.x * 32 + threadIdx.y;
    column = blockIdx.y * 32 + threadIdx.x;
    y[row * n + column] = 2 * s[threadIdx.x][threadIdx.y];
}
"""


def main() -> None:
    """Take all of them."""
    profile = cujit.profile.Profile()
    device = cujit.cpu(profile=profile)
    module = cujit.jit(_CODE, device=device, name="transpose.cu")
    x, y = device.array(np.ones((_N, _N), np.float32)), device.zeros((_N, _N), np.float32)
    module["transpose"][(_N // 32, _N // 32), (32, 32)](x, y, _N)
    report = cujit.report.of(module, profile=profile.kernels[0], on="H200")
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as driver:
        page = Path(directory) / "report.html"
        page.write_text(report.html())
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for shade in ("light", "dark"):
            _take(browser, page, shade, "report", 1440, 1280)
            _take(browser, page, shade, "report_narrow", 800, 1480)


def _take(browser: Browser, page: Path, shade: str, name: str, width: int, height: int) -> None:
    """Take one, with the line picked that costs most."""
    scheme = "dark" if shade == "dark" else "light"
    opened = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": height})
    opened.goto(page.as_uri())
    opened.locator(".lines.source .row .digits").nth(8).click()
    opened.mouse.move(0, 0)
    shot = Image.open(io.BytesIO(opened.screenshot())).convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
    shot.save(_PLACE / f"{name}-{shade}.png", optimize=True)


if __name__ == "__main__":
    main()
