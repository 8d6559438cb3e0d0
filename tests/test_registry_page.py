"""Every snippet of docs/registry.md runs, on every device."""

from __future__ import annotations

from pathlib import Path

import pytest

from cujit.devices.device import Device
from cujit.registry.registry import default_registry
from pages import Page

PAGE = Page("registry.md")


@pytest.mark.parametrize("code", PAGE.each())
def test_snippet_runs(code: str, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    before = {known.name for known in default_registry()}
    try:
        PAGE.run(code, device=device)
    finally:
        for known in {known.name for known in default_registry()} - before:
            default_registry().forget(known)


def test_every_section_has_a_snippet() -> None:
    assert PAGE.has_code_in_every_section()
