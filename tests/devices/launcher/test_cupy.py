"""CuPy's arrays go into kernels on both routes, where CuPy is installed; they are only described: no GPU is needed."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from cujit.devices.arguments.cupy_arrays import cupy_interface, is_cupy_array
from cujit.errors import ArgumentError
from cujit.signature import Parameter, ParameterClass
from forgetting import forget
from raising import raises

cupy: Any = pytest.importorskip("cupy")

FLOATS = Parameter(ParameterClass.POINTER, 8, 8, "float*", "float")
VOIDS = Parameter(ParameterClass.POINTER, 8, 8, "void*", "void")
WORD = Parameter(ParameterClass.BITS, 8, 8, ".u64")
ADDRESS = 0x7F0000001000


class Stream:
    """What CuPy's streams say; ``asked`` are the GPUs that the current one was asked for."""

    ptr = 0
    asked: list[int]

    def __init__(self) -> None:
        self.asked = []

    def get(self, ordinal: int = -1) -> Stream:
        self.asked.append(ordinal)
        return self


@pytest.fixture
def current(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The stream that CuPy works in, here one that needs no driver."""
    stream = Stream()
    monkeypatch.setattr(cupy.cuda, "get_current_stream", stream.get)
    forget(cupy_interface)
    yield stream
    forget(cupy_interface)


def array(shape: Any = (8,), dtype: Any = np.float32, ordinal: int = 1, **more: Any) -> Any:
    memory = cupy.cuda.UnownedMemory(ADDRESS, 4096, None, ordinal)
    return cupy.ndarray(shape, dtype, memptr=cupy.cuda.MemoryPointer(memory, 0), **more)


def test_array_is_distinguished_from_other_objects(current: Any) -> None:
    class Mine(cupy.ndarray):  # type: ignore[misc]
        pass

    del current
    assert is_cupy_array(array())
    assert not is_cupy_array(array().view(Mine))
    assert not is_cupy_array(np.zeros(1))


def test_arrays_arrive(gpu_memory: Any, route: Any, current: Any) -> None:
    launch, x = route(gpu_memory, FLOATS, VOIDS, WORD), array()
    for _ in range(4):
        assert launch.send(x, array(dtype=np.int8), x) == struct.pack("<3Q", *[ADDRESS] * 3)
        assert launch.send(x[2:], x, x)[:8] == struct.pack("<Q", ADDRESS + 8)
    assert set(current.asked) == {1}
    assert gpu_memory.backend.ordered == []


def test_machine_code_reads_arrays_without_python(gpu_memory: Any, machine: Any, current: Any) -> None:
    del current
    launch, x = machine(gpu_memory, FLOATS, FLOATS), array()
    launch.send(x, x)
    launch.launch._prepared.state.reader = 0  # a reader that is called now is a crash
    assert launch.send(x, x[1:]) == struct.pack("<2Q", ADDRESS, ADDRESS + 4)


@pytest.mark.parametrize(("theirs", "ours", "waits"), [(7, 0, True), (0, 7, True), (7, 7, False), (1, 0, False)])
def test_kernel_waits_for_cupys_current_stream(
    gpu_memory: Any, route: Any, current: Any, theirs: int, ours: int, waits: bool
) -> None:
    launch, current.ptr = route(gpu_memory, FLOATS, stream=ours), theirs
    for _ in range(3):
        gpu_memory.backend.ordered.clear()
        launch.send(array())
        assert gpu_memory.backend.ordered == ([(theirs, ours)] if waits else [])


def test_stream_is_queried_at_every_launch(gpu_memory: Any, route: Any, current: Any) -> None:
    launch = route(gpu_memory, FLOATS, stream=7)
    current.ptr = 7
    for _ in range(3):
        launch.send(array())
    current.ptr = 9
    launch.send(array())
    assert gpu_memory.backend.ordered == [(9, 7)]


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: array(dtype=np.float64), ("float64", "float32")),
        (lambda: array((4, 4)).T, ("numpy.ascontiguousarray(x)",)),
        (lambda: array()[::2], ("numpy.ascontiguousarray(x)",)),
        (lambda: array(ordinal=0), ("GPU 0", "cuda:1")),
    ],
    ids=["double", "transposed", "strided", "another GPU"],
)
def test_unsuitable_array_is_refused(
    gpu_memory: Any, route: Any, current: Any, make: Any, why: tuple[str, ...]
) -> None:
    del current
    launch = route(gpu_memory, FLOATS)
    for _ in range(3):
        launch.send(array())
        with raises(ArgumentError, "argument-type", *why):
            launch.send(make())


def test_empty_array_is_null(gpu_memory: Any, route: Any, current: Any) -> None:
    del current
    launch = route(gpu_memory, FLOATS)
    for _ in range(3):
        assert launch.send(array((0,))) == bytes(8)


def test_cupy_error_is_reported(gpu_memory: Any, route: Any, current: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    launch = route(gpu_memory, FLOATS)
    launch.send(array())
    monkeypatch.setattr(type(current), "ptr", property(lambda _self: 1 / 0))
    for _ in range(3):
        with raises(ArgumentError, "argument-type", "division by zero"):
            launch.send(array())


def test_gpu_array_is_refused_on_the_host(host: Any, route: Any, current: Any) -> None:
    del current
    with raises(ArgumentError, "argument-type", "argument 1"):
        route(host, FLOATS).send(array())
