"""What the emulator's C and Python share: structures in memory, and what handles are."""

from __future__ import annotations

import enum

from cujit.devices.cpu.native.shared import Fields, Shared

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
    WRITE = 9
    """``write``"""
    WORDS = 10
    """What is said where there is no libpython that could be started."""
    OTHERS = 11
    """Of a library that stands before another: the other's path, and the names of the slots, a line each."""


class BootTable(Shared):
    """What comes before the slots of a library that ``shared_library`` writes.

    ``resolve`` is asked about calls of slots that nobody has filled. ``dlopen`` and ``dlsym`` are the C library's;
    ``state`` is the boot code's own, ``texts`` what it needs to know, ``failed`` a function that answers
    ``CUDA_ERROR_UNKNOWN``, ``count`` the number of slots, which follow. ``targets`` are as many ``PythonCall``;
    ``ask`` is called where one is empty.
    """

    _fields_ = Fields("u64 count, state, resolve, failed, dlopen, dlsym, texts[16], targets, ask")


class PythonCall(Shared):
    """A function of Python's that C calls, and what a message calls it."""

    _fields_ = Fields("u64 call; const char *name")


class PythonLock(Shared):
    """Functions of Python that tell which thread state has the global lock and which is the thread's own, and that
    release the lock and take it again.
    """

    _fields_ = Fields("u64 current, own, release, take")


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
    GREEN_CONTEXT = 14
    RESOURCES = 15
    USER_OBJECT = 16


class Cell(Shared):
    """What a handle points at: its kind, the error that sticks to a context, and the cell of its context.

    ``id`` counts the cells that were made. ``next`` chains the free ones. ``words`` are each kind's own.
    """

    _fields_ = Fields("u32 kind, error; u64 context, id, next, words[12]")


class Context(Shared):
    """The cell of a context, with the flags that it was made by, the version of its API, and how often it is held.

    ``users`` counts what retained a primary context, or attached to another; ``is_primary`` is 1 for the primary one,
    whose cell stays when it is reset. ``green`` is the green context that the cell stands for, 0 for others;
    ``context`` is then the primary one.
    """

    _fields_ = Fields(
        "u32 kind, error; u64 context, id, next; u32 flags, version; u64 users, is_primary, green, words[8]"
    )


class GreenCell(Shared):
    """The cell of a green context, of the primary ``context``; ``as_context`` is the one to make current."""

    _fields_ = Fields("u32 kind, error; u64 context, id, next, as_context, words[11]")


class BlockKind(enum.IntEnum):
    """What memory is, by the call that made it; 0 marks a block that is free."""

    FREE = 0
    DEVICE = 1
    MANAGED = 2
    POOLED = 3
    """Of a memory pool."""
    HOST = 4
    REGISTERED = 5
    """Of others, registered: it lies outside of our addresses."""
    IMAGE = 6
    """Variables of a module, outside of our addresses."""
    ARRAY = 7
    """Elements of a CUDA array, which no pointer of a program's leads to."""
    GRAPH = 8
    """Of a graph, which has its address already: a launch takes it, and it is ``POOLED`` until somebody frees it."""


class Block(Shared):
    """An allocation: where it begins and how many bytes were asked for, its context and pool (or 0).

    ``id`` counts allocations. ``flags`` are the caller's.
    """

    _fields_ = Fields("u64 begin, size, context, id, pool; u32 kind, flags")


class Chunk(Shared):
    """A piece of 2 MiB of the emulator's addresses: the blocks that lie in it, ``unit`` bytes apart.

    ``unit`` is 0 where one block takes one or more chunks for itself. ``fresh`` counts the blocks that were ever used,
    ``spare`` is one more than the first that is free again, whose ``id`` is the next one's. ``next`` chains the chunks
    of a unit that have room, ``listed`` is 1 for these.
    """

    _fields_ = Fields("struct Block *blocks; u64 unit, fresh, spare, next, listed")


class Memory(Shared):
    """The memory of the device: its addresses, the chunks that these are cut into, and how much is taken.

    ``total`` is what the device has and ``used`` what it gave, in bytes; ``pool`` is used where none is named (0: the
    device's own). ``on_new``, ``on_free``, ``on_write`` and ``on_copy`` are functions of Python for who checks
    accesses (0: nobody does), ``on_capture`` the one that gets what a captured stream would copy or set, ``on_pooled``
    what it would allocate or free.
    """

    _fields_ = Fields(
        "u64 begin, end; struct Chunk *chunks; u64 total, used, ids, pool, on_new, on_free, on_write, on_copy, "
        "on_capture, on_pooled"
    )


class CopyPlan(Shared):
    """A copy of boxes: where it begins, the sizes in bytes and rows, and the bytes from row to row and slice to slice.

    ``dst_type`` and ``src_type`` are the caller's ``CUmemorytype``, ``dst_array`` and ``src_array`` the handles of
    arrays.
    """

    _fields_ = Fields(
        "u64 dst, src, width, height, depth, dst_pitch, dst_slice, src_pitch, src_slice; u32 dst_type, src_type; "
        "u64 dst_array, src_array"
    )


class SetPlan(Shared):
    """Rows that are set to a value: ``width`` elements of ``element`` bytes each, ``pitch`` bytes from row to row.

    Source: CUDA Driver API manual, ``CUDA_MEMSET_NODE_PARAMS``.
    """

    _fields_ = Fields("u64 dst, pitch; u32 value, element; u64 width, height")


class ArrayCell(Shared):
    """The cell of a CUDA array: where its elements lie, and what the caller said of it.

    ``row`` and ``slice`` are bytes from one to the next, the sizes are in elements and 0 for an axis that there is not;
    ``depth`` counts layers and faces, too. ``format`` is a ``CUarray_format``.
    """

    _fields_ = Fields(
        "u32 kind, error; u64 context, id, next; u64 base, row, slice, width, height, depth; "
        "u32 format, channels, flags, texel_bytes; u64 words[4]"
    )


class PoolCell(Shared):
    """The cell of a memory pool: bytes and allocations in use, and what its attributes say.

    ``reuse`` has a bit for each of the first three attributes. ``is_default`` marks the device's own, ``ended`` a pool
    that goes with its last allocation. ``reserved`` counts what graphs had and have not given back. ``block`` is the
    kind of its allocations, ``place`` the caller's ``CUmemLocation``.
    """

    _fields_ = Fields(
        "u32 kind, error; u64 context, id, next; u64 used, used_high, reserved_high, threshold, most_bytes, blocks; "
        "u32 reuse, is_default, ended, block; u64 reserved, place, words[2]"
    )


class CaptureStatus(enum.IntEnum):
    """Whether a stream is captured. Source: CUDA Driver API manual, ``CUstreamCaptureStatus``."""

    NONE = 0
    ACTIVE = 1
    INVALIDATED = 2


class CaptureQuestion(enum.IntEnum):
    """What C asks while streams are captured; the answer is a ``CUresult``, or ``GO_ON`` where C is to answer."""

    UNSAFE = 0
    """A call that may not be made at all, unless the captures are relaxed."""
    CONTEXT = 1
    """A call that waits for a context: its handle."""
    STREAM = 2
    """A call that waits for a stream, or looks whether it is done: its cell."""
    EVENT = 3
    """The same of an event: its handle."""
    RECORD = 4
    """An event, a stream's cell, flags."""
    WAIT = 5
    """A stream's cell, an event, flags."""
    DESTROY = 6
    """A stream's cell."""
    HOST = 7
    """A stream's cell, a function and what it is called with."""
    STATUS = 8
    """A call that tells whether a context's default stream is captured: its cell."""


GO_ON = 1 << 20
"""No ``CUresult``: C goes on as if nothing was captured."""


class StreamCell(Shared):
    """A stream: a ``Cell`` whose words are the stream's.

    ``capture`` is the number of the capture that it is part of, ``status`` a ``CaptureStatus``. ``is_default`` marks
    the streams that are there without being made; ``after`` chains them: those of a thread, or the contexts' own;
    ``context_id`` is the ``id`` of the context. ``green`` is the green context that the stream was made in, 0 for none;
    ``is_detached`` marks a stream whose green context has ended.
    """

    _fields_ = Fields(
        "u32 kind, error; u64 context, id, next; u32 flags; i32 priority; u64 capture; u32 status, is_default; "
        "u64 after, context_id, green; u32 is_detached, unused; u64 words[5]"
    )


class EventCell(Shared):
    """An event: a ``Cell`` whose words are the event's.

    ``recorded_ns`` is a clock's time, 0 where it was not recorded. ``capture`` is the number of the capture that it was
    recorded in last, 0 for none.
    """

    _fields_ = Fields("u32 kind, error; u64 context, id, next; u32 flags, unused; u64 recorded_ns, capture, words[9]")


class AskedLaunch(Shared):
    """How a function is launched: sizes in blocks, threads and bytes, and the stream.

    A ``cluster`` of 0 leaves it to the function. ``more`` is 1 where the caller said what only Python knows, in its
    ``attribute_count`` attributes. ``ready`` is what Python made of it.
    """

    _fields_ = Fields(
        "u32 grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, cluster_x, cluster_y, cluster_z, "
        "cooperative, more; u64 stream, attributes, attribute_count; struct ReadyLaunch *ready"
    )


class ParameterSpan(Shared):
    """Where a parameter lies in the buffer of all of them, in bytes."""

    _fields_ = Fields("u32 offset, bytes")


class ReadyLaunch(Shared):
    """A launch that was made ready: for which sizes, and how C starts it on the CPU device (see ``Target.fields``)."""

    _fields_ = Fields(
        "u32 grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, cluster_x, cluster_y, cluster_z; "
        "u32 helpers, unused; struct Launch *template; u64 pool, run, job, block_shared_bytes, local_bytes"
    )


class FunctionCell(Shared):
    """The cell of a function of a module: its parameters, ``count`` launches that are ready, newest last.

    ``running`` counts the threads that look at those now: what ``ready`` no longer has is let go when nobody does.
    """

    _fields_ = Fields(
        "u32 kind, error; u64 context, id, next; struct ParameterSpan *parameters; u64 parameter_count, "
        "parameter_bytes, ready, count, running, words[6]"
    )


class KernelCell(Shared):
    """The cell of a kernel of a library: the function that it is in the context that asked last."""

    _fields_ = Fields("u32 kind, error; u64 context, id, next, function, words[11]")


class LaunchWords(Shared):
    """How a function is launched, as callers write it: ``CUlaunchConfig``."""

    _fields_ = Fields(
        "u32 grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes; u64 stream, attributes; u32 count"
    )


class StepKind(enum.IntEnum):
    """What a step of a graph is; ``END`` follows the last one."""

    END = 0
    PYTHON = 1
    """Python's: its ``number``."""
    KERNEL = 2
    """A ``function``, its ``LaunchWords``, pointers to the ``values`` of its parameters, and a context (or 0). The
    ``number`` is 1 if the function knows of the graph, and so stays while that runs."""
    COPY = 3
    """A ``CopyPlan``."""
    SET = 4
    """A ``SetPlan``."""
    HOST = 5
    """A ``function`` of the caller's, and what it is called with."""
    RECORD = 6
    """An event, in ``function``."""
    IF = 7
    """A condition's address, in ``function``, and as many lists of steps as ``values`` says, in ``plan``: one runs if
    the condition isn't 0, the other if it is 0."""
    WHILE = 8
    """The same: the only list runs as long as the condition isn't 0."""
    SWITCH = 9
    """The same: the list runs whose place is the condition."""
    ASSIGN = 10
    """A condition's address, in ``function``, which gets the ``number``."""


class GraphStep(Shared):
    """What a launch of a graph does for one of its nodes; ``plan`` is an address, of what ``kind`` says.

    ``known`` is the function that a step launches, in the context that it was made for, or 0. The graph keeps it while
    it runs. ``function`` may be a kernel of a library instead, which is another function in each context.
    """

    _fields_ = Fields("u32 kind, number; u64 context, function, plan, values, known")


class GraphExecCell(Shared):
    """The cell of an instantiated graph: its steps, 0 where Python is to write them anew.

    ``running`` counts the threads that launch it now: steps of before are let go when nobody does.
    """

    _fields_ = Fields("u32 kind, error; u64 context, id, next; struct GraphStep *steps; u64 running, words[10]")


class ErrorText(Shared):
    """What a ``CUresult`` is called and what it means: addresses of strings that outlive Python."""

    _fields_ = Fields("u64 code, name, sentence")


class DeviceFacts(Shared):
    """What the device says of itself: ``attributes`` by number, from 1 on, and memory in bytes."""

    _fields_ = Fields("i32 *attributes; u64 count; const char *name; u64 uuid[2], bytes; i32 major, minor")


class Emulator(Shared):
    """The state of the process. ``alive`` points at a word that a forked child finds empty.

    ``ended`` is set when the process ends, ``errors_now`` where faults of kernels are answered by the launch itself.
    ``primary`` is the cell of the primary context, 0 while nobody retains it. ``capturing`` is the address of what
    answers a ``CaptureQuestion``, 0 while no stream is captured. ``host_calls`` counts host functions that run now.
    ``wait_ns`` is how long a thread may wait for Python's lock, 0 for ever.
    ``table`` is the driver's, whose slots the end of the process fills anew: all but those of ``cuGetErrorName`` and
    ``cuGetErrorString``, which go on by ``errors``. The rest is ``state.c``'s own.
    """

    _fields_ = Fields(
        "u64 *alive; u64 ended, errors_now, primary, begin, end, fresh, free_first, free_last, frees, ids, thread_key, "
        "capturing, host_calls; struct Memory memory; struct BootTable *table; "
        "struct ErrorText *errors; u64 error_count, name_slot, string_slot, wait_ns; struct DeviceFacts device"
    )
