"""The devices that tests run on, the toolchain, and a cache that is not the user's."""

from __future__ import annotations

import gc
import itertools
import os
import re
import signal
import tempfile
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING

import hypothesis
import pytest

import promises
from cujit.cache.settings import VARIABLES
from cujit.devices.device import Device
from cujit.devices.jit import show_modules
from cujit.devices.process import process_devices
from cujit.errors import DeviceNotFoundError, DriverNotFoundError
from cujit.toolchain.driver import Driver, open_driver
from cujit.toolchain.headers import Settings
from cujit.toolchain.toolset import Toolchain
from property.effort import times

if TYPE_CHECKING:
    from cujit.devices.device import Device

# A first example compiles, on machines that are busy. CI tries the same examples for every change, so that only a
# change fails there; everybody else tries new ones, and CUJIT_EFFORT more of them.
hypothesis.settings.register_profile("cujit", deadline=None, derandomize="CI" in os.environ, max_examples=times(50))
hypothesis.settings.load_profile("cujit")

CHECKS = ("memory", "race", "sync", "init")

pytest_plugins = ("assembled", "collecting", "contexts", "costs", "forms", "sweeps", "time_limit")


def pytest_configure(config: pytest.Config) -> None:
    """Give all processes of this run a cache of their own, empty at first, and let Ctrl-C reach them."""
    if not hasattr(config, "workerinput"):
        private = tempfile.TemporaryDirectory(prefix="cujit-tests-", ignore_cleanup_errors=True)
        config.add_cleanup(private.cleanup)
        os.environ["CUJIT_CACHE_DIR"] = private.name
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take three quarters of the GPU
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # half of what NumPy's import costs each process of a test
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as a job in the background of a script
        signal.signal(signal.SIGINT, signal.default_int_handler)
    for name in (
        "CUJIT_COMPILE",
        "CUJIT_RECORD",
        "CUJIT_SOURCES",
        "CUJIT_TUNE",
        *(name for name in VARIABLES if name.startswith("CUJIT_")),
    ):
        if name != "CUJIT_CACHE_DIR":
            os.environ.pop(name, None)


def pytest_sessionstart() -> None:
    """Hold every module that the tests compile to what is promised to LLVM."""
    show_modules(promises.look)


def pytest_itemcollected(item: pytest.Item) -> None:
    """Refuse names with an address in them: two processes would name one test differently, and run none."""
    if re.search(r" at 0x[0-9a-f]{6}", item.nodeid):
        raise pytest.UsageError(f"{item.nodeid} has an address in its name: give it an id")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Have Python look for garbage in what the tests make, and no more in the tests themselves.

    To go through some million objects of 13,000 tests again and again took 7 % of the time of all. What is new is gone
    through less often than every 700 objects, too.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(10_000)
        gc.enable()


_TESTS_EACH = 250
_ended = itertools.count(1)


def pytest_runtest_logfinish() -> None:
    """Leave what so many tests have made to stay out of what Python looks for garbage in.

    A test that collects took half a second more by the end of a run, and there are some thirty.
    """
    if next(_ended) % _TESTS_EACH == 0:
        gc.collect()
        gc.freeze()


def _driver() -> Driver | None:
    try:
        return open_driver()
    except (DriverNotFoundError, DeviceNotFoundError):
        return None


_DRIVER = _driver()


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Leave out what only a GPU can run where there is none, whatever fixtures its body takes."""
    if _DRIVER is None:
        if item.get_closest_marker("gpu"):
            pytest.skip("there is no GPU")
    elif _DRIVER.is_emulated and item.get_closest_marker("hardware"):
        pytest.skip("the GPU is emulated")


PLACES = ["cpu", *([pytest.param("cuda:0", marks=pytest.mark.gpu)] if _DRIVER else [])]
"""Where there is no GPU, no body is made for one: there are 2,700, and each took 2 ms to be skipped."""


@pytest.fixture(params=PLACES)
def device(request: pytest.FixtureRequest) -> Device:
    """Every device present; one body runs on both. Under ``CUJIT_CHECK`` the CPU device makes every check."""
    if request.param == "cpu" and os.environ.get("CUJIT_CHECK"):
        found = {name for mark in request.node.iter_markers("finds") for name in mark.args}
        return process_devices().cpu(check=",".join(name for name in CHECKS if name not in found))
    return process_devices().named(request.param)


@pytest.fixture
def unoptimised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without LLVM's optimiser, half of what a kernel costs: for forms of what other tests compile with it.

    ``CUJIT_CPU_OPTIMIZE=1 make test`` optimises these as well.
    """
    monkeypatch.setenv("CUJIT_CPU_OPTIMIZE", os.environ.get("CUJIT_CPU_OPTIMIZE", "0"))


@pytest.fixture(scope="session")
def gpu() -> Device:
    """The first GPU, for bodies that only a GPU can run; mark them ``gpu``."""
    try:
        return process_devices().gpu()
    except (DriverNotFoundError, DeviceNotFoundError) as e:
        pytest.skip(e.message)


@pytest.fixture
def quiet_gpu(gpu: Device) -> Device:
    """The first GPU where no other process of the tests uses it at the same time: for what measures times."""
    if os.environ.get("PYTEST_XDIST_WORKER"):
        pytest.skip("other processes of the tests use the GPU")
    return gpu


@pytest.fixture(scope="session")
def two_gpus() -> tuple[Device, Device]:
    """The first two GPUs; mark the bodies ``gpu``."""
    gpus = process_devices().gpus()
    if len(gpus) < 2:
        pytest.skip("there are not two GPUs")
    return gpus[0], gpus[1]


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
