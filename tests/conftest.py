"""The devices that tests run on."""

from __future__ import annotations

import pytest

from cujit.devices.base import Device
from cujit.devices.registry import process_devices
from cujit.errors import DeviceNotFoundError, DriverNotFoundError


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
