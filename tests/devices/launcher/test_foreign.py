"""Arrays of numba and JAX go into kernels on both routes; they are only described: no GPU is needed."""

from __future__ import annotations

import ctypes
import inspect
import operator
import struct
from typing import Any

import numpy as np
import pytest

from cujit.devices.arguments.foreign_arrays import is_described, is_numba_array, numba_interface
from cujit.devices.device import Device
from cujit.errors import ArgumentError
from cujit.signature import Parameter, ParameterClass
from raising import raises

FLOATS = Parameter(ParameterClass.POINTER, 8, 8, "float*", "float")
CONST = Parameter(ParameterClass.POINTER, 8, 8, "const float*", "const float")
WORD = Parameter(ParameterClass.BITS, 8, 8, ".u64")
ADDRESS = 0x7F0000001000


def no_more_python(launch: Any) -> None:
    """From here on a reader that is called is a crash."""
    launch.launch._prepared.state.reader = 0


# -- numba -------------------------------------------------------------------------------------------------


def numba_array(
    shape: Any = (8,), dtype: Any = "f4", strides: Any = None, stream: Any = 0, address: int = ADDRESS
) -> Any:
    arrays: Any = pytest.importorskip("numba.cuda.cudadrv.devicearray")
    driver: Any = pytest.importorskip("numba.cuda.cudadrv.driver")
    memory = driver.MemoryPointer(None, ctypes.c_void_p(address), 4096)
    steps = np.empty(shape, dtype).strides if strides is None else strides
    sizes = (1,) if 0 in shape else shape  # one of no elements asks for a context
    array = arrays.DeviceNDArray(sizes, steps, dtype, stream=stream, gpu_data=driver.OwnedPointer(memory))
    if 0 in shape:
        array._dummy = array._dummy.from_desc(0, shape, steps, array.dtype.itemsize)
        array.shape, array.size = array._dummy.shape, 0
    return array


def test_numba_array_is_distinguished_from_other_objects() -> None:
    class Mine(type(numba_array())):  # type: ignore[misc]
        pass

    array = numba_array()
    assert is_numba_array(array)
    array.__class__ = Mine
    assert not is_numba_array(array)
    assert not is_numba_array(np.zeros(1))


def test_machine_code_reads_arrays_of_numba(gpu_memory: Device, machine: Any) -> None:
    launch, x = machine(gpu_memory, FLOATS, CONST, WORD), numba_array()
    assert numba_interface() is not None
    launch.send(x, x, x)
    no_more_python(launch)
    others = numba_array((3, 5), address=ADDRESS + 64), numba_array((1, 7), strides=(999, 4)), numba_array((4,))
    assert launch.send(*others) == struct.pack("<3Q", ADDRESS + 64, ADDRESS, ADDRESS)


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"dtype": "f8"}, ("float64", "float32")),
        ({"shape": (4, 4), "strides": (4, 16)}, ("numpy.ascontiguousarray(x)",)),
        ({"strides": (8,)}, ("numpy.ascontiguousarray(x)",)),
    ],
    ids=["double", "transposed", "strided"],
)
def test_unsuitable_numba_array_is_refused(gpu_memory: Device, route: Any, change: Any, why: tuple[str, ...]) -> None:
    launch = route(gpu_memory, FLOATS)
    for _ in range(3):
        launch.send(numba_array())
        with raises(ArgumentError, "argument-type", *why):
            launch.send(numba_array(**change))


def test_kernel_waits_for_the_stream_of_an_array_of_numba(gpu_memory: Any, route: Any) -> None:
    launch = route(gpu_memory, FLOATS, stream=3)
    for _ in range(2):
        launch.send(numba_array())
        assert gpu_memory.backend.ordered == []
    launch.send(numba_array(stream=9))
    assert gpu_memory.backend.ordered == [(9, 3)]


def test_empty_array_of_numba_is_null(gpu_memory: Device, route: Any) -> None:
    launch = route(gpu_memory, FLOATS)
    for _ in range(3):
        launch.send(numba_array())
        assert launch.send(numba_array((0,))) == bytes(8)


def test_gpu_that_owns_the_memory_is_found(gpu_memory: Any, route: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_memory.backend, "ordinal_of", lambda address: 1 if address == ADDRESS else 0)
    launch = route(gpu_memory, FLOATS)
    for _ in range(3):
        launch.send(numba_array())
        with raises(ArgumentError, "argument-type", "GPU 0", "cuda:1"):
            launch.send(numba_array(address=ADDRESS + 4096))


@pytest.mark.parametrize(
    "change", [{"data": (64, False)}, {"strides": (4,)}, {"stream": 7}, {"typestr": "<i4"}, {"shape": (2,)}], ids=str
)
def test_unexpected_numba_object_is_left_to_python(monkeypatch: pytest.MonkeyPatch, change: Any) -> None:
    kind, known = type(numba_array()), inspect.unwrap(numba_interface)
    own = kind.__cuda_array_interface__
    assert known() is not None
    monkeypatch.setattr(kind, "__cuda_array_interface__", property(lambda array: own.fget(array) | change))
    assert known() is None


# -- JAX ---------------------------------------------------------------------------------------------------


class Array:
    """What says of itself what arrays of JAX do, in C; ``waited`` counts who waited for one."""

    waited = 0
    fault: Exception | None = None

    def __init__(self, **said: Any) -> None:
        self.said = {"shape": (8,), "typestr": "<f4", "data": (ADDRESS, True), "version": 2, **said}

    __cuda_array_interface__ = property(operator.attrgetter("said"))
    block_until_ready: Any = operator.methodcaller("wait")
    is_ready: Any = operator.attrgetter("made")
    made: Any = False

    def wait(self) -> None:
        Array.waited += 1
        if self.fault:
            raise self.fault


Array.__module__ = "jaxlib.some"


class Row(Array):
    """An array with what rows have in common; ``asked`` counts descriptions."""

    asked = 0
    aval = property(operator.attrgetter("kind"))
    _sharding = property(operator.attrgetter("place"))
    unsafe_buffer_pointer = operator.methodcaller("address")
    __cuda_array_interface__ = property(operator.methodcaller("describe"))

    def __init__(self, address: int = ADDRESS, kind: object = "row", place: object = "here", **said: Any) -> None:
        super().__init__(data=(address, True), **said)
        self.kind, self.place = kind, place

    def address(self) -> int:
        number: int = self.said["data"][0]
        return number

    def describe(self) -> Any:
        type(self).asked += 1
        return self.said


class Written:
    """The same, in Python."""

    said: Any = Array().said
    block_until_ready: Any = operator.methodcaller("wait")

    @property
    def __cuda_array_interface__(self) -> Any:
        return self.said


Written.__module__ = "jaxlib.some"


Row.__module__ = "jaxlib.some"


class Waiting(Array):
    """One that waits in Python."""

    __cuda_array_interface__ = Array.__cuda_array_interface__

    def block_until_ready(self) -> None:
        self.wait()


class Unready:
    """One that nobody can wait for."""

    __cuda_array_interface__ = property(operator.attrgetter("said"))


Waiting.__module__ = Unready.__module__ = "jaxlib.some"


@pytest.mark.parametrize("kind", [Array, Row, Waiting])
def test_each_array_of_jax_is_waited_for(gpu_memory: Device, route: Any, kind: Any) -> None:
    """JAX says no stream, and computes while Python goes on: nothing else orders a kernel behind that."""
    launch, before = route(gpu_memory, CONST), Array.waited
    for count in range(1, 5):
        launch.send(kind())
        assert Array.waited == before + count
    failed = kind()
    failed.fault = RuntimeError("out of memory")
    with raises(ArgumentError, "argument-type", "out"):
        launch.send(failed)


def test_native_code_reads_only_the_address_of_a_known_array(gpu_memory: Device, machine: Any) -> None:
    launch = machine(gpu_memory, CONST)
    launch.send(Array())
    no_more_python(launch)
    before, ready = Array.waited, Array()
    ready.made = True
    launch.send(ready)
    assert Array.waited == before
    ready.made = 1  # no answer of JAX
    launch.send(ready)
    assert Array.waited == before + 1


def test_array_with_a_stream_is_not_waited_for(gpu_memory: Device, route: Any) -> None:
    launch, before = route(gpu_memory, CONST), Array.waited
    launch.send(Array(stream=9))
    assert Array.waited == before


def test_array_with_a_python_interface_is_read_by_python() -> None:
    assert is_described(Array())
    assert not is_described(Written())
    assert not is_described(Waiting())
    assert not is_described(Unready())
    assert not is_described(np.zeros(1))


def test_machine_code_reads_arrays_of_jax(gpu_memory: Device, machine: Any) -> None:
    launch = machine(gpu_memory, CONST, CONST)
    launch.send(Array(), Array())
    no_more_python(launch)
    others = Array(data=(ADDRESS + 8, True), shape=(3, 4), strides=None), Array(data=(64, False), shape=())
    assert launch.send(*others) == struct.pack("<2Q", ADDRESS + 8, 64)


def test_native_code_reads_only_addresses_of_similar_rows(gpu_memory: Device, machine: Any) -> None:
    launch = machine(gpu_memory, CONST)
    launch.send(Row())
    no_more_python(launch)
    before = Row.asked
    assert launch.send(Row(ADDRESS + 8)) == struct.pack("<Q", ADDRESS + 8)
    assert Row.asked == before
    for other in (Row(64, kind="other"), Row(64, place="there")):
        assert launch.send(other) == struct.pack("<Q", 64)
        before += 1
        assert Row.asked == before


@pytest.mark.parametrize(
    ("change", "why"), [({"typestr": "<f8"}, "float64"), ({"strides": (8,)}, "numpy.ascontiguousarray(x)")]
)
@pytest.mark.parametrize("first", [Row(), Row(shape=(2, 4)), Row(shape=(0,))], ids=["row", "plane", "empty"])
def test_dissimilar_rows_are_inspected(gpu_memory: Device, route: Any, first: Any, change: Any, why: str) -> None:
    launch = route(gpu_memory, CONST)
    for _ in range(3):
        launch.send(first)
        assert launch.send(Row(shape=(2, 4), kind="plane")) == struct.pack("<Q", ADDRESS)
        assert launch.send(Row(shape=(0,), kind="empty")) == bytes(8)
        with raises(ArgumentError, "argument-type", why):
            launch.send(Row(kind="unlike", **change))


BAD: list[tuple[Any, tuple[str, ...]]] = [
    ({"typestr": "<f8"}, ("float64", "float32")),
    ({"strides": (8,)}, ("numpy.ascontiguousarray(x)",)),
    ({"data": (0, True)}, ("null",)),
    ({"data": (ADDRESS,)}, ("jaxlib.some.Array",)),
    ({"data": (-1, True)}, ("64", "fit")),
    ({"data": (1 << 64, True)}, ("64", "fit")),
    ({"shape": (-1,)}, ("negative",)),
    ({"typestr": None}, ("x.astype('float32')",)),
]


@pytest.mark.parametrize(("change", "why"), BAD, ids=[str(change) for change, _ in BAD])
def test_invalid_interface_is_refused(gpu_memory: Device, route: Any, change: Any, why: tuple[str, ...]) -> None:
    launch = route(gpu_memory, CONST)
    for _ in range(3):
        launch.send(Array())
        with raises(ArgumentError, "argument-type", *why):
            launch.send(Array(**change))


def test_read_only_array_is_refused_for_a_non_const_pointer(gpu_memory: Device, route: Any) -> None:
    launch = route(gpu_memory, FLOATS)
    for _ in range(3):
        launch.send(Array(data=(ADDRESS, False)))
        with raises(ArgumentError, "argument-type", "jaxlib.some.Array"):
            launch.send(Array())


def test_empty_array_of_jax_is_null(gpu_memory: Device, route: Any) -> None:
    launch = route(gpu_memory, CONST)
    for _ in range(3):
        launch.send(Array())
        assert launch.send(Array(shape=(3, 0))) == bytes(8)


def test_kernel_waits_for_the_stream_of_a_description(gpu_memory: Any, route: Any) -> None:
    launch = route(gpu_memory, CONST, stream=3)
    for _ in range(2):
        launch.send(Array())
        assert gpu_memory.backend.ordered == []
    launch.send(Array(stream=9))
    assert gpu_memory.backend.ordered == [(9, 3)]


def test_alternating_arrays_arrive(gpu_memory: Device, route: Any) -> None:
    launch, ours = route(gpu_memory, CONST), gpu_memory.zeros(8, np.float32)
    for _ in range(3):
        assert launch.send(Array()) == struct.pack("<Q", ADDRESS)
        assert launch.send(ours) == struct.pack("<Q", ours.address)
        assert launch.send(None) == bytes(8)
