"""The memory that launch arguments point to: its addresses and its current contents."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import numpy as np

from cujit.devices.arguments.pointers import Pointer
from cujit.devices.arguments.tensors import is_tensor, read_tensor
from cujit.devices.arrays.array import DeviceArray
from cujit.devices.device import Device
from cujit.devices.tensormaps.tiling import TensorMap
from cujit.errors import ArgumentError, spell
from cujit.signature import ParameterClass, Signature
from cujit.values import NamedTuple

POINTER_BYTES = 8
_POINTERS = (ParameterClass.POINTER, ParameterClass.BITS, ParameterClass.UNKNOWN)


class MemorySpan(NamedTuple):
    """The memory of one argument: its number from 0, address on the device, size in bytes."""

    number: int
    address: int
    size: int


def spans_of(
    kernel: str, signature: Signature, buffer: bytes | bytearray, arguments: Sequence[object]
) -> list[MemorySpan]:
    """Return the memory ranges of the pointers that were packed into ``buffer``, and of the tensor maps.

    Raises:
        ArgumentError: an argument is an address of memory of unknown size.
    """
    spans = []
    for i, (parameter, offset, value) in enumerate(zip(signature, signature.offsets, arguments, strict=True)):
        if isinstance(value, TensorMap):
            spans.append(MemorySpan(i, value.tiling.address, max(value.tiling.end, value.tiling.room_bytes)))
            continue
        if parameter.kind not in _POINTERS or parameter.size != POINTER_BYTES:
            continue
        address = int.from_bytes(buffer[offset : offset + POINTER_BYTES], "little")
        size = getattr(value, "nbytes", None)
        if isinstance(value, (Pointer, ctypes.c_void_p)) and address:
            raise ArgumentError(
                f"{kernel}: argument {i + 1} is {spell(value)}, a pointer to memory of unknown size, which "
                "cujit can't copy",
                help="pass the array instead of its address",
            )
        if address and isinstance(size, int) and not isinstance(value, np.generic):
            spans.append(MemorySpan(i, address, size))
    return spans


class Held(NamedTuple):
    """Memory of the device from ``begin`` on, as bytes of the host."""

    begin: int
    data: np.ndarray[tuple[int], np.dtype[np.uint8]]


def held_by(device: Device, ranges: Iterable[tuple[int, int]]) -> list[Held]:
    """Copy ranges of device memory to the host, and return the copies. Overlapping ranges share a copy.

    Each range consists of its begin and end addresses.
    """
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if merged and begin < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((begin, end))
    found = []
    for begin, end in merged:
        data = np.empty(end - begin, np.uint8)
        device.download(data.data, begin)
        found.append(Held(begin, data))
    return found


class _Begins(Protocol):
    @property
    def begin(self) -> int: ...


def place_in(held: Sequence[_Begins], address: int) -> tuple[int, int]:
    """Return the number of the copy that contains a device address, and the offset in that copy in bytes."""
    number = next(k for k in reversed(range(len(held))) if held[k].begin <= address)
    return number, address - held[number].begin


def dtype_of(value: Any) -> np.dtype[Any] | None:
    """Return the dtype of an array's elements, or None if NumPy has no such dtype."""
    if isinstance(value, DeviceArray):
        return value.dtype
    tensor = read_tensor(value) if is_tensor(value) else None
    try:
        return np.dtype(value.dtype) if tensor is None else tensor.dtype
    except TypeError:
        return None
