"""Search the built site for what readers look for: ``python tools/site_search.py build/site``, after ``make docs``.

For each task of a reader it types the obvious search into the site, in a browser, and prints the page that comes first.
It exits with 1 if that isn't the page of the task, or if the page is more than two clicks from the home page, on a
desktop or on a phone. It counts only the links that a reader sees.
"""

from __future__ import annotations

import functools
import http.server
import re
import sys
import threading
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

TASKS = {
    "install": "installation/",
    "first kernel": "tutorial/1-first-kernel/",
    "compile nvcc cu file": "how-to/ordinary-files/",
    "grid block": "launch/",
    "out of bounds": "checks/",
    "data race": "how-to/find-a-race/",
    "benchmark": "how-to/time-a-kernel/",
    "time a kernel": "how-to/time-a-kernel/",
    "replay a launch": "reproducer/",
    "numba simulator": "how-to/numba-simulator/",
    "SASS": "how-to/inspect/",
    "slow kernel profile": "profile/",
    "precompiled kernels wheel": "shipping/",
    "CuPy": "coming-from/",
    "without a GPU CI": "how-to/ci/",
    "error code": "errors/",
    "illegal memory access": "checks/",
    "LTO-IR link": "linking/",
}
"""The obvious search for each task of a reader, and the page that answers it."""


class _Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


def first_result(page: Page, query: str) -> str:
    """Type a query into the search of the site; return the address of the first result, from the root of the site."""
    page.fill("input.md-search__input", "")
    page.locator("input.md-search__input").press_sequentially(query)
    found = page.locator(".md-search-result__item a.md-search-result__link")
    address, before, waits = "", None, 0
    while (not address or address != before) and waits < 20:  # until the first result stays the same
        page.wait_for_timeout(700)
        before, waits = address, waits + 1
        address = (found.first.get_attribute("href") or "") if found.count() else ""
    return re.sub(r"^https?://[^/]+/|^\./|[?#].*$", "", address)


_VISIBLE = """() => [...document.querySelectorAll("a[href]")]
    .filter(link => link.checkVisibility({opacityProperty: true, visibilityProperty: true}) && link.offsetWidth
        && !link.closest(".md-footer"))
    .map(link => link.href.replace(/[?#].*$/, ""))"""


def links(page: Page, site: str, address: str) -> set[str]:
    """Return the pages that the links which a reader sees on a page lead to; a menu that is folded hides its own."""
    page.goto(site + address)
    return {href.removeprefix(site) for href in page.evaluate(_VISIBLE) if href.startswith(site)}


def distances(page: Page, site: str) -> dict[str, int]:
    """Return the clicks from the home page to each page, up to two."""
    home = links(page, site, "")
    second = {to for address in sorted(home) if address.endswith("/") for to in links(page, site, address)}
    return dict.fromkeys(second, 2) | dict.fromkeys(home, 1)


def main(root: Path) -> int:
    """Search for every task; return the exit status."""
    handler = functools.partial(_Quiet, directory=str(root))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    site, wrong = f"http://127.0.0.1:{server.server_port}/", 0
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        wide = distances(page, site)
        page.set_viewport_size({"width": 390, "height": 844})
        narrow = distances(page, site)
        page.set_viewport_size({"width": 1440, "height": 900})
        page.goto(site)
        page.focus("input.md-search__input")
        page.wait_for_timeout(3000)  # it loads its index
        for query, target in TASKS.items():
            found, steps = first_result(page, query), (wide.get(target), narrow.get(target))
            is_good = found == target and None not in steps
            wrong += not is_good
            clicks = " and ".join(str(step or "more than 2") for step in steps)
            print(f"{'good' if is_good else 'WRONG'}  {query!r}: {found or 'nothing'}; {target}: {clicks} clicks")
        browser.close()
    server.shutdown()
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
