"""Take the pictures of ``docs/explore.md`` beside this file: ``python docs/images/explore.py``.

A transpose is explored on an H200 in Chromium, 1440 and 800 pixels wide, in light and dark: as it begins, compared with
a padded version, and with an error in it. It needs Playwright, Chromium on the PATH, and Pillow, which matplotlib
brings; another browser gives other pixels.
"""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from playwright.sync_api import Browser, Page, expect
from transposing import CODE, chromium, opened, take

import cujit.explore

_COLOURS = 256
_WAIT_MS = 60_000
_SCENE = cujit.explore.Scene("", grid="8x8", block="32x32", arguments="ones:f32:65536 zeros:f32:65536 256", on="H200")


def main() -> None:
    """Take all of them."""
    with tempfile.TemporaryDirectory() as directory, chromium() as browser:
        path = Path(directory) / "transpose.cu"
        path.write_text(CODE)
        for shade in ("light", "dark"):
            with cujit.explore.start(path, _SCENE) as explorer:
                page = _opened(browser, explorer.url, shade, 1440, 1280)
                page.locator(".cm-line").nth(8).click(position={"x": 80, "y": 6})
                page.locator(".lines.ptx").evaluate("list => { list.scrollTop -= 60; }")
                take(page, f"explore-{shade}", _COLOURS)
                _compare(page)
                take(page, f"explore_compare-{shade}", _COLOURS)
                page = _opened(browser, explorer.url, shade, 800, 1280)
                page.locator(".cm-line").nth(4).click()
                page.keyboard.press("End")
                page.keyboard.press("Backspace")
                expect(page.locator("#work")).to_have_text(re.compile("expected"), timeout=_WAIT_MS)
                take(page, f"explore_narrow-{shade}", _COLOURS)


def _compare(page: Page) -> None:
    """Keep the version, pad the tile, and show what that changed."""
    page.click("#keep")
    page.locator(".cm-line").nth(1).click()
    page.keyboard.press("End")
    for _ in "32];":
        page.keyboard.press("Backspace")
    page.keyboard.insert_text("33];")
    expect(page.locator("#compare-said")).to_have_text(re.compile("added"), timeout=_WAIT_MS)
    page.locator("#compare").evaluate("section => section.scrollIntoView({ behavior: 'instant' })")


def _opened(browser: Browser, url: str, shade: str, width: int, height: int) -> Page:
    """Open the page, and wait until all is there."""
    page = opened(browser, url, shade, width, height)
    expect(page.locator("#work")).to_have_text(re.compile("counted in"), timeout=_WAIT_MS)
    page.reload()  # the first look starts processes
    expect(page.locator("#work")).to_have_text(re.compile("counted in"), timeout=_WAIT_MS)
    return page


if __name__ == "__main__":
    main()
