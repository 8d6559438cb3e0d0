"""CuPy's arrays, read by their attributes; nothing here imports CuPy, only its user does.

CuPy works in a current stream of each thread. A kernel that runs in another one waits for what is in CuPy's: its
arrays may still be in the making there. What CuPy does after the launch waits for the kernel only in the same stream,
as with every library.

Source: CuPy 14.2, ``cupy._core.core.ndarray``, ``cupy_backends.cuda.stream.get_stream_ptr`` and
``cupy.cuda.get_current_stream``; numba-cuda, "CUDA Array Interface (Version 3)", stream.
"""

from __future__ import annotations

import ctypes
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from cujit.forks import single_flight_cache
from cujit.threads import start
from cujit.values import NamedTuple
from cujit.values.imported import imported


class CupyMemory(NamedTuple):
    """What an array says of its memory; ``stream`` is where CuPy works at present, by handle, ``ordinal`` the GPU."""

    address: int
    dtype: np.dtype[Any]
    contiguous: bool
    empty: bool
    ordinal: int
    stream: int


def _cupy() -> Any:
    """Return CuPy if the process has imported it, completely."""
    cupy = imported("cupy")
    return cupy if hasattr(cupy, "ndarray") and hasattr(getattr(cupy, "cuda", None), "get_current_stream") else None


def is_cupy_array(value: object) -> bool:
    """Return whether an object is a CuPy array, and not of a derived class."""
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

_PLACES = ("dtype", "size", "contiguous", "data", "address", "device")


class CupyInterface(ctypes.Structure):
    """Where machine code finds what an array says: types and a function by address, places in objects in bytes.

    ``dtype`` to ``data`` are in an array, ``address`` and ``device`` in the pointer that it has as ``data``. The
    current stream is the answer of ``stream_of``, a C function, or of ``get_stream``, which is Python. ``ordinal`` is
    the int that arrays on this GPU say. ``read`` is machine code too: whoever compiles it sets it.
    """

    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("array_type", "read", "pointer_type", "ordinal", "get_stream", "stream_of", "name_ptr", *_PLACES)
    )
    keep: tuple[object, ...]


_SMALL_INTS = 257
"""Ints below have one object each. Source: CPython manual, "Integer Objects", ``PyLong_FromLong``."""

_PTR = "ptr"


@single_flight_cache()
def cupy_interface(ordinal: int) -> CupyInterface | None:
    """Return how native code reads CuPy arrays on a GPU. None if the layout of this CuPy's arrays
    cannot be determined.
    """
    cupy = _cupy()
    places = _places(cupy) if 0 <= ordinal < _SMALL_INTS else None
    if places is None:
        return None
    interface = CupyInterface(**dict(zip(_PLACES, places, strict=True)))
    get_stream, pointer = cupy.cuda.get_current_stream, cupy.cuda.MemoryPointer
    interface.array_type, interface.pointer_type, interface.ordinal = id(cupy.ndarray), id(pointer), id(ordinal)
    interface.get_stream, interface.name_ptr, interface.stream_of = id(get_stream), id(_PTR), _stream_function(ordinal)
    interface.keep = (cupy.ndarray, pointer, get_stream, ordinal)
    return interface


def _samples(cupy: Any) -> Iterator[Any]:
    """Describe arrays of which any two differ in something; nobody touches their memory, which is none."""
    shapes = ((3, 5), (7,), (4, 6, 1), (2, 9), (0, 4), (), (11, 3), (1, 1))
    dtypes = ("f4", "i8", "u1", "c16")
    for number, (shape, dtype, order) in enumerate(itertools.product(shapes, dtypes, "CF")):
        memory = cupy.cuda.UnownedMemory(0x7F0010000000 + 0x12340 * number, 1 << 12, None, number % 5)
        array = cupy.ndarray(shape, dtype, memptr=cupy.cuda.MemoryPointer(memory, 16 * (number % 3)), order=order)
        yield array
        yield array.T
        if array.ndim:
            yield array[::2]


def _places(cupy: Any) -> tuple[int, ...] | None:
    """Find where an array and its pointer have what they say; None unless each is in one place, in every sample.

    An attribute of such a type reads a field of a C structure: a place that has the value of each of many arrays, which
    differ, is that field. Source: Cython, "Extension Types", readonly attributes.
    """
    try:
        arrays = list(_samples(cupy))
        pointers = [array.data for array in arrays]
        if {type(pointer) for pointer in pointers} != {cupy.cuda.MemoryPointer}:
            return None
        return (
            _place(arrays, lambda array: id(array.dtype), 8),
            _place(arrays, lambda array: array.size, 8),
            _place(arrays, lambda array: array.flags.c_contiguous, 4),
            _place(arrays, lambda array: id(array.data), 8),
            _place(pointers, lambda pointer: pointer.ptr, 8),
            _place(pointers, lambda pointer: pointer.device_id, 4),
        )
    except Exception:  # of another CuPy: whatever it raises, it is read by Python
        return None


def _place(objects: list[Any], say: Callable[[Any], int], size: int) -> int:
    """Find where all objects have what they say, a number of ``size`` bytes.

    Raises:
        ValueError: nowhere, or in several places.
    """
    bytes_ = type(objects[0]).__basicsize__
    found = set(range(object.__basicsize__, bytes_ - size + 1, size))
    for each in objects:
        memory, pointer = ctypes.string_at(id(each), bytes_), int(say(each)).to_bytes(size, "little")
        found = {at for at in found if memory[at : at + size] == pointer}
    (place,) = found
    return place


def _stream_function(ordinal: int) -> int:
    """Find CuPy's own C function that tells the current stream of a GPU; 0 unless it answers as Python does.

    That is seen in a thread of its own, since CuPy has a current stream in each.
    """
    agrees: list[bool] = []
    capsule = getattr(imported("cupy_backends.cuda.stream"), "__pyx_capi__", {}).get("get_stream_ptr")
    try:
        pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
            ("PyCapsule_GetPointer", ctypes.pythonapi)
        )
        address = int(pointer(capsule, b"intptr_t (int)"))
    except (TypeError, ValueError):
        return 0
    call = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.c_int)(address)
    start(lambda: agrees.extend(_answers(_cupy(), ordinal, call)), name="cujit-cupy").join()
    return address if agrees and all(agrees) else 0


class _Handle(NamedTuple):
    """A stream by its handle, as CuPy takes it. Source: cuda.core, "CUDA Stream Protocol"."""

    handle: int

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self.handle


def _stream(cupy: Any, handle: int) -> Any:
    """Make a stream of CuPy's for a handle, which nobody uses; older releases have a class for it."""
    wrap = getattr(cupy.cuda.Stream, "from_external", None)
    return cupy.cuda.ExternalStream(handle) if wrap is None else wrap(_Handle(handle))


def _answers(cupy: Any, ordinal: int, call: Callable[[int], int]) -> list[bool]:
    """Return whether a function finds the current stream, before and while several streams are current. [] if CuPy
    refuses.
    """

    def agrees() -> bool:
        return call(ordinal) == int(cupy.cuda.get_current_stream(ordinal).ptr)

    try:
        with cupy.cuda.Device(ordinal):
            answers = [agrees()]
            for handle in (0x7F0020000040, 1, 0x7F0020000080):
                with _stream(cupy, handle):
                    answers += [agrees(), call(ordinal) == handle]
            return [*answers, agrees()]
    except Exception:  # as its driver does where there is none
        return []
