"""The layout of NumPy scalars for machine code: the supported types, and the offset of the value.

Source: NumPy's ``arrayscalars.h``: a scalar is the head of an object and the value. This layout is verified for each
type. If a known scalar has other bytes at the offset, machine code doesn't read the type.
"""

from __future__ import annotations

import ctypes
import enum

import numpy as np

from cujit.forks import once

ScalarKind = enum.IntEnum("ScalarKind", "B1 I8 U8 I16 U16 I32 U32 I64 U64 F32 F64")
"""What a scalar's value is: b(ool), i(nteger), u(nsigned) or f(loat), with its bits."""

_TYPES = ("float32", "int32", "int64", "float64", "uint32", "uint64", "bool_", "int16", "uint16", "int8", "uint8")
_TWINS = ("intc", "uintc", "int_", "uint", "longlong", "ulonglong")
"""Types that may be those above, or others of the same size."""


class NumpyScalar(ctypes.Structure):
    """A type of NumPy scalars: its address, and the ``ScalarKind`` and size in bytes of its values."""

    _fields_ = (("type", ctypes.c_uint64), ("kind", ctypes.c_uint32), ("size", ctypes.c_uint32))


@once
def numpy_scalars() -> ctypes.Array[NumpyScalar]:
    """Return the types that machine code searches, the common ones first, and an end without a type."""
    types = dict.fromkeys(getattr(np, name) for name in (*_TYPES, *_TWINS))
    rows = [NumpyScalar(id(each), _kind(each), each(0).itemsize) for each in types if _is_plain(each)]
    return (NumpyScalar * (len(rows) + 1))(*rows)


def scalar_offset() -> int:
    """Return the offset of a scalar's value in bytes, which is the size of a plain Python object."""
    return object.__basicsize__


def _kind(scalar: type[np.generic]) -> ScalarKind:
    dtype = np.dtype(scalar)
    return ScalarKind[f"{dtype.kind.upper()}{1 if dtype.kind == 'b' else 8 * dtype.itemsize}"]


def _is_plain(scalar: type[np.generic]) -> bool:
    """Return whether scalars of a type have their value at ``scalar_offset``, by testing two known values."""
    known = [scalar(1), scalar(0)] if scalar is np.bool_ else [scalar(103), scalar(5)]
    return all(ctypes.string_at(id(each) + scalar_offset(), each.nbytes) == each.tobytes() for each in known)
