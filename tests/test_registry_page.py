"""Every snippet of docs/registry.md runs, on every device."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import cujit
from cujit.devices.base import Device
from cujit.registry.registry import Registry, module, registry
from cujit.registry.spec import Built

PAGE = (Path(__file__).parents[1] / "docs" / "registry.md").read_text()
SNIPPETS = dict(re.findall(r"^## (.+?)\n.*?```python\n(.*?)```", PAGE, re.DOTALL | re.MULTILINE))


@pytest.mark.parametrize("title", list(SNIPPETS))
def test_the_snippet_runs(title: str, device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUJIT_CACHE_DIR", str(tmp_path / "cache"))
    for name, thing in {"Built": Built, "Registry": Registry, "module": module, "registry": registry}.items():
        monkeypatch.setattr(cujit, name, thing, raising=False)
    before = {known.name for known in registry()}
    try:
        exec(compile(SNIPPETS[title], title, "exec"), {"device": device, "__name__": "snippet"})
    finally:
        for known in {known.name for known in registry()} - before:
            registry().forget(known)


def test_every_section_has_a_snippet() -> None:
    assert list(SNIPPETS) == re.findall(r"^## (.+)$", PAGE, re.MULTILINE)
