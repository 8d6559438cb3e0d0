"""DLPack capsules: made for a device's memory, and read from other libraries' arrays.

A capsule is made by NumPy, over an array that only *describes* the memory, and then given the device that the
memory is on. So the capsule's destructor and the tensor's deleter are NumPy's compiled ones, which are
safe whenever they run (on other threads, with an exception pending, late at exit), as callbacks written in
Python are not.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from cujit.errors import ArgumentError
from cujit.values import dataclass

# Source: DLPack 1.1, dlpack.h: DLDeviceType, DLDataTypeCode, DLPACK_FLAG_BITMASK_READ_ONLY.
CPU = 1
CUDA = 2
CUDA_HOST = 3
CUDA_MANAGED = 13
_CODES = {0: "i", 1: "u", 2: "f", 5: "c", 6: "b"}
_BFLOAT = 4
_READ_ONLY = 1


class _DLTensor(ctypes.Structure):
    """Source: DLPack 1.1, dlpack.h: struct DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Versioned(ctypes.Structure):
    """Source: DLPack 1.1, dlpack.h: struct DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("manager_ctx", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _DLTensor),
    )


# Prototypes of our own: ctypes.pythonapi's attributes are shared with every library in the process.
_is_valid = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)


@dataclass(frozen=True)
class Tensor:
    """What a capsule describes. ``dtype`` is None for one that NumPy lacks (``bits`` wide)."""

    address: int
    device: tuple[int, int]
    dtype: np.dtype[Any] | None
    bits: int
    contiguous: bool
    read_only: bool


class _Described:
    """Memory as NumPy sees it: never touched, only described. ``owner`` keeps it alive."""

    def __init__(self, owner: object, interface: dict[str, Any]) -> None:
        self.owner = owner
        self.__array_interface__ = interface


def export(
    owner: object,
    interface: dict[str, Any],
    device: tuple[int, int],
    max_version: tuple[int, int] | None,
) -> object:
    """Make the capsule of memory that ``interface`` describes on ``device``; ``owner`` lives as long as it.

    Raises:
        BufferError: DLPack has no such dtype.
    """
    described = np.asarray(_Described(owner, interface))
    try:
        capsule = described.__dlpack__(max_version=max_version)
    except TypeError:  # NumPy before 2.1 knows the first DLPack only
        capsule = described.__dlpack__()
    tensor, _flags = _tensor_of(capsule)
    tensor.device_type, tensor.device_id = device
    return capsule


def read(producer: Any, stream: int | None) -> Tensor:
    """Ask an object for its capsule and read what it describes; ``stream`` is where it will be used.

    The producer must outlive the use of the address, as with every kernel argument.

    Raises:
        ArgumentError: the object gives no capsule that can be read.
    """
    keywords = {} if stream is None else {"stream": stream}
    try:
        try:
            capsule = producer.__dlpack__(**keywords, max_version=(1, 1))
        except TypeError:  # a producer of the first DLPack
            capsule = producer.__dlpack__(**keywords)
        tensor, flags = _tensor_of(capsule)
    except ArgumentError:
        raise
    except Exception as e:
        raise ArgumentError(f"this {type(producer).__name__} doesn't return a DLPack capsule: {e}") from e
    dtype = _dtype_of(tensor)
    return Tensor(
        (tensor.data or 0) + tensor.byte_offset,
        (tensor.device_type, tensor.device_id),
        dtype,
        tensor.bits * tensor.lanes,
        _is_contiguous(tensor),
        bool(flags & _READ_ONLY),
    )


def _tensor_of(capsule: object) -> tuple[_DLTensor, int]:
    """Find the DLTensor inside a capsule, and the flags of the versioned kind."""
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_pointer(capsule, b"dltensor_versioned"))
        return managed.tensor, managed.flags
    if _is_valid(capsule, b"dltensor"):
        return _DLTensor.from_address(_pointer(capsule, b"dltensor")), 0
    raise ArgumentError(f"expected a DLPack capsule, not {type(capsule).__name__}")


def _dtype_of(tensor: _DLTensor) -> np.dtype[Any] | None:
    letter = _CODES.get(tensor.code)
    if letter is None or tensor.lanes != 1 or tensor.bits % 8:
        return None
    try:
        return np.dtype(f"{letter}{tensor.bits // 8}")
    except TypeError:
        return None


def _is_contiguous(tensor: _DLTensor) -> bool:
    """Return whether the elements are contiguous in C order. Axes of one element may have any stride."""
    if not tensor.strides:
        return True
    shape = tensor.shape[: tensor.ndim]
    if 0 in shape:
        return True
    step = 1
    for n, stride in zip(reversed(shape), reversed(tensor.strides[: tensor.ndim]), strict=True):
        if n != 1 and stride != step:
            return False
        step *= n
    return True
