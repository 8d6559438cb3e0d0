"""How much memory of the host an argument leads to: what checks hold the accesses of a kernel to."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any, TypeAlias

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
    found = None
    with contextlib.suppress(Exception):  # what anybody's object says of itself may be anything
        found = _of_tensor(value) if is_tensor(value) else _of_array(host_array(value))
    if found is None or not found[1][1]:
        return None
    (begin, size), view, item, shape = found
    called = f"argument {number}, {describe(value)} of {view[1]:,} bytes"
    words = called if size == view[1] else f"the {size:,} bytes that {called} is a view of"
    return HostExtent(begin, size, words, called, view, item, shape)


_Found: TypeAlias = "tuple[tuple[int, int], tuple[int, int], int, tuple[int, ...]]"
"""The whole memory and that of a view, each by address and size in bytes; the bytes of an element, and the shape."""


def _of_tensor(tensor: Any) -> _Found:
    item, storage = tensor.element_size(), tensor.untyped_storage()
    own = tensor.data_ptr(), tensor.numel() * item
    return (int(storage.data_ptr()), int(storage.nbytes())), own, item, tuple(tensor.shape)


def _of_array(seen: np.ndarray[Any, Any] | None) -> _Found | None:
    return None if seen is None else (_owned(seen), _range(seen), seen.itemsize, seen.shape)


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
