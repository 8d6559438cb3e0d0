"""Numbers and memory structures that machine code and Python share.

This module is their only definition. Structures use the notation of C. ``tools/runtime.py`` generates ``shared.h`` from
them, which the runtime in C includes. ``run`` contains two more such structures: a launch and a texture description.
"""

from __future__ import annotations

import enum

from cujit.devices.cpu.native.shared import Fields, Shared
from cujit.devices.shapes import WARP

# -- faults -------------------------------------------------------------------------------------------------


class FaultKind(enum.IntEnum):
    """``Launch.fault_kind``: why a launch could not go on."""

    NONE = 0
    ILLEGAL_ADDRESS = 1
    MISALIGNED = 2
    TRAP = 3
    ASSERT = 4
    DEADLOCK = 5
    LANES_APART = 6
    """Lanes wait for each other at different ``.sync`` operations."""
    STACK_OVERFLOW = 7
    ARITHMETIC = 8
    BREAKPOINT = 9
    ILLEGAL_INSTRUCTION = 10
    BAD_FREE = 11
    """``free`` of what ``malloc`` did not give, or of what was freed already."""
    ILLEGAL_CALL = 12
    """A call by an address that no function of the kernel's module has."""
    TENSOR_MAP = 13
    """A tensor map that is none of the CPU device's, or not for the instruction that takes it."""
    BULK_ALIGN = 14
    """A bulk or tensor copy from, to or of what is not cut at the bytes that such copies move together."""
    TENSOR_START = 15
    """A store or reduction that begins before its tensor along the innermost axis."""
    WARPS_APART = 16
    """Not all warps of a warpgroup come to an operation that they do together."""
    NO_CLUSTER = 17
    """An instruction that a GPU does only in a launch that names a cluster."""
    CANCELLED = 18
    """From here to ``INTERRUPTED``: the host ended it."""
    TIMEOUT = 19
    INTERRUPTED = 20
    """A handler of signals, Python's, raised."""
    CHECK = 21
    """From here on: what a check found, by its name."""
    MEMORY = 22
    RACE = 23
    SYNC = 24
    INIT = 25
    NO_MEMORY = 26
    """A thread has no memory for blocks that others wait for."""
    TENSOR_MEMORY = 27
    """A use of tensor memory that a GPU leaves undefined: a ``TensorFault``."""


# -- warps that take turns ----------------------------------------------------------------------------------

BARRIERS = 16
"""Barriers of a block. Source: PTX ISA 9.1, "Parallel Synchronization and Communication Instructions: bar"."""

WARPS = 32
"""Warps of the largest block."""

AT_ANY = -1
"""``Warp.barrier`` of a warp that waits in several places, or in a loop that anything may end."""

AT_PHASE = -2
"""``Warp.barrier`` of a warp in a loop that only the phase of an mbarrier ends."""

AT_SHARED = -3
"""``Warp.barrier`` of a warp in a loop that only a write to shared memory ends."""

AT_CLUSTER = -4
"""``Warp.barrier`` of a warp at the barrier of its cluster."""

GROUP_WARPS = 4
"""Warps of a warpgroup. Source: PTX ISA 9.1, "Asynchronous Warpgroup Level Matrix Instructions: Warpgroup"."""

GROUPS = WARPS // GROUP_WARPS

STACK_BYTES = 1 << 20
"""Bytes of a warp's stack beside the frame of a large kernel. Memory is taken as it is touched, so that a large stack
costs no more than a small one."""


class State(enum.IntEnum):
    """The state of a warp."""

    READY = 0
    WAITING = 1
    """Until something of its block changes."""
    SPINNING = 2
    """It looks at memory again and again."""
    DONE = 3


class Barrier(Shared):
    """One barrier. ``arrived`` and ``expected`` count threads. If ``expected`` is 0, all threads that haven't exited
    count.

    ``generation`` counts how often the barrier completed. ``count``, ``any``, and ``missing`` collect the results of
    ``barrier.red``: the number of true predicates, whether any is true, and whether any is false. ``last_*`` keep these
    results for warps that read them later.
    """

    _fields_ = Fields(
        "u32 arrived, expected, generation, count, any, missing, last_count, last_any, last_missing, line, warp"
    )


SKIPS = 4
"""Barriers that the ``sync`` check knows a warp to have skipped."""


class Skip(Shared):
    """Lanes of a warp that went past a barrier at a PTX line, in a generation of it, and arrived at none since."""

    _fields_ = Fields("u32 line, lanes, generation")


class Meeting(Shared):
    """Lanes that wait for other lanes of their warp: the PTX line, the waiting lanes (0: none), and the first lane's
    mask.
    """

    _fields_ = Fields("u32 line, lanes, members")


class Warpgroup(Shared):
    """The synchronization of a warpgroup: the warps that have arrived, as bits, and the form and PTX line of the
    operation.

    ``generation`` counts how often all warps have arrived. ``last`` is the warp that arrived last. It continues first.
    """

    _fields_ = Fields("u32 warps, generation, form, line, last, unused")


class Warp(Shared):
    """One warp: its stack pointer while it is not running, its ``State``, and the reason for its wait.

    ``seen`` is the value of the block's ``changes`` when the wait began. While the warp waits or spins, ``line`` and
    ``lanes`` are the PTX line and the lanes, and ``barrier`` is the barrier. ``barrier`` may also be ``AT_ANY``,
    ``AT_CLUSTER``, ``AT_PHASE`` (the phase of an mbarrier), or ``AT_SHARED`` (a write to shared memory). From
    ``BARRIERS`` on, it is the warpgroup. ``moved`` is set if lanes continued while other lanes of the warp spin.
    ``tested`` is the address of the mbarrier that the warp last tested without success. After a deadlock, ``tested`` is
    the mbarrier's contents, and ``seen`` is its place in the block's shared memory. ``cluster_lanes`` are the last
    lanes that arrived at the cluster's barrier, in ``cluster_generation``. The stack is from ``stack_begin`` to
    ``stack_end``. ``apart`` are the first places where lanes wait for other lanes that wait at barriers. They also
    include lanes at barriers while other lanes poll.
    """

    _fields_ = Fields(
        "u8 *stack; u32 state, seen, line, lanes; i32 barrier; u32 cluster_generation, cluster_lanes, moved; "
        f"u64 stack_begin, stack_end, tested; struct Meeting apart[2]; struct Skip skips[{SKIPS}]"
    )


class Group(Shared):
    """Blocks that run together (a cluster, or all blocks that take turns), and the barrier of the cluster."""

    _fields_ = Fields("struct Block *blocks; u64 count; u32 arrived, generation, exited, threads")


class Block(Shared):
    """One running block. ``changes`` counts the events that may let a waiting warp continue.

    ``number`` is its linear index in the grid, which counts blocks cluster by cluster. ``ctaid_*`` are its coordinates.
    ``rank`` is its index in the cluster, and ``side`` is its index among the blocks that are interleaved. ``running``
    is the warp that ran last. ``passed`` is set if all warps have had a turn. ``group`` is its cluster: the
    ``own_cluster`` of the first block in the cluster. ``place`` is where the thread records its position.
    """

    _fields_ = Fields(
        "struct Launch *launch; struct Group *group; u8 *shared, *local; u64 number; u8 *scheduler; Body *body; "
        "struct Running *place; "
        "u32 threads, warps, exited, done, changes, rank, ctaid_x, ctaid_y, ctaid_z, side, running, passed, unused; "
        f"struct Group own_cluster; struct Barrier barriers[{BARRIERS}]; struct Warpgroup warpgroups[{GROUPS}]; "
        f"struct Warp warp[{WARPS}]"
    )


class Plan(Shared):
    """The requirements of a kernel's code, known after compilation: its body, sizes in bytes, and counts per block."""

    _fields_ = Fields("Body *body; u32 threads, warps; u64 local_bytes, stack_bytes")


# -- asynchronous copies ------------------------------------------------------------------------------------

ALL_COPIES = (1 << 32) - 1
"""Commits that a wait leaves out, where it waits for what was not committed, too."""

BOX_ALIGN = 128
"""Bytes that boxes of tensors are aligned to in shared memory. Source: CUDA C++ Programming Guide, "Using TMA", table
of alignment requirements."""


class Small(Shared):
    """One ``cp.async`` of a warp that is pending for ``lanes``: ``size`` bytes per lane, at a PTX ``line``.

    For ``parts``, the copy reads only ``count`` bytes and fills the rest with zeros. The copy must be performed for the
    lanes in ``due``. ``seen`` is set after the race check has processed it. ``moved`` is set if a schedule performed
    the copy before that.
    """

    _fields_ = Fields(
        f"u32 lanes, due, size, parts, line, seen, moved, unused; u64 to[{WARP}], source[{WARP}]; u32 count[{WARP}]"
    )


WRITES = 16
"""Writes that are kept of those that a schedule asks for, the last ones."""


class Written(Shared):
    """A write by a thread of a block at a PTX line. ``flags`` are the flags of the access."""

    _fields_ = Fields("u64 block; u32 thread, line, flags, unused")


class Writes(Shared):
    """``Launch.writes``: how many writes met the bytes from ``begin`` to before ``end``, and the last of them."""

    _fields_ = Fields(f"u64 begin, end, count; struct Written each[{WRITES}]")


MBARRIER_NEXT_AT, MBARRIER_BYTES_AT, MBARRIER_PHASE_AT = 20, 40, 61
MBARRIER_COUNT, MBARRIER_BYTES = (1 << 20) - 1, (1 << 21) - 1
"""Where the fields of an ``mbarrier`` begin, and the masks of its counts: see ``instructions.mbarrier``."""


# -- what a launch leaves for Python to read ----------------------------------------------------------------

STANDS = 1025
"""Threads of a launch whose places are noted: the pool's largest, and the one that launched."""


class Stand(Shared):
    """The position of a CPU thread: the number of the block that it ran (all bits set: none), and the warp (-1:
    unknown).

    ``pc`` is the address in the machine code, or 0 if the scheduler was running. ``blocks`` is a copy of the ``count``
    blocks whose warps took turns. ``count`` is 0 if they don't take turns.
    """

    _fields_ = Fields("u64 block, pc; i64 warp; struct Block *blocks; u64 count")


class Stands(Shared):
    """``Launch.stands``: the number of threads that recorded their positions when the launch was ended, and the
    positions.
    """

    _fields_ = Fields(f"u64 count; struct Stand each[{STANDS}]")


class Printed(Shared):
    """One call of ``vprintf``, followed by the ``bytes`` that it printed: in a block, by a thread of that.

    ``Launch.output`` is the last one, each names the one before it.
    """

    _fields_ = Fields("struct Printed *previous; u64 block, thread, bytes")


class Assertion(Shared):
    """A failed assertion: the lengths in bytes of its texts, which follow in this order, and the source line."""

    _fields_ = Fields("u64 message, file, function, line")


TRACE_DONE = 1 << 31
"""Marks the record of results in the number of its operation."""


class TraceState(Shared):
    """The traced thread of a launch, and its records.

    ``block`` is the linear index in the grid. ``warp`` and ``lane`` identify the thread. ``used`` and ``capacity``
    count 8-byte words at ``records``. ``left`` is the number of operations that may still be recorded, and ``dropped``
    is the number that were not. A record is a header word and its values. The header contains the operation and the
    number of value words. One record is written before each operation and one after it. Thus a thread that can't
    continue leaves a record of its next operation.
    """

    _fields_ = Fields("u64 block; u32 warp, lane; u64 *records; u64 used, capacity, left, dropped")


# -- textures -----------------------------------------------------------------------------------------------

BOUNDS = ("trap", "clamp", "zero")
"""What becomes of a surface access out of bounds, by number."""

OPERATIONS = ("load", "store", "format", "add", "and", "or", "smin", "umin", "smax", "umax", "min", "max")
"""What ``cujit_surface`` does, by number; ``min`` and ``max`` are signed if the surface's format is."""


class Exchange(Shared):
    """The texture requests of a warp's lanes, and the resulting ``values``.

    Coordinates are integers, or the bits of floats. ``dx``, ``dy``, and ``dz`` are offsets in elements.
    """

    _fields_ = Fields(
        f"u64 handle[{WARP}]; u32 layer[{WARP}], x[{WARP}], y[{WARP}], z[{WARP}], dx[{WARP}], dy[{WARP}], dz[{WARP}]; "
        f"u64 values[4][{WARP}]"
    )


# -- matrices -----------------------------------------------------------------------------------------------

ELEMENTS = (
    "f16", "bf16", "tf32", "f32", "f64", "b1", "s8", "u8", "s4", "u4", "s32", "e4m3", "e5m2", "e2m3", "e3m2", "e2m1",
    "fp4", "ue8m0", "ue4m3",
)  # fmt: skip
"""Types of elements, by number; ``fp4`` is e2m1 without a container."""

LAYOUTS = ("order", "bytes", "chunks")
"""Where strips go, by number: in the order of k; of every word, bytes 0 and 1 into one group of strips and bytes 2
and 3 into another; of every eight elements in the order of k, the first four and the others."""

LEAST_EXPONENTS = {
    "f16": -14, "e5m2": -14, "e4m3": -6, "e3m2": -2, "e2m3": 0, "e2m1": 0, "fp4": 0, "bf16": -126, "tf32": -126,
    "f32": -126,
}  # fmt: skip
"""Least exponent of a normal number of a format."""


def exponent_floor(type_: str) -> int:
    """Return the bits of the least normal number of a format as an f32; 0 of integers."""
    return (127 + LEAST_EXPONENTS[type_]) << 23 if type_ in LEAST_EXPONENTS else 0


NO_NUMBER = 0x7F800001
"""Bits that no element of A has when it is unpacked."""

PRODUCTS = ("multiply", "xor", "and")
"""What is done with two elements, by number."""

ROUNDINGS = ("rn", "rz", "rm", "rp")
"""Rounding modifiers, by number: to nearest even, toward zero, down, up."""

DIRECTED = ("add", "mul", "div", "sqrt", "fma")
"""What ``cujit_directed`` does, by number."""


class Product(Shared):
    """One product of matrices: ``blocks`` of 8 rows, or 16 with two ``halves``, times ``columns`` of eight.

    Each has ``strips`` of k (``runtime/products.h``). Registers of A are by block, step of k and half, those of B by
    column and step, those of C and D by block and column; ``at_*`` tell, in registers, where they begin.

    ``groups``, if not 0, of strips are summed one after the other as a tensor core sums (``runtime/sums.h``): ``apart``
    from C, which is added at the end as ``add.rn`` does. ``floors`` are the least exponents of the formats of A, B and
    C, as f32 has them in its bits, and ``zero_c`` that of a C of 0, or 0. Of the result's bits ``mask`` are kept;
    where something is cut off an f32, ``halves_sum`` is set in its last bit: with 1 it rounds to f16 as the sum itself
    does. A factor in A whose bits are ``absent`` is a zero that makes no NaN with an infinity.

    ``sparse`` are the bits of metadata for a strip, or 0, and ``filler`` those of elements that are not stored.
    ``chunks`` of strips are scaled by factors of the type ``scale``, and summed by the rule of such. ``signs`` are
    xored into A.
    """

    _fields_ = Fields(
        "u32 a, b, c, d, blocks, columns, halves, strips, at_b, at_c, at_d, at_more; "
        "u32 operation, rounding, saturate, layout; "
        "u32 groups, apart, floors[3], zero_c, width, mask, halves_sum, absent; "
        "u32 sparse, selector, filler, scale, chunks, byte_a, thread_a, byte_b, thread_b; "
        "u32 from_shared, turned_a, turned_b, signs"
    )


class Fragment(Shared):
    """One ``wmma`` matrix in memory: the number of ``lines`` (rows of A, C, and D, or columns of B), and their
    ``width``.

    In registers, the matrix consists of blocks of eight lines of ``block`` elements, consecutive for each of
    ``halves``. For ``sums`` of 32 bits and more, every two columns are in two registers. If ``straight`` is set, the
    lines are as in memory.
    """

    _fields_ = Fields("u32 lines, width, halves, block, bytes, sums, straight")


# -- tensor memory ------------------------------------------------------------------------------------------

TENSOR_SHAPES = ("32x32b", "16x64b", "16x128b", "16x256b", "16x32bx2")
"""How registers lie in tensor memory, by number."""

TENSOR_KINDS = ("f16", "tf32", "f8f6f4", "i8", "mxf8f6f4", "mxf4", "mxf4nvf4")
"""Kinds of products in tensor memory, by number."""

TENSOR_COPIES = {
    "128x256b": "128x256b", "128x128b": "128x128b", "warpx2::02_13": "64x128b_02_13", "warpx2::01_23": "64x128b_01_23",
    "warpx4": "32x128b", "4x256b": "4x256b", "down": "down",
}  # fmt: skip
"""Copies to tensor memory, from shared memory or from the next lanes, by number.

The keys are the modifiers that tell them, the values their names in C.
"""

TENSOR_UNPACKED = {"b4x16_p64": 4, "b6x16_p32": 6}
"""Bits of elements that a copy makes bytes, by the modifier that tells them."""


class TensorFault(enum.IntEnum):
    """The error in a use of tensor memory, in ``Launch.fault_more[2]``."""

    UNALLOCATED = 1
    """Columns that were never allocated."""
    FREED = 2
    """Columns that were given back."""
    BEYOND = 3
    """Columns behind the last one."""
    LANES_APART = 4
    """Lanes that the warp or the product cannot access."""
    COUNT = 5
    """An allocation of a number of columns that is none of those that can be allocated."""
    EXHAUSTED = 6
    """An allocation for which no columns ever become free."""
    RELINQUISHED = 7
    """An allocation after the permit was given back."""
    MISMATCHED = 8
    """Columns given back that are no whole allocation."""
    HELD = 9
    """Columns that a block has not given back when it ends."""
    INSTRUCTION = 10
    """An instruction descriptor of a product that does not exist."""
    DESCRIPTOR = 11
    """A descriptor of a matrix in shared memory that does not exist."""
    OUTSIDE = 12
    """A matrix of which a part is not in the block's shared memory."""
    BUSY = 13
    """An access of what a product or a copy still accesses."""
    UNSTORED = 14
    """A product of what a warp stored without waiting for its store."""
    ALONE = 15
    """An instruction of a pair of blocks in a block that has no other one."""
    UNPAIRED = 16
    """An allocation or deallocation of a pair to which a warp of the other block never comes."""
    DISAGREED = 17
    """An allocation or deallocation of a pair for which the other block names other columns."""
    UNWRITTEN = 18
    """A read of what nobody wrote, under the check ``init``."""
    UNLOADED = 20
    """A read of registers that a warp loaded without waiting for its load."""
    ZEROS = 19
    """A zero-column mask descriptor that does not exist."""
