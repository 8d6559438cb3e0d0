"""What may stand for a pointer: arrays of this and other libraries, None, and an address said to be one."""

from __future__ import annotations

import ctypes
import functools
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from cujit.devices.arguments.cupy_arrays import is_cupy_array, read_cupy_array
from cujit.devices.arguments.small_floats import FORMATS
from cujit.devices.arguments.structures import leaves
from cujit.devices.arguments.tensors import is_tensor, read_tensor, unresolved
from cujit.devices.arguments.vectors import vector_of
from cujit.devices.arrays import dlpack
from cujit.devices.arrays.array import DeviceArray
from cujit.errors import ArgumentError, CujitError, spell

if TYPE_CHECKING:
    from cujit.devices.streams import DeviceLike

__all__ = ["Pointer", "Refuse", "describe", "pointer_reader"]

Refuse = Callable[[object, str, str], NoReturn]
"""Raises the ArgumentError of one parameter: what came, why it does not fit, what to pass instead."""


@dataclass(frozen=True, slots=True)
class Pointer:
    """An address that the caller vouches for: passed to a pointer parameter as it is.

    Raises:
        ArgumentError: it is no int, or not of 64 bits.
    """

    address: int

    def __post_init__(self) -> None:
        try:
            address = operator.index(self.address)
        except TypeError:
            raise ArgumentError(f"an address is an int, not {describe(self.address)}") from None
        if not 0 <= address < 1 << 64:
            raise ArgumentError(f"address {spell(address)} does not fit 64 bits")
        object.__setattr__(self, "address", address)

    def __repr__(self) -> str:
        return f"Pointer({self.address:#x})"


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


def describe(value: object) -> str:
    """Say in a few words what an object is, for a message."""
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


class _Memory(NamedTuple):
    """What an object says of its memory; ``dtype`` is None if NumPy has no such.

    ``device`` is as DLPack counts them, None if the object does not say.
    """

    address: int
    dtype: np.dtype[Any] | None
    contiguous: bool
    read_only: bool
    device: tuple[int, int] | None
    empty: bool = False


def pointer_reader(device: DeviceLike, pointee: str, refuse: Refuse) -> Callable[[object, int], int]:
    """Make the function that turns an argument into an address on ``device``.

    ``pointee`` is the C++ type pointed to, or empty. The function takes the argument and the stream that the
    kernel will run on, and refuses by ``refuse``.
    """
    bare, const = _without_const(pointee)
    element = np.dtype(_ELEMENTS[bare]) if bare in _ELEMENTS else None
    others = None if element else _others(bare)
    wanted = f"an array{f' of {element or others}' if element or others else ''} on {device.name}"

    def check_element(value: object, dtype: np.dtype[Any] | None) -> None:
        if dtype is None or dtype is element:
            return
        if dtype.hasobject:
            refuse(value, "its elements are Python objects", wanted)
        if not all(leaf.isnative for leaf in leaves(dtype)):
            copy = f"x.astype({dtype.newbyteorder('=').name!r})" if dtype.names is None else "a copy"
            refuse(value, "its elements are not in this machine's byte order", f"{copy} in native byte order")
        if others is not None and not others.take(dtype):
            refuse(value, f"its elements are {dtype}, not {others}", wanted)
        if element is None or (dtype.kind == element.kind and dtype.itemsize == element.itemsize):
            return
        refuse(value, f"its elements are {dtype}, not {element}", f"{wanted}, such as x.astype({element.name!r})")

    def read(value: object, stream: int) -> int:
        if type(value) is DeviceArray:
            if value.device is not device and value.device.name != device.name:
                refuse(value, f"it is not on {device.name}", wanted)
            check_element(value, value.dtype)
            return value.address if value.nbytes else 0
        if value is None:
            return 0
        if isinstance(value, Pointer):
            return value.address
        if isinstance(value, ctypes.c_void_p):
            return value.value or 0
        if isinstance(value, (bool, int, float, complex, np.generic, str, bytes)):
            could_be = type(value) is int and 0 <= value < 1 << 64
            hint = f", or cujit.Pointer({spell(value)}) if that is an address" if could_be else ""
            refuse(value, "it is no pointer", f"{wanted}{hint}")
        memory = _memory(value, device, stream, refuse, wanted)
        check_element(value, memory.dtype)
        if not memory.contiguous:
            refuse(value, "it is not C-contiguous", "numpy.ascontiguousarray(x), x.contiguous() or a copy")
        if memory.read_only and not const:
            refuse(
                value,
                "it is read-only and the kernel may write through this pointer",
                f"a copy, or declare the parameter `const {bare or 'T'}*`",
            )
        return 0 if memory.empty else memory.address

    return read


@dataclass(frozen=True)
class _Others:
    """What arrays go where NumPy has no such element: of numbers that it is made of, or of the same name."""

    text: str
    parts: np.dtype[Any] | None = None
    names: tuple[str, ...] = ()

    def take(self, dtype: np.dtype[Any]) -> bool:
        """Tell whether an array may have that dtype; bytes that are of no type may be anything."""
        if self.parts is not None:
            return all(leaf == self.parts for leaf in leaves(dtype))
        return dtype.name in self.names or not list(leaves(dtype))

    def __str__(self) -> str:
        return self.text


def _others(bare: str) -> _Others | None:
    """Tell what arrays go for a pointer to a vector, a complex number, a small float or a pointer; None takes any."""
    if bare.endswith("*"):
        return _Others("uint64 (addresses)", names=("uint64", "int64"))
    if (form := FORMATS.get(bare)) is not None:
        return _Others(" or ".join(form.arrays), names=form.arrays)
    if (vector := vector_of(bare)) is None:
        return None
    element, count = vector
    return _Others(f"{element} in groups of {count}" if count > 1 else str(element), element)


def _without_const(pointee: str) -> tuple[str, bool]:
    """Strip ``const`` and ``volatile`` of a pointed-to type: ``float const`` gives ``("float", True)``."""
    if not pointee:
        return "", False
    text = re.sub(r"\bvolatile\b", " ", pointee)
    const = re.search(r"\bconst\s*$", text) is not None or (
        "*" not in text and re.match(r"\s*const\b", text) is not None
    )
    return " ".join(re.sub(r"\bconst\b", " ", text).split()), const


def _memory(value: object, device: DeviceLike, stream: int, refuse: Refuse, wanted: str) -> _Memory:
    """Find the memory of another library's array and check that it is on ``device``."""
    if device.is_gpu and is_cupy_array(value):
        return _of_cupy(value, device, stream, refuse, wanted)
    tensor = None
    if is_tensor(value):
        if (method := unresolved(value)) is not None:
            refuse(value, "torch has not computed its elements yet", f"x.{method}()")
        tensor = read_tensor(value)
    on_gpu = _attribute(value, "__cuda_array_interface__") if tensor is None else None
    on_host: Any = value if isinstance(value, np.ndarray) else None
    if on_host is None and (on_gpu is None or not device.is_gpu):
        on_host = _attribute(value, "__array_interface__")
    try:
        if tensor is not None:
            address, dtype, contiguous, empty = tensor
            memory = _Memory(address, dtype, contiguous, False, _dlpack_device(value), empty)
        elif device.is_gpu and on_gpu is not None:
            memory = _of_interface(on_gpu, _dlpack_device(value))
            if isinstance(producer := on_gpu.get("stream"), int) and _stream(producer) != _stream(stream):
                device.order(_stream(producer), stream)
        elif not device.is_gpu and isinstance(value, np.ndarray):
            memory = _of_numpy(value)
        elif not device.is_gpu and on_host is not None:
            memory = _of_interface(on_host, (dlpack.CPU, 0))
        elif (where := _dlpack_device(value)) is not None and _is_reachable(where, device):
            memory = _of_dlpack(value, stream or 1 if device.is_gpu else None)
        elif device.is_gpu and on_host is not None:
            refuse(value, "it is in the host's memory", f"{wanted}: device.array(x) copies it there")
        elif on_gpu is not None or where is not None:
            memory = _Memory(0, None, True, False, where or (dlpack.CUDA, 0))
        else:
            refuse(value, "it is no array", f"{wanted}: device.array(x) makes one")
    except CujitError:
        raise
    except Exception as e:  # what it says is malformed, or it raised an error of its own
        refuse(value, f"what it says of its memory cannot be read ({e})", wanted)
    if memory.device is None and (ordinal := device.ordinal_of(memory.address)) is not None:
        memory = memory._replace(device=(dlpack.CUDA, ordinal))
    if memory.device is not None and not _is_reachable(memory.device, device):
        _refuse_place(value, memory.device, device, refuse, wanted)
    return memory


def _refuse_place(value: object, where: tuple[int, int], device: DeviceLike, refuse: Refuse, wanted: str) -> NoReturn:
    text = f"GPU {where[1]}" if where[0] == dlpack.CUDA else "another device"
    refuse(value, f"it is in the memory of {text}, not of {device.name}", wanted)


def _of_cupy(value: object, device: DeviceLike, stream: int, refuse: Refuse, wanted: str) -> _Memory:
    """Read an array of CuPy, and have the kernel wait for what CuPy has begun in another stream."""
    try:
        memory = read_cupy_array(value)
    except Exception as e:  # CuPy asks the driver, and has errors of its own
        refuse(value, f"what it says of its memory cannot be read ({e})", wanted)
    if memory.ordinal != device.ordinal:
        _refuse_place(value, (dlpack.CUDA, memory.ordinal), device, refuse, wanted)
    if _stream(memory.stream) != _stream(stream):
        device.order(_stream(memory.stream), stream)
    here = (dlpack.CUDA, memory.ordinal)
    return _Memory(memory.address, memory.dtype, memory.contiguous, False, here, memory.empty)


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
    """Tell whether ``device`` can use memory that DLPack says is ``where``."""
    if not device.is_gpu:
        return where[0] in (dlpack.CPU, dlpack.CUDA_HOST, dlpack.CUDA_MANAGED)
    return where == (dlpack.CUDA, device.ordinal) or where[0] in (dlpack.CUDA_HOST, dlpack.CUDA_MANAGED)


def _stream(handle: int) -> int:
    """Name the legacy default stream in one way: 0 and 1 are the same.

    Source: CUDA Driver API manual, CU_STREAM_LEGACY; numba-cuda, "CUDA Array Interface (Version 3)", stream.
    """
    return 0 if handle == 1 else handle


def _of_numpy(array: np.ndarray[Any, Any]) -> _Memory:
    flags = array.flags
    return _Memory(
        array.__array_interface__["data"][0],
        array.dtype,
        flags.c_contiguous,
        not flags.writeable,
        (dlpack.CPU, 0),
        not array.size,
    )


def _of_interface(interface: dict[str, Any], device: tuple[int, int] | None) -> _Memory:
    """Read ``__array_interface__`` or ``__cuda_array_interface__``, whose fields are the same.

    Raises:
        LookupError, TypeError, ValueError: a field is missing, of another type, or contradicts another.
    """
    shape = tuple(map(operator.index, interface["shape"]))
    if min(shape, default=0) < 0:
        raise ValueError(f"shape {shape} has a negative size")
    dtype = _dtype_of(interface["typestr"])
    data, read_only = interface["data"]
    address = 0 if data is None else operator.index(data)
    empty = 0 in shape
    if not 0 <= address < 1 << 64:
        raise ValueError(f"address {spell(address)} does not fit 64 bits")
    if not address and not empty:
        raise ValueError(f"the address of an array of shape {shape} is null")
    contiguous = True
    if (strides := interface.get("strides")) is not None and not empty:
        step = dtype.itemsize
        for n, stride in zip(reversed(shape), reversed(tuple(strides)), strict=True):
            contiguous &= n == 1 or stride == step
            step *= n
    return _Memory(address, dtype, contiguous, bool(read_only), device, empty)


@functools.lru_cache(maxsize=256)
def _dtype_of(typestr: str) -> np.dtype[Any]:
    return np.dtype(typestr)


def _of_dlpack(value: object, stream: int | None) -> _Memory:
    tensor = dlpack.read(value, stream)
    return _Memory(tensor.address, tensor.dtype, tensor.contiguous, tensor.read_only, tensor.device)
