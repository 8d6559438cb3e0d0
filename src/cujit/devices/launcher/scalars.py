"""NumPy's scalars, as machine code reads them: by their type, and by where they have their value.

Source: NumPy's ``arrayscalars.h``: a scalar is the head of an object and the value. That is not taken on trust:
where a scalar of a known value has other bytes there, machine code reads none.
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
    """One type of scalars: its address, the ``ScalarKind`` and the size in bytes of their value."""

    _fields_ = (("type", ctypes.c_uint64), ("kind", ctypes.c_uint32), ("size", ctypes.c_uint32))


@once
def numpy_scalars() -> ctypes.Array[NumpyScalar]:
    """Return the types that machine code searches, the common ones first, and an end without a type."""
    types = dict.fromkeys(getattr(np, name) for name in (*_TYPES, *_TWINS))
    rows = [NumpyScalar(id(each), _kind(each), each(0).itemsize) for each in types if _is_plain(each)]
    return (NumpyScalar * (len(rows) + 1))(*rows)


def scalar_offset() -> int:
    """Return the offset of a scalar's value, in bytes: after what every object has."""
    return object.__basicsize__


def _kind(scalar: type[np.generic]) -> ScalarKind:
    dtype = np.dtype(scalar)
    return ScalarKind[f"{dtype.kind.upper()}{1 if dtype.kind == 'b' else 8 * dtype.itemsize}"]


def _is_plain(scalar: type[np.generic]) -> bool:
    """Whether a scalar of that type has its value where it should, as two of them show."""
    known = [scalar(1), scalar(0)] if scalar is np.bool_ else [scalar(103), scalar(5)]
    return all(ctypes.string_at(id(each) + scalar_offset(), each.nbytes) == each.tobytes() for each in known)
