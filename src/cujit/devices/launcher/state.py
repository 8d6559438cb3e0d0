"""Memory layouts that Python and native code share, such as the state of a prepared launch. Only this module defines
them.
"""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

from cujit.devices.streams import Stream
from cujit.forks import Lock


def _fields(kind: type[Any], names: str) -> tuple[tuple[str, type[Any]], ...]:
    return tuple((name, kind) for name in names.split())


class LaunchState(ctypes.Structure):
    """The data of one prepared launch. The owner keeps the referenced objects alive. Most 64-bit fields are addresses.

    ``by_hand`` is called if native code doesn't support the arguments, and ``named`` for keywords. ``failed`` is called
    with the error code of a failed launch. ``submit`` is the function that starts the kernel. ``fields`` and ``known``
    have an entry for each of the ``count`` parameters. ``fields`` describes how to read the parameter, and ``known``
    contains the dtype that an array had. ``reader`` reads a parameter in Python from its number and its argument.
    ``size`` is the size of the parameter buffer in bytes. With ``each``, the driver receives the address of each
    parameter instead of the buffer.
    """

    _fields_ = (
        *_fields(ctypes.c_uint64, "alive by_hand named failed submit fields reader known device count size each"),
        # what types of values were found right; a bit for each parameter that takes arrays that are read-only
        *_fields(ctypes.c_uint64, "known_types read_only"),
        # torch's tensors: the interface, the code of the dtype found right of each parameter, and the device
        *_fields(ctypes.c_uint64, "tensors known_tensors"),
        *_fields(ctypes.c_int32, "tensor_device_type tensor_device_index"),
        # arrays of CuPy, numba, and whoever describes his: the interfaces; the types of NumPy's scalars
        *_fields(ctypes.c_uint64, "cupy numba described scalars"),
        # a GPU
        *_fields(ctypes.c_uint64, "function context stream config launch_kernel launch_kernel_ex"),
        *_fields(ctypes.c_uint64, "get_context set_context push_context pop_context exchange synchronize"),
        # where launches are written down (ring.py), and the label of this one
        *_fields(ctypes.c_uint64, "ring label"),
        *_fields(ctypes.c_uint32, "grid_x grid_y grid_z block_x block_y block_z dynamic_bytes"),
        # the CPU device
        *_fields(
            ctypes.c_uint32,
            "helpers template_bytes at_parameters at_next at_blocks at_fault_kind at_output at_checks unused",
        ),
        *_fields(ctypes.c_uint64, "template pool run job shared_bytes local_bytes"),
        # nothing but a copy of the parameter buffer
        *_fields(ctypes.c_uint64, "sink"),
        # of a launch that native code made: the launch, and what makes ``by_hand``, ``named``, ``failed``, ``reader``
        *_fields(ctypes.c_uint64, "launch complete"),
    )


class LaunchPattern(ctypes.Structure):
    """The data from which native code creates launches of one kernel without dynamic shared memory, stream, or options.

    ``template`` is the address of a ``LaunchState`` without the launch configuration and three fields. These fields are
    ``alive``, ``function``, and ``label``, which this structure contains. ``type`` is the type of launches. ``entry``
    and ``options`` are objects that a launch refers to. ``code`` is the function that a call runs. Python handles a
    launch configuration that exceeds the limits.
    """

    _fields_ = (
        *_fields(ctypes.c_uint64, "template alive function label type entry options code"),
        *_fields(ctypes.c_uint32, "max_grid_x max_grid_y max_grid_z max_block_x max_block_y max_block_z max_threads"),
        *_fields(ctypes.c_uint32, "unused"),
    )


class CubinCalls(ctypes.Structure):
    """The data with which native code loads cubins of one architecture: driver functions, a context, and block limits.

    The fields from ``module`` to ``kernel`` are for the classes that a load or a search instantiates. Each is the
    address of the words that all objects of the class share. ``names`` is the dict of the ring's labels. ``patterns``
    is the dict of launch patterns for kernels with known parameter sizes but unknown types.
    """

    _fields_ = (
        *_fields(ctypes.c_uint64, "load get_function context get_context set_context push_context pop_context"),
        *_fields(ctypes.c_uint64, "module image loaded handle entry kernel names patterns"),
        *_fields(ctypes.c_uint32, "number max_threads shared_bytes unused"),
    )


class ModuleSlots:
    """The layout of a module that native code reads: its image, and the kernels that were found by
    their lowered names.
    """

    __slots__ = ("__dict__", "__weakref__", "_image", "_kernels", "load_s")

    made: ClassVar[type]
    """The class of modules."""


class ImageSlots:
    """The layout of a loaded image that native code creates (``devices.launcher.entry``).

    ``_given`` is an Artifact or the bytes of a cubin. ``_word`` contains the word that ``LivenessFlag`` describes.
    ``_calls`` contains the bytes of the ``CubinCalls`` that loaded the image, or None if Python loaded it.
    """

    __slots__ = ("__dict__", "__weakref__", "_calls", "_given", "_word", "device", "loaded", "options")


class LoadedSlots:
    """The layout of a back-end module that native code creates: the driver's module, and the bytes of the cubin.

    ``_rows`` has a row for each kernel after a search in an image with several kernels. Before that search, it is None.
    """

    __slots__ = ("_data", "_module", "_rows")


class HandleSlots:
    """A module of the driver as native code makes it; ``is_loaded`` is False when the driver no longer has it."""

    __slots__ = ("_handle", "context", "is_loaded")


class EntrySlots:
    """The layout of the data that all launches of a kernel share. Native code creates it
    (``devices.launcher.entry``).
    """

    __slots__ = ("__dict__", "__weakref__", "_takes_ints", "image", "lowered")


class LaunchSlots:
    """A launch as native code makes it.

    ``_shape`` is a ``LaunchShape``, or grid and block as they were written. ``_state`` has the bytes of the state of a
    launch that native code made.
    """

    __slots__ = (
        "__weakref__",
        "_entry",
        "_kernel",
        "_options",
        "_prepared",
        "_shape",
        "_state",
        "_stream",
        "_waits",
        "stream_owner",
    )


class Unsettled(ctypes.Structure):
    """Unfinished work in the default stream of a context. This structure follows the rows of the context's ring.

    ``issued`` counts the submitted work, and ``settled`` is the value of ``issued`` at the last wait. If they differ,
    code must wait before it passes an address to another stream. ``staging`` is page-locked memory for small copies, of
    which ``used`` bytes belong to unfinished copies. A thread that sets ``busy`` has exclusive access to it. While
    ``staging`` is 0, ``used`` counts the small copies. The memory is invalid if the context now has another ``id``, as
    after a device reset.
    """

    _fields_ = _fields(ctypes.c_uint64, "issued settled staging used busy id")


STAGING_BYTES = 512 << 10
MOST_STAGED_BYTES = 64 << 10
"""A copy of more than that is one for the driver."""
STAGED_AFTER = 8
"""Small copies that are made without page-locked memory; to get that takes as long as fifty of them."""
WANTS_STAGING = -1
"""What a copy answers, instead of 0, that is the last of these."""


class MemoryCalls(ctypes.Structure):
    """The data with which native code manages GPU memory: a context, its ring, and addresses of functions."""

    _fields_ = (
        *_fields(ctypes.c_uint64, "context ring get_context push_context pop_context exchange allocate release"),
        *_fields(ctypes.c_uint64, "copy_in copy_out copy_in_async copy_out_async set set_async"),
        *_fields(ctypes.c_uint64, "synchronize record wait get_id"),
    )


class LargeCopy(ctypes.Structure):
    """A copy between the host and a GPU that several threads perform in pieces.

    ``next`` is the offset of the first byte that no thread has claimed. ``status`` is the driver's error code, or 0.
    """

    _fields_ = _fields(ctypes.c_uint64, "address host bytes piece_bytes next status")


# -- the launches that a kernel keeps ---------------------------------------------------------------------

MOST_LAUNCHES = 256
"""Launches that a kernel keeps, in case that they are written again."""


_KEEPING = Lock()
"""Held for a moment by whoever changes the launches of a kernel, whichever it is."""


class KeepsLaunches:
    """The layout of a kernel that native code creates, with the newest ``MOST_LAUNCHES`` of its launches.

    Native code searches the launches too, and checks the last one first. It creates a missing launch from ``_pattern``,
    the bytes of a ``LaunchPattern``. ``_pattern`` is None before the first launch, and False if there is no pattern.
    """

    __slots__ = ("__dict__", "__weakref__", "_entry", "_last", "_last_shape", "_launches", "_pattern")

    made: ClassVar[type]
    """The class of kernels."""

    def __init__(self, entry: object, pattern: bytes | bool | None) -> None:
        self._entry, self._pattern = entry, pattern
        self._launches: dict[object, Any] = {}
        self._last_shape = self._last = None

    def _keep(self, key: object, launch: object) -> None:
        """Keep a launch, and drop the oldest launches beyond the limit."""
        with _KEEPING:
            while len(self._launches) >= MOST_LAUNCHES:
                del self._launches[next(iter(self._launches))]
            self._launches[key] = launch

    def _drop(self) -> None:
        """Drop all launches, because the module closes."""
        with _KEEPING:
            self._last_shape = self._last = None
            self._pattern = False
            self._launches.clear()


def is_same_stream(kept: object, stream: object) -> bool:
    """Return whether the stream object that a launch keeps alive also serves for another object with the same handle.

    ``torch.cuda.current_stream()`` and similar functions return a new object at each call. Any object of the same type
    therefore serves.
    """
    if type(stream) is int or isinstance(stream, Stream):
        return kept is (None if type(stream) is int else stream)
    return type(kept) is type(stream)
