"""CuPy's arrays, read by their attributes; nothing here imports CuPy, only its user does.

CuPy works in a current stream of each thread. A kernel that runs in another one waits for what is in CuPy's: its
arrays may still be in the making there. What CuPy does after the launch waits for the kernel only in the same stream,
as with every library.

Source: CuPy 14.2, ``cupy._core.core.ndarray`` and ``cupy.cuda.get_current_stream``; numba-cuda, "CUDA Array Interface
(Version 3)", stream.
"""

from __future__ import annotations

import ctypes
import functools
import sys
from typing import Any, NamedTuple

import numpy as np


class CupyMemory(NamedTuple):
    """What an array says of its memory; ``stream`` is where CuPy works at present, by handle, ``ordinal`` the GPU."""

    address: int
    dtype: np.dtype[Any]
    contiguous: bool
    empty: bool
    ordinal: int
    stream: int


def _cupy() -> Any:
    """Give CuPy if somebody has imported it, and all of it."""
    cupy = sys.modules.get("cupy")
    return cupy if hasattr(cupy, "ndarray") and hasattr(getattr(cupy, "cuda", None), "get_current_stream") else None


def is_cupy_array(value: object) -> bool:
    """Tell whether an object is an array of CuPy, and of no class derived from it."""
    cupy = _cupy()
    return cupy is not None and type(value) is cupy.ndarray


def read_cupy_array(value: Any) -> CupyMemory:
    """Read an array."""
    memory = value.data
    ordinal = int(memory.device_id)
    stream = _cupy().cuda.get_current_stream(ordinal)
    contiguous = value.flags.c_contiguous
    return CupyMemory(int(memory.ptr), value.dtype, contiguous, not value.size, ordinal, int(stream.ptr))


# -- for machine code -------------------------------------------------------------------------------------


_NAMES = {
    "name_dtype": "dtype",
    "name_contiguous": "_c_contiguous",
    "name_size": "size",
    "name_data": "data",
    "name_ptr": "ptr",
    "name_device": "device_id",
}


class CupyInterface(ctypes.Structure):
    """Where machine code finds what an array says: objects by address, the type, names of attributes, a function.

    ``ordinal`` is the int that arrays on this GPU say. ``read`` is machine code too: whoever compiles it sets it.
    """

    _fields_ = tuple((name, ctypes.c_uint64) for name in ("array_type", "read", "ordinal", "get_stream", *_NAMES))
    keep: tuple[object, ...]


_SMALL_INTS = 257
"""Ints below have one object each. Source: CPython manual, "Integer Objects", ``PyLong_FromLong``."""


@functools.cache
def cupy_interface(ordinal: int) -> CupyInterface | None:
    """Say how arrays on a GPU are read; None if this CuPy does not have these attributes."""
    cupy = _cupy()
    if not 0 <= ordinal < _SMALL_INTS or not hasattr(cupy.ndarray, "_c_contiguous"):
        return None
    interface = CupyInterface()
    get_stream = cupy.cuda.get_current_stream
    interface.array_type, interface.get_stream, interface.ordinal = id(cupy.ndarray), id(get_stream), id(ordinal)
    for field, name in _NAMES.items():
        setattr(interface, field, id(name))
    interface.keep = (cupy.ndarray, get_stream, ordinal)
    return interface
