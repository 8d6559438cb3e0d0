"""Numbers that Python does not have, complex ones, and structures: what goes into a parameter, bit for bit."""

from __future__ import annotations

import ctypes
import math
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cujit.devices.arguments.small_floats import FORMATS, encode
from cujit.devices.device import Device
from cujit.signature import Parameter, ParameterClass
from devices.packing import packed, refusal

P = ParameterClass
HALF = Parameter(P.AGGREGATE, 2, 2, "__half")
BFLOAT = Parameter(P.AGGREGATE, 2, 2, "__nv_bfloat16")
E4M3 = Parameter(P.AGGREGATE, 1, 1, "__nv_fp8_e4m3")
E5M2 = Parameter(P.AGGREGATE, 1, 1, "__nv_fp8_e5m2")
FLOAT2 = Parameter(P.AGGREGATE, 8, 8, "float2")
DOUBLE2 = Parameter(P.AGGREGATE, 16, 16, "double2")
STD64 = Parameter(P.AGGREGATE, 8, 8, "cuda::std::__4::complex<float>")
STD128 = Parameter(P.AGGREGATE, 16, 16, "cuda::std::__4::complex<double>")
THRUST = Parameter(P.AGGREGATE, 8, 8, "thrust::THRUST_200302_900_NS::complex<float>")
MAP = Parameter(P.AGGREGATE, 128, 64, "CUtensorMap")


@given(st.floats(-65519, 65519))
def test_half_is_rounded_as_in_numpy(number: float) -> None:
    assert encode(number, FORMATS["__half"]) == np.float16(number).tobytes()


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_bfloat_is_the_upper_half_of_a_float_rounded_to_even(number: float) -> None:
    bits = int.from_bytes(struct.pack("<f", number), "little")
    if abs(number) < FORMATS["__nv_bfloat16"].overflow:
        expected = bits + 0x7FFF + (bits >> 16 & 1) >> 16
        assert encode(number, FORMATS["__nv_bfloat16"]) == expected.to_bytes(2, "little")


def _value(code: int, exponent_bits: int, fraction_bits: int) -> float:
    """What a code of 8 bits stands for, by the definition of such formats."""
    bias = (1 << exponent_bits - 1) - 1
    exponent, fraction = code >> fraction_bits & (1 << exponent_bits) - 1, code & (1 << fraction_bits) - 1
    size = math.ldexp(fraction + ((exponent > 0) << fraction_bits), max(exponent, 1) - bias - fraction_bits)
    return -size if code & 0x80 else size


@pytest.mark.parametrize(
    ("name", "bits", "largest"), [("__nv_fp8_e4m3", (4, 3), 0x7E), ("__nv_fp8_e5m2", (5, 2), 0x7B)]
)
def test_8_bit_numbers_are_rounded_to_nearest_even(name: str, bits: tuple[int, int], largest: int) -> None:
    form = FORMATS[name]
    for sign in (0, 0x80):
        for code in range(largest):
            here, above = _value(sign | code, *bits), _value(sign | code + 1, *bits)
            even = code if code % 2 == 0 else code + 1
            assert encode(here, form) == bytes([sign | code])
            assert encode((here + above) / 2, form) == bytes([sign | even])
            assert encode(here + (above - here) * 0.499, form) == bytes([sign | code])
            assert encode(here + (above - here) * 0.501, form) == bytes([sign | code + 1])


@pytest.mark.parametrize(
    ("parameter", "good", "bad"),
    [
        (HALF, (65519.0, 0x7BFF), 65520.0),
        (BFLOAT, (3.3895313892515355e38, 0x7F7F), 3.3961776292304601e38),
        (E4M3, (464.0, 0x7E), 464.1),
        (E4M3, (-448.0, 0xFE), math.inf),
        (E5M2, (61439.0, 0x7B), 61440.0),
    ],
    ids=["half", "bfloat16", "e4m3", "e4m3 has no infinity", "e5m2"],
)
def test_number_out_of_range_is_refused_and_the_largest_fits(
    host: Device, parameter: Parameter, good: tuple[float, int], bad: float
) -> None:
    assert packed(host, parameter, good[0]) == good[1].to_bytes(parameter.size, "little")
    assert f"out of range of {8 * parameter.size} bits" in refusal(host, parameter, bad)


@pytest.mark.parametrize(
    ("parameter", "infinity", "nan"),
    [(HALF, 0x7C00, 0x7E00), (BFLOAT, 0x7F80, 0x7FFF), (E5M2, 0x7C, 0x7F), (E4M3, None, 0x7F)],
    ids=["half", "bfloat16", "e5m2", "e4m3"],
)
def test_infinity_and_nan_are_kept(host: Device, parameter: Parameter, infinity: int | None, nan: int) -> None:
    size = parameter.size
    assert packed(host, parameter, math.nan) == nan.to_bytes(size, "little")
    if infinity is not None:
        assert packed(host, parameter, math.inf) == infinity.to_bytes(size, "little")
        sign = 1 << 8 * size - 1
        assert packed(host, parameter, -math.inf) == (sign | infinity).to_bytes(size, "little")


@pytest.mark.parametrize("parameter", [HALF, BFLOAT, E4M3, E5M2], ids=str)
def test_small_float_rejects_nonnumbers(host: Device, parameter: Parameter) -> None:
    for value in ("1", 1j, None, [1.0], b"123"):
        assert "not a real number" in refusal(host, parameter, value)


def test_ml_dtypes_scalars_are_passed_directly(host: Device) -> None:
    ml: Any = pytest.importorskip("ml_dtypes")
    for parameter, kind in ((BFLOAT, ml.bfloat16), (E4M3, ml.float8_e4m3fn), (E5M2, ml.float8_e5m2)):
        for value in (1.5, -0.0, 0.017, math.nan):
            scalar = kind(value)
            assert packed(host, parameter, scalar) == scalar.tobytes()
            if value == value:
                assert packed(host, parameter, value) == scalar.tobytes()
    assert packed(host, Parameter(P.FLOAT, 4, 4, "float"), ml.bfloat16(1.5)) == struct.pack("<f", 1.5)
    assert packed(host, HALF, ml.float8_e5m2(1.5)) == np.float16(1.5).tobytes()


# -- complex numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize("parameter", [FLOAT2, STD64, THRUST, DOUBLE2, STD128], ids=str)
@pytest.mark.parametrize("value", [1.5 - 2j, np.complex64(1.5 - 2j), np.complex128(1.5 - 2j), (1.5, -2)], ids=repr)
def test_complex_number_is_its_two_parts(host: Device, parameter: Parameter, value: object) -> None:
    assert packed(host, parameter, value) == struct.pack("<2f" if parameter.size == 8 else "<2d", 1.5, -2)


def test_real_number_is_accepted_for_a_complex_type(host: Device) -> None:
    assert packed(host, STD64, 2) == struct.pack("<2f", 2, 0)
    assert packed(host, STD128, np.float32(2)) == struct.pack("<2d", 2, 0)
    assert "by value" in refusal(host, FLOAT2, 2.0)


def test_complex_number_that_would_become_infinite_is_refused(host: Device) -> None:
    assert "out of range of 32 bits" in refusal(host, STD64, 1e39j)
    assert "out of range of 32 bits" in refusal(host, FLOAT2, complex(1e300, 0))


# -- pointers to them -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("pointee", "good", "bad"),
    [
        ("float2", ["c8", "f4"], ["f8", "c16", "i4", "u1"]),
        ("const double2", ["c16", "f8"], ["f4", "c8"]),
        ("cuda::std::__4::complex<float>", ["c8", "f4"], ["c16"]),
        ("float4", ["f4", "f4,f4,f4,f4", "V16"], ["i4", "f4,i4"]),
        ("__half", ["f2", "V2"], ["u2", "f4", "i2"]),
        ("__nv_bfloat16", ["u2", "V2"], ["f2", "f4"]),
        ("__nv_fp8_e4m3", ["u1", "V1"], ["f2", "i1"]),
    ],
)
def test_arrays_are_checked_by_their_element_type(host: Device, pointee: str, good: list[str], bad: list[str]) -> None:
    parameter = Parameter(P.POINTER, 8, 8, f"{pointee}*", pointee)
    for dtype in good:
        x = np.zeros(4, dtype)
        assert packed(host, parameter, x) == struct.pack("<Q", x.ctypes.data)
    for dtype in bad:
        assert "its elements are" in refusal(host, parameter, np.zeros(4, dtype))


# -- structures -------------------------------------------------------------------------------------------

S = Parameter(P.AGGREGATE, 16, 8, "S")  # struct S { double b; float a; char c; };


class Same(ctypes.Structure):
    _fields_ = (("b", ctypes.c_double), ("a", ctypes.c_float), ("c", ctypes.c_char))


class Packed(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("a", ctypes.c_float), ("b", ctypes.c_double), ("c", ctypes.c_int))


def test_structures_with_an_equal_layout_are_accepted(host: Device) -> None:
    expected = struct.pack("<df4s", 2.5, 1.5, b"x\0\0\0")
    assert packed(host, S, Same(2.5, 1.5, b"x")) == expected
    scalar = np.zeros((), np.dtype([("b", "f8"), ("a", "f4"), ("c", "S1")], align=True))
    scalar["b"], scalar["a"], scalar["c"] = 2.5, 1.5, b"x"
    assert packed(host, S, scalar[()]) == expected
    assert packed(host, S, expected) == expected


def test_member_at_an_odd_place_is_named(host: Device) -> None:
    value = np.zeros((), "f4,f8,f4")[()]
    assert "member f1 (float64) is at byte 4" in refusal(host, S, value)
    assert "a multiple of 8" in refusal(host, S, value)
    assert "align=True" in refusal(host, S, value)
    assert "member b (float64) is at byte 4" in refusal(host, S, Packed())


def test_packed_structure_matches_a_packed_parameter(host: Device) -> None:
    value = Packed(1, 2, 3)
    for align in (1, 4):
        assert packed(host, Parameter(P.AGGREGATE, 16, align, "S"), value) == bytes(value)


def test_larger_alignment_than_the_compiled_one_is_refused(host: Device) -> None:
    assert "its alignment is 8 bytes, but the parameter's is 4" in refusal(
        host, Parameter(P.AGGREGATE, 16, 4, "S"), Same()
    )


def test_unknown_alignment_compares_only_the_size(host: Device) -> None:
    value = np.zeros((), "f4,f8,f4")[()]
    assert packed(host, Parameter(P.AGGREGATE, 16, 0, "S"), value) == bytes(16)


def test_tensor_map_is_passed_by_its_bytes(host: Device) -> None:
    driver: Any = pytest.importorskip("cuda.bindings.driver")
    tensor_map = driver.CUtensorMap()
    tensor_map.opaque = [driver.cuuint64_t(i) for i in range(16)]
    expected = struct.pack("<16Q", *range(16))
    assert packed(host, MAP, tensor_map) == expected
    assert packed(host, MAP, expected) == expected
    assert "CUtensorMap of cuda.bindings" in refusal(host, MAP, 5)
    assert "it is 64 bytes long, but the parameter is 128" in refusal(host, MAP, bytes(64))
