"""One toolchain for all tests here; no test may leave a handle open."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cujit.toolchain.headers import Settings
from cujit.toolchain.toolset import Toolchain


@pytest.fixture(scope="session")
def shared_toolchain() -> Toolchain:
    return Toolchain(Settings.from_environment(os.environ))


@pytest.fixture
def toolchain(shared_toolchain: Toolchain) -> Iterator[Toolchain]:
    yield shared_toolchain
    assert shared_toolchain.live_handles == 0, "a handle was left open"
