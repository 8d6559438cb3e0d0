from __future__ import annotations

import threading

import pytest

from cujit.devices.registry import Devices, process_devices
from cujit.errors import DeviceNotFoundError, DriverNotFoundError


def test_every_device_is_made_once_whichever_thread_asks() -> None:
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
        with pytest.raises(DeviceNotFoundError, match="no device is called"):
            registry.named(bad)


def test_a_gpu_where_there_is_none_says_why() -> None:
    registry = Devices()
    if registry.gpus():
        with pytest.raises(DeviceNotFoundError, match="no GPU 99: the driver shows"):
            registry.gpu(99)
        return
    with pytest.raises((DriverNotFoundError, DeviceNotFoundError), match="driver"):
        registry.gpu()
    with pytest.raises((DriverNotFoundError, DeviceNotFoundError), match="driver"):
        registry.named("cuda:0")


def test_the_default_is_the_first_gpu_or_else_the_cpu_device() -> None:
    registry = Devices()
    gpus = registry.gpus()
    assert registry.default() is (gpus[0] if gpus else registry.cpu())
