"""What the emulator's C and Python share: structures in memory, and what handles are."""

from __future__ import annotations

import enum

from cujit.devices.cpu.native.structures import Fields, Shared

CELL_BYTES = 128
"""Bytes of what a handle points at, and of the grid that all handles lie on."""


class BootText(enum.IntEnum):
    """The place of each of the boot code's texts in its table: names of functions, a path, a statement."""

    RUNS = 0
    """``Py_IsInitialized``"""
    ENSURE = 1
    RELEASE = 2
    RUN = 3
    START = 4
    SAVE = 5
    YIELD = 6
    PYTHON = 7
    """The path of libpython; "" where there is none."""
    STATEMENT = 8
    """Python that fills the table; its last sixteen digits before the end become the table's address."""


class BootTable(Shared):
    """What comes before the slots of a library that ``shared_library`` writes.

    ``resolve`` is asked about calls of slots that nobody has filled. ``dlopen`` and ``dlsym`` are the C library's;
    ``state`` is the boot code's own, ``texts`` what it needs to know, ``failed`` a function that answers
    ``CUDA_ERROR_UNKNOWN``, ``count`` the number of slots, which follow.
    """

    _fields_ = Fields("u64 count, state, resolve, failed, dlopen, dlsym, texts[16]")


class CellKind(enum.IntEnum):
    """What a handle is; 0 marks a cell that is free."""

    FREE = 0
    CONTEXT = 1
    STREAM = 2
    EVENT = 3
    MODULE = 4
    FUNCTION = 5
    LIBRARY = 6
    KERNEL = 7
    GRAPH = 8
    NODE = 9
    GRAPH_EXEC = 10
    POOL = 11
    LINK = 12
    ARRAY = 13
    TEXTURE = 14
    SURFACE = 15
    USER_OBJECT = 16


class Cell(Shared):
    """What a handle points at: its kind, the error that sticks to a context, and the cell of its context.

    ``id`` counts the cells that were made. ``next`` chains the free ones. ``words`` are each kind's own.
    """

    _fields_ = Fields("u32 kind, error; u64 context, id, next, words[12]")


class Emulator(Shared):
    """The state of the process. ``alive`` points at a word that a forked child finds empty.

    ``ended`` is set when the process ends, ``errors_now`` where faults of kernels are answered by the launch itself.
    ``primary`` is the cell of the primary context, 0 while nobody retains it. The rest is ``state.c``'s own.
    """

    _fields_ = Fields(
        "u64 *alive; u64 ended, errors_now, primary, begin, end, fresh, free_first, free_last, frees, ids, thread_key"
    )
