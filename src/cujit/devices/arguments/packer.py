"""Arguments of Python turned into the parameter buffer of a kernel.

A ``Packer`` is made once per kernel and device: one reader per parameter, one ``struct.Struct`` for the
buffer. A reader takes what fits its parameter and refuses the rest: position, C++ type, what came, what to pass.
"""

from __future__ import annotations

import ctypes
import functools
import math
import struct
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from cujit.devices.arguments.pointers import Pointer, Refuse, describe, pointer_reader
from cujit.devices.arguments.small_floats import FORMATS, SmallFloat, encode
from cujit.devices.arguments.structures import (
    TENSOR_MAP_ALIGN,
    TENSOR_MAP_BYTES,
    LayoutError,
    bytes_by_value,
    check_layout,
    dtype_by_value,
    leaves,
)
from cujit.devices.arguments.vectors import is_complex, vector_of
from cujit.errors import ArgumentError, counted
from cujit.signature import Parameter, ParameterClass, Signature
from cujit.values.imported import imported

if TYPE_CHECKING:
    from cujit.devices.streams import DeviceLike

__all__ = ["OVERFLOW", "LazyPacker", "Packer", "Pointer", "pack"]

_Reader = Callable[[Any, int], Any]

_POINTER_BYTES = 8
_FLOATS = {2: "e", 4: "f", 8: "d"}

OVERFLOW = {2: 65520.0, 4: 2.0**128 - 2.0**103, 8: math.inf}
"""By size in bytes: from here on a finite number rounds to infinity.

Source: IEEE 754-2019, 4.3.1 (round to nearest): the largest finite value and half of its last place.
"""

_STRUCTURES_OR_FLOATS = (ParameterClass.AGGREGATE, ParameterClass.FLOAT)
_NUMBERS = (bool, int, np.integer, np.bool_)

_TENSOR_MAPS = ("CUtensorMap", "CUtensorMap_st")


class Packer:
    """Packs the arguments of one kernel for one device; ``str(kernel)`` is its name in messages.

    Raises:
        ArgumentError: the size of a parameter is not known.
    """

    def __init__(
        self, signature: Signature, device: DeviceLike, kernel: object = "the kernel", *, takes_ints: bool = False
    ) -> None:
        self.signature = signature
        self.kernel = kernel
        self.takes_ints = takes_ints
        """Whether an int goes to a pointer parameter, as an address."""
        fields = [_field(p, device, _refuser(kernel, i, p), takes_ints) for i, p in enumerate(signature)]
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
            takes = f"{counted(n, 'argument')} {self.signature}" if n else "no arguments"
            passed = ", ".join(map(describe, arguments[:12]))
            missing = ", ".join(map(str, tuple(self.signature)[len(arguments) :]))
            raise ArgumentError(
                f"{self.kernel} requires {takes}, but you passed {len(arguments)}" + (f": {passed}" if passed else ""),
                help=f"add the missing arguments: {missing}" if missing else f"remove the last {len(arguments) - n}",
                code="argument-count",
            )
        values = [read(a, stream) for read, a in zip(self._readers, arguments, strict=True)]
        return self._struct.pack(*values)

    def reader(self, index: int) -> Callable[[object, int], bytes]:
        """Return the function that makes the bytes of one parameter from its argument and the stream.

        It raises what ``pack`` does.
        """
        read, code = self._readers[index], struct.Struct(f"<{self._codes[index]}")
        return lambda value, stream: code.pack(read(value, stream))


class LazyPacker:
    """Makes the packer of one kernel at the first call. The packer doesn't refer to it, so there is no circle."""

    def __init__(self, signature: Signature, device: DeviceLike, kernel: object, *, takes_ints: bool = False) -> None:
        self.kernel = kernel
        """What messages call the kernel, by ``str``."""
        self._make = functools.partial(Packer, signature, device, kernel, takes_ints=takes_ints)
        self._made: Packer | None = None

    def __call__(self) -> Packer:
        """Return the packer, the same each time."""
        if self._made is None:
            self._made = self._make()
        return self._made


def pack(signature: Signature, arguments: Sequence[object], device: DeviceLike, kernel: str = "the kernel") -> bytes:
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


def _refuser(kernel: object, index: int, parameter: Parameter) -> Refuse:
    def refuse(value: object, why: str, pass_: str) -> NoReturn:
        raise ArgumentError(
            f"{kernel}: argument {index + 1} ({parameter}) doesn't accept {describe(value)}: {why}",
            help=f"pass {pass_}",
            code="argument-type",
        )

    return refuse


def _field(parameter: Parameter, device: DeviceLike, refuse: Refuse, takes_ints: bool) -> tuple[str, _Reader]:
    """Choose the struct code and the reader of one parameter."""
    kind, size = parameter.kind, parameter.size
    if size <= 0:
        raise ArgumentError(
            f"the size of the parameter {parameter} is unknown, so cujit can't pass a value to it",
            code="argument-type",
        )
    if (number := _number(parameter, refuse)) is not None:
        return number
    if kind is ParameterClass.POINTER and size == _POINTER_BYTES:
        return "Q", pointer_reader(device, parameter.pointee, refuse, takes_ints=takes_ints)
    if kind is ParameterClass.AGGREGATE:
        vector = vector_of(parameter.type, size)
        if vector is not None:
            return f"{size}s", functools.partial(_vector, refuse, parameter, *vector)
        read = functools.partial(_aggregate, refuse, parameter)
    else:
        pointer = pointer_reader(device, "", refuse) if size == _POINTER_BYTES else None
        read = functools.partial(_word, refuse, size, pointer, kind is ParameterClass.BITS)
    if size == TENSOR_MAP_BYTES:
        read = functools.partial(_tensor_map, refuse, parameter, device, read)
    return f"{size}s", read


def _number(parameter: Parameter, refuse: Refuse) -> tuple[str, _Reader] | None:
    """Choose the struct code and the reader of a parameter that is one number; None for any other."""
    kind, size = parameter.kind, parameter.size
    if kind is ParameterClass.BOOL:
        return f"{size - 1}x?", functools.partial(_bool, refuse)
    if kind in _STRUCTURES_OR_FLOATS and (form := FORMATS.get(parameter.type)) is not None and form.size == size:
        return f"{size}s", functools.partial(_small_float, refuse, form)
    if kind is ParameterClass.FLOAT and size in _FLOATS:
        return _FLOATS[size], functools.partial(_float, refuse, size)
    if kind in (ParameterClass.SIGNED, ParameterClass.UNSIGNED) and size in (1, 2, 4, 8, 16):
        return f"{size}s", functools.partial(_integer, refuse, size, *_range(kind, size))
    return None


def _range(kind: ParameterClass, size: int) -> tuple[bool, int, int]:
    """Return signedness, smallest and largest value of an integer of ``size`` bytes."""
    bits = 8 * size
    return (
        (True, -(1 << bits - 1), (1 << bits - 1) - 1) if kind is ParameterClass.SIGNED else (False, 0, (1 << bits) - 1)
    )


# -- readers: one per kind of parameter -------------------------------------------------------------------


def _plain(value: object) -> object:
    """Unwrap the scalars of NumPy's arrays without axes and of ctypes, and the handles of textures and surfaces."""
    textures = imported("cujit.devices.textures.texture")  # start-up: without it, there is neither of these
    if textures is not None and isinstance(value, (textures.Texture, textures.Surface)):
        return value.handle
    if isinstance(value, np.ndarray) and value.ndim == 0:
        return value[()]
    if isinstance(value, ctypes._SimpleCData):
        return value.value
    return value


def _integer(refuse: Refuse, size: int, signed: bool, low: int, high: int, value: object, _stream: int) -> bytes:
    plain = value if type(value) is int else _plain(value)
    if not isinstance(plain, _NUMBERS):
        if isinstance(plain, (float, np.floating)):
            refuse(value, "cujit doesn't truncate fractions", "int(x)")
        refuse(value, "it is not an integer", f"an int from {low} to {high}")
    number = int(plain)
    if not low <= number <= high:
        refuse(value, "it is out of range", f"an int from {low} to {high}")
    return number.to_bytes(size, "little", signed=signed)


def _float(refuse: Refuse, size: int, value: object, _stream: int) -> float:
    plain = value if type(value) is float else _plain(value)
    if not isinstance(plain, (float, np.floating, *_NUMBERS)) and not _is_small_float(plain):
        refuse(value, "it is not a real number", "a float")
    try:
        number = float(plain)  # type: ignore[arg-type]
    except OverflowError:
        refuse(value, "it is out of range", "a smaller number")
    if abs(number) >= OVERFLOW[size] and not math.isinf(number):
        refuse(value, f"it is out of range of {8 * size} bits", "a smaller number, or math.inf")
    return number


def _is_small_float(value: object) -> bool:
    """Return whether a value is an ml_dtypes scalar, which NumPy does not count among its floats."""
    return isinstance(value, np.generic) and value.dtype.name.startswith(("bfloat16", "float8_", "float6_", "float4_"))


def _small_float(refuse: Refuse, form: SmallFloat, value: object, stream: int) -> bytes:
    """Read a number of a format that Python does not have; its bytes and scalars of that very format go as they are."""
    if isinstance(value, (bytes, bytearray)) and len(value) == form.size:
        return bytes(value)
    if isinstance(value, np.generic) and value.dtype.name == form.arrays[0] and value.dtype.isnative:
        return value.tobytes()
    number = _float(refuse, 8, value, stream)
    if abs(number) >= form.overflow and (form.infinity is None or not math.isinf(number)):
        smaller = "a smaller number" if form.infinity is None else "a smaller number, or math.inf"
        refuse(value, f"it is out of range of {8 * form.size} bits ({form.name})", smaller)
    return encode(number, form)


def _bool(refuse: Refuse, value: object, _stream: int) -> bool:
    plain = _plain(value)
    if not isinstance(plain, (bool, np.bool_, int, np.integer)) or plain not in (0, 1):
        refuse(value, "it is neither true nor false", "True or False")
    return bool(plain)


def _vector(
    refuse: Refuse, parameter: Parameter, element: np.dtype[Any], count: int, value: object, stream: int
) -> bytes:
    """Read a vector: numbers in a tuple or a list, an array of its elements, or its bytes.

    A complex number goes where there are two floats, a real number where they are a complex one.
    """
    numbers = _parts(parameter, element, count, value)
    if numbers is None:
        dtype = dtype_by_value(value)
        other = next((d for d in leaves(dtype) if d != element), None) if dtype is not None else None
        if other is not None and other.isnative:
            refuse(value, f"its elements are {other}, not {element}", f"numpy.array(x, {element.name!r}) or a tuple")
        return _aggregate(refuse, parameter, value, stream)
    if len(numbers) != count:
        refuse(value, f"it has {len(numbers)} elements, but {parameter.type} has {count}", f"{count} numbers")
    if element.kind == "f":
        floats = [_float(refuse, element.itemsize, x, stream) for x in numbers]
        return struct.pack(f"<{count}{_FLOATS[element.itemsize]}", *floats)
    kind = ParameterClass.SIGNED if element.kind == "i" else ParameterClass.UNSIGNED
    limits = _range(kind, element.itemsize)
    return b"".join(_integer(refuse, element.itemsize, *limits, x, stream) for x in numbers)


def _parts(parameter: Parameter, element: np.dtype[Any], count: int, value: object) -> Sequence[object] | None:
    """Return the numbers of a value that is passed as numbers. None for a value that is passed as bytes."""
    if isinstance(value, (tuple, list)):
        return value
    plain = _plain(value)
    if count == 2 and element.kind == "f" and isinstance(plain, (complex, np.complexfloating)):
        return (plain.real, plain.imag)
    is_real = isinstance(plain, (int, float, np.integer, np.floating, np.bool_))
    return (plain, 0.0) if is_real and is_complex(parameter.type) else None


def _aggregate(refuse: Refuse, parameter: Parameter, value: object, _stream: int) -> bytes:
    size = parameter.size
    is_map = parameter.type in _TENSOR_MAPS and size == TENSOR_MAP_BYTES
    wanted = (
        "device.tensor_map(…), a CUtensorMap of cuda.bindings.driver, or its 128 bytes"
        if is_map
        else f"a numpy structured scalar, a ctypes.Structure or bytes, of {size} bytes"
    )
    try:
        data = bytes_by_value(value)
        if data is None:
            refuse(value, "a structure is passed by value, as bytes", wanted)
        if len(data) != size:
            refuse(value, f"it is {len(data)} bytes long, but the parameter is {size}", f"a structure of {size} bytes")
        check_layout(value, parameter.align)
    except LayoutError as e:
        refuse(value, e.why, e.remedy)
    return data


def _tensor_map(
    refuse: Refuse, parameter: Parameter, device: DeviceLike, read: _Reader, value: object, stream: int
) -> bytes:
    """Read one of our tensor maps, or else whatever has as many bytes."""
    tensormaps = imported("cujit.devices.tensormaps.tiling")  # start-up: without it, there is no tensor map
    if tensormaps is None or not isinstance(value, tensormaps.TensorMap):
        data: bytes = read(value, stream)
        return data
    if value.device is not device and value.device.name != device.name:
        refuse(value, f"it is a tensor map for {value.device.name}, not for {device.name}", "device.tensor_map(…)")
    if 0 < parameter.align < TENSOR_MAP_ALIGN:
        why = f"the parameter is aligned to {parameter.align} bytes, but a tensor map requires {TENSOR_MAP_ALIGN}"
        refuse(value, why, "it to a const __grid_constant__ CUtensorMap")
    return bytes(value)


def _word(refuse: Refuse, size: int, pointer: _Reader | None, bits: bool, value: object, stream: int) -> bytes:
    """Read a word of which the image tells the size (``UNKNOWN``), or that it is no float (``BITS``)."""
    if isinstance(value, (bool, int)) or (bits and isinstance(value, _NUMBERS)):
        number = int(value)
        if size > 16 or not -(1 << 8 * size - 1) <= number < 1 << 8 * size:
            refuse(value, f"it doesn't fit in {size} bytes", f"a value of {size} bytes")
        return number.to_bytes(size, "little", signed=number < 0)
    if bits and isinstance(value, (float, np.floating, complex)):
        refuse(value, "the parameter is an integer or a pointer", "an int or an array")
    if isinstance(value, float) and not isinstance(value, np.generic):
        wanted = {2: "numpy.float16(x)", 4: "numpy.float32(x)", 8: "numpy.float64(x)"}.get(size, "bytes")
        refuse(value, "the image specifies the parameter's size, but not its type", wanted)
    if pointer is None or not isinstance(value, np.ndarray):
        data = _bytes_of_word(refuse, size, value)
        if data is not None:
            return data
    if pointer is None:
        refuse(value, f"its size differs from the parameter's {size} bytes", f"a numpy scalar or bytes of {size} bytes")
    return int(pointer(value, stream)).to_bytes(_POINTER_BYTES, "little")


def _bytes_of_word(refuse: Refuse, size: int, value: object) -> bytes | None:
    try:
        data = bytes_by_value(value)
    except LayoutError as e:
        refuse(value, e.why, e.remedy)
    if data is not None and len(data) != size:
        refuse(value, f"it is {len(data)} bytes long, but the parameter is {size}", f"a value of {size} bytes")
    return data
