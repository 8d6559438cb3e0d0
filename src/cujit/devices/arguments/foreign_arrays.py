"""Arrays of numba and JAX as machine code reads them; nothing here imports either, only its user does.

Python reads both by ``__cuda_array_interface__``. JAX says that in C, so machine code asks the same and looks through
what comes. numba says it in Python, so machine code looks where that looks, as arrays made up here show.

Source: numba-cuda 0.30, ``numba/cuda/cudadrv/devicearray.py`` and ``driver.py``; jaxlib 0.11, ``ArrayImpl``;
numba-cuda, "CUDA Array Interface (Version 3)".
"""

from __future__ import annotations

import ctypes
import math
import types
from collections.abc import Hashable
from typing import Any

from cujit.devices.arrays.array import WAIT
from cujit.forks import once, single_flight_cache
from cujit.values.imported import imported

_INTERFACE = "__cuda_array_interface__"
_READY, _WAIT = "is_ready", WAIT


def is_numba_array(value: object) -> bool:
    """Return whether an object is a Numba array on a GPU, and not of a derived class."""
    module: Any = imported("numba.cuda.cudadrv.devicearray")
    return module is not None and type(value) is getattr(module, "DeviceNDArray", None)


def is_described(value: object) -> bool:
    """Return whether an object is a JAX array whose interface runs no Python code."""
    kind: Any = type(value)
    descriptor = vars(kind).get(_INTERFACE) if kind.__module__.startswith("jaxlib.") else None
    getters = [getattr(descriptor, "fget", None), *(getattr(kind, name, None) for name in (_READY, _WAIT))]
    return isinstance(descriptor, property) and not any(f is None or isinstance(f, types.FunctionType) for f in getters)


# -- JAX ---------------------------------------------------------------------------------------------------

_DESCRIBED = {
    "name_interface": _INTERFACE,
    "name_typestr": "typestr",
    "name_strides": "strides",
    "name_stream": "stream",
    "name_shape": "shape",
    "name_data": "data",
    "name_aval": "aval",
    "name_sharding": "_sharding",
}


class DescribedInterface(ctypes.Structure):
    """What machine code asks an array of one type: names and a method by the address of their object.

    ``ready`` is the method that says whether the array is made, which is quick, and ``wait`` returns when it is.
    ``sharding`` is the place of arrays of which it asks the method ``pointer_of`` for the address alone. ``read`` is
    machine code too: whoever compiles it sets it.
    """

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("array_type", "read", "ready", "wait", "pointer_of", "sharding", *_DESCRIBED)
    )
    keep: tuple[object, ...]


@single_flight_cache()
def described_interface(kind: Hashable) -> DescribedInterface:
    """Return how native code reads arrays of a JAX type."""
    names = {field: id(name) for field, name in _DESCRIBED.items()}
    ready, wait = getattr(kind, _READY), getattr(kind, _WAIT)
    interface = DescribedInterface(array_type=id(kind), ready=id(ready), wait=id(wait), **names)
    interface.keep = (kind, ready, wait)
    return interface


def kind_of_row(array: Any, interface: DescribedInterface) -> object:
    """Return the object that an array of at most one axis shares with arrays of its shape and dtype. None for others.

    Of these, nothing but the address differs while they are in one place, which the interface keeps: JAX has one object
    for each shape and dtype, and one for each place, and rows have only one layout.
    """
    kind, attributes = type(array), array.__cuda_array_interface__
    in_c = (kind.unsafe_buffer_pointer, vars(kind)["aval"].fget, vars(kind)["_sharding"].fget)
    if len(attributes["shape"]) > 1 or 0 in attributes["shape"] or any(isinstance(f, types.FunctionType) for f in in_c):
        return None
    if in_c[0](array) != attributes["data"][0]:
        return None
    interface.pointer_of, interface.sharding = id(in_c[0]), id(array._sharding)
    interface.keep = (*interface.keep[:3], in_c[0], array._sharding)
    return array.aval


# -- numba -------------------------------------------------------------------------------------------------

_NUMBA = {
    "name_dtype": "dtype",
    "name_stream": "stream",
    "name_size": "size",
    "name_dummy": "_dummy",
    "name_flags": "flags",
    "name_contiguous": "C_CONTIGUOUS",
    "name_data": "gpu_data",
    "name_pointer": "device_ctypes_pointer",
}


class NumbaInterface(ctypes.Structure):
    """Where machine code finds what an array says: types by address, names by the address of their object.

    ``word`` is where a ``c_size_t`` has the address of its value, in bytes. ``read`` is machine code too: whoever
    compiles it sets it.
    """

    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("array_type", "read", "pointer_type", "word_type", "word", *_NUMBA)
    )
    keep: tuple[object, ...]


@once
def numba_interface() -> NumbaInterface | None:
    """Return how native code reads Numba's arrays. None if this Numba's arrays don't have the attributes that their
    interface describes.
    """
    arrays: Any = imported("numba.cuda.cudadrv.devicearray")
    driver: Any = imported("numba.cuda.cudadrv.driver")
    kind, pointer = arrays.DeviceNDArray, getattr(driver, "OwnedPointer", None)
    word = _word_place()
    if pointer is None or word is None or hasattr(kind, "__dlpack_device__") or not _agrees(kind, driver):
        return None
    names = {field: id(name) for field, name in _NUMBA.items()}
    interface = NumbaInterface(id(kind), 0, id(pointer), id(ctypes.c_size_t), word, **names)
    interface.keep = (kind, pointer)
    return interface


def _word_place() -> int | None:
    """Find where an integer of ctypes has the address of its value, in bytes; None unless that is in one place."""
    size = ctypes.c_size_t.__basicsize__ // 8
    values = [ctypes.c_size_t(n) for n in (3, 1 << 40, 7)]
    rows = [list((ctypes.c_uint64 * size).from_address(id(value))) for value in values]
    places = [
        at for at in range(size) if all(row[at] == ctypes.addressof(v) for row, v in zip(rows, values, strict=True))
    ]
    return places[0] * 8 if len(places) == 1 else None


def _agrees(kind: Any, driver: Any) -> bool:
    """Return whether arrays, over memory that does not exist, have in their attributes what their interface reports."""
    shapes = (((3, 5), (20, 4), "f4"), ((7,), (8,), "i8"), ((4, 6), (2, 8), "u2"), ((2, 1, 9), (9, 77, 1), "u1"))
    try:
        for number, (shape, strides, dtype) in enumerate(shapes):
            address = 0x7F0030000000 + 4096 * number
            memory = driver.MemoryPointer(None, ctypes.c_void_p(address), 4096)
            array = kind(shape, strides, dtype, gpu_data=driver.OwnedPointer(memory))
            if not _has_address(array, address):
                return False
    except Exception:  # of another numba: whatever it raises, it is read by Python
        return False
    return True


def _has_address(array: Any, address: int) -> bool:
    attributes, own = array.__cuda_array_interface__, vars(array)
    pointer = vars(own["gpu_data"])["device_ctypes_pointer"]
    is_contiguous = vars(own["_dummy"])["flags"]["C_CONTIGUOUS"]
    return (
        attributes["data"] == (address, False)
        and (type(pointer), pointer.value) == (ctypes.c_size_t, address)
        and attributes["typestr"] == own["dtype"].str
        and own["size"] == math.prod(attributes["shape"])
        and (attributes["strides"] is None) is is_contiguous
        and (attributes.get("stream"), own["stream"]) == (None, 0)
    )
