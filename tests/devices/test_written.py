from __future__ import annotations

import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cujit.cli import main
from cujit.devices.arguments.small_floats import FORMATS, decode, encode
from cujit.devices.arguments.written import DTYPES, FORMS, argument, sizes
from cujit.errors import OptionError
from raising import raises


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("7", 7),
        ("-5", -5),
        ("0x10", 16),
        ("2.0", 2.0),
        ("1e-3", 1e-3),
        ("true", True),
        ("false", False),
        ("null", None),
        ("1+2j", 1 + 2j),
        ("-2.5j", -2.5j),
    ],
)
def test_number_has_the_type_of_its_notation(text: str, value: object) -> None:
    got = argument(text)
    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("f32:2.5", np.float32(2.5)),
        ("f16:inf", np.float16("inf")),
        ("u64:0xffffffffffffffff", np.uint64(2**64 - 1)),
        ("i8:-128", np.int8(-128)),
        ("bool:true", np.bool_(True)),
        ("c64:1-2j", np.complex64(1 - 2j)),
        ("c128:3", np.complex128(3)),
    ],
)
def test_typed_number_has_that_type(text: str, value: np.generic) -> None:
    got = argument(text)
    assert isinstance(got, np.generic)
    assert (got, got.dtype) == (value, value.dtype)


@pytest.mark.parametrize(
    ("text", "code"),
    [("bf16:1.5", b"\xc0\x3f"), ("e4m3:-2", b"\xc0"), ("e5m2:inf", b"\x7c"), ("e4m3:nan", b"\x7f")],
)
def test_small_float_is_the_bytes_of_its_code(text: str, code: bytes) -> None:
    assert argument(text) == code


@pytest.mark.parametrize("name", ["__nv_bfloat16", "__nv_fp8_e4m3", "__nv_fp8_e5m2", "__half"])
def test_every_code_of_a_small_float_is_read_as_written(name: str) -> None:
    form = FORMATS[name]
    codes = np.arange(1 << 8 * form.size, dtype=f"u{form.size}")
    numbers = decode(codes, form)
    whole = ~np.isnan(numbers)
    back = [int.from_bytes(encode(float(x), form), "little") for x in numbers[whole]]
    assert back == codes[whole].tolist()
    assert form.nan not in codes[whole]
    if name == "__half":
        np.testing.assert_array_equal(numbers, codes.view(np.float16).astype(np.float32))


@pytest.mark.parametrize(
    ("text", "array"),
    [
        ("zeros:f32:3", np.zeros(3, np.float32)),
        ("ones:u8:2x3", np.ones((2, 3), np.uint8)),
        ("arange:i64:4", np.arange(4)),
        ("arange:f32:2x2", np.arange(4, dtype=np.float32).reshape(2, 2)),
        ("zeros:f64:0", np.zeros(0)),
        ("ones:c64:2", np.ones(2, np.complex64)),
        ("ones:bf16:2", np.array([0x3F80, 0x3F80], np.uint16)),
        ("arange:e4m3:4", np.array([0, 0x38, 0x40, 0x44], np.uint8)),
        ("zeros:e5m2:2x2", np.zeros((2, 2), np.uint8)),
    ],
)
def test_array_is_created_from_its_notation(text: str, array: np.ndarray[Any, Any]) -> None:
    got = argument(text)
    assert isinstance(got, np.ndarray)
    assert (got.dtype, got.shape) == (array.dtype, array.shape)
    assert (got == array).all()


def test_array_is_read_from_a_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.arange(5, dtype=np.int16))
    got = argument(str(tmp_path / "x.npy"))
    assert isinstance(got, np.ndarray)
    assert got.dtype == np.int16
    assert got.tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    "text",
    [
        *(
            "",
            "x",
            "f32",
            "f32:",
            "f32:x",
            "f99:1",
            "f32:1+2j",
            "bf16:2j",
            "bf16:1e39",
            "e4m3:465",
            "e4m3:inf",
            "c64:1e39j",
            "arange:e4m3:500",
            "zeros",
            "zeros:f32",
            "zeros:f32:",
            "zeros:f32:-1",
            "zeros:f32:1.5",
        ),
        *(
            "zeros:q8:4",
            "zeros:f64:99999999999999x9",
            "u8:256",
            "u8:-1",
            "i32:1.5",
            "i8:null",
            "f16:1e6",
            "bool:2",
            "1,2",
        ),
    ],
)
def test_malformed_argument_is_refused_and_quoted(text: str) -> None:
    with pytest.raises(OptionError) as caught:
        argument(text)
    assert repr(text) in caught.value.message


@pytest.mark.parametrize("content", [b"", b"not numpy", b"\x93NUMPY\x01\x00\xff\xff", b"PK\x03\x04"])
def test_damaged_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "x.npy"
    path.write_bytes(content)
    with raises(OptionError, "option", "can't"):
        argument(str(path))


def test_file_of_pickles_is_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}], dtype=object), allow_pickle=True)
    with pytest.raises(OptionError):
        argument(str(tmp_path / "x.npy"))


def test_file_of_several_arrays_is_refused(tmp_path: Path) -> None:
    np.savez(tmp_path / "x", np.zeros(1), np.zeros(1))
    (tmp_path / "x.npz").rename(tmp_path / "x.npy")
    with raises(OptionError, "option", "can't"):
        argument(str(tmp_path / "x.npy"))


def test_every_form_in_the_help_is_accepted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("x.npy", np.zeros(1))
    for forms, _ in FORMS:
        for form in forms.split(", "):
            argument(form)


@given(name=st.sampled_from(sorted(set(DTYPES) - {"bool", "bf16", "e4m3", "e5m2"})), number=st.integers(0, 127))
def test_every_type_accepts_a_number(name: str, number: int) -> None:
    assert argument(f"{name}:{number}") == number


@pytest.mark.parametrize(("text", "value"), [("4", (4,)), ("16x8", (16, 8)), ("1,2,3", (1, 2, 3)), ("0", (0,))])
def test_sizes_are_one_to_three(text: str, value: tuple[int, ...]) -> None:
    assert sizes(text) == value


@pytest.mark.parametrize("text", ["", "x", "1x", "1x2x3x4", "-1", "1.5", "٣"])
def test_malformed_sizes_are_refused(text: str) -> None:
    runner = CliRunner().invoke(main, ["run", __file__, "-k", "k", "--grid", text, "--block", "1"])
    assert runner.exit_code == 2
    assert "is not one to three sizes" in " ".join(runner.output.split())


_NPY = b"\x93NUMPY\x01\x00\x76\x00{'descr': '<i4', 'fortran_order': False, 'shape': (3,), }"
_FILE = _NPY.ljust(127) + b"\n" + bytes(range(12))


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(edits=st.lists(st.tuples(st.integers(0, 140), st.binary(max_size=3)), max_size=3), end=st.integers(0, 140))
def test_any_file_gives_an_array_or_is_refused(
    edits: list[tuple[int, bytes]], end: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    data = bytearray(_FILE[:end])
    for at, piece in edits:
        data[at : at + len(piece)] = piece
    path = tmp_path_factory.getbasetemp() / "edited.npy"
    path.write_bytes(data)
    with contextlib.suppress(OptionError):
        assert isinstance(argument(str(path)), np.ndarray)
