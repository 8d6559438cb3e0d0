from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from cujit.devices.base import Device
from cujit.devices.cuda import CudaDevice
from cujit.devices.cuda.stream import stream_handle
from cujit.errors import ClosedError, LaunchError


class Protocol:
    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, 42)


@pytest.mark.parametrize(
    ("stream", "handle"),
    [
        (None, 0),
        (0, 0),
        (7, 7),
        (np.int64(7), 7),
        (Protocol(), 42),
        (SimpleNamespace(__cuda_stream__=(0, 9)), 9),
        (SimpleNamespace(cuda_stream=5), 5),
        (SimpleNamespace(ptr=6), 6),
    ],
)
def test_streams_of_every_library_give_their_handle(stream: object, handle: int) -> None:
    assert stream_handle(stream) == handle


@pytest.mark.parametrize("bad", ["default", 1.5, -1, 2**64, object(), SimpleNamespace(__cuda_stream__=3)])
def test_what_is_no_stream_is_refused(bad: object) -> None:
    with pytest.raises(LaunchError, match="stream"):
        stream_handle(bad)


@pytest.mark.gpu
def test_a_stream_has_a_handle_until_it_is_closed(gpu: Device) -> None:
    assert isinstance(gpu, CudaDevice)
    stream = gpu.stream()
    assert stream_handle(stream) == stream.handle > 2
    gpu.order(0, stream.handle)
    stream.synchronize()
    stream.close()
    stream.close()
    with pytest.raises(ClosedError):
        stream_handle(stream)
