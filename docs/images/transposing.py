"""What ``explore.py`` and ``report.py`` share: the kernel that their pages show, a browser, and how a shot is kept."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

CODE = """extern "C" __global__ void transpose(const float *x, float *y, int n) {
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


@contextmanager
def chromium() -> Iterator[Browser]:
    """Start the browser that is on the PATH."""
    with sync_playwright() as driver:
        flags = ["--no-sandbox"] if os.geteuid() == 0 else []
        yield driver.chromium.launch(executable_path=shutil.which("chromium"), args=flags)


def opened(browser: Browser, url: str, shade: str, width: int, height: int) -> Page:
    """Open a page in light or dark."""
    scheme = "dark" if shade == "dark" else "light"
    page = browser.new_page(color_scheme=scheme, viewport={"width": width, "height": height})
    page.goto(url)
    return page


def take(page: Page, name: str, colours: int) -> None:
    """Keep what a page shows, with the mouse out of the way, as ``name.png``."""
    page.mouse.move(0, 0)
    shot = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(colours, dither=Image.Dither.NONE)
    shot.save(Path(__file__).with_name(f"{name}.png"), optimize=True)
