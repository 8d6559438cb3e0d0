"""Shapes and dtypes as users write them."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from cujit.errors import ArgumentError, spell

if TYPE_CHECKING:
    import numpy.typing as npt


def layout(shape: object, dtype: npt.DTypeLike) -> tuple[tuple[int, ...], np.dtype[Any], int]:
    """Read a shape and a dtype as users write them; the third is their size in bytes.

    Raises:
        ArgumentError: the shape or the dtype is invalid.
    """
    element = NUMBERS.get(dtype) if type(dtype) is type else None
    if element is None:
        element = dtype_of(dtype)
    if type(shape) is int and shape >= 0:
        return (shape,), element, shape * element.itemsize
    sizes = _shape(shape)
    return sizes, element, math.prod(sizes) * element.itemsize


NUMBERS = {each: np.dtype(each) for each in np.sctypeDict.values() if np.dtype(each).kind in "biufc"}
"""The dtypes of NumPy's numbers by their types."""


def _shape(shape: object) -> tuple[int, ...]:
    try:
        sizes = tuple(operator.index(n) for n in (shape if isinstance(shape, (tuple, list)) else (shape,)))
    except TypeError:
        raise ArgumentError(
            f"a shape must be an int or a tuple of ints, not {spell(shape)}", code="array-shape"
        ) from None
    if min(sizes, default=0) < 0:
        raise ArgumentError(f"the shape {sizes} contains a negative size", code="array-shape")
    return sizes


def dtype_of(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Read a dtype, in this machine's byte order.

    Raises:
        ArgumentError: it is none, or its elements cannot live on a device.
    """
    try:
        result = np.dtype(dtype)
    except Exception as e:  # NumPy asks anybody's object for its name
        why = e if isinstance(e, (TypeError, ValueError)) else type(e).__name__
        raise ArgumentError(f"{spell(dtype)} is not a valid NumPy dtype: {why}", code="array-dtype") from e
    if result.hasobject or result.itemsize == 0:
        raise ArgumentError(
            f"device memory can't hold elements of dtype {result}", help="use a numeric dtype", code="array-dtype"
        )
    return result if result.isnative else result.newbyteorder("=")
