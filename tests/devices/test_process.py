from __future__ import annotations

import math
import threading
from typing import Any

import pytest

import cujit
from cujit.devices.process import MAX_CPU_THREADS, Devices, process_devices
from cujit.errors import DeviceNotFoundError, DriverNotFoundError, LoadError, OptionError
from cujit.toolchain import driver
from processes import printed
from raising import raises


def test_every_device_is_created_once_in_any_thread() -> None:
    registry, seen = Devices(), []
    threads = [threading.Thread(target=lambda: seen.append(registry.cpu())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(map(id, seen))) == 1
    assert registry.cpu() is not registry.cpu(1)
    assert process_devices() is process_devices()


def test_devices_are_found_by_name() -> None:
    registry = Devices()
    assert registry.named("cpu") is registry.cpu()
    for bad in ("tpu", "cuda:x", "cuda:-1", "", "CPU"):
        with raises(DeviceNotFoundError, "device-not-found", "called"):
            registry.named(bad)


def test_missing_gpu_explains_the_reason() -> None:
    registry = Devices()
    if registry.gpus():
        with raises(DeviceNotFoundError, "device-not-found", 99):
            registry.gpu(99)
        return
    with pytest.raises((DriverNotFoundError, DeviceNotFoundError)):
        registry.gpu()
    with pytest.raises((DriverNotFoundError, DeviceNotFoundError)):
        registry.named("cuda:0")


def test_default_device_is_the_first_gpu_otherwise_the_cpu() -> None:
    registry = Devices()
    gpus = registry.gpus()
    assert registry.default() is (gpus[0] if gpus else registry.cpu())


def test_device_is_accepted_as_its_own_name() -> None:
    registry = Devices()
    assert registry.named(registry.cpu()) is registry.cpu()


@pytest.mark.parametrize("bad", [0, 1.5, b"cpu", None, object(), ["cpu"]])
def test_invalid_device_value_is_refused(bad: Any) -> None:
    with raises(OptionError, "option", "cujit.gpu(0)") as caught:
        Devices().named(bad)
    assert "'cuda:0'" in (caught.value.help or "")


@pytest.mark.parametrize("bad", ["2", 1.5, math.nan, b"1", True, object()])
def test_noninteger_ordinal_is_refused(bad: Any) -> None:
    with raises(OptionError, "option", "cujit.cpu(4)"):
        Devices().cpu(bad)
    with raises(OptionError, "option", "cujit.gpu(0)"):
        Devices().gpu(bad)


@pytest.mark.parametrize("threads", [0, -1, MAX_CPU_THREADS + 1, 10**30])
def test_more_threads_than_a_machine_has_are_refused(threads: int) -> None:
    with raises(LoadError, "load", "1024"):
        Devices().cpu(threads)


@pytest.mark.parametrize("name", ["cuda:1234567890", "cuda:" + "9" * 5000, "cuda:\u0661", "cuda:"])
def test_name_without_a_gpu_number_is_refused(name: str) -> None:
    with raises(DeviceNotFoundError, "device-not-found", "called"):
        Devices().named(name)


def test_cpu_device_without_llvmlite_names_the_package() -> None:
    code = """
import sys
class Hide:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "llvmlite":
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hide())
from cujit.devices.process import Devices
from cujit.errors import MissingError
for ask in (lambda d: d.cpu(), lambda d: d.named("cpu"), lambda d: d.cpu(2)):
    try:
        ask(Devices())
    except MissingError as e:
        print(e.help)
"""
    assert printed(code).splitlines() == ["run pip install cujit"] * 3


def test_default_device_is_looked_for_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def none() -> None:
        asked.append(1)
        raise DriverNotFoundError("no driver")

    monkeypatch.setattr(driver, "open_driver", none)
    devices = Devices()
    assert devices.default() is devices.default() is devices.cpu()
    assert len(asked) == 1


@pytest.mark.parametrize("what", ["trace", "coverage", "profile"])
@pytest.mark.parametrize("given", [3, "all", cujit.Trace, object()])
def test_invalid_observer_is_refused(what: str, given: object) -> None:
    with raises(OptionError, "option", what) as e:
        cujit.cpu(**{what: given})  # type: ignore[arg-type]
    assert str(e.value.help).startswith(f"{what}=cujit.")


def test_observers_do_not_replace_each_other() -> None:
    with raises(OptionError, "option", "profile", "Trace"):
        cujit.cpu(profile=cujit.Trace())  # type: ignore[arg-type]
