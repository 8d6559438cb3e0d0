from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from cujit.devices.arguments.packer import Packer, Pointer, pack
from cujit.devices.device import Device
from cujit.errors import ArgumentError, ClosedError
from cujit.signature import Parameter, ParameterClass, Signature
from devices.packing import packed, refusal
from raising import raises

P = ParameterClass
INT = Parameter(P.SIGNED, 4, 4, "int")
UCHAR = Parameter(P.UNSIGNED, 1, 1, "unsigned char")
SIZE = Parameter(P.UNSIGNED, 8, 8, "unsigned long")
FLOAT = Parameter(P.FLOAT, 4, 4, "float")
DOUBLE = Parameter(P.FLOAT, 8, 8, "double")
HALF = Parameter(P.AGGREGATE, 2, 2, "__half")
BFLOAT = Parameter(P.AGGREGATE, 2, 2, "__nv_bfloat16")
BOOL = Parameter(P.BOOL, 1, 1, "bool")
FLOATS = Parameter(P.POINTER, 8, 8, "float*", "float")
CONST_FLOATS = Parameter(P.POINTER, 8, 8, "const float*", "const float")
VOIDS = Parameter(P.POINTER, 8, 8, "void*", "void")
WORD = Parameter(P.BITS, 8, 8, ".u64")
UNKNOWN4 = Parameter(P.UNKNOWN, 4)
UNKNOWN8 = Parameter(P.UNKNOWN, 8)
STRUCT = Parameter(P.AGGREGATE, 12, 4, "Point")


def test_buffer_has_every_parameter_at_its_offset(host: Device) -> None:
    x = host.zeros(4, np.float32)
    signature = Signature((UCHAR, INT, CONST_FLOATS, UCHAR, DOUBLE))
    buffer = pack(signature, [7, -2, x, 9, 0.5], host)
    assert buffer == struct.pack("<B3xi Q B7x d", 7, -2, x.address, 9, 0.5)
    assert len(buffer) == signature.size


def test_kernel_without_parameters_gets_an_empty_buffer(host: Device) -> None:
    assert pack(Signature(), [], host) == b""


@pytest.mark.parametrize(
    ("arguments", "passed"),
    [([], "you passed 0"), ([1], "you passed 1: int 1"), ([1, 2.0, 3], "you passed 3: int 1, float 2.0, int 3")],
)
def test_wrong_count_lists_all_parameters(host: Device, arguments: list[object], passed: str) -> None:
    with raises(ArgumentError, "argument-count", "axpy<float>", "2") as caught:
        pack(Signature((INT, FLOAT)), arguments, host, "axpy<float>")
    assert passed in str(caught.value)


def test_arguments_for_a_kernel_without_parameters_are_refused(host: Device) -> None:
    with raises(ArgumentError, "argument-count", "1", "passed"):
        pack(Signature(), [1], host)


# -- numbers ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [3, True, np.int64(3), np.uint8(3), np.array(3), ctypes.c_int(3), np.bool_(True)])
def test_int_parameter_accepts_every_integer(host: Device, value: Any) -> None:
    expected = 3 if value not in (True,) and not isinstance(value, np.bool_) else 1
    assert packed(host, INT, value) == struct.pack("<i", expected)


@pytest.mark.parametrize(("parameter", "value"), [(INT, 2**31), (INT, -(2**31) - 1), (UCHAR, 256), (SIZE, -1)])
def test_integer_out_of_range_names_the_range(host: Device, parameter: Parameter, value: int) -> None:
    message = refusal(host, parameter, value)
    assert "out of range" in message
    assert "from" in message


def test_ends_of_a_range_are_inside(host: Device) -> None:
    assert packed(host, INT, -(2**31)) == struct.pack("<i", -(2**31))
    assert packed(host, SIZE, 2**64 - 1) == b"\xff" * 8


@pytest.mark.parametrize("value", [2.0, np.float32(2), np.float64(2)])
def test_float_for_an_int_is_refused_with_a_hint(host: Device, value: object) -> None:
    message = refusal(host, INT, value)
    assert "k: argument 1 (int) doesn't accept" in message
    assert "hint: pass int(x)" in message


@pytest.mark.parametrize("value", ["3", None, [3], 1j, np.array([1, 2]), object()])
def test_nonnumber_for_a_number_is_refused(host: Device, value: object) -> None:
    for parameter in (INT, FLOAT, BOOL):
        assert "argument 1" in refusal(host, parameter, value)


@pytest.mark.parametrize("kind", [HALF, BFLOAT])
def test_bytes_of_a_half_are_passed_unchanged(host: Device, kind: Parameter) -> None:
    assert packed(host, kind, b"\x01\x3c") == b"\x01\x3c"
    assert packed(host, kind, bytearray(b"\xff\x7f")) == b"\xff\x7f"
    assert "doesn't accept a bytes: it is not a real number" in refusal(host, kind, b"\x01")


@pytest.mark.parametrize("value", [2.5, np.float32(2.5), np.float64(2.5), np.float16(2.5), ctypes.c_double(2.5)])
def test_float_parameter_accepts_every_real_number(host: Device, value: object) -> None:
    assert packed(host, FLOAT, value) == struct.pack("<f", 2.5)
    assert packed(host, DOUBLE, value) == struct.pack("<d", 2.5)


def test_float_parameter_accepts_an_int(host: Device) -> None:
    assert packed(host, FLOAT, 2) == struct.pack("<f", 2.0)


@pytest.mark.parametrize("value", [float("inf"), float("-inf"), float("nan"), 3.4028234663852886e38, 1e-50])
def test_float_parameter_accepts_infinity_nan_and_extremes(host: Device, value: float) -> None:
    assert packed(host, FLOAT, value) == struct.pack("<f", value)


@pytest.mark.parametrize("value", [1e39, 3.4028235677973366e38, 10**400])
def test_number_that_would_become_infinity_is_refused(host: Device, value: object) -> None:
    assert "out of range" in refusal(host, FLOAT, value)


def test_half_parameter_accepts_numbers(host: Device) -> None:
    assert packed(host, HALF, 1.5) == struct.pack("<e", 1.5)
    assert "16 bits" in refusal(host, HALF, 1e6)


@pytest.mark.parametrize(
    ("value", "bits"), [(1.0, 0x3F80), (1.00390625, 0x3F80), (1.01171875, 0x3F82), (-2.0, 0xC000), (1e-45, 0x0000)]
)
def test_bfloat_is_rounded_to_nearest_even(host: Device, value: float, bits: int) -> None:
    assert packed(host, BFLOAT, value) == struct.pack("<H", bits)


def test_bfloat_keeps_a_nan(host: Device) -> None:
    (bits,) = struct.unpack("<H", packed(host, BFLOAT, float("nan")))
    assert bits & 0x7F80 == 0x7F80
    assert bits & 0x7F


def test_bool_parameter_accepts_only_bools(host: Device) -> None:
    assert packed(host, BOOL, True) == b"\1"
    assert packed(host, BOOL, np.bool_(False)) == b"\0"
    assert "True or False" in refusal(host, BOOL, 2)


# -- structures and words ---------------------------------------------------------------------------------


class Point(ctypes.Structure):
    _fields_ = (("x", ctypes.c_float), ("y", ctypes.c_float), ("z", ctypes.c_float))


_POINT = struct.pack("<fff", 1, 2, 3)


@pytest.mark.parametrize(
    "value",
    [
        _POINT,
        bytearray(_POINT),
        memoryview(_POINT),
        Point(1, 2, 3),
        np.array([(1, 2, 3)], "f4,f4,f4")[0],
        np.array((1, 2, 3), "f4,f4,f4"),
        np.array([1, 2, 3], np.float32),
    ],
)
def test_structure_is_passed_by_its_bytes(host: Device, value: object) -> None:
    assert packed(host, STRUCT, value) == _POINT


def test_structure_of_another_size_names_both_sizes(host: Device) -> None:
    assert "it is 4 bytes long, but the parameter is 12" in refusal(host, STRUCT, b"1234")
    assert "structured scalar" in refusal(host, STRUCT, 3)


def test_untyped_word_accepts_ints_and_arrays_but_no_float(host: Device) -> None:
    x = host.zeros(1, np.int8)
    assert packed(host, WORD, 5) == struct.pack("<Q", 5)
    assert packed(host, WORD, -5) == struct.pack("<q", -5)
    assert packed(host, WORD, np.int32(-5)) == struct.pack("<q", -5)
    assert packed(host, WORD, x) == struct.pack("<Q", x.address)
    assert packed(host, WORD, Pointer(64)) == struct.pack("<Q", 64)
    assert packed(host, WORD, None) == bytes(8)
    for value in (2.0, np.float64(2)):
        assert "an int or an array" in refusal(host, WORD, value)


def test_parameter_of_only_known_size_accepts_that_size(host: Device) -> None:
    x = host.zeros(1, np.int8)
    assert packed(host, UNKNOWN4, np.float32(2)) == struct.pack("<f", 2)
    assert packed(host, UNKNOWN4, ctypes.c_float(2)) == struct.pack("<f", 2)
    assert packed(host, UNKNOWN4, b"abcd") == b"abcd"
    assert packed(host, UNKNOWN4, -1) == b"\xff" * 4
    assert packed(host, UNKNOWN4, 2**32 - 1) == b"\xff" * 4
    assert packed(host, UNKNOWN8, x) == struct.pack("<Q", x.address)
    assert packed(host, UNKNOWN8, np.float64(2)) == struct.pack("<d", 2)
    assert "doesn't fit in 4 bytes" in refusal(host, UNKNOWN4, 2**32)
    assert "it is 8 bytes long, but the parameter is 4" in refusal(host, UNKNOWN4, np.float64(2))
    assert "argument 1" in refusal(host, UNKNOWN4, x)


def test_python_float_for_an_unknown_type_needs_a_numpy_scalar(host: Device) -> None:
    assert "pass numpy.float32(x)" in refusal(host, UNKNOWN4, 2.0)
    assert "pass numpy.float64(x)" in refusal(host, UNKNOWN8, 2.0)


def test_parameter_of_unknown_size_cannot_be_passed(host: Device) -> None:
    with raises(ArgumentError, "argument-type", "parameter"):
        Packer(Signature((Parameter(P.UNKNOWN, 0),)), host)


# -- pointers ---------------------------------------------------------------------------------------------


def test_pointer_accepts_arrays_none_and_addresses(host: Device) -> None:
    x = host.zeros(4, np.float32)
    assert packed(host, FLOATS, x) == struct.pack("<Q", x.address)
    assert packed(host, FLOATS, x[2:]) == struct.pack("<Q", x.address + 8)
    assert packed(host, FLOATS, None) == bytes(8)
    assert packed(host, FLOATS, Pointer(0x1000)) == struct.pack("<Q", 0x1000)
    assert packed(host, FLOATS, ctypes.c_void_p(0x1000)) == struct.pack("<Q", 0x1000)


@pytest.mark.parametrize("value", [1, 2.0, np.float32(2), np.int64(1), True, -1, 1 << 64, "x", b"xxxxxxxx"])
def test_number_for_a_pointer_is_refused_with_a_hint(host: Device, value: object) -> None:
    message = refusal(host, FLOATS, value)
    assert "it is not a pointer" in message
    assert "an array of float32 on cpu" in message
    assert ("cujit.Pointer" in message) == (value == 1 and type(value) is int)


def test_list_for_a_pointer_explains_how_to_make_an_array(host: Device) -> None:
    assert "device.array(x) makes one" in refusal(host, FLOATS, [1.0, 2.0])


def test_numpy_arrays_are_passed_directly_to_the_cpu_device(host: Device) -> None:
    x = np.zeros(4, np.float32)
    assert packed(host, FLOATS, x) == struct.pack("<Q", x.ctypes.data)


def test_numpy_arrays_are_refused_on_a_gpu(gpu_memory: Device) -> None:
    message = refusal(gpu_memory, FLOATS, np.zeros(4, np.float32))
    assert "it is in host memory" in message
    assert "device.array(x)" in message


def test_array_of_another_device_is_refused(host: Device, gpu_memory: Device) -> None:
    assert "it is not on cpu" in refusal(host, FLOATS, gpu_memory.zeros(1, np.float32))
    assert "it is not on cuda:1" in refusal(gpu_memory, FLOATS, host.zeros(1, np.float32))


def test_elements_must_be_of_the_pointers_type(host: Device) -> None:
    message = refusal(host, FLOATS, host.zeros(4, np.float64))
    assert "its elements are float64, not float32" in message
    assert "astype('float32')" in message
    assert "int32" in refusal(host, Parameter(P.POINTER, 8, 8, "unsigned int*", "unsigned int"), np.zeros(1, np.int32))


@pytest.mark.parametrize("pointee", ["void", "char", "unsigned char", "const void", "Point", ""])
def test_pointers_to_bytes_and_structures_accept_every_array(host: Device, pointee: str) -> None:
    x = host.zeros(4, np.float64)
    parameter = Parameter(P.POINTER, 8, 8, f"{pointee}*", pointee)
    assert packed(host, parameter, x) == struct.pack("<Q", x.address)


def test_very_large_int_is_reported_by_its_bits(host: Device) -> None:
    for parameter in (FLOATS, Parameter(P.SIGNED, 4, 4, "int"), Parameter(P.UNKNOWN, 4)):
        assert "doesn't accept an int of 16610 bits: " in refusal(host, parameter, 10**5000)
    with raises(ArgumentError, "argument-type", "16610"):
        Pointer(10**5000)


@pytest.mark.parametrize("pointee", ["float*", "const float*", "float* const", "void**"])
def test_pointer_to_pointers_accepts_64_bit_words(host: Device, pointee: str) -> None:
    parameter = Parameter(P.POINTER, 8, 8, f"{pointee}*", pointee)
    for dtype in (np.uint64, np.int64, np.dtype("V8")):
        x = host.empty(4, dtype)
        assert packed(host, parameter, x) == struct.pack("<Q", x.address)
    for wrong in (np.float32, np.float64, np.int32):
        assert "not uint64 (addresses)" in refusal(host, parameter, host.zeros(4, wrong))


@pytest.mark.parametrize("pointee", ["float const", "const float", "const volatile float"])
def test_read_only_array_is_accepted_for_a_const_pointer(host: Device, pointee: str) -> None:
    x = np.zeros(4, np.float32)
    x.flags.writeable = False
    parameter = Parameter(P.POINTER, 8, 8, f"{pointee}*", pointee)
    assert packed(host, parameter, x) == struct.pack("<Q", x.ctypes.data)
    assert "read-only" in refusal(host, FLOATS, x)
    words = np.zeros(4, np.uint64)
    words.flags.writeable = False
    assert "read-only" in refusal(host, Parameter(P.POINTER, 8, 8, "", "const float*"), words)


def test_noncontiguous_array_is_refused(host: Device) -> None:
    assert "not C-contiguous" in refusal(host, FLOATS, np.zeros((4, 4), np.float32)[:, 0])


def test_empty_array_is_a_null_pointer(host: Device) -> None:
    assert packed(host, FLOATS, host.zeros(0, np.float32)) == bytes(8)
    assert packed(host, FLOATS, np.zeros(0, np.float32)) == bytes(8)


def test_closed_array_is_refused(host: Device) -> None:
    x = host.zeros(4, np.float32)
    x.close()
    with pytest.raises(ClosedError):
        packed(host, FLOATS, x)


class Interface:
    """Another library's array on a GPU, which is known by its interface only."""

    def __init__(self, **changes: object) -> None:
        self.__cuda_array_interface__ = {
            "shape": (4,), "typestr": "<f4", "data": (0x2000, False), "strides": None, "version": 3, **changes
        }  # fmt: skip


def test_arrays_of_other_libraries_are_passed_to_a_gpu(gpu_memory: Device) -> None:
    assert packed(gpu_memory, FLOATS, Interface()) == struct.pack("<Q", 0x2000)
    assert packed(gpu_memory, FLOATS, Interface(strides=(4,))) == struct.pack("<Q", 0x2000)
    assert packed(gpu_memory, CONST_FLOATS, Interface(data=(0x2000, True))) == struct.pack("<Q", 0x2000)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"typestr": "<f8"}, "float64, not float32"),
        ({"strides": (8,)}, "not C-contiguous"),
        ({"data": (0x2000, True)}, "read-only"),
        ({"data": None}, "can't be read"),
        ({"typestr": "?!"}, "can't be read"),
        ({"typestr": ">f4"}, "byte order"),
        ({"shape": (4.0,)}, "can't be read"),
        ({"shape": (-4,)}, "negative size"),
        ({"shape": 4}, "can't be read"),
        ({"data": (0, False)}, "is null"),
        ({"data": (None, False)}, "is null"),
        ({"data": ("0x2000", False)}, "can't be read"),
        ({"data": (8192.5, False)}, "can't be read"),
        ({"data": (-8, False)}, "64 bits"),
        ({"data": (1 << 64, False)}, "64 bits"),
    ],
)
def test_unsuitable_array_of_another_library_is_refused(
    gpu_memory: Device, changes: dict[str, object], why: str
) -> None:
    assert why in refusal(gpu_memory, FLOATS, Interface(**changes))


def test_gpu_array_is_refused_on_the_cpu_device(host: Device) -> None:
    assert "not of cpu" in refusal(host, FLOATS, Interface())


def test_launch_waits_for_the_stream_of_an_array(gpu_memory: Any) -> None:
    signature = Signature((FLOATS,))
    packer = Packer(signature, gpu_memory)
    packer.pack([Interface(stream=1)], 0)
    packer.pack([Interface(stream=9)], 9)
    assert gpu_memory.backend.ordered == []
    packer.pack([Interface(stream=9)], 5)
    assert gpu_memory.backend.ordered == [(9, 5)]


class OnlyDlpack:
    """A library's array that speaks DLPack and nothing else."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **keywords: Any) -> object:
        return self.array.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.array.__dlpack_device__()  # type: ignore[no-any-return]


@pytest.mark.parametrize("wrap", [OnlyDlpack])
def test_dlpack_arrays_are_accepted_only_on_their_device(
    host: Device, gpu_memory: Device, wrap: Callable[[object], object]
) -> None:
    here, there = host.zeros(4, np.float32), gpu_memory.zeros(4, np.float32)
    assert packed(host, FLOATS, wrap(here)) == struct.pack("<Q", here.address)
    assert packed(gpu_memory, FLOATS, wrap(there)) == struct.pack("<Q", there.address)
    assert "GPU 1" in refusal(host, FLOATS, wrap(there))
    assert "argument 1" in refusal(gpu_memory, FLOATS, wrap(here))
    assert "float64, not float32" in refusal(host, FLOATS, wrap(np.zeros(4)))
    assert "not C-contiguous" in refusal(host, FLOATS, wrap(np.zeros((4, 4), np.float32).T[1:]))


@pytest.mark.parametrize("bad", ["x", 1.5, -1, 2**64])
def test_address_is_an_int_of_64_bits(bad: Any) -> None:
    with pytest.raises(ArgumentError):
        Pointer(bad)


def test_pointer_prints_its_address_in_hexadecimal() -> None:
    assert repr(Pointer(4096)) == "Pointer(0x1000)"


@pytest.mark.parametrize(
    "value",
    [
        np.ones(4, ">f4"),
        np.ones(4, [("x", ">f4"), ("y", "<i4")]),
        np.ones(4, [("x", ">f4", (2,))]),
    ],
)
@pytest.mark.parametrize("pointer", [CONST_FLOATS, VOIDS, Parameter(P.POINTER, 8, 8, "float4*", "float4"), WORD])
def test_array_in_another_byte_order_is_refused(host: Device, pointer: Parameter, value: object) -> None:
    assert "byte order" in refusal(host, pointer, value)


def test_array_in_another_byte_order_has_a_hint(host: Device) -> None:
    assert "x.astype('float32')" in refusal(host, CONST_FLOATS, np.ones(4, ">f4"))


class HostInterface:
    """Another library's array in the host's memory, which is known by its interface only."""

    def __init__(self, array: np.ndarray[Any, Any], **changes: object) -> None:
        self.owner = array
        self.__array_interface__ = {**array.__array_interface__, **changes}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"typestr": ">f4"}, "byte order"),
        ({"shape": (4.0,)}, "can't be read"),
        ({"shape": (-4,)}, "negative size"),
        ({"data": (0, False)}, "is null"),
        ({"data": ("1", False)}, "can't be read"),
    ],
)
def test_contradictory_array_interface_is_refused(host: Device, changes: dict[str, object], why: str) -> None:
    x = np.ones(4, np.float32)
    assert packed(host, FLOATS, HostInterface(x)) == struct.pack("<Q", x.ctypes.data)
    assert why in refusal(host, FLOATS, HostInterface(x, **changes))


def test_array_of_python_objects_is_refused(host: Device) -> None:
    assert "Python objects" in refusal(host, VOIDS, np.array([object()]))
    assert "Python objects" in refusal(host, Parameter(P.AGGREGATE, 8, 8, "S"), np.array([object()]))


class BigPoint(ctypes.BigEndianStructure):
    _fields_ = (("x", ctypes.c_float), ("y", ctypes.c_float), ("z", ctypes.c_float))


@pytest.mark.parametrize(
    "value",
    [
        np.array([(1, 2, 3)], ">f4,>f4,>f4")[0],
        np.array((1, 2, 3), "<f4,>f4,<f4"),
        np.array([1, 2, 3], ">f4"),
        BigPoint(1, 2, 3),
    ],
)
@pytest.mark.parametrize("parameter", [STRUCT, Parameter(P.AGGREGATE, 12, 4, "float3"), Parameter(P.UNKNOWN, 12)])
def test_structure_in_another_byte_order_is_refused(host: Device, parameter: Parameter, value: object) -> None:
    assert "byte order" in refusal(host, parameter, value)


FLOAT4 = Parameter(P.AGGREGATE, 16, 16, "float4")
INT2 = Parameter(P.AGGREGATE, 8, 8, "int2")
DOUBLE2 = Parameter(P.AGGREGATE, 16, 16, "double2")
UCHAR4 = Parameter(P.AGGREGATE, 4, 4, "uchar4")
HALF2 = Parameter(P.AGGREGATE, 4, 4, "__half2")


@pytest.mark.parametrize(
    ("parameter", "values", "code"),
    [
        (FLOAT4, (1.5, 2, -3, 4), "<4f"),
        (INT2, (-1, 7), "<2i"),
        (DOUBLE2, (0.5, 1e300), "<2d"),
        (UCHAR4, (0, 1, 2, 255), "<4B"),
        (HALF2, (0.5, -2.0), "<2e"),
        (Parameter(P.AGGREGATE, 12, 4, "dim3"), (1, 2, 3), "<3I"),
        (Parameter(P.AGGREGATE, 32, 16, "double4_16a"), (1, 2, 3, 4), "<4d"),
    ],
)
def test_vector_accepts_numbers_arrays_and_bytes(
    host: Device, parameter: Parameter, values: tuple[Any, ...], code: str
) -> None:
    expected = struct.pack(code, *values)
    element = np.dtype(f"<{code[-1]}")
    fields = np.dtype([(f"f{i}", element) for i in range(len(values))])
    same: tuple[object, ...] = (values, list(values), np.array(values, element), expected)
    for value in (*same, np.array(values, fields), np.array([values], fields)[0]):
        assert packed(host, parameter, value) == expected


def test_vector_accepts_complex_numbers_and_ctypes_arrays(host: Device) -> None:
    assert packed(host, DOUBLE2, np.complex128(1 + 2j)) == struct.pack("<2d", 1, 2)
    assert packed(host, INT2, (ctypes.c_int * 2)(3, 4)) == struct.pack("<2i", 3, 4)


@pytest.mark.parametrize(
    ("parameter", "value", "why"),
    [
        (FLOAT4, np.arange(4, dtype=np.int32), "int32, not float32"),
        (FLOAT4, np.arange(2, dtype=np.float64), "float64, not float32"),
        (FLOAT4, np.zeros((), "f4,f4,i4,f4"), "int32, not float32"),
        (FLOAT4, (ctypes.c_int * 4)(), "int32, not float32"),
        (FLOAT4, np.ones(4, ">f4"), "byte order"),
        (FLOAT4, np.ones(3, np.float32), "it is 12 bytes long"),
        (FLOAT4, (1, 2, 3), "it has 3 elements, but float4 has 4"),
        (FLOAT4, (1, 2, 3, "4"), "not a real number"),
        (FLOAT4, (1, 2, 3, 1e300), "out of range"),
        (FLOAT4, 1.0, "by value"),
        (INT2, np.ones(2, np.uint32), "uint32, not int32"),
        (INT2, (1, 2.5), "doesn't truncate"),
        (INT2, np.float64(1), "float64, not int32"),
        (DOUBLE2, np.ones(4, np.float32), "float32, not float64"),
        (UCHAR4, (0, 1, 2, 256), "out of range"),
        (UCHAR4, np.ones(1, np.int32), "int32, not uint8"),
    ],
)
def test_vector_rejects_other_elements_and_counts(host: Device, parameter: Parameter, value: object, why: str) -> None:
    assert why in refusal(host, parameter, value)


def test_structure_named_like_a_vector_accepts_its_bytes(host: Device) -> None:
    assert packed(host, Parameter(P.AGGREGATE, 6, 2, "float4"), b"abcdef") == b"abcdef"


@pytest.mark.parametrize(
    ("arguments", "advice"), [([1], "add the missing arguments: float"), ([1, 2.0, 3], "remove the last 1")]
)
def test_wrong_argument_count_says_what_to_add_or_remove(host: Device, arguments: list[object], advice: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        pack(Signature((INT, FLOAT)), arguments, host)
    assert advice in (caught.value.help or "")
