"""Every snippet of docs/streams.md runs, on every device that it can run on."""

from __future__ import annotations

import pytest

from cujit.devices.device import Device
from pages import Page

PAGE = Page("streams.md")


@pytest.mark.parametrize("code", PAGE.each())
def test_the_snippet_runs(code: str, device: Device) -> None:
    if "# needs a GPU" in code:
        if not device.is_gpu:
            pytest.skip("this snippet needs a GPU")
        pytest.importorskip("torch")
    PAGE.run(code, device=device)


def test_every_part_of_the_page_has_a_snippet() -> None:
    assert PAGE.has_code_in_every_section()
    assert len(PAGE.snippets()) >= 8
