"""Data structures that the emulator's C and Python code share, and the kinds of handles."""

from __future__ import annotations

import enum

from cujit.devices.cpu.native.shared import Fields, Shared

CELL_BYTES = 128
"""Bytes of what a handle points at, and of the grid that all handles lie on."""


class BootText(enum.IntEnum):
    """Index of each text in the boot code's table. The texts are function names, a path, and a statement."""

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
    """The structure that precedes the slots of a library from ``shared_library``.

    ``count`` is the number of slots. ``resolve`` finds the target of an unfilled slot. ``dlopen`` and ``dlsym`` belong
    to the C library. ``state`` is data of the boot code, and ``texts`` are its constants. ``failed`` is a function that
    returns ``CUDA_ERROR_UNKNOWN``. ``targets`` are ``count`` structures of the type ``PythonCall``. ``ask`` is called
    if a target is empty.
    """

    _fields_ = Fields("u64 count, state, resolve, failed, dlopen, dlsym, texts[16], targets, ask")


class PythonCall(Shared):
    """A Python function that C calls, and its name in messages."""

    _fields_ = Fields("u64 call; const char *name")


class PythonLock(Shared):
    """Functions of Python for the global interpreter lock.

    ``current`` returns the thread state that holds the lock, and ``own`` returns the state of the calling thread.
    ``release`` releases the lock, and ``take`` acquires the lock again.
    """

    _fields_ = Fields("u64 current, own, release, take")


class CellKind(enum.IntEnum):
    """Kind of a handle. 0 marks a free cell."""

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
    """The data at a handle: its kind, the sticky error of a context, and the cell of its context.

    ``id`` is the number of the cell in the order of creation. ``next`` links free cells. ``words`` depends on the kind.
    """

    _fields_ = Fields("u32 kind, error; u64 context, id, next, words[12]")


class Context(Shared):
    """The cell of a context, with its creation flags, the version of its API, and its number of users.

    ``users`` counts the retains of a primary context, or the attachments to another context. ``is_primary`` is 1 for
    the primary context. Its cell remains after a reset. ``green`` is the green context that the cell represents, or 0.
    For a green context, ``context`` is the primary context.
    """

    _fields_ = Fields(
        "u32 kind, error; u64 context, id, next; u32 flags, version; u64 users, is_primary, green, words[8]"
    )


class GreenCell(Shared):
    """The cell of a green context, of the primary ``context``; ``as_context`` is the one to make current."""

    _fields_ = Fields("u32 kind, error; u64 context, id, next, as_context, words[11]")


class BlockKind(enum.IntEnum):
    """Kind of memory, which depends on the allocating call. 0 marks a free block."""

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
    """An allocation: its address, its requested size in bytes, its context, and its pool (or 0).

    ``id`` is the number of the allocation. ``flags`` are the caller's flags.
    """

    _fields_ = Fields("u64 begin, size, context, id, pool; u32 kind, flags")


class Chunk(Shared):
    """A range of 2 MiB of the emulator's addresses, with blocks at intervals of ``unit`` bytes.

    ``unit`` is 0 if a single block uses one or more whole chunks. ``fresh`` counts the blocks that were ever used.
    ``spare`` is one more than the index of the first free block. The ``id`` of a free block is the ``spare`` value of
    the next free block. ``next`` links the chunks with equal ``unit`` and free blocks. ``listed`` is 1 for a linked
    chunk.
    """

    _fields_ = Fields("struct Block *blocks; u64 unit, fresh, spare, next, listed")


class Memory(Shared):
    """The memory of the device: its addresses, its chunks, and its usage.

    ``total`` is the size of the memory and ``used`` the size of all allocations, in bytes. ``pool`` is the pool for
    allocations without an explicit pool, and 0 is the default pool. ``on_new``, ``on_free``, ``on_write``, and
    ``on_copy`` are Python functions for access checks, or 0 without checks. ``on_capture`` receives the copies and sets
    of captured streams. ``on_pooled`` receives their allocations and frees.
    """

    _fields_ = Fields(
        "u64 begin, end; struct Chunk *chunks; u64 total, used, ids, pool, on_new, on_free, on_write, on_copy, "
        "on_capture, on_pooled"
    )


class CopyPlan(Shared):
    """A copy of a box: its start addresses, its sizes in bytes and rows, and the row and slice pitches in bytes.

    ``dst_type`` and ``src_type`` are the caller's ``CUmemorytype``, and ``dst_array`` and ``src_array`` are array
    handles.
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
    """The cell of a CUDA array: the address of its elements, and its descriptor.

    ``row`` and ``slice`` are the row and slice pitches in bytes. Sizes are in elements, and 0 marks a missing axis.
    ``depth`` also counts layers and faces. ``format`` is a ``CUarray_format``.
    """

    _fields_ = Fields(
        "u32 kind, error; u64 context, id, next; u64 base, row, slice, width, height, depth; "
        "u32 format, channels, flags, texel_bytes; u64 words[4]"
    )


class PoolCell(Shared):
    """The cell of a memory pool: the bytes and allocations in use, and the attributes.

    ``reuse`` has a bit for each of the first three attributes. ``is_default`` marks the device's default pool.
    ``ended`` marks a destroyed pool, which is freed with its last allocation. ``reserved`` counts bytes that graphs
    allocated and have not returned. ``block`` is the kind of the allocations, and ``place`` is the caller's
    ``CUmemLocation``.
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
    """A question from C during stream capture. The answer is a ``CUresult``, or ``GO_ON`` if C continues the call."""

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
    """A stream, which is a ``Cell`` with stream-specific fields.

    ``capture`` is the number of the capture that contains the stream, and ``status`` is a ``CaptureStatus``.
    ``is_default`` marks streams that exist without being created. ``after`` links the default streams of a thread, or
    of the contexts. ``context_id`` is the ``id`` of the context. ``green`` is the green context in which the stream was
    created, or 0. ``is_detached`` marks a stream after its green context has ended.
    """

    _fields_ = Fields(
        "u32 kind, error; u64 context, id, next; u32 flags; i32 priority; u64 capture; u32 status, is_default; "
        "u64 after, context_id, green; u32 is_detached, unused; u64 words[5]"
    )


class EventCell(Shared):
    """An event, which is a ``Cell`` with event-specific fields.

    ``recorded_ns`` is the clock time of the last recording, or 0 if the event was never recorded. ``capture`` is the
    number of the capture in which the event was last recorded, or 0.
    """

    _fields_ = Fields("u32 kind, error; u64 context, id, next; u32 flags, unused; u64 recorded_ns, capture, words[9]")


class AskedLaunch(Shared):
    """A requested launch: the sizes in blocks, threads, and bytes, and the stream.

    If ``cluster`` is 0, the function's cluster size applies. ``more`` is 1 if the ``attribute_count`` attributes
    contain settings that only Python understands. ``ready`` is the launch that Python prepared.
    """

    _fields_ = Fields(
        "u32 grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, cluster_x, cluster_y, cluster_z, "
        "cooperative, more; u64 stream, attributes, attribute_count; struct ReadyLaunch *ready"
    )


class ParameterSpan(Shared):
    """Offset and size of a parameter in the parameter buffer, in bytes."""

    _fields_ = Fields("u32 offset, bytes")


class ReadyLaunch(Shared):
    """A prepared launch: its sizes, and the data with which C starts it on the CPU device (see ``Target.fields``)."""

    _fields_ = Fields(
        "u32 grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, cluster_x, cluster_y, cluster_z; "
        "u32 helpers, unused; struct Launch *template; u64 pool, run, job, block_shared_bytes, local_bytes"
    )


class FunctionCell(Shared):
    """The cell of a module's function: its parameters, and ``count`` prepared launches, with the newest last.

    ``running`` counts the threads that currently use these launches. A launch that was removed from ``ready`` is freed
    when no thread uses it.
    """

    _fields_ = Fields(
        "u32 kind, error; u64 context, id, next; struct ParameterSpan *parameters; u64 parameter_count, "
        "parameter_bytes, ready, count, running, words[6]"
    )


class KernelCell(Shared):
    """The cell of a library kernel. ``function`` is the kernel's function in the context that requested it last."""

    _fields_ = Fields("u32 kind, error; u64 context, id, next, function, words[11]")


class LaunchWords(Shared):
    """How a function is launched, as callers write it: ``CUlaunchConfig``."""

    _fields_ = Fields(
        "u32 grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes; u64 stream, attributes; u32 count"
    )


class StepKind(enum.IntEnum):
    """Kind of a graph step. ``END`` follows the last step."""

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
    """The step of a graph launch for one node. ``plan`` is the address of data that depends on ``kind``.

    ``known`` is the function that a step launches in the context for which the step was created, or 0. The graph keeps
    the function alive while the graph runs. ``function`` may be a library kernel instead, which has another function in
    each context.
    """

    _fields_ = Fields("u32 kind, number; u64 context, function, plan, values, known")


class GraphExecCell(Shared):
    """The cell of an instantiated graph. ``steps`` is 0 if Python must write the steps again.

    ``running`` counts the threads that currently launch the graph. Old steps are freed when no thread uses them.
    """

    _fields_ = Fields("u32 kind, error; u64 context, id, next; struct GraphStep *steps; u64 running, words[10]")


class ErrorText(Shared):
    """The name and meaning of a ``CUresult``, as addresses of strings that outlive Python."""

    _fields_ = Fields("u64 code, name, sentence")


class DeviceFacts(Shared):
    """Properties of the device: ``attributes`` by number, starting at 1, and the memory size in bytes."""

    _fields_ = Fields("i32 *attributes; u64 count; const char *name; u64 uuid[2], bytes; i32 major, minor")


class Emulator(Shared):
    """The emulator state of the process. ``alive`` points to a word that is 0 in a forked child.

    ``ended`` is set when the process ends. ``errors_now`` is set if a launch returns the fault of its kernel itself.
    ``primary`` is the cell of the primary context, or 0 while no caller retains it. ``capturing`` is the address of the
    function that answers a ``CaptureQuestion``, or 0 while no stream is captured. ``host_calls`` counts the host
    functions that are running. ``wait_ns`` is the longest wait of a thread for Python's lock, and 0 means no limit.

    ``table`` is the driver's table. At the end of the process, all slots are replaced except for ``cuGetErrorName`` and
    ``cuGetErrorString``, which continue to work with ``errors``. The other fields belong to ``state.c``.
    """

    _fields_ = Fields(
        "u64 *alive; u64 ended, errors_now, primary, begin, end, fresh, free_first, free_last, frees, ids, thread_key, "
        "capturing, host_calls; struct Memory memory; struct BootTable *table; "
        "struct ErrorText *errors; u64 error_count, name_slot, string_slot, wait_ns; struct DeviceFacts device"
    )
