"""Every snippet of the pages about streams, graphs, variables and faults runs, on every device that it can run on."""

from __future__ import annotations

import pytest

from cujit.devices.device import Device
from pages import Page

PAGES = {name: Page(name) for name in ("streams.md", "graphs.md", "variables.md", "faults.md")}
SNIPPETS = [
    pytest.param(page, *one.values, id=f"{name} {one.id}") for name, page in PAGES.items() for one in page.each()
]


@pytest.mark.parametrize(("page", "code"), SNIPPETS)
def test_snippet_runs(page: Page, code: str, device: Device) -> None:
    if "# needs a GPU" in code:
        if not device.is_gpu:
            pytest.skip("this snippet needs a GPU")
        pytest.importorskip("torch")
    page.run("\n".join(_before(page, code)), device=device)


def _before(page: Page, code: str) -> list[str]:
    """Return a snippet after those that it goes on from: a page of graphs or streams is read from its top."""
    codes = [each for _, each in page.snippets() if "# needs a GPU" not in each]
    return [*codes[: codes.index(code)], code] if code in codes else [code]


@pytest.mark.parametrize("name", PAGES)
def test_every_section_has_a_snippet(name: str) -> None:
    assert PAGES[name].has_code_in_every_section()
