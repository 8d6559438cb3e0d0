"""Cells, each test in a shell of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cells import Cells


@pytest.fixture
def cells() -> Iterator[Cells]:
    pytest.importorskip("IPython")
    made = Cells()
    yield made
    made.close()
