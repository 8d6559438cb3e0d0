"""Structures on both routes: machine code takes the bytes of a type that was found right, and of nothing else."""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
import pytest

from cujit.devices.device import Device
from cujit.errors import ArgumentError
from cujit.signature import Parameter, ParameterClass
from devices.packing import packed
from raising import raises

POINT = Parameter(ParameterClass.AGGREGATE, 12, 4, "Point")
FLOAT4 = Parameter(ParameterClass.AGGREGATE, 16, 16, "float4")
BITS = Parameter(ParameterClass.BITS, 12, 4, ".b8[12]")
DTYPE = np.dtype([("x", "f4"), ("y", "f4"), ("id", "i4")])
SHIFTED = np.dtype([("tag", "u1"), ("x", "f4"), ("rest", "u1", 7)])
"""As many bytes, with a member where a structure of alignment 4 has none."""


class Point(ctypes.Structure):
    _fields_ = (("x", ctypes.c_float), ("y", ctypes.c_float), ("id", ctypes.c_int))


class Odd(ctypes.Structure):
    _fields_ = Point._fields_

    def __bytes__(self) -> bytes:
        return b"0123456789ab"


class Wide(ctypes.Structure):
    _fields_ = (("x", ctypes.c_double), ("id", ctypes.c_int))


ROWS = np.array([(1, 2, 3), (4, 5, 6), (7, 8, 9)], DTYPE)
RECORDS = ROWS.view(np.recarray)


@pytest.mark.parametrize("parameter", [POINT, BITS], ids=str)
@pytest.mark.parametrize(
    "make",
    [
        lambda n: ROWS[n],
        lambda n: ROWS[n : n + 1].reshape(()),
        lambda n: RECORDS[n],
        lambda n: Point(n, 2, 3),
        lambda n: (ctypes.c_float * 3)(n, 2, 3),
        lambda n: bytes([n] * 12),
        lambda n: bytearray([n] * 12),
    ],
    ids=["void", "array", "record", "structure", "array of ctypes", "bytes", "bytearray"],
)
def test_native_code_reads_validated_structures(host: Device, machine: Any, parameter: Parameter, make: Any) -> None:
    launch = machine(host, parameter)
    launch.send(make(0))
    launch.launch._prepared.state.reader = 0  # a reader that is called now is a crash
    for n in (1, 2):
        assert launch.send(make(n)) == packed(host, parameter, make(n))


BAD = [
    (np.zeros(1, SHIFTED)[0], ("x (float32)", "1")),
    (np.zeros(1, [("x", ">f4"), ("y", "f4"), ("id", "i4")])[0], ("order",)),
    (np.zeros(2, DTYPE), ("24", "bytes")),
    (Wide(), ("16", "bytes")),
    (b"1234", ("4", "bytes")),
    ((ctypes.c_float * 4)(), ("16", "bytes")),
    (1.5, ("ctypes.Structure",)),
]


@pytest.mark.parametrize("good", [ROWS[0], Point(1, 2, 3), b"0" * 12], ids=["void", "structure", "bytes"])
def test_invalid_structure_is_refused_after_a_valid_one(host: Device, route: Any, good: Any) -> None:
    launch = route(host, POINT)
    for value, why in BAD:
        launch.send(good)
        launch.send(good)
        with raises(ArgumentError, "argument-type", *why):
            launch.send(value)


def test_enlarged_structure_is_refused(host: Device, route: Any) -> None:
    launch, point = route(host, POINT), Point(1, 2, 3)
    launch.send(point)
    assert launch.send(point) == bytes(point)
    ctypes.resize(point, 32)
    with raises(ArgumentError, "argument-type", "32", "12", "parameter"):
        launch.send(point)


def test_types_with_their_own_bytes_method_are_called(host: Device, route: Any) -> None:
    launch = route(host, POINT)
    for _ in range(3):
        assert launch.send(Odd(1, 2, 3)) == b"0123456789ab"


def test_alternating_types_arrive(host: Device, route: Any) -> None:
    launch = route(host, POINT)
    for n in range(3):
        for value in (ROWS[n], Point(n, 5, 6), ROWS[n : n + 1], bytes([n] * 12)):
            assert launch.send(value) == bytes(value)


def test_noncontiguous_array_of_a_vector_arrives(host: Device, route: Any) -> None:
    launch, rows = route(host, Parameter(ParameterClass.AGGREGATE, 24, 4, "Two")), np.zeros(4, DTYPE)
    rows["id"] = range(4)
    for _ in range(3):
        assert launch.send(rows[:2]) == rows[:2].tobytes()
        assert launch.send(rows[::2]) == rows[::2].tobytes()


def test_numbers_of_vectors_are_converted(host: Device, route: Any) -> None:
    launch = route(host, FLOAT4)
    for value in ((1, 2, 3, 4), np.ones(4, np.float32), b"0" * 16, [5, 6, 7, 8.5]):
        for _ in range(2):
            assert launch.send(value) == packed(host, FLOAT4, value)
