"""What docs/compatibility.md says of images, GPUs and drivers is so."""

from __future__ import annotations

import re

import pytest

from cujit.arch.support import RELEASES, dotted
from pages import Page

PAGE = Page("compatibility.md")


@pytest.mark.parametrize("code", PAGE.each())
def test_claim_of_the_page_is_true(code: str) -> None:
    PAGE.run(code)


def test_every_section_contains_its_proof() -> None:
    assert PAGE.has_code_in_every_section()


def test_releases_match_those_that_cujit_knows() -> None:
    rows = re.findall(r"^\| (\d+\.\d) \| (\d\.\d) \| r(\d+) \|$", PAGE.text, re.MULTILINE)
    assert rows
    known = {(dotted(one.toolkit), dotted(one.ptx), str(one.driver)) for one in RELEASES}
    assert {*rows} <= known
    assert rows[-1][0] == dotted(RELEASES[-1].toolkit)
