"""The devices that tests run on, and the toolchain."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cujit.devices.base import Device
from cujit.devices.registry import process_devices
from cujit.errors import DeviceNotFoundError, DriverNotFoundError
from cujit.toolchain.headers import Settings
from cujit.toolchain.toolset import Toolchain


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    """Every device present; one body runs on both."""
    try:
        return process_devices().named(request.param)
    except (DriverNotFoundError, DeviceNotFoundError) as e:
        pytest.skip(e.message)


@pytest.fixture
def gpu() -> Device:
    """The first GPU, for bodies that only a GPU can run; mark them ``gpu``."""
    try:
        return process_devices().gpu()
    except (DriverNotFoundError, DeviceNotFoundError) as e:
        pytest.skip(e.message)


@pytest.fixture
def cpu() -> Device:
    """The CPU device."""
    return process_devices().cpu()


@pytest.fixture(scope="session")
def shared_toolchain() -> Toolchain:
    """One toolchain for all tests."""
    return Toolchain(Settings.from_environment(os.environ))


@pytest.fixture
def toolchain(shared_toolchain: Toolchain) -> Iterator[Toolchain]:
    """The toolchain; a test that leaves a handle open fails."""
    yield shared_toolchain
    assert shared_toolchain.live_handles == 0, "a handle was left open"
