from __future__ import annotations

import numpy as np
import pytest

from cujit.devices.arrays import dlpack
from cujit.devices.device import Device
from cujit.errors import ArgumentError
from raising import raises


class FirstVersion:
    """A producer of the first DLPack: no ``max_version``, an unversioned capsule."""

    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def __dlpack__(self, stream: int | None = None) -> object:
        assert stream is None
        return self.array.__dlpack__()


def test_capsule_of_a_gpu_names_the_gpu(gpu_memory: Device) -> None:
    array = gpu_memory.zeros((2, 3), np.int32)
    assert array.__dlpack_device__() == (dlpack.CUDA, 1)
    assert dlpack.read(array, 1) == dlpack.Tensor(array.address, (2, 1), np.dtype(np.int32), 32, True, False)


def test_both_kinds_of_capsule_are_supported(gpu_memory: Device) -> None:
    array = gpu_memory.zeros(3, np.float16)
    assert '"dltensor"' in repr(array.__dlpack__())
    if np.lib.NumpyVersion(np.__version__) >= "2.1.0":
        assert '"dltensor_versioned"' in repr(array.__dlpack__(max_version=(1, 0)))


def test_consumers_stream_waits_for_the_default_stream(gpu_memory: Device) -> None:
    gpu_memory.zeros(3, np.float16).__dlpack__(stream=77)
    assert gpu_memory.backend.ordered == [(0, 77)]  # type: ignore[attr-defined]


def test_reading_reports_contiguity_and_read_only() -> None:
    data = np.arange(12.0).reshape(3, 4)
    assert dlpack.read(data, None).contiguous
    assert not dlpack.read(data.T, None).contiguous
    assert dlpack.read(data[:, :1], None).contiguous is False
    assert dlpack.read(data[:1], None).contiguous
    assert dlpack.read(FirstVersion(data), None).address == data.ctypes.data


def test_reading_adds_no_reference_to_the_producer() -> None:
    import sys

    data = np.arange(3)
    before = sys.getrefcount(data)
    dlpack.read(data, None)
    assert sys.getrefcount(data) == before


class Broken:
    def __dlpack__(self, **_keywords: object) -> object:
        raise RuntimeError("no")


class NoCapsule:
    def __dlpack__(self, **_keywords: object) -> object:
        return 3


@pytest.mark.parametrize("producer", [Broken(), NoCapsule()])
def test_producer_without_a_capsule_is_refused(producer: object) -> None:
    with raises(ArgumentError, "argument", "DLPack"):
        dlpack.read(producer, None)
