"""What of the farm's tests is left to ``make farm``."""

from __future__ import annotations

import os

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what takes long, unless it is asked for."""
    if not os.environ.get("CUJIT_FARM"):
        for item in items:
            if item.get_closest_marker("farm"):
                item.add_marker(pytest.mark.skip(reason="it takes a while: make farm"))
