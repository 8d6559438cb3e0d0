"""Every snippet of docs/launch.md runs, on every device that it can run on."""

from __future__ import annotations

import inspect
import re

import pytest

import cujit
from cujit.devices.device import Device
from pages import Page

PAGE = Page("launch.md")


@pytest.mark.parametrize("code", PAGE.each())
def test_snippet_runs(code: str, device: Device) -> None:
    PAGE.run(code, device=device)


def test_every_section_has_a_snippet() -> None:
    assert PAGE.has_code_in_every_section()
    assert len(PAGE.snippets()) >= 8


def test_page_lists_every_keyword_of_prepare() -> None:
    table = PAGE.sections["Options of `prepare`"].partition("```")[0]
    told = [name for row in re.findall(r"^\| (`.*?) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)`", row)]
    assert told == list(inspect.signature(cujit.Kernel.prepare).parameters)[1:]
