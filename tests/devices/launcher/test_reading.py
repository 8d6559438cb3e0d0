"""Machine code reads arguments as Python does: the same bytes, or the same words."""

from __future__ import annotations

import ctypes
import gc
import inspect
import math
import struct
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cujit.devices.arguments.packer import Pointer, pack
from cujit.devices.device import Device
from cujit.devices.launcher import scalars
from cujit.devices.launcher.layout import MOST_FIELDS, layout_of
from cujit.devices.launcher.scalars import numpy_scalars
from cujit.errors import ArgumentError, ClosedError, CujitError
from cujit.signature import Parameter, ParameterClass, Signature
from raising import raises

P = ParameterClass
INTS = [Parameter(k, n, n, f"{k.name.lower()}{8 * n}") for k in (P.SIGNED, P.UNSIGNED) for n in (1, 2, 4, 8, 16)]
WORDS = [Parameter(k, n, n) for k in (P.BITS, P.UNKNOWN) for n in (1, 2, 4, 8)]
FLOAT = Parameter(P.FLOAT, 4, 4, "float")
DOUBLE = Parameter(P.FLOAT, 8, 8, "double")
HALF = Parameter(P.AGGREGATE, 2, 2, "__half")
BFLOAT = Parameter(P.AGGREGATE, 2, 2, "__nv_bfloat16")
BOOL = Parameter(P.BOOL, 1, 1, "bool")
FLOATS = Parameter(P.POINTER, 8, 8, "float*", "float")
VOIDS = Parameter(P.POINTER, 8, 8, "void*", "void")
STRUCT = Parameter(P.AGGREGATE, 12, 4, "Point")
INT2 = Parameter(P.AGGREGATE, 8, 8, "int2")
EVERY = [*INTS, *WORDS, FLOAT, DOUBLE, HALF, BFLOAT, BOOL, FLOATS, VOIDS, STRUCT, INT2]


class Int(int):
    """A subclass, which may do anything."""


NUMBERS: list[object] = [
    *(s * 2**n + d for n in (0, 7, 8, 15, 16, 31, 32, 53, 63, 64, 127, 128) for s in (1, -1) for d in (-1, 0, 1)),
    *(True, False, None, 0.0, -0.0, 1.5, -2.0, 1e39, 3.4028235677973366e38, 3.4028234663852886e38, 1e-50, 1e300),
    *(math.inf, -math.inf, math.nan, 10**400, Int(3), np.int64(3), np.float32(2.5), np.bool_(True), np.array(3)),
    *(ctypes.c_int(3), ctypes.c_double(0.5), "3", b"xy", b"12345678", (1, 2), [1], 1j, {}, int, Pointer(2**64 - 1)),
    *(np.int8(-1), np.uint8(255), np.int16(-2), np.uint16(65535), np.int32(-5), np.int32(7), np.uint32(2**32 - 1)),
    *(np.int64(-(2**63)), np.int64(2**40), np.uint64(2**64 - 1), np.uint64(2**63), np.uint64(9), np.longlong(-6)),
    *(np.float32(np.inf), np.float32(np.nan), np.float32(-0.0), np.float64(1e300), np.float64(0.1), np.float16(0.5)),
    *(
        np.bool_(False),
        np.longdouble(1.5),
        np.complex64(1),
        np.datetime64(3, "s"),
        np.str_("3"),
        np.bytes_(b"12345678"),
    ),
    *(Pointer(0), Pointer(4096), ctypes.c_void_p(64), np.array((1, 2, 3), "f4,f4,f4")[()], np.zeros(2, np.int32)),
]


def reference(device: Device, signature: Signature, arguments: list[Any]) -> bytes | str:
    try:
        return pack(signature, arguments, device, "k")
    except CujitError as e:
        return f"{type(e).__name__}: {e}"


def outcome(route: Any, arguments: list[Any]) -> bytes | str:
    try:
        return bytes(route.send(*arguments))
    except CujitError as e:
        return f"{type(e).__name__}: {e}"


@pytest.mark.parametrize("parameter", EVERY, ids=str)
def test_native_and_python_readers_give_equal_bytes(host: Device, route: Any, parameter: Parameter) -> None:
    launch = route(host, parameter)
    for value in NUMBERS:
        expected = reference(host, Signature((parameter,)), [value])
        assert outcome(launch, [value]) == expected, repr(value)


def test_native_code_reads_all_types_that_it_supports(host: Device, machine: Any) -> None:
    """Without a reader to fall back on, these still arrive."""
    x = host.zeros(4, np.float32)
    launch = machine(host, INTS[2], INTS[8], FLOAT, DOUBLE, BOOL, FLOATS, VOIDS, WORDS[3], FLOAT, FLOATS, VOIDS)
    arguments = (-7, 2**64 - 1, 1.5, 2, True, x, x, 2**63, 3, None, Pointer(64))
    expected = launch.send(*arguments)
    launch.launch._prepared.state.reader = 0  # a reader that is called now is a crash
    assert launch.send(*arguments) == expected == pack(launch.kernel.signature, arguments, host)
    assert launch.kernel.by_hand == 0


def test_machine_code_reads_scalars_of_numpy(host: Device, machine: Any) -> None:
    launch = machine(host, INTS[2], INTS[8], INTS[3], FLOAT, DOUBLE, FLOAT, BOOL, WORDS[2], WORDS[7], WORDS[6], INTS[0])
    arguments = (
        *(np.int32(-7), np.uint64(2**64 - 1), np.uint8(0), np.float32(0.1), np.float64(0.1), np.int16(-3), np.True_),
        *(np.uint32(2**32 - 1), np.float64(2.5), np.float32(0.5), np.False_),
    )
    expected = pack(launch.kernel.signature, arguments, host)
    launch.launch._prepared.state.reader = 0  # a reader that is called now is a crash
    assert launch.send(*arguments) == expected
    assert launch.kernel.by_hand == 0


def test_scalars_of_unknown_layout_are_left_to_python(monkeypatch: pytest.MonkeyPatch) -> None:
    known = inspect.unwrap(numpy_scalars)
    assert {row.type for row in known()} >= {id(np.float32), id(np.int32), id(np.bool_), 0}
    monkeypatch.setattr(scalars, "scalar_offset", lambda: 8)
    assert [row.type for row in known()] == [0]


def test_gaps_of_the_buffer_are_zero(host: Device, route: Any) -> None:
    launch = route(host, Parameter(P.SIGNED, 1, 1), Parameter(P.FLOAT, 8, 8), Parameter(P.SIGNED, 2, 2))
    assert launch.send(7, 0.5, -2) == struct.pack("<b7xdh", 7, 0.5, -2)


def test_kernel_without_parameters_accepts_none(host: Device, route: Any) -> None:
    launch = route(host)
    assert launch.send() == b""
    with raises(ArgumentError, "argument-count", "1", "3", "passed"):
        launch.send(3)


@pytest.mark.parametrize("count", [0, 1, 3, 20])
def test_wrong_count_lists_all_parameters(host: Device, route: Any, count: int) -> None:
    with raises(ArgumentError, "argument-count", "k", "2 arguments (float, float*)", count):
        route(host, FLOAT, FLOATS).send(*[1.0] * count)


def test_arguments_by_keyword_are_refused(host: Device, route: Any) -> None:
    launch = route(host, FLOAT)
    with raises(ArgumentError, "argument-count", "k"):
        launch.launch(x=1.0)
    launch.launch(1.5)
    assert launch.kernel.bytes == struct.pack("<f", 1.5)


@pytest.mark.parametrize("count", [63, 64, 65, 100])
def test_layout_has_as_many_parameters_as_bits_in_a_word(count: int) -> None:
    signature = Signature((Parameter(P.SIGNED, 4, 4, "int"),) * count)
    assert (layout_of(signature) is not None) == (count <= MOST_FIELDS)


def test_sixty_four_parameters_arrive_from_both_readers(host: Device, machine: Any) -> None:
    launch = machine(host, *[Parameter(P.SIGNED, 4, 4, "int")] * 64)
    values: list[Any] = [np.int32(i) if i % 3 else i for i in range(64)]
    assert launch.send(*values) == struct.pack("<64i", *range(64))


# -- arrays -----------------------------------------------------------------------------------------------


def test_arrays_views_and_empty_arrays_arrive(host: Device, route: Any) -> None:
    x, none = host.zeros((4, 4), np.float32), host.zeros(0, np.float32)
    launch = route(host, FLOATS, FLOATS, VOIDS, FLOATS)
    for _ in range(3):
        assert launch.send(x, x[1:], none, x[4:]) == struct.pack("<4Q", x.address, x.address + 16, 0, 0)


def test_valid_dtype_does_not_validate_another(host: Device, route: Any) -> None:
    right, wrong = host.zeros(4, np.float32), host.zeros(4, np.float64)
    launch = route(host, FLOATS, VOIDS)
    for _ in range(3):
        launch.send(right, wrong)
        launch.send(right, right)
        with raises(ArgumentError, "argument-type", "float64", "float32"):
            launch.send(wrong, right)


def test_equal_but_different_dtype_object_is_valid(host: Device, route: Any) -> None:
    x, y = host.zeros(4, np.longlong), host.zeros(4, np.int64)
    launch = route(host, Parameter(P.POINTER, 8, 8, "long*", "long"))
    for _ in range(3):
        assert launch.send(x) == struct.pack("<Q", x.address)
        assert launch.send(y) == struct.pack("<Q", y.address)


def test_array_of_another_device_is_refused(host: Device, gpu_memory: Device, route: Any) -> None:
    launch, x = route(host, FLOATS), host.zeros(1, np.float32)
    launch.send(x)
    with raises(ArgumentError, "argument-type", "cpu", "DeviceArray"):
        launch.send(gpu_memory.zeros(1, np.float32))


def test_closed_array_is_refused(host: Device, route: Any) -> None:
    launch, x = route(host, FLOATS), host.zeros(1, np.float32)
    launch.send(x)
    launch.send(x)
    x.close()
    with raises(ClosedError, "closed", "device.array(x)"):
        launch.send(x)


def test_memory_of_a_freed_dtype_is_not_mistaken_for_it(host: Device, machine: Any) -> None:
    launch = machine(host, VOIDS)
    for i in range(50):
        launch.send(host.zeros(1, np.dtype([(f"field{i}", "f4")])))
        gc.collect(0)
    with pytest.raises(ArgumentError):
        launch.send("x")


class Closing:
    """An array of another library that closes one of ours while it is read."""

    def __init__(self, victim: Any, array: np.ndarray[Any, Any]) -> None:
        self.victim = victim
        self.array = array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        self.victim.close()
        return self.array.__array_interface__


def test_array_closed_while_reading_arguments_is_refused(host: Device, machine: Any) -> None:
    launch, x = machine(host, FLOATS, FLOATS), host.zeros(4, np.float32)
    launch.send(x, x)
    launch.send(x, x)
    with raises(ClosedError, "closed", "device.array(x)"):
        launch.send(x, Closing(x, np.zeros(4, np.float32)))


def test_module_closed_while_reading_arguments_does_not_run(host: Device, route: Any) -> None:
    launch = route(host, FLOATS)
    launch.send(None)
    with raises(ClosedError, "closed", "cpu", "closed"):
        launch.send(Closing(launch.image, np.zeros(4, np.float32)))
    assert launch.kernel.bytes == b"\xee" * 8


def test_closed_module_runs_nothing_with_any_arguments(host: Device, route: Any) -> None:
    launch = route(host, FLOAT)
    launch.send(1.0)
    launch.image.close()
    for arguments in ((1.0,), ("x",), ()):
        with raises(ClosedError, "closed", "cpu", "closed"):
            launch.send(*arguments)


def test_array_waits_for_the_stream_of_the_launch(gpu_memory: Any, route: Any) -> None:
    class Interface:
        def __init__(self) -> None:
            where = {"data": (8192, False), "stream": 9}
            self.__cuda_array_interface__ = {"shape": (4,), "typestr": "<f4", "strides": None, "version": 3, **where}

        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 1)

    assert route(gpu_memory, FLOATS, stream=5).send(Interface()) == struct.pack("<Q", 8192)
    assert set(gpu_memory.backend.ordered) == {(9, 5)}


# -- anything at all --------------------------------------------------------------------------------------

SCALARS = [p for p in EVERY if p not in (FLOATS, VOIDS)]
VALUES = st.one_of(
    st.integers(-(2**70), 2**70),
    st.integers(-300, 300),
    st.floats(allow_subnormal=True).filter(lambda x: not math.isnan(x)),
    st.booleans(),
    st.none(),
    st.integers(0, 2**64 - 1).map(Pointer),
    st.binary(max_size=16),
    st.floats(width=32, allow_nan=False).map(np.float32),
    st.integers(-128, 127).map(np.int8),
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_signatures_and_values_arrive_bit_for_bit(host: Device, machine: Any, data: st.DataObject) -> None:
    parameters = data.draw(st.lists(st.sampled_from(EVERY), max_size=9))
    launch, signature = machine(host, *parameters), Signature(tuple(parameters))
    for _ in range(4):
        arguments = [data.draw(VALUES) for _ in parameters]
        expected = reference(host, signature, arguments)
        assert outcome(launch, arguments) == expected


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.tuples(
        st.integers(-128, 127),
        st.integers(0, 2**64 - 1),
        st.floats(width=32, allow_nan=False),
        st.integers(-(2**31), 2**31 - 1),
        st.floats(allow_nan=False),
        st.booleans(),
        st.integers(0, 2**16 - 1),
    )
)
def test_valid_values_arrive_as_ctypes_packs_them(host: Device, machine: Any, values: tuple[Any, ...]) -> None:
    class Packed(ctypes.Structure):
        _fields_ = (
            ("a", ctypes.c_int8),
            ("b", ctypes.c_uint64),
            ("c", ctypes.c_float),
            ("d", ctypes.c_int32),
            ("e", ctypes.c_double),
            ("f", ctypes.c_bool),
            ("g", ctypes.c_uint16),
        )

    kinds = (INTS[0], INTS[8], FLOAT, INTS[2], DOUBLE, BOOL, INTS[6])
    assert machine(host, *kinds).send(*values) == bytes(Packed(*values))[: Signature(kinds).size]


# -- references -------------------------------------------------------------------------------------------


def test_many_launches_leave_no_reference(host: Device, machine: Any) -> None:
    x, struct_, number = host.zeros(4, np.float32), b"123456789012", 2.0**70
    large, scalar = 2**63 + 5, np.float32(1)
    launch = machine(host, FLOATS, DOUBLE, INTS[8], FLOAT, STRUCT)
    arguments = (x, number, large, scalar, struct_)
    watched = (*arguments, x.dtype, None, launch.launch, x._allocation)
    for _ in range(10):
        launch.send(*arguments)
    gc.collect()
    before = [sys.getrefcount(value) for value in watched]
    for i in range(20_000):
        launch.launch(x, number, large, scalar, struct_)
        if i % 16 == 0:
            for wrong in ((x, "x", large, scalar, struct_), (x, number, -1, scalar, struct_), (x,)):
                with pytest.raises(ArgumentError):
                    launch.launch(*wrong)
    gc.collect()
    after = [sys.getrefcount(value) for value in watched]
    # None is everybody's: what tests and collector do with it is far below one reference a launch.
    assert all(abs(b - a) < 2000 for a, b in zip(before, after, strict=True)), (before, after)


def test_many_launches_leak_no_memory(host: Device, machine: Any) -> None:
    scalar, structure = np.float32(1), (7, -8)
    launch = machine(host, FLOAT, INT2, DOUBLE).launch
    for _ in range(10):
        launch(scalar, structure, 2.5)
    gc.collect()
    before = sys.getallocatedblocks()
    for _ in range(20_000):
        launch(scalar, structure, 2.5)
    gc.collect()
    assert sys.getallocatedblocks() - before < 2000


def test_launch_is_freed_with_its_last_user(host: Device, machine: Any) -> None:
    import weakref

    gc.collect()
    gc.disable()
    try:
        route = machine(host, FLOATS)
        route.send(None)
        watched = weakref.ref(route.launch), weakref.ref(route.entry), weakref.ref(route.kernel)
        del route
        assert [ref() for ref in watched] == [None] * 3
    finally:
        gc.enable()
