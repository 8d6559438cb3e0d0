"""What the machine code of a prepared launch reads: one block of memory, laid out here and nowhere else."""

from __future__ import annotations

import ctypes

__all__ = ["State", "place"]

_OBJECT = ctypes.c_uint64  # a borrowed reference, as its address
_ADDRESS = ctypes.c_uint64


class State(ctypes.Structure):
    """The data of one prepared launch. Whoever has it keeps alive what it refers to.

    ``by_hand`` takes a call that the machine code leaves alone, ``named`` one with keywords, ``failed`` what the
    place that runs the kernel answered. ``readers`` and ``known`` have an entry per parameter: the reader written in
    Python, and the dtype that an array has been found to have.
    """

    _fields_ = (
        ("alive", _ADDRESS),
        ("by_hand", _OBJECT),
        ("named", _OBJECT),
        ("failed", _OBJECT),
        ("readers", _ADDRESS),
        ("known", _ADDRESS),
        ("device", _OBJECT),
        # torch's tensors: the interface, the code of the dtype found right of each parameter, and the device
        ("tensors", _ADDRESS),
        ("known_tensors", _ADDRESS),
        ("tensor_device_type", ctypes.c_int32),
        ("tensor_device_index", ctypes.c_int32),
        # CuPy's arrays: the interface
        ("cupy", _ADDRESS),
        # a GPU
        ("function", _ADDRESS),
        ("context", _ADDRESS),
        ("stream", _ADDRESS),
        ("config", _ADDRESS),
        ("launch_kernel", _ADDRESS),
        ("launch_kernel_ex", _ADDRESS),
        ("get_context", _ADDRESS),
        ("set_context", _ADDRESS),
        ("push_context", _ADDRESS),
        ("pop_context", _ADDRESS),
        # where launches are written down (ring.py), and the label of this one
        ("ring", _ADDRESS),
        ("label", ctypes.c_uint64),
        ("grid_x", ctypes.c_uint32),
        ("grid_y", ctypes.c_uint32),
        ("grid_z", ctypes.c_uint32),
        ("block_x", ctypes.c_uint32),
        ("block_y", ctypes.c_uint32),
        ("block_z", ctypes.c_uint32),
        ("dynamic_bytes", ctypes.c_uint32),
        # the CPU device
        ("helpers", ctypes.c_uint32),
        ("template", _ADDRESS),
        ("pool", _ADDRESS),
        ("run", _ADDRESS),
        ("job", _ADDRESS),
        ("shared_bytes", ctypes.c_uint64),
        ("local_bytes", ctypes.c_uint64),
        # nothing but a copy of the parameter buffer
        ("sink", _ADDRESS),
    )


def place(field: str) -> int:
    """Give the offset of a field, in bytes."""
    return int(getattr(State, field).offset)
