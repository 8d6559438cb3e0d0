"""A real browser for pages that cujit writes or serves: Chromium without a window, driven by Playwright.

``from browsing import browser, visit`` in a ``conftest.py`` gives both fixtures. Without Playwright or a browser on the
PATH the tests are skipped, and say what to install.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page, Route

__all__ = ["Visit", "Visits", "browser", "violations", "visit"]

_PROGRAMS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = ("--disable-background-networking", "--disable-component-update", "--disable-dev-shm-usage", "--mute-audio")


@dataclass
class Visit:
    """A page that is open: what it asked for beyond itself, and what went wrong in it."""

    page: Page
    asked: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)


class Visits:
    """Opens one page after the other, where the last one was: a context of its own costs each as much as its test does.

    Pages of ours keep nothing in a browser; what a test has set (a width, how it is printed) ends with it.
    """

    def __init__(self, page: Page) -> None:
        """Use a page of a browser that runs."""
        self._page = page
        self._heard: list[tuple[str, Any]] = []

    def __call__(
        self, where: Path | str, *, dark: bool = False, width: int = 1440, height: int = 900, origin: str = ""
    ) -> Visit:
        """Open a file or an address; what the page asks of another place than ``origin`` is kept and refused."""
        url = where.resolve().as_uri() if isinstance(where, Path) else where
        found, page = Visit(self._page), self._page
        self.close()
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme="dark" if dark else "light", media="null")
        page.mouse.move(0, 0)

        def routed(route: Route) -> None:
            if route.request.url == url or (origin and route.request.url.startswith(origin)):
                route.continue_()
            else:
                found.asked.append(route.request.url)
                route.abort()

        page.route("**/*", routed)
        self._hear("pageerror", lambda error: found.wrong.append(str(error)))
        self._hear("console", lambda message: found.wrong.append(message.text) if message.type == "error" else None)
        page.goto(url)
        return found

    def _hear(self, event: Any, heard: Any) -> None:
        self._page.on(event, heard)
        self._heard.append((event, heard))

    def close(self) -> None:
        """Look at the page no more."""
        self._page.unroute_all(behavior="ignoreErrors")
        for event, heard in self._heard:
            self._page.remove_listener(event, heard)
        self._heard.clear()


@pytest.fixture(scope="module")
def browser() -> Iterator[Page]:
    """Start Chromium, with one page for the tests of a module: its driver has a loop of ``asyncio`` run as long."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="needs Playwright: pip install playwright")
    program = next(filter(None, map(shutil.which, _PROGRAMS)), None)
    if program is None:
        pytest.skip("needs a browser on the PATH: apt-get install chromium")
    flags = [*_FLAGS, *(["--no-sandbox"] if os.geteuid() == 0 else [])]  # no user's own sandbox for root
    with sync_api.sync_playwright() as driver:
        started = driver.chromium.launch(executable_path=program, headless=True, args=flags)
        yield started.new_page()
        started.close()


@pytest.fixture
def visit(browser: Page) -> Iterator[Visits]:
    """Open pages."""
    visits = Visits(browser)
    yield visits
    visits.close()


def violations(page: Page) -> list[str]:
    """List what axe finds against the rules of accessibility, with the elements."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="pip install axe-playwright-python")
    found = axe.Axe().run(page).response["violations"]
    return [f"{each['id']}: {[node['target'] for node in each['nodes']]}" for each in found]
