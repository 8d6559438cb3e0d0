"""What the machine code of a prepared launch reads: one block of memory, laid out here and nowhere else."""

from __future__ import annotations

import ctypes
from typing import Any, ClassVar

from cujit.devices.streams import Stream
from cujit.forks import Lock


def _fields(kind: type[Any], names: str) -> tuple[tuple[str, type[Any]], ...]:
    return tuple((name, kind) for name in names.split())


class LaunchState(ctypes.Structure):
    """The data of one prepared launch. Whoever has it keeps alive what it refers to; words of 64 bits are addresses.

    ``by_hand`` takes a call that the native code leaves alone, ``named`` one with keywords, ``failed`` what the place
    that runs the kernel answered. ``submit`` is the function that starts the kernel. ``fields`` and ``known`` have an
    entry per parameter, of which there are ``count``: how it is read, and the dtype that an array was found to have.
    ``reader`` reads a parameter in Python: it takes its number and its argument. ``size`` is that of the parameter
    buffer in bytes; with ``each`` the driver gets the address of each parameter instead of the buffer.
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
    """What native code makes the launches of one kernel of: those without dynamic shared memory, stream and options.

    ``template`` is the address of a ``LaunchState`` that lacks the fields ``alive``, ``function`` and ``label``, which
    are here, and the sizes of the launch. ``type`` is the type of launches, ``entry`` and ``options`` are objects that
    a launch refers to, ``code`` is the function that a call runs. A shape beyond the limits is left to Python.
    """

    _fields_ = (
        *_fields(ctypes.c_uint64, "template alive function label type entry options code"),
        *_fields(ctypes.c_uint32, "max_grid_x max_grid_y max_grid_z max_block_x max_block_y max_block_z max_threads"),
        *_fields(ctypes.c_uint32, "unused"),
    )


class CubinCalls(ctypes.Structure):
    """What native code loads cubins of one architecture by: functions of the driver, a context, and limits
    of a block.

    ``module`` to ``kernel`` are the addresses of words of objects, one for each class that a load or a search makes an
    object of. They have what all of these objects share. ``names`` is the dict of the ring's
    labels, and ``patterns`` that of the patterns of kernels of which only the parameters' sizes are known.
    """

    _fields_ = (
        *_fields(ctypes.c_uint64, "load get_function context get_context set_context push_context pop_context"),
        *_fields(ctypes.c_uint64, "module image loaded handle entry kernel names patterns"),
        *_fields(ctypes.c_uint32, "number max_threads shared_bytes unused"),
    )


class ModuleSlots:
    """A module as native code sees it: its image, and the kernels that were found by their lowered names."""

    __slots__ = ("__dict__", "__weakref__", "_image", "_kernels", "load_s")

    made: ClassVar[type]
    """The class of modules."""


class ImageSlots:
    """A loaded image as native code makes it (``devices.launcher.entry``).

    ``_given`` is an Artifact, or the bytes of a cubin. ``_word`` has the word that ``LivenessFlag`` describes.
    ``_calls`` has the bytes of the ``CubinCalls`` that found it; it is None if Python loaded the image.
    """

    __slots__ = ("__dict__", "__weakref__", "_calls", "_given", "_word", "device", "loaded", "options")


class LoadedSlots:
    """The module of a back end as native code makes it: what the driver has, and the bytes of the cubin.

    ``_rows`` has a row for each kernel when somebody has searched an image of several; before that it is None.
    """

    __slots__ = ("_data", "_module", "_rows")


class HandleSlots:
    """A module of the driver as native code makes it; ``is_loaded`` is False when the driver no longer has it."""

    __slots__ = ("_handle", "context", "is_loaded")


class EntrySlots:
    """What the launches of a kernel share, as native code makes it (``devices.launcher.entry``)."""

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
    """Work in the default stream of a context that was begun and not waited for; it follows the rows of its ring.

    ``issued`` counts such work, and ``settled`` is what it was when somebody last waited. Whoever gives an address to
    another stream waits first if they differ. ``staging`` is page-locked memory for small copies, of which ``used``
    bytes have copies under way; a thread that sets ``busy`` has it alone. While it is 0, ``used`` counts such copies.
    It went with its context if that has another ``id`` now, as after a reset of the device.
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
    """What native code calls for the memory of a GPU: a context, its ring, and addresses of functions."""

    _fields_ = (
        *_fields(ctypes.c_uint64, "context ring get_context push_context pop_context exchange allocate release"),
        *_fields(ctypes.c_uint64, "copy_in copy_out copy_in_async copy_out_async set set_async"),
        *_fields(ctypes.c_uint64, "synchronize record wait get_id"),
    )


class LargeCopy(ctypes.Structure):
    """A copy between the host and a GPU that several threads make, piece by piece.

    ``next`` is the first byte that nobody has taken yet, ``status`` what the driver refused with, or 0.
    """

    _fields_ = _fields(ctypes.c_uint64, "address host bytes piece_bytes next status")


# -- the launches that a kernel keeps ---------------------------------------------------------------------

MOST_LAUNCHES = 256
"""Launches that a kernel keeps, in case that they are written again."""


_KEEPING = Lock()
"""Held for a moment by whoever changes the launches of a kernel, whichever it is."""


class KeepsLaunches:
    """A kernel as native code makes it, with the newest ``MOST_LAUNCHES`` of its launches.

    Native code finds them here too, the one that was written last without a look into the others. It makes the ones
    that are not kept by ``_pattern``, the bytes of a ``LaunchPattern``; None before the first, False without one.
    """

    __slots__ = ("__dict__", "__weakref__", "_entry", "_last", "_last_shape", "_launches", "_pattern")

    made: ClassVar[type]
    """The class of kernels."""

    def __init__(self, entry: object, pattern: bytes | bool | None) -> None:
        self._entry, self._pattern = entry, pattern
        self._launches: dict[object, Any] = {}
        self._last_shape = self._last = None

    def _keep(self, key: object, launch: object) -> None:
        """Keep a launch; the oldest goes when there are many."""
        with _KEEPING:
            while len(self._launches) >= MOST_LAUNCHES:
                del self._launches[next(iter(self._launches))]
            self._launches[key] = launch

    def _drop(self) -> None:
        """Drop all launches, as a module does that closes."""
        with _KEEPING:
            self._last_shape = self._last = None
            self._pattern = False
            self._launches.clear()


def is_same_stream(kept: object, stream: object) -> bool:
    """Return whether what a launch keeps alive of its stream also serves for another object of the same handle.

    ``torch.cuda.current_stream()`` and others make a new object for each question: one of a kind is as good as another.
    """
    if type(stream) is int or isinstance(stream, Stream):
        return kept is (None if type(stream) is int else stream)
    return type(kept) is type(stream)
