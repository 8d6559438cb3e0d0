"""What may stand for a pointer: arrays of this and other libraries, None, and an address said to be one."""

from __future__ import annotations

import array
import ctypes
import functools
import itertools
import mmap
import operator
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from cujit.devices.arguments.cupy_arrays import is_cupy_array, read_cupy_array
from cujit.devices.arguments.small_floats import FORMATS
from cujit.devices.arguments.structures import leaves
from cujit.devices.arguments.tensors import is_tensor, read_tensor, unresolved
from cujit.devices.arguments.vectors import vector_of
from cujit.devices.arrays.array import DeviceArray, wait_until_made
from cujit.errors import ArgumentError, CujitError, spell
from cujit.values import NamedTuple, dataclass, later

if TYPE_CHECKING:
    from cujit.devices.arrays import dlpack
    from cujit.devices.streams import DeviceLike
else:
    dlpack = later("cujit.devices.arrays.dlpack")  # start-up: for arrays of other libraries

Refuse = Callable[[object, str, str], NoReturn]
"""Raises the ArgumentError of one parameter: what came, why it does not fit, what to pass instead."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """An unchecked memory address, which cujit passes to a pointer parameter unchanged.

    Args:
        address: memory address as an int.

    Raises:
        ArgumentError: the address is not a 64-bit int.

    Example::

        kernel[4, 256](2.0, cujit.Pointer(x.address), y, 1000)
    """

    address: int

    def __post_init__(self) -> None:
        try:
            address = operator.index(self.address)
        except TypeError:
            raise ArgumentError(
                f"an address must be an int, not {describe(self.address)}", code="argument-type"
            ) from None
        if not 0 <= address < 1 << 64:
            raise ArgumentError(f"the address {spell(address)} doesn't fit in 64 bits", code="argument-type")
        object.__setattr__(self, "address", address)

    def __repr__(self) -> str:
        return f"Pointer({self.address:#x})"


BUFFERS = (memoryview, bytearray, array.array, ctypes.Array, mmap.mmap)
"""Types of Python and of ctypes that have memory of the host, which the CPU device takes as arrays."""

# The arithmetic types of C++ whose arrays NumPy has, by how compilers spell them; a pointer to anything else
# (char, unsigned char and void among it) takes every array.
# Source: ISO C++, [basic.fundamental]; sizes of CUDA C++ on 64-bit Linux, CUDA C++ Programming Guide.
_ELEMENTS = {
    "bool": "b1",
    "signed char": "i1",
    "short": "i2",
    "unsigned short": "u2",
    "int": "i4",
    "unsigned int": "u4",
    "long": "i8",
    "unsigned long": "u8",
    "long long": "i8",
    "unsigned long long": "u8",
    "float": "f4",
    "double": "f8",
}


def element_of(bare: str) -> np.dtype[Any] | None:
    """Return the dtype of arrays of an arithmetic type of C++. None for any other type, and for characters."""
    return np.dtype(_ELEMENTS[bare]) if bare in _ELEMENTS else None


def cpp_type(dtype: str) -> str | None:
    """Spell the C++ type of an array's elements by the name of their dtype; None if there is none of one name."""
    if dtype == "uint8":
        return "unsigned char"
    plain = (bare for bare, code in _ELEMENTS.items() if np.dtype(code).name == dtype)
    small = (bare for bare, form in FORMATS.items() if form.arrays[0] == dtype)
    return next(itertools.chain(plain, small), None)


def describe(value: object) -> str:
    """Describe an object in a few words, for a message."""
    kind = type(value)
    name = kind.__name__ if kind.__module__ in ("builtins", __name__) else f"{kind.__module__}.{kind.__name__}"
    if isinstance(value, DeviceArray):
        return f"a {value!r}"
    if isinstance(value, np.ndarray):
        return f"a numpy array of {value.dtype} {value.shape}"
    if type(value) is int:
        text = spell(value)
        return text if text.startswith("an ") else f"int {text}"
    if value is None or isinstance(value, (bool, int, float, complex, np.generic, Pointer)):
        text = spell(value)
        return f"{name} {text}" if len(text) < 60 else name
    return f"a {name}"


class _PointedMemory(NamedTuple):
    """What an object says of its memory; ``dtype`` is None if NumPy has no such.

    ``device`` is as DLPack counts them, None if the object does not say.
    """

    address: int
    dtype: np.dtype[Any] | None
    contiguous: bool
    read_only: bool
    device: tuple[int, int] | None
    empty: bool = False


def pointer_reader(
    device: DeviceLike, pointee: str, refuse: Refuse, *, takes_ints: bool = False
) -> Callable[[object, int], int]:
    """Make the function that turns an argument into an address on ``device``.

    ``pointee`` is the C++ type pointed to, or empty. The function takes the argument and the stream that the
    kernel will run on, and refuses by ``refuse``. With ``takes_ints`` an int is an address that the caller vouches for.
    """
    reader = _PointerReader(device, pointee, refuse)
    return reader.read_or_int if takes_ints else reader.read


class _PointerReader:
    """Reads the arguments of one pointer parameter."""

    __slots__ = ("_bare", "_device", "_element", "_is_const", "_others", "_refuse", "_wanted")

    def __init__(self, device: DeviceLike, pointee: str, refuse: Refuse) -> None:
        self._device = device
        self._refuse = refuse
        self._bare, self._is_const = without_const(pointee)
        self._element = element_of(self._bare)
        self._others = None if self._element else _others(self._bare)
        of = f" of {self._element or self._others}" if self._element or self._others else ""
        self._wanted = f"an array{of} on {device.name}"

    def read(self, value: object, stream: int) -> int:
        if type(value) is DeviceArray:
            if value.device is not self._device and value.device.name != self._device.name:
                self._refuse(value, f"it is not on {self._device.name}", self._wanted)
            if value.dtype is not self._element:
                self._check_element(value, value.dtype)
            return value._address_in(stream) if value.nbytes else 0
        if value is None:
            return 0
        if isinstance(value, Pointer):
            return value.address
        if isinstance(value, ctypes.c_void_p):
            return value.value or 0
        if isinstance(value, (bool, int, float, complex, np.generic, str, bytes)):
            could_be = type(value) is int and 0 <= value < 1 << 64
            hint = f", or cujit.Pointer({spell(value)}) if that is an address" if could_be else ""
            self._refuse(value, "it is not a pointer", f"{self._wanted}{hint}")
        memory = self._memory(value, stream)
        self._check(value, memory)
        return 0 if memory.empty else memory.address

    def read_or_int(self, value: object, stream: int) -> int:
        """Read an argument; an int is an address."""
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)):
            return self.read(value, stream)
        if not 0 <= value < 1 << 64:
            self._refuse(value, "an address must be an unsigned 64-bit int", self._wanted)
        return int(value)

    def _check(self, value: object, memory: _PointedMemory) -> None:
        if memory.dtype is not None and memory.dtype is not self._element:
            self._check_element(value, memory.dtype)
        if not memory.contiguous:
            self._refuse(value, "it is not C-contiguous", "numpy.ascontiguousarray(x), x.contiguous() or a copy")
        if memory.read_only and not self._is_const:
            self._refuse(
                value,
                "it is read-only, but the kernel might write through this pointer",
                f"a copy, or declare the parameter `const {self._bare or 'T'}*`",
            )

    def _check_element(self, value: object, dtype: np.dtype[Any]) -> None:
        element, others = self._element, self._others
        if dtype.hasobject:
            self._refuse(value, "its elements are Python objects", self._wanted)
        if not all(leaf.isnative for leaf in leaves(dtype)):
            copy = f"x.astype({dtype.newbyteorder('=').name!r})" if dtype.names is None else "a copy"
            self._refuse(value, "its elements are not in this machine's byte order", f"{copy} in native byte order")
        if others is not None and not others.take(dtype):
            self._refuse(value, f"its elements are {dtype}, not {others}", self._wanted)
        if element is not None and (dtype.kind, dtype.itemsize) != (element.kind, element.itemsize):
            name = repr(element.name)
            made = f"{self._wanted}: create it with dtype={name}, or convert an input by x.astype({name})"
            self._refuse(value, f"its elements are {dtype}, not {element}", made)

    def _memory(self, value: object, stream: int) -> _PointedMemory:
        """Find the memory of another library's array and check that it is on the device."""
        if is_tensor(value) and (method := unresolved(value)) is not None:
            self._refuse(value, "PyTorch has not computed its elements yet", f"x.{method}()")
        try:
            memory = self._of_gpu(value, stream) if self._device.is_gpu else self._of_host(value)
        except CujitError:
            raise
        except Exception as e:  # what it says is malformed, or it raised an error of its own, as CuPy by its driver
            self._refuse(value, f"its memory description can't be read ({e})", self._wanted)
        where = memory.device
        if where is None and (ordinal := self._device.ordinal_of(memory.address)) is not None:
            where = (dlpack.CUDA, ordinal)
        if where is not None and not _is_reachable(where, self._device):
            place = f"GPU {where[1]}" if where[0] == dlpack.CUDA else "another device"
            self._refuse(value, f"it is in the memory of {place}, not of {self._device.name}", self._wanted)
        return memory

    def _of_gpu(self, value: object, stream: int) -> _PointedMemory:
        """Ask an array in the ways of GPUs, and have the kernel wait for the stream in which it is made."""
        if is_cupy_array(value):
            cupy = read_cupy_array(value)
            here = (dlpack.CUDA, cupy.ordinal)
            if _is_reachable(here, self._device):
                self._order(cupy.stream, stream)
            return _PointedMemory(cupy.address, cupy.dtype, cupy.contiguous, False, here, cupy.empty)
        if (memory := _of_tensor(value)) is not None:
            return memory
        if (interface := _attribute(value, "__cuda_array_interface__")) is not None:
            memory = _of_interface(interface, _dlpack_device(value))
            if isinstance(producer := interface.get("stream"), int):
                self._order(producer, stream)
            else:
                wait_until_made(value)
            return memory
        if (where := _dlpack_device(value)) is not None and _is_reachable(where, self._device):
            return _of_dlpack(value, stream or 1)
        if _attribute(value, "__array_interface__") is not None:
            self._refuse(value, "it is in host memory", f"{self._wanted}: device.array(x) copies it there")
        return self._elsewhere(value, where)

    def _of_host(self, value: object) -> _PointedMemory:
        """Ask an array in the ways of the host."""
        if isinstance(value, np.ndarray):
            return _of_numpy(value)
        if (memory := _of_tensor(value)) is not None:
            return memory
        if isinstance(value, BUFFERS):
            return _of_numpy(np.asarray(memoryview(value)))
        if (interface := _attribute(value, "__array_interface__")) is not None:
            return _of_interface(interface, (dlpack.CPU, 0))
        if (where := _dlpack_device(value)) is not None and _is_reachable(where, self._device):
            return _of_dlpack(value, None)
        if where is None and _attribute(value, "__cuda_array_interface__") is not None:
            where = (dlpack.CUDA, 0)
        return self._elsewhere(value, where)

    def _elsewhere(self, value: object, where: tuple[int, int] | None) -> _PointedMemory:
        """Return the location of an array that the device cannot reach. Refuse a value that is not an array."""
        if where is None:
            self._refuse(value, "it is not an array", f"{self._wanted}: device.array(x) makes one")
        return _PointedMemory(0, None, True, False, where)

    def _order(self, producer: int, stream: int) -> None:
        """Make the kernel wait for work that another library has begun in its own stream."""
        if _stream(producer) != _stream(stream):
            self._device.order(_stream(producer), stream)


@dataclass(frozen=True)
class _Others:
    """What arrays go where NumPy has no such element: of numbers that it is made of, or of the same name."""

    text: str
    parts: np.dtype[Any] | None = None
    names: tuple[str, ...] = ()

    def take(self, dtype: np.dtype[Any]) -> bool:
        """Return whether an array may have that dtype. Untyped bytes may be anything."""
        if self.parts is not None:
            return all(leaf == self.parts for leaf in leaves(dtype))
        return dtype.name in self.names or not list(leaves(dtype))

    def __str__(self) -> str:
        return self.text


def _others(bare: str) -> _Others | None:
    """Return which arrays match a pointer to a vector, a complex number, a small float or a pointer. None accepts any
    array.
    """
    if bare.endswith("*"):
        return _Others("uint64 (addresses)", names=("uint64", "int64"))
    if (form := FORMATS.get(bare)) is not None:
        return _Others(" or ".join(form.arrays), names=form.arrays)
    if (vector := vector_of(bare)) is None:
        return None
    element, count = vector
    return _Others(f"{element} in groups of {count}" if count > 1 else str(element), element)


def without_const(pointee: str) -> tuple[str, bool]:
    """Strip ``const`` and ``volatile`` of a pointed-to type: ``float const`` gives ``("float", True)``."""
    rest = pointee.removeprefix("const ")
    if "const" not in rest and "volatile" not in rest and "*" not in rest:  # start-up: no expression is compiled
        return " ".join(rest.split()), len(rest) < len(pointee)
    text = re.sub(r"\bvolatile\b", " ", pointee)
    const = re.search(r"\bconst\s*$", text) is not None or (
        "*" not in text and re.match(r"\s*const\b", text) is not None
    )
    return " ".join(re.sub(r"\bconst\b", " ", text).split()), const


def _attribute(value: object, name: str) -> Any:
    """Look up an attribute that may raise anything (torch raises for a tensor that requires grad)."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def _dlpack_device(value: object) -> tuple[int, int] | None:
    method = _attribute(value, "__dlpack_device__")
    if method is None:
        return None
    kind, ordinal = method()
    return int(kind), int(ordinal)


def _is_reachable(where: tuple[int, int], device: DeviceLike) -> bool:
    """Return whether ``device`` can use memory at the DLPack location ``where``."""
    if not device.is_gpu:
        return where[0] in (dlpack.CPU, dlpack.CUDA_HOST, dlpack.CUDA_MANAGED)
    return where == (dlpack.CUDA, device.ordinal) or where[0] in (dlpack.CUDA_HOST, dlpack.CUDA_MANAGED)


def _stream(handle: int) -> int:
    """Name the legacy default stream in one way: 0 and 1 are the same.

    Source: CUDA Driver API manual, CU_STREAM_LEGACY; numba-cuda, "CUDA Array Interface (Version 3)", stream.
    """
    return 0 if handle == 1 else handle


def _of_tensor(value: object) -> _PointedMemory | None:
    """Read a plain tensor of torch; None of anything else."""
    if not is_tensor(value) or (tensor := read_tensor(value)) is None:
        return None
    return _PointedMemory(tensor.address, tensor.dtype, tensor.contiguous, False, _dlpack_device(value), tensor.empty)


def _of_numpy(array: np.ndarray[Any, Any]) -> _PointedMemory:
    flags = array.flags
    return _PointedMemory(
        array.__array_interface__["data"][0],
        array.dtype,
        flags.c_contiguous,
        not flags.writeable,
        (dlpack.CPU, 0),
        not array.size,
    )


def _of_interface(interface: dict[str, Any], device: tuple[int, int] | None) -> _PointedMemory:
    """Read ``__array_interface__`` or ``__cuda_array_interface__``, whose fields are the same.

    Raises:
        LookupError, TypeError, ValueError: a field is missing, of another type, or contradicts another.
    """
    shape = tuple(map(operator.index, interface["shape"]))
    if min(shape, default=0) < 0:
        raise ValueError(f"the shape {shape} contains a negative size")
    dtype = _dtype_of(interface["typestr"])
    data, read_only = interface["data"]
    address = 0 if data is None else operator.index(data)
    empty = 0 in shape
    if not 0 <= address < 1 << 64:
        raise ValueError(f"the address {spell(address)} doesn't fit in 64 bits")
    if not address and not empty:
        raise ValueError(f"the address of an array with shape {shape} is null")
    contiguous = True
    if (strides := interface.get("strides")) is not None and not empty:
        step = dtype.itemsize
        for n, stride in zip(reversed(shape), reversed(tuple(strides)), strict=True):
            contiguous &= n == 1 or stride == step
            step *= n
    return _PointedMemory(address, dtype, contiguous, bool(read_only), device, empty)


@functools.lru_cache(maxsize=256)
def _dtype_of(typestr: str) -> np.dtype[Any]:
    return np.dtype(typestr)


def _of_dlpack(value: object, stream: int | None) -> _PointedMemory:
    tensor = dlpack.read(value, stream)
    return _PointedMemory(tensor.address, tensor.dtype, tensor.contiguous, tensor.read_only, tensor.device)
