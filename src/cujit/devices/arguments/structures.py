"""Structures passed by value: their bytes, and what can be checked of their layout.

An image knows the size and the alignment of a structure, and not where its members are. So this is checked: the size;
the alignment that a ``ctypes.Structure`` or an aligned NumPy dtype declares; and that every number in it is where the
compiled structure can have one of its kind. Members that are swapped for others of the same size are not seen.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import numpy as np

TENSOR_MAP_BYTES = 128
TENSOR_MAP_ALIGN = 64
"""Source: cuda.h, ``CUtensorMap``: 16 words of 64 bits, aligned to 64 bytes."""

_BY_VALUE = (ctypes.Structure, ctypes.Union, ctypes.Array, ctypes._SimpleCData)


class LayoutError(ValueError):
    """Why a value has not the layout of a parameter, and what to pass."""

    def __init__(self, why: str, remedy: str) -> None:
        super().__init__(why)
        self.why = why
        self.remedy = remedy


def leaves(dtype: np.dtype[Any]) -> Iterator[np.dtype[Any]]:
    """Return the numbers that a dtype consists of. Structures and arrays have each field's, complex numbers their
    parts'.
    """
    return (leaf for _name, _offset, leaf in _placed(dtype, "", 0))


def _placed(dtype: np.dtype[Any], name: str, offset: int) -> Iterator[tuple[str, int, np.dtype[Any]]]:
    """Yield the numbers with their names and byte offsets. The first two elements of an array represent all of it."""
    if dtype.subdtype is not None:
        element, shape = dtype.subdtype
        for i in range(min(int(np.prod(shape)), 2)):
            yield from _placed(element, f"{name}[{i}]", offset + i * element.itemsize)
    elif dtype.fields is not None:
        for field, (of, at, *_) in dtype.fields.items():
            yield from _placed(of, f"{name}.{field}" if name else field, offset + int(at))
    elif dtype.kind == "c":
        yield name, offset, np.dtype(f"{dtype.byteorder}f{dtype.itemsize // 2}")
    elif dtype.kind != "V":  # bytes that are of no type
        yield name, offset, dtype


def dtype_by_value(value: object) -> np.dtype[Any] | None:
    """Return the dtype of an array, a NumPy scalar or a ctypes structure. None if NumPy cannot describe it."""
    if isinstance(value, (np.generic, np.ndarray)):
        return value.dtype
    if isinstance(value, _BY_VALUE):
        try:
            return np.dtype(type(value))
        except (TypeError, ValueError, NotImplementedError):  # bit fields, pointers
            return None
    return None


def bytes_by_value(value: object) -> bytes | None:
    """Return the bytes of a value that can be passed by value, or None.

    Raises:
        LayoutError: it is in another byte order, or holds Python objects.
    """
    dtype = dtype_by_value(value)
    if dtype is not None and not all(leaf.isnative for leaf in leaves(dtype)):
        raise LayoutError("its byte order differs from this machine's", "x.astype(x.dtype.newbyteorder('='))")
    if dtype is not None and dtype.hasobject:
        raise LayoutError("it contains Python objects", "numbers")
    if isinstance(value, (np.generic, np.ndarray)):
        return value.tobytes()
    if isinstance(value, (bytes, bytearray, memoryview, *_BY_VALUE)):
        return bytes(value)
    return _tensor_map_bytes(value)


def layout_by(value: object) -> tuple[type, np.dtype[Any] | None] | None:
    """Return what determines the layout of a structure whose bytes are its buffer. This is its type, and its dtype if
    values of the type have several. None for others.
    """
    kind = type(value)
    if isinstance(value, (np.void, np.ndarray)):
        own = kind in (np.void, np.record) or (kind is np.ndarray and value.dtype.names is not None)
        return (kind, value.dtype) if own else None
    if kind in (bytes, bytearray):
        return kind, None
    if not isinstance(value, _BY_VALUE) or isinstance(value, ctypes._SimpleCData):
        return None
    classes = [vars(cls) for cls in kind.__mro__ if cls.__module__ != "_ctypes"]  # theirs may give anything for bytes
    return None if any("__bytes__" in names or "__buffer__" in names for names in classes) else (kind, None)


def check_layout(value: object, align: int) -> None:
    """Check a structure against the alignment in bytes of the compiled one; 0 is not known, and nothing is checked.

    Raises:
        LayoutError: it declares a larger alignment, or a number in it is at an odd place.
    """
    if not align:
        return
    declared = _declared_align(value)
    if declared > align:
        raise LayoutError(
            f"its alignment is {declared} bytes, but the parameter's is {align}",
            f"members with an alignment of at most {align} bytes, or a packed structure like the compiled one",
        )
    dtype = dtype_by_value(value)
    for name, offset, leaf in _placed(dtype, "", 0) if dtype is not None else ():
        natural = min(leaf.alignment, align)
        if offset % natural:
            raise LayoutError(
                f"its member {name} ({leaf}) is at byte {offset}, but for an alignment of "
                f"{align} bytes, it must be at a multiple of {natural}",
                "numpy.dtype(…, align=True), or a ctypes.Structure, whose members have the layout of C++",
            )


def _declared_align(value: object) -> int:
    """Return the alignment that a value's type declares, in bytes. 1 if it declares none."""
    if isinstance(value, _BY_VALUE):
        return ctypes.alignment(value)
    dtype = dtype_by_value(value)
    return dtype.alignment if dtype is not None and dtype.isalignedstruct else 1


def _tensor_map_bytes(value: object) -> bytes | None:
    """Return the bytes of a ``CUtensorMap`` of NVIDIA's bindings. None for anything else."""
    kind = type(value)
    if kind.__name__ != "CUtensorMap" or not kind.__module__.startswith("cuda.bindings"):
        return None
    return ctypes.string_at(int(value.getPtr()), TENSOR_MAP_BYTES)  # type: ignore[attr-defined]
