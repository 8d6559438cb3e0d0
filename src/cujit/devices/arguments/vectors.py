"""The built-in vector types of CUDA C++ and its complex numbers: which numbers they are made of."""

from __future__ import annotations

import functools
import re
from typing import Any

import numpy as np

# ``long`` has 8 bytes on 64-bit Linux.
# Sources: CUDA C++ Programming Guide, "Built-in Vector Types" (the types of CUDA 13 that end in their alignment
# among them); CUDA Math API manual, "Half Precision Intrinsics" (``__half2``).
_ELEMENTS = {
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
_OTHERS = {"dim3": ("u4", 3), "__half2": ("f2", 2), "half2": ("f2", 2)}

_COMPLEX = re.compile(r"(?:\w+::)+complex<(float|double)>")
"""``cuda::std::complex`` and ``thrust::complex``, in whatever inline namespace; those of <cuComplex.h> are vectors."""


def is_complex(name: str) -> bool:
    """Return whether a C++ type is a complex number with its own class."""
    return _COMPLEX.fullmatch(name) is not None


@functools.lru_cache(maxsize=1024)
def vector_of(name: str, size: int | None = None) -> tuple[np.dtype[Any], int] | None:
    """Return elements and length of a built-in vector type or a complex number. None for any other type.

    ``size`` in bytes, if it is known, has to be that of the vector: a user may call a structure so too.
    """
    match = _VECTOR.fullmatch(name)
    code, count = _OTHERS.get(name, ("", 0))
    if match is not None and match[1] in _ELEMENTS:
        code, count = _ELEMENTS[match[1]], int(match[2])
    elif (match := _COMPLEX.fullmatch(name)) is not None:
        code, count = _ELEMENTS[match[1]], 2
    if not code or size not in (None, np.dtype(code).itemsize * count):
        return None
    return np.dtype(code), count
