"""Take the pictures of ``docs/explore.md`` beside this file: ``python docs/images/explore.py``.

A transpose is explored on an H200 in Chromium, 1440 and 800 pixels wide, in light and dark: as it begins, and with an
error in it. It needs Playwright, Chromium on the PATH, and Pillow, which matplotlib brings; another browser gives other
pixels.
"""

from __future__ import annotations

import io
import os
import re
import shutil
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

import cujit.explore

_PLACE = Path(__file__).parent
_COLOURS = 256
_WAIT_MS = 60_000
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
_SCENE = cujit.explore.Scene("", grid="8x8", block="32x32", arguments="ones:f32:65536 zeros:f32:65536 256", on="H200")


def main() -> None:
    """Take all of them."""
    with tempfile.TemporaryDirectory() as directory, sync_playwright() as driver:
        path = Path(directory) / "transpose.cu"
        path.write_text(_CODE)
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
        for shade in ("light", "dark"):
            with cujit.explore.start(path, _SCENE) as explorer:
                page = _opened(browser, explorer.url, shade, 1440, 1280)
                page.locator(".cm-line").nth(8).click(position={"x": 80, "y": 6})
                page.locator(".lines.ptx").evaluate("list => { list.scrollTop -= 60; }")
                _take(page, f"explore-{shade}")
                page = _opened(browser, explorer.url, shade, 800, 1280)
                page.locator(".cm-line").nth(4).click()
                page.keyboard.press("End")
                page.keyboard.press("Backspace")
                expect(page.locator("#work")).to_have_text(re.compile("expected"), timeout=_WAIT_MS)
                _take(page, f"explore_narrow-{shade}")


def _opened(browser: Browser, url: str, shade: str, width: int, height: int) -> Page:
    """Open the page, and wait until all is there."""
    scheme = "dark" if shade == "dark" else "light"
    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": height})
    page.goto(url)
    expect(page.locator("#work")).to_have_text(re.compile("counted in"), timeout=_WAIT_MS)
    return page


def _take(page: Page, name: str) -> None:
    page.mouse.move(0, 0)
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(_COLOURS, dither=Image.Dither.NONE)
    shot.save(_PLACE / f"{name}.png", optimize=True)


if __name__ == "__main__":
    main()
