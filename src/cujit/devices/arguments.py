"""Arguments of Python turned into the parameter buffer of a kernel.

A ``Packer`` is made once per kernel and device: one reader per parameter, one ``struct.Struct`` for the
buffer. A reader takes what fits its parameter and refuses the rest: position, C++ type, what came, what to pass.
"""

from __future__ import annotations

import ctypes
import functools
import math
import re
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from cujit.devices.pointers import Pointer, Refuse, describe, leaves, pointer_reader
from cujit.errors import ArgumentError
from cujit.signature import Parameter, ParameterClass, Signature

if TYPE_CHECKING:
    from cujit.devices.base import Device

__all__ = ["OVERFLOW", "Packer", "Pointer", "pack"]

_Reader = Callable[[Any, int], Any]

_POINTER_BYTES = 8
_INTEGERS = {1: "b", 2: "h", 4: "i", 8: "q"}
_FLOATS = {2: "e", 4: "f", 8: "d"}

OVERFLOW = {2: 65520.0, 4: 2.0**128 - 2.0**103, 8: math.inf}
"""By size in bytes: from here on a finite number rounds to infinity.

Source: IEEE 754-2019, 4.3.1 (round to nearest): the largest finite value and half of its last place.
"""

# Types of <cuda_fp16.h> and <cuda_bf16.h>, which are structures to the compiler and numbers to everybody
# else.
_HALVES = ("__half", "half")
_BFLOATS = ("__nv_bfloat16", "nv_bfloat16", "__bf16")

_NUMBERS = (bool, int, np.integer, np.bool_)

# The numbers that the built-in vector types are made of. ``long`` has 8 bytes on 64-bit Linux.
# Sources: CUDA C++ Programming Guide, "Built-in Vector Types" (the types of CUDA 13 that end in their alignment
# among them); CUDA Math API manual, "Half Precision Intrinsics" (``__half2``).
_VECTOR_ELEMENTS = {
    "char": "i1",
    "uchar": "u1",
    "short": "i2",
    "ushort": "u2",
    "int": "i4",
    "uint": "u4",
    "long": "i8",
    "ulong": "u8",
    "longlong": "i8",
    "ulonglong": "u8",
    "float": "f4",
    "double": "f8",
}
_VECTOR = re.compile(r"([a-z]+)([1-4])(?:_(?:16|32)a)?")
_OTHER_VECTORS = {"dim3": ("u4", 3), "__half2": ("f2", 2), "half2": ("f2", 2)}


class Packer:
    """Packs the arguments of one kernel for one device; ``kernel`` is its name in messages.

    Raises:
        ArgumentError: the size of a parameter is not known.
    """

    def __init__(self, signature: Signature, device: Device, kernel: str = "the kernel") -> None:
        self.signature = signature
        self.kernel = kernel
        fields = [_field(p, device, _refuser(kernel, i, p)) for i, p in enumerate(signature)]
        self._codes = tuple(code for code, _ in fields)
        self._readers = tuple(reader for _, reader in fields)
        self._struct = struct.Struct(_layout(signature, self._codes))

    def pack(self, arguments: Sequence[object], stream: int = 0) -> bytes:
        """Make the parameter buffer; ``stream`` is where the kernel will run.

        Raises:
            ArgumentError: too few, too many, or an argument that does not fit.
        """
        if len(arguments) != len(self._readers):
            n = len(self._readers)
            takes = f"{n} argument{'s' * (n != 1)} {self.signature}" if n else "no arguments"
            passed = ", ".join(map(describe, arguments[:12]))
            missing = ", ".join(map(str, tuple(self.signature)[len(arguments) :]))
            raise ArgumentError(
                f"{self.kernel} takes {takes}; {len(arguments)} came" + (f": {passed}" if passed else ""),
                help=f"pass {missing} too" if missing else f"leave out the last {len(arguments) - n}",
            )
        values = [read(a, stream) for read, a in zip(self._readers, arguments, strict=True)]
        return self._struct.pack(*values)

    def reader(self, index: int) -> Callable[[object, int], bytes]:
        """Give the function that makes the bytes of one parameter from its argument and the stream.

        It raises what ``pack`` does.
        """
        read, code = self._readers[index], struct.Struct(f"<{self._codes[index]}")
        return lambda value, stream: code.pack(read(value, stream))


def pack(signature: Signature, arguments: Sequence[object], device: Device, kernel: str = "the kernel") -> bytes:
    """Make the parameter buffer of one launch; ``Packer`` is for many.

    Raises:
        ArgumentError: too few, too many, or an argument that does not fit.
    """
    return Packer(signature, device, kernel).pack(arguments)


def _layout(signature: Signature, codes: Sequence[str]) -> str:
    """Write the struct format: each parameter at its offset, the gaps as padding."""
    text, end = "<", 0
    for parameter, offset, code in zip(signature, signature.offsets, codes, strict=True):
        text += f"{offset - end}x{code}"
        end = offset + parameter.size
    return text


def _refuser(kernel: str, index: int, parameter: Parameter) -> Refuse:
    def refuse(value: object, why: str, pass_: str) -> NoReturn:
        raise ArgumentError(
            f"{kernel}: argument {index + 1} ({parameter}) does not take {describe(value)}: {why}",
            help=f"pass {pass_}",
        )

    return refuse


def _field(parameter: Parameter, device: Device, refuse: Refuse) -> tuple[str, _Reader]:
    """Choose the struct code and the reader of one parameter."""
    kind, size = parameter.kind, parameter.size
    raw = f"{size}s"
    if size <= 0:
        raise ArgumentError(f"the size of a parameter ({parameter}) is not known, so nothing can be passed to it")
    if kind is ParameterClass.POINTER and size == _POINTER_BYTES:
        return "Q", pointer_reader(device, parameter.pointee, refuse)
    if kind is ParameterClass.BOOL:
        return f"{size - 1}x?" if size > 1 else "?", functools.partial(_bool, refuse)
    if parameter.type in _BFLOATS and size == 2:
        return raw, functools.partial(_bfloat, refuse)
    if (kind is ParameterClass.FLOAT or parameter.type in _HALVES) and size in _FLOATS:
        return _FLOATS[size], functools.partial(_float, refuse, size)
    if kind in (ParameterClass.SIGNED, ParameterClass.UNSIGNED) and size in (1, 2, 4, 8, 16):
        return raw, functools.partial(_integer, refuse, size, *_range(kind, size))
    if kind is ParameterClass.AGGREGATE and (vector := _vector_type(parameter)) is not None:
        return raw, functools.partial(_vector, refuse, parameter.type, *vector)
    if kind is ParameterClass.AGGREGATE:
        return raw, functools.partial(_aggregate, refuse, size)
    pointer = pointer_reader(device, "", refuse) if size == _POINTER_BYTES else None
    return raw, functools.partial(_word, refuse, size, pointer, kind is ParameterClass.BITS)


def _range(kind: ParameterClass, size: int) -> tuple[bool, int, int]:
    """Give signedness, smallest and largest value of an integer of ``size`` bytes."""
    bits = 8 * size
    return (
        (True, -(1 << bits - 1), (1 << bits - 1) - 1) if kind is ParameterClass.SIGNED else (False, 0, (1 << bits) - 1)
    )


# -- readers: one per kind of parameter -------------------------------------------------------------------


def _plain(value: object) -> object:
    """Unwrap the scalars of NumPy's arrays without axes and of ctypes."""
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value[()]
    if isinstance(value, ctypes._SimpleCData):
        return value.value
    return value


def _integer(refuse: Refuse, size: int, signed: bool, low: int, high: int, value: object, _stream: int) -> bytes:
    plain = value if type(value) is int else _plain(value)
    if not isinstance(plain, _NUMBERS):
        if isinstance(plain, (float, np.floating)):
            refuse(value, "a fraction is not cut off silently", "int(x)")
        refuse(value, "it is no integer", f"an int from {low} to {high}")
    number = int(plain)
    if not low <= number <= high:
        refuse(value, "it is out of range", f"an int from {low} to {high}")
    return number.to_bytes(size, "little", signed=signed)


def _float(refuse: Refuse, size: int, value: object, _stream: int) -> float:
    plain = value if type(value) is float else _plain(value)
    if not isinstance(plain, (float, np.floating, *_NUMBERS)):
        refuse(value, "it is no real number", "a float")
    try:
        number = float(plain)
    except OverflowError:
        refuse(value, "it is out of range", "a smaller number")
    if abs(number) >= OVERFLOW[size] and not math.isinf(number):
        refuse(value, f"it is out of range of {8 * size} bits", "a smaller number, or math.inf")
    return number


def _bfloat(refuse: Refuse, value: object, stream: int) -> bytes:
    """Round to bfloat16: the upper half of a float, to nearest even.

    Source: CUDA Math API manual, ``__float2bfloat16_rn``.
    """
    if isinstance(value, np.generic) and value.dtype.name == "bfloat16":
        return value.tobytes()
    number = _float(refuse, 4, value, stream)
    if math.isnan(number):
        return b"\xff\x7f"
    bits = int.from_bytes(struct.pack("<f", number), "little")
    rounded = bits + 0x7FFF + (bits >> 16 & 1) >> 16
    return rounded.to_bytes(2, "little")


def _bool(refuse: Refuse, value: object, _stream: int) -> bool:
    plain = _plain(value)
    if not isinstance(plain, (bool, np.bool_, int, np.integer)) or plain not in (0, 1):
        refuse(value, "it is neither true nor false", "True or False")
    return bool(plain)


def _vector_type(parameter: Parameter) -> tuple[np.dtype[Any], int] | None:
    """Tell elements and length of a built-in vector type, or None for another structure."""
    match = _VECTOR.fullmatch(parameter.type)
    code, count = _OTHER_VECTORS.get(parameter.type, ("", 0))
    if match is not None and match[1] in _VECTOR_ELEMENTS:
        code, count = _VECTOR_ELEMENTS[match[1]], int(match[2])
    if not code or np.dtype(code).itemsize * count != parameter.size:
        return None  # a structure of the user's under that name
    return np.dtype(code), count


def _vector(refuse: Refuse, name: str, element: np.dtype[Any], count: int, value: object, stream: int) -> bytes:
    """Read a built-in vector type: numbers in a tuple or a list, an array of its elements, or its bytes."""
    if isinstance(value, (tuple, list)):
        if len(value) != count:
            refuse(value, f"it has {len(value)} elements and {name} {count}", f"{count} numbers")
        if element.kind == "f":
            numbers = [_float(refuse, element.itemsize, x, stream) for x in value]
            return struct.pack(f"<{count}{_FLOATS[element.itemsize]}", *numbers)
        kind = ParameterClass.SIGNED if element.kind == "i" else ParameterClass.UNSIGNED
        limits = _range(kind, element.itemsize)
        return b"".join(_integer(refuse, element.itemsize, *limits, x, stream) for x in value)
    dtype = _dtype_by_value(value)
    other = next((d for d in leaves(dtype) if d != element), None) if dtype is not None else None
    if other is not None and other.isnative:
        refuse(value, f"its elements are {other}, not {element}", f"numpy.array(x, {element.name!r}) or a tuple")
    return _aggregate(refuse, count * element.itemsize, value, stream)


def _dtype_by_value(value: object) -> np.dtype[Any] | None:
    """Tell what an array, a scalar of NumPy or a structure of ctypes is made of; None where NumPy cannot say."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.dtype
    if isinstance(value, (ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._SimpleCData)):
        try:
            return np.dtype(type(value))
        except (TypeError, ValueError, NotImplementedError):  # bit fields, pointers
            return None
    return None


def _aggregate(refuse: Refuse, size: int, value: object, _stream: int) -> bytes:
    data = _bytes_by_value(refuse, value)
    if data is None:
        refuse(
            value,
            "a structure is passed by value, as bytes",
            f"a numpy structured scalar, a ctypes.Structure or bytes, of {size} bytes",
        )
    if len(data) != size:
        refuse(value, f"it has {len(data)} bytes and the parameter {size}", f"a structure of {size} bytes")
    return data


def _word(refuse: Refuse, size: int, pointer: _Reader | None, bits: bool, value: object, stream: int) -> bytes:
    """Read a word of which the image tells the size (``UNKNOWN``), or that it is no float (``BITS``)."""
    if isinstance(value, (bool, int)) or (bits and isinstance(value, _NUMBERS)):
        number = int(value)
        if size > 16 or not -(1 << 8 * size - 1) <= number < 1 << 8 * size:
            refuse(value, f"it does not fit {size} bytes", f"a value of {size} bytes")
        return number.to_bytes(size, "little", signed=number < 0)
    if isinstance(value, float) and not isinstance(value, np.generic):
        if bits:
            refuse(value, "the parameter is an integer or a pointer", "an int or an array")
        wanted = {2: "numpy.float16(x)", 4: "numpy.float32(x)", 8: "numpy.float64(x)"}.get(size, "bytes")
        refuse(value, "the image tells the parameter's size but not its type", wanted)
    if bits and isinstance(value, (np.floating, complex)):
        refuse(value, "the parameter is an integer or a pointer", "an int or an array")
    if not isinstance(value, np.ndarray) or pointer is None:
        data = _bytes_by_value(refuse, value)
        if data is not None:
            if len(data) != size:
                refuse(value, f"it has {len(data)} bytes and the parameter {size}", f"a value of {size} bytes")
            return data
    if pointer is None:
        refuse(value, f"its size is not the parameter's {size} bytes", f"a numpy scalar or bytes of {size} bytes")
    return int(pointer(value, stream)).to_bytes(_POINTER_BYTES, "little")


def _bytes_by_value(refuse: Refuse, value: object) -> bytes | None:
    """Give the bytes of what can be passed by value, or None; refuse those in another byte order."""
    dtype = _dtype_by_value(value)
    if dtype is not None and not all(leaf.isnative for leaf in leaves(dtype)):
        refuse(value, "it is not in this machine's byte order", "x.astype(x.dtype.newbyteorder('='))")
    if dtype is not None and dtype.hasobject:
        refuse(value, "it holds Python objects", "numbers")
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tobytes()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, (ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._SimpleCData)):
        return bytes(value)
    return None
