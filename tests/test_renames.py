"""Names of the map of renames do not come back."""

from __future__ import annotations

from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]
_MAP = pytest.importorskip("tomllib").loads((_ROOT / "tools/renames.toml").read_text())


def test_modules_have_their_new_names() -> None:
    paths = {
        old: [_ROOT / "src" / (old.replace(".", "/") + suffix) for suffix in (".py", "/__init__.py")]
        for old in _MAP["modules"]
    }
    assert [old for old, places in paths.items() if any(place.exists() for place in places)] == []
