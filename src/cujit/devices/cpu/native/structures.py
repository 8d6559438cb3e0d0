"""What machine code and Python share: numbers, and structures in memory.

They are said here alone, structures in the notation of C: ``tools/runtime.py`` writes ``shared.h`` of them, which the
run-time in C includes. A launch and what describes a texture are such structures, too: see ``run``.
"""

from __future__ import annotations

import ctypes
import enum
import re
from typing import Any

from cujit.devices.cpu.ir.program import WARP

STRUCTURES: dict[str, type[Shared]] = {}
"""Every structure by its name, those that it holds before it."""

_TYPES: dict[str, Any] = {
    "u8": ctypes.c_uint8, "i16": ctypes.c_int16, "u32": ctypes.c_uint32, "i32": ctypes.c_int32, "u64": ctypes.c_uint64,
    "i64": ctypes.c_int64, "f32": ctypes.c_float,
}  # fmt: skip


class Fields(tuple[tuple[str, Any], ...]):
    """The fields of a structure as ``ctypes`` wants them, and the ``text`` in C that says them; a pointer is a number.

    ``u64 begin, values[4]; struct Slot slots[2][3]; u8 *marks``
    """

    text: str

    def __new__(cls, text: str) -> Fields:
        """Read the text."""
        found = []
        for declaration in text.split(";"):
            kind, names = re.findall(r"(?:const )?(?:struct )?(\w+) (.*)", declaration)[0]
            for declared in names.split(","):
                name, *sizes = re.findall(r"\w+", declared)
                type_ = ctypes.c_uint64 if "*" in declared else _TYPES[kind] if kind in _TYPES else STRUCTURES[kind]
                for size in reversed(sizes):
                    type_ *= int(size)
                found.append((name, type_))
        made = super().__new__(cls, found)
        made.text = text
        return made


class Shared(ctypes.Structure):
    """A structure of the run-time in C, under its name there."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        STRUCTURES[cls.__name__] = cls


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
    CANCELLED = 17
    """From here to ``INTERRUPTED``: the host ended it."""
    TIMEOUT = 18
    INTERRUPTED = 19
    """A handler of signals, Python's, raised."""
    CHECK = 20
    """From here on: what a check found, by its name."""
    MEMORY = 21
    RACE = 22
    SYNC = 23
    INIT = 24
    NO_MEMORY = 25
    """A thread has no memory for blocks that others wait for."""


# -- warps that take turns ----------------------------------------------------------------------------------

BARRIERS = 16
"""Barriers of a block. Source: PTX ISA 9.1, "Parallel Synchronization and Communication Instructions: bar"."""

WARPS = 32
"""Warps of the largest block."""

AT_PHASE = -2
"""``Warp.barrier`` of a warp in a loop that only the phase of an mbarrier ends."""

GROUP_WARPS = 4
"""Warps of a warpgroup. Source: PTX ISA 9.1, "Asynchronous Warpgroup Level Matrix Instructions: Warpgroup"."""

GROUPS = WARPS // GROUP_WARPS

STACK_BYTES = 1 << 20
"""Bytes of a warp's stack beside the frame of a large kernel. Memory is taken as it is touched, so that a large stack
costs no more than a small one."""


class State(enum.IntEnum):
    """What a warp is doing."""

    READY = 0
    WAITING = 1
    """Until something of its block changes."""
    SPINNING = 2
    """It looks at memory again and again."""
    DONE = 3


class Barrier(Shared):
    """One barrier. ``arrived`` and ``expected`` count threads (``expected`` 0: all that have not exited).

    ``generation`` counts how often it was met. ``count``, ``any`` and ``missing`` gather what ``barrier.red`` asks:
    how many predicates hold, whether one does, whether one does not; ``last_*`` keep them for those who read later.
    """

    _fields_ = Fields(
        "u32 arrived, expected, generation, count, any, missing, last_count, last_any, last_missing, unused"
    )


class Meeting(Shared):
    """Where lanes wait for others of their warp: the PTX line, who (0: nobody), and the mask that the first names."""

    _fields_ = Fields("u32 line, lanes, members")


class Warpgroup(Shared):
    """Where the warps of a warpgroup meet: which have come, as bits, to an operation of which form, at which line.

    ``generation`` counts how often all of them have met, ``last`` is the warp that came last, and goes on first.
    """

    _fields_ = Fields("u32 warps, generation, form, line, last, unused")


class Warp(Shared):
    """One warp: the pointer of its stack while it does not run, its ``State``, and what it waits for.

    ``seen`` is the block's ``changes`` when it began to wait; ``line`` and ``lanes`` tell where in the PTX and who, and
    ``barrier`` at which barrier, while it waits or spins (-1: in several places, or at one of the cluster; from
    ``BARRIERS`` on: for its warpgroup; ``AT_PHASE``: for the phase of an mbarrier). ``tested`` is the address of the
    mbarrier that it tested last in vain; after a deadlock it is what stands there, and ``seen`` its place in the
    block's shared memory.
    ``cluster_lanes`` arrived last at the cluster's barrier, in ``cluster_generation``. Its stack lies from
    ``stack_begin`` to ``stack_end``. ``apart`` are the first places where lanes wait for others
    of the warp while these wait at barriers.
    """

    _fields_ = Fields(
        "u8 *stack; u32 state, seen, line, lanes; i32 barrier; u32 cluster_generation, cluster_lanes, unused; "
        "u64 stack_begin, stack_end, tested; struct Meeting apart[2]"
    )


class Group(Shared):
    """Blocks that belong together (those of a cluster, or all that take turns), and the barrier of a cluster."""

    _fields_ = Fields("struct Block *blocks; u64 count; u32 arrived, generation, exited, threads")


class Block(Shared):
    """One block that runs. ``changes`` counts the events that may let a waiting warp go on.

    ``number`` is its linear place in the grid (blocks are taken cluster by cluster), ``ctaid_*`` the same by axes, and
    ``rank`` its place in the cluster, ``side`` that among the blocks that run side by side. ``running`` is the warp
    that ran last, ``passed`` tells that all have had a turn. ``group`` is its cluster: ``own_cluster`` of the first
    block there. ``place`` is where the thread notes what runs.
    """

    _fields_ = Fields(
        "struct Launch *launch; struct Group *group; u8 *shared, *local; u64 number; u8 *scheduler; Body *body; "
        "struct Running *place; "
        "u32 threads, warps, exited, done, changes, rank, ctaid_x, ctaid_y, ctaid_z, side, running, passed, unused; "
        f"struct Group own_cluster; struct Barrier barriers[{BARRIERS}]; struct Warpgroup warpgroups[{GROUPS}]; "
        f"struct Warp warp[{WARPS}]"
    )


class Plan(Shared):
    """What a kernel's code needs, known when it is compiled: its body, sizes in bytes, and counts of a block."""

    _fields_ = Fields("Body *body; u32 threads, warps; u64 local_bytes, stack_bytes")


# -- asynchronous copies ------------------------------------------------------------------------------------

ALL_COPIES = (1 << 32) - 1
"""Commits that a wait leaves out, where it waits for what was not committed, too."""

BOX_ALIGN = 128
"""Bytes that boxes of tensors are aligned to in shared memory. Source: CUDA C++ Programming Guide, "Using TMA", table
of alignment requirements."""


class Small(Shared):
    """One ``cp.async`` of a warp, which some of its ``lanes`` wait to see done: ``size`` bytes each at a ``line``.

    Of ``parts`` there is ``count`` to read, and the rest is zeros. For the lanes of ``due`` it is to be done. The check
    for races has ``seen`` it; a schedule has ``moved`` it before that.
    """

    _fields_ = Fields(
        f"u32 lanes, due, size, parts, line, seen, moved, unused; u64 to[{WARP}], source[{WARP}]; u32 count[{WARP}]"
    )


WRITES = 16
"""Writes that are kept of those that a schedule asks for, the last ones."""


class Written(Shared):
    """A write of a thread of a block at a line of the PTX; ``flags`` are those of an access."""

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
    """Where a thread was: the number of the block that it ran (all bits set: none) and its warp (-1: not known).

    ``pc`` is the address in the machine code, 0 where the scheduler was at work. ``blocks`` is a copy of the ``count``
    blocks whose warps took turns (0: they do not).
    """

    _fields_ = Fields("u64 block, pc; i64 warp; struct Block *blocks; u64 count")


class Stands(Shared):
    """``Launch.stands``: how many threads noted where they were when their launch was ended, and each."""

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

    ``block`` is linear in the grid; ``warp`` and ``lane`` are the thread's. ``used`` and ``capacity`` count words of
    8 bytes at ``records``. ``left`` is how many operations may still be kept, ``dropped`` how many were not. A record
    is a word (which operation, how many words of values follow) and its values; one is written before each operation
    and one after it: a thread that cannot go on has left what it was about to do.
    """

    _fields_ = Fields("u64 block; u32 warp, lane; u64 *records; u64 used, capacity, left, dropped")


# -- textures -----------------------------------------------------------------------------------------------

BOUNDS = ("trap", "clamp", "zero")
"""What becomes of a surface access out of bounds, by number."""

OPERATIONS = ("load", "store", "format", "add", "and", "or", "smin", "umin", "smax", "umax", "min", "max")
"""What ``cujit_surface`` does, by number; ``min`` and ``max`` are signed if the surface's format is."""


class Exchange(Shared):
    """What the lanes of a warp ask of textures, and what they get: words of 32 bits, ``values`` of 64.

    Coordinates are integers, or the bits of floats; ``dx`` to ``dz`` are offsets in elements.
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
    """One matrix of ``wmma`` in memory: so many ``lines`` (rows of A, C, D or columns of B) of a ``width``.

    In registers it is in blocks of eight lines of ``block`` elements, one after the other for each of ``halves``. Of
    ``sums`` of 32 bits and more, every two columns are in two registers. ``straight`` has lines as memory has them.
    """

    _fields_ = Fields("u32 lines, width, halves, block, bytes, sums, straight")


# -- checks -------------------------------------------------------------------------------------------------

CLUSTER_BARRIER = BARRIERS
"""The number that the barrier of a cluster has among the block's; behind it come the meetings of warpgroups."""

SLOTS = BARRIERS + 1 + GROUPS
OBJECTS = 256
"""Clocks of objects in memory that order accesses: mbarriers, and words with atomic operations."""

LOG = 256
"""Reads that a block logs."""
SCATTERED = 64
"""Reads by lanes at addresses of their own that a block logs."""

PATTERN = bytes((0xA5, 0xC3, 0x71, 0xE9, 0x1D, 0x5B, 0xF7, 0x93, 0x2F, 0x6D, 0xB1, 0xD9, 0x47, 0x8B, 0xCF, 0xE5))
"""What memory of ``device.empty`` holds at multiples of 16 under ``check="init"``: whoever writes there without being
seen (NumPy, through a view) leaves something else."""


def checks_bits() -> dict[str, int]:
    """Give the bit of ``Watch.checks`` of each check, by name."""
    return {"memory": 1, "race": 2, "sync": 4, "init": 8}


class Access(enum.IntFlag):
    """What an access does, in the low byte of its flags.

    Above follow its ``Space`` (bits 8 to 11), the bytes of an element (16 to 23), and the binary logarithm of what its
    address is a multiple of (24 on).
    """

    READ = 1
    WRITE = 2
    STRONG = 4
    """Atomic, volatile, relaxed …: no race with another one that is."""
    ACQUIRE = 8
    RELEASE = 16
    AGAIN = 32
    """Of the same instruction as the access before."""
    TAKES = 64
    """What it reads unwritten is no mistake yet: the value is raw, and the emitted code has it on. What it writes was
    looked at when its copy was issued."""
    ASYNC = 128
    """By the asynchronous proxy, or not to be taken for an access by the generic one."""


class Space(enum.IntEnum):
    """State space that an instruction names."""

    GENERIC = 0
    SHARED = 1
    LOCAL = 2
    GLOBAL = 3
    CLUSTER = 4
    PARAM = 5


class Code(enum.IntEnum):
    """What exactly is wrong: ``Launch.fault_more[2]``."""

    MISALIGNED = 1
    OUTSIDE = 2
    FREED = 3
    RAW = 4
    UNORDERED = 5
    DIFFERENT = 6
    NOT_NAMED = 7
    MISSING = 8
    NO_ORIGIN = 9
    NUMBER = 10
    COUNT = 11
    PART = 12
    UNWRITTEN = 13
    """A copy is still to write what is accessed."""
    UNREAD = 14
    """A copy is still to read what is written."""
    LEFT = 15
    """A copy is still to read the shared memory of a block that ends."""
    BRANCH = 16
    """From here on: what depends on a value that was never written."""
    ADDRESS = 17
    PREDICATE = 18
    STORED = 19
    UNFENCED = 20
    """What the asynchronous proxy reads was written by the generic one with no fence in between."""


STORES = 127
"""Stores of raw values that a device tells apart: marks are bytes, of which those that are odd say "written"."""


class MarkHead(Shared):
    """What the ``init`` check keeps of memory: behind it follows a byte for each byte of that.

    A byte is 0 where nobody wrote, 1 where somebody did, and twice the number of a ``Stored``, counted from 1, where a
    raw value was stored. If all is ``plain``, everything was written, and the bytes say nothing.
    """

    _fields_ = Fields("u32 plain, unused[15]")


class Stored(Shared):
    """A store of raw values: the ``line`` of kernel number ``kernel``, in the launch of a serial number.

    The value was loaded at line ``load`` from the ``place`` that a span begins at (1: from shared memory, 2: from local
    memory, 0: from elsewhere). The ``Stored`` number ``parent`` left it there (0: nobody stored there). The value is
    ``partial`` if some of its bytes were written.
    """

    _fields_ = Fields("u64 launch, place; u32 kernel, line, load, parent, partial, unused")


class Stores(Shared):
    """How many stores of raw values a device has seen, and the first of them; the last one stands for all others."""

    _fields_ = Fields(f"u32 count, unused; struct Stored each[{STORES}]")


class Reach(enum.IntEnum):
    """What a ``Span`` is."""

    LIVE = 0
    FREED = 1
    OUTSIDE = 2
    """Not of the view that a launch was given, but of the array that this is a view of."""


class Span(Shared):
    """Memory from ``begin`` to before ``end``, of which ``reach``; ``marks`` is what the ``init`` check keeps of it."""

    _fields_ = Fields("u64 begin, end, reach; struct MarkHead *marks")


class Watch(Shared):
    """What the checks of one launch need: ``Launch.checks`` is its address. Sizes in bytes.

    ``spans`` are sorted. ``warps`` are those of a block. Each block has a piece of ``piece_bytes``. A piece begins with
    its tracker and the records of strips of words; at ``marks`` each byte of shared memory has one that says whether it
    was written. The records begin at ``entries``, for each byte those of its writer, then of one reader, then of
    another; at ``events`` is room for
    ``most_events``, and behind that for a number of each. ``serial`` is a number of this launch alone.
    ``local_total`` is the local memory of all of them, behind which its marks lie. ``stack_bytes`` is 0 unless
    functions are called or memory is taken on the stack. ``kernel`` is the number of the kernel, ``stores`` are those
    of its device, ``poisoned`` tells that a raw value came into memory that was plain. ``outside`` counts accesses
    outside of views, of which the other fields of that name tell the first.
    """

    _fields_ = Fields(
        "const struct Span *spans; u64 count; u32 checks, warps; u64 shared_limit, shared_stride, "
        "cluster_blocks, piece_bytes, entries, marks, events, most_events, local_bytes, local_total, stack_bytes, "
        "parameter_bytes, serial; struct Stores *stores; u32 kernel, poisoned, outside, outside_thread, outside_line, "
        "outside_flags; u64 outside_block, outside_address, outside_size"
    )


class Event(Shared):
    """An instruction of a warp that accesses shared memory: at which clock, after how many meetings of its lanes."""

    _fields_ = Fields("u32 clock, sync, line, flags")


class Slot(Shared):
    """A barrier's clock in one generation.

    ``events`` is the event after those that were when the last one of ``warps`` arrived; some of them did not wait
    where there are ``parts``.
    """

    _fields_ = Fields(f"u64 warps; u32 generation, events, parts, clock[{WARPS}], unused")


class Site(Shared):
    """An access of the emitted code whose lanes lie in rows; behind it are ``count`` members.

    Lanes access ``size`` bytes each, ``stride`` apart, and the members of a batch each at an offset of its own, up to
    ``spread``.
    """

    _fields_ = Fields("i64 stride; u32 size, flags, spread, count")


class Member(Shared):
    """One load of a batch, or the access of a site itself, at which line."""

    _fields_ = Fields("u32 offset, line")


class Logged(Shared):
    """Reads of shared memory that no record tells of yet."""

    _fields_ = Fields("const struct Site *site; u64 base; u32 lanes, warp")


class Scattered(Shared):
    """The same, of lanes that read ``size`` bytes each at an offset of their own."""

    _fields_ = Fields(f"u64 size; u32 lanes, flags, line, warp, offsets[{WARP}]")


WRITTEN_ROWS = 64
"""Rows of a block's shared memory that were seen to be written, and stay so."""

VALUES = 8
"""Elements that a lane loads or stores at a time, at the most, and rows of a matrix of ``ldmatrix``."""


class Origin(Shared):
    """Where a raw value of a thread came from: a load of so many bytes, at a line (0: there is none).

    ``parent`` is the number of the ``Stored`` that left it in memory, or 0.
    """

    _fields_ = Fields("u64 address; u32 line, flags, size, parent")


class Tracker(Shared):
    """The order of a block's warps. ``owner`` tells which block of which launch it is made ready for.

    ``clocks[w][v]`` is what warp w knows of v; ``syncs`` counts how often a warp's lanes have met; ``arrivals`` has
    the generation in which a warp came to a barrier last. ``events`` counts what the warps do, up to ``room``.

    ``met[w]`` is the first event after the lanes of w have met last, ``settled[w]`` the first one that may be unordered
    with what w does. More than barriers of all warps changed clocks and ``met`` where they are ``stirred``. What is not
    settled is unordered as long as all is ``plain``: nothing orders but barriers at which all warps wait. Where warps
    have no stacks, ``turn`` counts these as long as all is plain, and is to be added to clocks and ``syncs``. There is
    a record for each grain of 1 << ``grain`` bytes; ``has_objects`` where clocks of objects are used. The event
    ``written`` is the last write, ``unfenced`` the first one that no fence for the asynchronous proxy comes after.
    ``log`` holds reads which are after all writes that may be unordered with them; where nothing needs their records
    before the next barrier of all warps, nothing does later. All of the block's memory was written if it is ``full``,
    which is looked for at the access ``look_at`` of so many ``looks``. Rows of words at offsets below ``common`` may go
    the common ways. Rows that were read and found written are among ``seen``. Where ``raw`` values were loaded,
    ``origins`` has the last one of each thread.
    """

    _fields_ = Fields(
        f"u64 owner, launch, common; u32 events, room, plain, grain, has_objects, stirred, turn, written, logged, "
        f"scattered, full, looks, look_at, raw, unfenced, unused, clocks[{WARPS}][{WARPS}], syncs[{WARPS}], "
        f"met[{WARPS}], settled[{WARPS}], arrivals[{WARPS}][{SLOTS}]; "
        f"struct Slot slots[{SLOTS}][2]; u32 objects[{OBJECTS}][{WARPS}]; struct Logged log[{LOG}]; "
        f"struct Scattered scatter[{SCATTERED}]; struct Origin origins[{WARPS * WARP}]; "
        f"struct Logged seen[{WRITTEN_ROWS}]"
    )


class Place(Shared):
    """Where a warp runs. The emitted code says so when a kernel or a function begins, and block and warp each time.

    ``local_bytes`` is a thread's local memory in this function, ``kernel_local`` where that of the kernel is;
    it is that of the first warp at ``local_first``, and of each warp ``local_step`` further. ``called`` is 0 in a
    kernel and 1 in a function that it calls; ``goes_on`` is 1 where a part of the kernel ran before. ``seen_*`` are for
    which block and warp native code has made ready what it keeps. ``side`` is the block's place among those that run
    side by side, whose shared memory begins at ``group``; native code looks both up.
    ``addresses`` and ``values`` are what the lanes hand over, ``data`` (0: none) what they are about to store, in parts
    of ``part_bytes``. ``span`` is the memory that was accessed last, or null, ``window`` where it is kept that all of
    the shared memory was written. If ``raw`` is 1, some of what was loaded last was never written: all bits of an
    element in the lanes ``raw_lanes``, ``raw_bits`` of one in a lane. Something was ``ever`` raw.
    """

    _fields_ = Fields(
        "const struct Watch *watch; struct Tracker *piece; const struct Span *span; u64 kernel_local; "
        "struct Launch *launch; "
        "const struct Block *state; u64 shared, cluster, group, block, local, local_first, local_step, "
        "local_bytes, seen_block; "
        f"u32 first, warp, side, seen_warp, called, goes_on; const u8 *data; u64 part_bytes, addresses[{WARP}], "
        f"values[{WARP}]; u64 *window; u32 raw, ever, raw_lanes[{VALUES}]; u64 raw_bits[{VALUES}][{WARP}]"
    )
