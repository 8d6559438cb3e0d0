from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import null_driver
from cujit.errors import DeviceNotFoundError, DriverError, DriverNotFoundError
from cujit.toolchain.driver import OLDEST_DRIVER, Driver, open_driver
from processes import printed
from raising import raises


def bindings() -> Any:
    from cuda.bindings import driver

    return driver


def driver_there() -> bool:
    try:
        open_driver()
    except (DriverNotFoundError, DeviceNotFoundError):
        return False
    return True


def made_of(**functions: object) -> Any:
    """Bindings with some functions that answer as a driver would, and the real enumerations."""
    module = ModuleType("bindings")
    module.CUresult = bindings().CUresult  # type: ignore[attr-defined]
    for name, function in functions.items():
        setattr(module, name, function)
    return module


def test_importing_opens_no_library() -> None:
    printed(
        "import sys, cujit.toolchain.driver, cujit.devices.cuda, cujit.devices.process\n"
        "assert not any(m.startswith('cuda.') for m in sys.modules), sorted(sys.modules)"
    )


def test_missing_driver_error_names_the_cpu_device() -> None:
    if driver_there():
        pytest.skip("there is a driver")
    with pytest.raises((DriverNotFoundError, DeviceNotFoundError)) as caught:
        open_driver()
    assert "cujit.cpu()" in str(caught.value)
    with pytest.raises((DriverNotFoundError, DeviceNotFoundError)):  # and again, without hanging
        open_driver()


def test_refusal_carries_call_result_and_description() -> None:
    result = bindings().CUresult
    driver = Driver(
        made_of(
            cuMemAlloc=lambda _size: (result.CUDA_ERROR_OUT_OF_MEMORY, None),
            cuGetErrorString=lambda _status: (result.CUDA_SUCCESS, b"out of memory"),
        ),
        (13, 0),
    )
    with raises(DriverError, "driver", "CUDA_ERROR_OUT_OF_MEMORY") as caught:
        driver.call("cuMemAlloc", 1 << 60, log="the log")
    error = caught.value
    assert (error.call, error.result, error.tool, error.log) == (
        "cuMemAlloc",
        "CUDA_ERROR_OUT_OF_MEMORY",
        "CUDA driver 13.0",
        "the log",
    )
    assert error.help


def test_driver_without_error_texts_reports_the_number() -> None:
    def missing(_status: object) -> None:
        raise RuntimeError('Function "cuGetErrorString" not found')

    refused = bindings().CUresult.CUDA_ERROR_OUT_OF_MEMORY
    driver = Driver(made_of(cuMemAlloc=lambda _size: (refused, None), cuGetErrorString=missing), (13, 0))
    with pytest.raises(DriverError) as caught:
        driver.call("cuMemAlloc", 1 << 60)
    assert caught.value.message == str(refused)


def test_results_are_returned_without_the_status() -> None:
    ok = bindings().CUresult.CUDA_SUCCESS
    driver = Driver(made_of(none=lambda: (ok,), one=lambda x: (ok, x), two=lambda: (ok, 1, 2)), (13, 0))
    assert driver.call("none") is None
    assert driver.call("one", 5) == 5
    assert driver.call("two") == (1, 2)


def test_function_that_the_driver_lacks_is_a_driver_error() -> None:
    def missing() -> None:
        raise RuntimeError('Function "cuNew" not found')

    driver = Driver(made_of(cuNew=missing), (12, 4))
    for name in ("cuNew", "cuNotEvenInTheBindings"):
        with raises(DriverError, "driver", name):
            driver.call(name)


def test_error_after_a_fork_explains_the_drivers_refusal() -> None:
    result = bindings().CUresult
    module = made_of(
        cuCtxSynchronize=lambda: (result.CUDA_ERROR_NOT_INITIALIZED,),
        cuGetErrorString=lambda _status: (result.CUDA_SUCCESS, b"initialization error"),
    )
    driver = Driver(module, (13, 0))
    driver._pid -= 1
    with raises(DriverError, "driver", "CUDA_ERROR_NOT_INITIALIZED"):
        driver.call("cuCtxSynchronize")


@pytest.mark.parametrize(("number", "version"), [(11080, "11.8"), (12030, "12.3")])
def test_too_old_driver_is_refused_with_its_version(number: int, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = bindings().CUresult.CUDA_SUCCESS, number
    monkeypatch.setattr(bindings(), "cuDriverGetVersion", lambda: answer)
    with raises(DeviceNotFoundError, "device-not-found", "CUDA", version, "12.4"):
        inspect.unwrap(open_driver)()  # what a process has opened stays as it is


@pytest.mark.parametrize("visible", [None, "", "7"])
def test_driver_without_visible_gpus_names_the_cause(visible: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    results = bindings().CUresult
    monkeypatch.setattr(bindings(), "cuDriverGetVersion", lambda: (results.CUDA_SUCCESS, 13000))
    monkeypatch.setattr(bindings(), "cuInit", lambda _flags: (results.CUDA_ERROR_NO_DEVICE,))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    with raises(DeviceNotFoundError, "device-not-found", "GPU", "device=cujit.cpu()") as caught:
        inspect.unwrap(open_driver)()
    assert (f"(CUDA_VISIBLE_DEVICES={visible!r})" in caught.value.message) == (visible is not None)
    assert ("CUDA_VISIBLE_DEVICES" in caught.value.message) == (visible is not None)


@pytest.mark.gpu
def test_driver_of_this_machine_opens_once() -> None:
    if not driver_there():
        pytest.skip("no driver")
    driver = open_driver()
    assert driver is open_driver()
    assert driver.version >= OLDEST_DRIVER
    assert driver.device_count() >= 1
    with pytest.raises(DriverError) as caught:
        driver.call("cuDeviceGet", 4096)
    assert caught.value.result == "CUDA_ERROR_INVALID_DEVICE"
    assert "device" in caught.value.message


LOGS = """
from cujit.toolchain.driver import open_driver
driver = open_driver()
refused = driver.bindings.CUresult.CUDA_ERROR_INVALID_VALUE
print([driver.error("cuMemAlloc", refused, log).log for log in ("", "of the linker", "")])
"""


def test_error_contains_the_drivers_new_log_entries(tmp_path: Path) -> None:
    if not null_driver.is_buildable():
        pytest.skip("the wheel ziglang is not installed")
    printed_log = printed(LOGS, environment=null_driver.build(tmp_path)).strip()
    assert printed_log == repr(["[CUDA][E] line 1", "of the linker\n[CUDA][E] line 2", "[CUDA][E] line 3"])


def test_driver_without_a_log_still_raises_the_error() -> None:
    result = bindings().CUresult

    def refuse(*_: object) -> tuple[object, ...]:
        return result.CUDA_ERROR_NOT_SUPPORTED, None, None

    def absent(*_: object) -> tuple[object, ...]:
        raise RuntimeError("Function cuLogsDumpToMemory not found")

    text = {"cuGetErrorString": lambda _: (result.CUDA_SUCCESS, b"no")}
    for version, functions in (
        ((12, 8), {"cuLogsDumpToMemory": lambda *_: pytest.fail("it came with 12.9")}),
        ((13, 0), {}),
        ((13, 0), {"cuLogsDumpToMemory": refuse}),
        ((13, 0), {"cuLogsDumpToMemory": absent}),
    ):
        assert Driver(made_of(**text, **functions), version).error("cuX", result.CUDA_ERROR_UNKNOWN).log == ""
