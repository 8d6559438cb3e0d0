"""How much memory of the host an argument leads to: what checks hold the accesses of a kernel to."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from cujit.devices.arguments.pointers import BUFFERS, describe
from cujit.devices.arguments.tensors import is_tensor
from cujit.devices.arrays.array import DeviceArray
from cujit.devices.shapes import HostExtent


def extents_of(arguments: Sequence[object]) -> tuple[HostExtent, ...]:
    """List the memory of the host that arguments lead to, as far as they say how much it is."""
    found = (_extent(k, value) for k, value in enumerate(arguments, 1))
    return tuple(each for each in found if each is not None)


def _extent(number: int, value: object) -> HostExtent | None:
    """Find the memory of one argument: of a view, of all that it is a view of."""
    if value is None or isinstance(value, (DeviceArray, int, float, complex, str, bytes, np.generic)):
        return None
    whole = own = None
    with contextlib.suppress(Exception):  # what anybody's object says of itself may be anything
        if is_tensor(value):
            tensor: Any = value
            storage = tensor.untyped_storage()
            own = tensor.data_ptr(), tensor.numel() * tensor.element_size()
            whole = int(storage.data_ptr()), int(storage.nbytes())
        elif (seen := host_array(value)) is not None:
            own = _range(seen)
            whole = _owned(seen)
    if own is None or not own[1]:
        return None
    begin, size = whole or own
    called = f"argument {number}, {describe(value)} of {own[1]:,} bytes"
    return HostExtent(begin, size, called if size == own[1] else f"the {size:,} bytes that {called} is a view of")


def host_array(value: Any) -> np.ndarray[Any, Any] | None:
    """See memory of the host as an array of NumPy, without a copy; None of what is no such memory."""
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, BUFFERS):
        return np.asarray(memoryview(value))
    if getattr(value, "__array_interface__", None) is not None:
        return np.asarray(value)
    return np.from_dlpack(value) if hasattr(value, "__dlpack__") else None


def _range(seen: np.ndarray[Any, Any]) -> tuple[int, int]:
    return int(seen.__array_interface__["data"][0]), seen.nbytes


def _owned(seen: np.ndarray[Any, Any]) -> tuple[int, int]:
    """Find the memory of the object that an array, which may be a view of a view, has its elements from."""
    owner = seen
    base: Any = seen.base
    while base is not None:
        if isinstance(base, np.ndarray):
            owner = base
        elif getattr(base, "base", None) is None:  # stride_tricks.as_strided has an object in between
            with contextlib.suppress(TypeError, ValueError, BufferError):
                return _range(np.frombuffer(base, np.uint8))
        base = getattr(base, "base", None)
    return _range(owner)
