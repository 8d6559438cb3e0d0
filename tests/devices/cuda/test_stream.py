from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

from cujit.devices.cuda.graph import versioned
from cujit.devices.device import Device
from cujit.devices.streams import stream_handle
from cujit.errors import ClosedError, LaunchError
from raising import raises


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
def test_invalid_stream_is_refused(bad: object) -> None:
    with raises(LaunchError, "stream", "stream"):
        stream_handle(bad)


def test_capture_is_queried_and_updated_with_its_edges() -> None:
    bindings = pytest.importorskip("cuda.bindings.driver")
    told = getattr(bindings, versioned(bindings, "cuStreamGetCaptureInfo", 3)).__doc__
    results = ["captureStatus_out", "id_out", "graph_out", "dependencies_out", "edgeData_out", "numDependencies_out"]
    assert re.findall(r"^(\w+_out) : ", told, re.MULTILINE) == results
    changed = getattr(bindings, versioned(bindings, "cuStreamUpdateCaptureDependencies", 2)).__doc__
    assert re.search(r"hStream, dependencies.*, dependencyData.*, size_t numDependencies, unsigned int flags", changed)


def test_versioned_driver_function_is_used_if_it_exists() -> None:
    old, new = SimpleNamespace(f=1, f_v3=1), SimpleNamespace(f=1)
    assert (versioned(old, "f", 3), versioned(new, "f", 3)) == ("f_v3", "f")


@pytest.mark.gpu
def test_stream_has_a_handle_until_it_is_closed(gpu: Device) -> None:
    stream = gpu.stream()
    assert stream_handle(stream) == stream.handle > 2
    gpu.order(0, stream.handle)
    stream.synchronize()
    stream.close()
    stream.close()
    with pytest.raises(ClosedError):
        stream_handle(stream)
