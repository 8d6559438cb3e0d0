"""Every snippet of docs/registry.md runs, on every device."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cujit.devices.device import Device
from cujit.registry.registry import default_registry

PAGE = (Path(__file__).parents[1] / "docs" / "registry.md").read_text()
SNIPPETS = dict(re.findall(r"^## (.+?)\n.*?```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("title", list(SNIPPETS))
def test_the_snippet_runs(title: str, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    before = {known.name for known in default_registry()}
    try:
        exec(compile(SNIPPETS[title], title, "exec"), {"device": device, "__name__": "snippet"})
    finally:
        for known in {known.name for known in default_registry()} - before:
            default_registry().forget(known)


def test_every_section_has_a_snippet() -> None:
    assert list(SNIPPETS) == re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
