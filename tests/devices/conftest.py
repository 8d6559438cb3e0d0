"""Devices for tests: every one that is present, and host memory that stands for one where nothing runs."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from cujit.arch import Arch
from cujit.artifact import Artifact
from cujit.devices.backend import Backend, BackendModule
from cujit.devices.cpu.run.streams import Captures, InOrderStream
from cujit.devices.device import Device
from cujit.devices.jit_options import JitOptions
from cujit.devices.shapes import Dim3, Limits
from cujit.devices.streams import Allocation, DeviceLike
from cujit.errors import LoadError

LIMITS = Limits(1024, Dim3(1024, 1024, 64), Dim3(2**31 - 1, 65535, 65535), 48 << 10, 227 << 10, 132)


class HostMemory(Backend):
    """Memory of the host under the name of a device: for what only describes memory and runs nothing."""

    product = "host memory"
    arch = Arch.parse("sm_90")
    limits = LIMITS

    def __init__(self, name: str, *, is_gpu: bool, ordinal: int = 0) -> None:
        self.name = name
        self.is_gpu = is_gpu
        self.ordinal = ordinal
        self.ordered: list[tuple[int, int]] = []

    def load(self, artifact: Artifact, options: JitOptions | None = None) -> BackendModule:
        del options
        raise LoadError(f"nothing runs here, not even {artifact!r}")

    def allocate(self, size: int) -> Allocation:
        owner = np.full(size + 256, 0xEE, np.uint8)
        return Allocation(-(-owner.ctypes.data // 256) * 256 if size else 0, size, owner)

    def upload(self, address: int, data: memoryview) -> None:
        ctypes.memmove(address, np.frombuffer(data, np.uint8).ctypes.data, data.nbytes)

    def download(self, data: memoryview, address: int) -> None:
        ctypes.memmove(np.frombuffer(data, np.uint8).ctypes.data, address, data.nbytes)

    def fill(self, address: int, size: int, byte: int = 0) -> None:
        ctypes.memset(address, byte, size)

    def synchronize(self) -> None:
        pass

    def stream(self, device: DeviceLike, of: object = None, priority: int | None = None) -> InOrderStream:
        del of, priority
        return InOrderStream(device, Captures(), 0)

    def order(self, earlier: int, later: int) -> None:
        self.ordered.append((earlier, later))


@pytest.fixture
def host() -> Device:
    """Memory as the CPU device has it."""
    return Device(HostMemory("cpu", is_gpu=False))


@pytest.fixture
def gpu_memory() -> Device:
    """Memory that is described as that of GPU 1; nobody may touch it as a GPU."""
    return Device(HostMemory("cuda:1", is_gpu=True, ordinal=1))
