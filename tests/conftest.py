"""The devices that tests run on, the toolchain, and a cache that is not the user's."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from cujit.devices.base import Device
from cujit.devices.registry import process_devices
from cujit.errors import DeviceNotFoundError, DriverNotFoundError
from cujit.toolchain.headers import Settings
from cujit.toolchain.toolset import Toolchain

if TYPE_CHECKING:
    from cujit.devices.cuda.device import CudaDevice


def pytest_configure(config: pytest.Config) -> None:
    """Give this process and its children a cache of their own, empty at first."""
    private = tempfile.TemporaryDirectory(prefix="cujit-tests-", ignore_cleanup_errors=True)
    config.add_cleanup(private.cleanup)
    os.environ["CUJIT_CACHE_DIR"] = private.name
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take three quarters of the GPU
    for name in ("CUJIT_CACHE", "CUJIT_CACHE_ROOTS", "CUJIT_CACHE_BYTES"):
        os.environ.pop(name, None)


@pytest.fixture(params=["cpu", pytest.param("cuda:0", marks=pytest.mark.gpu)])
def device(request: pytest.FixtureRequest) -> Device:
    """Every device present; one body runs on both."""
    try:
        return process_devices().named(request.param)
    except (DriverNotFoundError, DeviceNotFoundError) as e:
        pytest.skip(e.message)


@pytest.fixture(scope="session")
def gpu() -> CudaDevice:
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
