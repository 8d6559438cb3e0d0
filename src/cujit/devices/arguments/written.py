"""Arguments of a kernel written as text: files of NumPy, arrays made here, and numbers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

import numpy as np
import numpy.typing as npt

from cujit.devices.arguments.small_floats import FORMATS, SmallFloat, decode, encode
from cujit.errors import OptionError, spell

Value: TypeAlias = npt.NDArray[Any] | np.generic | bytes | bool | int | float | complex | None

DTYPES: Mapping[str, str] = {
    "bool": "bool",
    **{f"{letter}{8 * size}": f"{letter}{size}" for letter in "iu" for size in (1, 2, 4, 8)},
    **{f"f{8 * size}": f"f{size}" for size in (2, 4, 8)},
    **{f"c{8 * size}": f"c{size}" for size in (8, 16)},
    "bf16": "u2",
    "e4m3": "u1",
    "e5m2": "u1",
}
"""The element types by how they are written; NumPy has no small floats, so their arrays hold codes."""

_SMALL: Mapping[str, SmallFloat] = {
    "bf16": FORMATS["__nv_bfloat16"],
    "e4m3": FORMATS["__nv_fp8_e4m3"],
    "e5m2": FORMATS["__nv_fp8_e5m2"],
}

FORMS = (
    ("x.npy", "array from a NumPy file"),
    ("zeros:f32:1000", "array of 1000 zeros; 64x64 for a two-dimensional array"),
    ("ones:f32:1000", "array of ones"),
    ("arange:i32:1000", "array 0, 1, 2, …"),
    ("2.0, 7, 0x10, true", "number, for a parameter whose type is known"),
    ("f32:2.0, u64:5", "number with an explicit type, for a cubin without parameter types"),
    ("1+2j, c64:1+2j", "complex number"),
    ("bf16:1.5, e4m3:2, zeros:e5m2:8", "bfloat16 and FP8 numbers and arrays"),
    ("null", "null pointer"),
)
"""What an argument may be."""

_DIGITS = 20
"""No size of a launch or an array has more."""

_TRUTH = {"true": True, "false": False}
_WORDS: Mapping[str, Value] = {"null": None, **_TRUTH}


def _arange(shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    return np.arange(math.prod(shape)).astype(dtype).reshape(shape)


_MAKERS: Mapping[str, Callable[[tuple[int, ...], np.dtype[Any]], npt.NDArray[Any]]] = {
    "zeros": np.zeros,
    "ones": np.ones,
    "arange": _arange,
}


def argument(text: str) -> Value:
    """Parse a kernel argument in the syntax of ``cujit run --arg``, such as ``2.0``, ``zeros:f32:1000``, or ``x.npy``.

    Arrays are returned as NumPy arrays, which ``device.array`` copies to a device. Files are read immediately. NumPy
    has no bfloat16 or FP8 types: a number of such a type is returned as bytes, and an array contains the encoded
    elements.

    Args:
        text: text in the syntax of ``--arg`` (docs/cli.md).

    Raises:
        OptionError: the text has an invalid form, or the file contains no array.

    Example::

        assert cujit.argument("2.0") == 2.0
        assert cujit.argument("arange:f32:3").tolist() == [0, 1, 2]
    """

    def refuse(why: str) -> NoReturn:
        raise OptionError(f"{spell(text)}: {why}")

    if not isinstance(text, str):
        refuse("an argument must be a str")

    if text in _WORDS:
        return _WORDS[text]
    if text.endswith(".npy"):
        return _file(text, refuse)
    kind, separator, rest = text.partition(":")
    if separator and kind in _MAKERS:
        return _made(kind, rest, refuse)
    if separator and kind in DTYPES:
        return _typed(kind, rest, refuse)
    number = _number(text)
    if number is None:
        refuse(f"neither a number, null, a .npy file, {', '.join(_MAKERS)} nor a type before a colon ({_dtypes()})")
    return number


def _file(path: str, refuse: Callable[[str], NoReturn]) -> npt.NDArray[Any]:
    try:
        with open(path, "rb") as file, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found: npt.NDArray[Any] = np.lib.format.read_array(file, allow_pickle=False)
    except OSError as e:
        refuse(e.strerror or "it can't be read")
    except Exception as e:  # a damaged header makes NumPy raise ValueError, TokenError, MemoryError and more
        refuse(f"cujit can't read an array from it: {e}")
    return found


def _made(kind: str, rest: str, refuse: Callable[[str], NoReturn]) -> npt.NDArray[Any]:
    name, _, shape = rest.partition(":")
    lengths = sizes(shape)
    if name not in DTYPES or lengths is None:
        refuse(f"it takes {kind}:TYPE:SIZE, such as {kind}:f32:1000; TYPE is {_dtypes()}")
    try:
        if name in _SMALL:
            values = _MAKERS[kind](lengths, np.dtype("f8"))
            return np.array([_code(name, x, refuse) for x in values.flat], DTYPES[name]).reshape(lengths)
        return _MAKERS[kind](lengths, np.dtype(DTYPES[name]))
    except (MemoryError, ValueError) as e:
        refuse(str(e))


def _code(name: str, number: float, refuse: Callable[[str], NoReturn]) -> int:
    """Return the code of a small float."""
    form = _SMALL[name]
    if abs(number) >= form.overflow and (form.infinity is None or not math.isinf(number)):
        refuse(f"{number:g} is out of range of {form.name}")
    return int.from_bytes(encode(number, form), "little")


def shown_values(text: str, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return the numbers of an array that ``text`` made, for display. Codes of small floats become the numbers they
    represent.
    """
    kind, _, rest = text.partition(":")
    form = _SMALL.get(rest.partition(":")[0]) if kind in _MAKERS else None
    return array if form is None else decode(array, form)


def _typed(name: str, text: str, refuse: Callable[[str], NoReturn]) -> np.generic | bytes:
    dtype = np.dtype(DTYPES[name])
    number = _TRUTH.get(text) if dtype.kind == "b" else _number(text)
    if number is None or (isinstance(number, complex) and dtype.kind != "c"):
        refuse(f"{text!r} is no {name if name in _SMALL else dtype.name}")
    if name in _SMALL:
        return _code(name, float(number.real), refuse).to_bytes(dtype.itemsize, "little")
    return _scalar(number, dtype, refuse)


def _scalar(number: complex, dtype: np.dtype[Any], refuse: Callable[[str], NoReturn]) -> np.generic:
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        if not isinstance(number, int) or not bounds.min <= number <= bounds.max:
            refuse(f"{dtype.name} holds whole numbers from {bounds.min} to {bounds.max}")
    parts = (number.real, number.imag) if dtype.kind in "fc" else ()
    if any(math.isfinite(part) and abs(part) > float(np.finfo(dtype).max) for part in parts):
        refuse(f"{dtype.name} holds numbers up to {np.finfo(dtype).max}")
    scalar: np.generic = dtype.type(number)
    return scalar


def _number(text: str) -> int | float | complex | None:
    try:
        return int(text, 0)
    except ValueError:
        pass
    try:
        number = complex(text)
    except ValueError:
        return None
    return number if "j" in text.lower() else number.real


def sizes(text: str) -> tuple[int, ...] | None:
    """Read ``4``, ``16,16`` or ``16x16``; None is no such text."""
    parts = text.replace("x", ",").split(",")
    return tuple(map(int, parts)) if all(p.isascii() and p.isdigit() and len(p) < _DIGITS for p in parts) else None


def _dtypes() -> str:
    return ", ".join(DTYPES)
