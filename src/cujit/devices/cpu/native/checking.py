"""Numbers and memory structures that machine code and Python share for checks, declared as in ``structures``."""

from __future__ import annotations

import enum

from cujit.devices.cpu.native.shared import Fields, Shared
from cujit.devices.cpu.native.structures import BARRIERS, GROUPS, WARPS
from cujit.devices.shapes import WARP

CLUSTER_BARRIER = BARRIERS
"""The number that the barrier of a cluster has among the block's; behind it come the meetings of warpgroups."""

SLOTS = BARRIERS + 1 + GROUPS
OBJECTS = 256
"""Clocks of objects in memory that order accesses: mbarriers, and words with atomic operations."""

BLOCK_CLOCKS = 256
"""Clocks of blocks, by their number, for what orders accesses of global memory."""
TELLERS = 1024
"""Objects in memory by which blocks tell others what they did."""
RECENT = 64
"""Lines whose accesses a block knows the records of."""

LOG = 2048
"""Accesses that a block logs."""
SCATTERED = 512
"""Those among them by lanes at addresses of their own."""
PATTERNS, PATTERN_STEPS, FAR_STEPS = 256, 8192, 2048
"""What a block knows to be no race: patterns, their steps, and those steps by lanes at addresses of their own."""
LINKS = 256
"""By how many first steps patterns are found."""
PATH = 256
"""Phases of a block whose patterns are known, by how many barriers came before."""

PATTERN = bytes((0xA5, 0xC3, 0x71, 0xE9, 0x1D, 0x5B, 0xF7, 0x93, 0x2F, 0x6D, 0xB1, 0xD9, 0x47, 0x8B, 0xCF, 0xE5))
"""What memory of ``device.empty`` holds at multiples of 16 under ``check="init"``: whoever writes there without being
seen (NumPy, through a view) leaves something else."""


def checks_bits() -> dict[str, int]:
    """Return the bit of ``Watch.checks`` of each check, by name."""
    return {"memory": 1, "race": 2, "sync": 4, "init": 8}


class Access(enum.IntFlag):
    """The kind of an access, in the low byte of its flags.

    Bits 8 to 11 contain the ``Space``, and bits 12 to 14 the role of the access for other blocks. Bits 16 to 23 contain
    the element size in bytes. The bits from 24 contain the binary logarithm of the required alignment.
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
    INSIDE = 1 << 12
    """Strong, but only for threads of the same block: ``.cta``."""
    RELAXED = 1 << 13
    """Orders what is before a fence, and nothing by itself."""
    LOOKS = 1 << 14
    """A plain load of what an atomic operation of the kernel updates: for other blocks it counts as one."""


class Space(enum.IntEnum):
    """State space that an instruction names."""

    GENERIC = 0
    SHARED = 1
    LOCAL = 2
    GLOBAL = 3
    CLUSTER = 4
    PARAM = 5


class Code(enum.IntEnum):
    """The exact error that a check found, in ``Launch.fault_more[2]``."""

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
    PRINTED = 21
    UNFENCED = 20
    """What the asynchronous proxy reads was written by the generic one with no fence in between."""
    FAR = 22
    """Two blocks of a cluster access the shared memory of one of them."""
    ENDED = 23
    """The block whose shared memory is accessed may have ended."""
    OUTRUN = 25
    """What a product by ``wgmma`` reads was written before somebody waited for the product."""
    NOT_BEGUN = 24
    """The block whose shared memory is accessed may not have begun."""
    ACROSS = 26
    """Two blocks access global memory."""
    SKIPPED = 27
    """Threads of the block went past a barrier at which others wait."""
    ELSEWHERE = 28
    """Warps of the block wait at different barriers."""
    UNTOLD = 29
    """Another lane of the warp arrived at an mbarrier before the lanes met."""
    REGISTERS = 30
    """Registers of a product were accessed with no fence in between."""
    UNMADE = 31
    """A copy tells an mbarrier that was made with no fence in between."""
    FAR_UNFENCED = 32
    """As ``UNFENCED``, in the shared memory of another block."""


LEAST_ADDRESS, MOST_ADDRESS = 1 << 16, 1 << 47
"""The range of parameters that may be addresses. Source: Linux, Documentation/arch/x86/x86_64/mm.rst."""

STORES = 127
"""Stores of raw values that a device tells apart: marks are bytes, of which those that are odd say "written"."""


class MarkHead(Shared):
    """The header of the ``init`` check's marks, which follow it: one byte for each byte of memory.

    A mark is 0 if the byte was never written, and 1 if it was written. If a raw value was stored there, the mark is
    twice the number of the ``Stored``, counted from 1. If ``plain`` is set, all bytes were written, and the marks are
    unused.
    """

    _fields_ = Fields("u32 plain, unused[15]")


class Stored(Shared):
    """A store of raw values, at the ``line`` of kernel number ``kernel``, in the launch with the serial number
    ``launch``.

    The value was loaded at line ``load``. ``place`` is the beginning of the span that contained it (1: shared memory,
    2: local memory, 0: other memory). ``parent`` is the number of the ``Stored`` that left the value there (0: none).
    ``partial`` is whether some bytes of the value were written.
    """

    _fields_ = Fields("u64 launch, place; u32 kernel, line, load, parent, partial, unused")


class Stores(Shared):
    """The number of stores of raw values on a device, and the first stores. The last entry represents all further
    stores.
    """

    _fields_ = Fields(f"u32 count, unused; struct Stored each[{STORES}]")


class Reach(enum.IntEnum):
    """The kind of memory that a ``Span`` describes."""

    LIVE = 0
    FREED = 1
    OUTSIDE = 2
    """Not of the view that a launch was given, but of the array that this is a view of."""


class RecordHead(Shared):
    """The header of the ``race`` check's records for ``size`` bytes at ``begin``: ``bytes`` of records of a
    ``generation``.

    No launch with a first event after ``written`` has written to this memory, or is expected to.
    """

    _fields_ = Fields("u64 begin, size, records, bytes; u32 generation, written")


class Span(Shared):
    """Memory from ``begin`` up to, but not including, ``end``. ``reach`` is its ``Reach``.

    ``marks`` points to the state of the ``init`` check for this memory, and ``records`` to the state of the ``race``
    check.
    """

    _fields_ = Fields("u64 begin, end, reach; struct MarkHead *marks; struct RecordHead *records")


class Watch(Shared):
    """What the checks of one launch need: ``Launch.checks`` is its address. Sizes in bytes.

    ``spans`` are sorted. ``warps`` are those of a block. Each block has a piece of ``piece_bytes``. A piece
    begins with its tracker and the records of strips of words; at ``marks`` each byte of shared memory has one
    that says whether it was written, at ``phases`` each grain a word, and behind these each band of grains its
    rules. The records begin at ``entries``, for each byte those of its writer, then of one reader, then of
    another; at ``events`` is room for ``most_events``, and behind that for a number of each. ``serial`` is a
    number of this launch alone. ``local_total`` is the local memory of all of them, behind which its marks lie.
    ``stack_bytes`` is 0 unless functions are called or memory is taken on the stack. ``kernel`` is the number of
    the kernel, ``stores`` are those of its device. The asynchronous proxy may read shared memory if it is
    ``proxied``. ``poisoned`` tells that a raw value came into memory that was plain. A launch that native code
    started is ``stale`` if it was not made, as memory has changed. ``outside`` counts accesses outside of views,
    of which the other fields of that name tell the first. The least that it accesses of global memory are
    1 << ``grain`` bytes. ``first_deed`` is the first number in its ``generation`` of what its blocks do; they are
    ``ordered`` once one has made a fence.

    At ``writes`` are groups of offsets of parameters, each behind its length, and 0 at the end: the kernel writes
    where a parameter of each group leads. It may write ``anywhere`` if ``writes`` is 0 or no parameter of a group
    leads to known memory.
    """

    _fields_ = Fields(
        "const struct Span *spans; u64 count; u32 checks, warps; u64 shared_limit, shared_stride, "
        "cluster_blocks, piece_bytes, entries, marks, phases, events, most_events, local_bytes, local_total, "
        "stack_bytes, parameter_bytes, serial; struct Stores *stores; u32 kernel, proxied, poisoned, stale, outside, "
        "outside_thread, outside_line, outside_flags; u64 outside_block, outside_address, outside_size; "
        "u32 grain, first_deed, generation, ordered, anywhere, padding; const u32 *writes"
    )


class KnownMemory(Shared):
    """The memory of a device while ``CHANGES`` of the host counts ``changes``: ``count`` spans."""

    _fields_ = Fields("const struct Span *spans; u64 count, changes")


class CheckedMemory(Shared):
    """State that a device's launches from native code share.

    ``users`` is the number of launches that may read ``known`` or its previous value. ``serial`` is the number after
    that of the last launch.
    """

    _fields_ = Fields("struct KnownMemory *known; u64 *changes, users, serial")


class CheckedJob(Shared):
    """A kernel for native code to start: the address of its machine code and the size of its parameters."""

    _fields_ = Fields("struct CheckedMemory *checked; u64 kernel, parameter_bytes")


class Event(Shared):
    """An instruction of a warp that accesses shared memory: at which clock, after how many meetings of its lanes.

    Where lanes arrived at an mbarrier before others of the warp met them, these ``told`` others of the access at its
    clock. Lanes that did not are known by the clock ``late`` alone.
    """

    _fields_ = Fields("u32 clock, sync, line, flags, warp, told, late")


class Slot(Shared):
    """The clock of a barrier in one generation.

    ``warps`` are the warps that have arrived, and ``events`` is the next event number after the last arrival. If
    ``parts`` is set, some warps arrived without waiting. ``clock`` doesn't yet include the actions of the ``late``
    warps. ``turned`` is set if all warps waited while every earlier barrier also included the whole block.
    """

    _fields_ = Fields(f"u64 warps, late; u32 generation, events, parts, turned, clock[{WARPS}]")


class Site(Shared):
    """An access in the emitted code with lanes in rows, at a constant stride. ``count`` members follow it in memory.

    Lanes access ``size`` bytes each, ``stride`` apart. Each member of a batch has an offset, up to ``spread``.
    ``together`` is the number of bytes that a lane accesses by all members if these are adjacent, otherwise 0. ``near``
    is set if several lanes of a warp may access the same word.
    """

    _fields_ = Fields("i64 stride; u32 size, flags, spread, count, together, near")


class Member(Shared):
    """One load of a batch, or the access of a site itself, with its PTX line."""

    _fields_ = Fields("u32 offset, line")


class Logged(Shared):
    """An access to shared memory by lanes of a warp that no record contains yet: the access of ``site``, at ``base``.

    Without a site, ``base`` is the number of a ``Scattered``.
    """

    _fields_ = Fields("const struct Site *site; u64 base; u32 lanes, warp")


class Scattered(Shared):
    """An access of ``size`` bytes per lane, with a separate offset for each lane."""

    _fields_ = Fields(f"u32 offsets[{WARP}]; u32 size, flags, line, common")


class AccessPattern(Shared):
    """Accesses between two barriers that are no race: ``count`` steps from the ``first`` on.

    Between the next two barriers the block did last what pattern ``next`` says.
    """

    _fields_ = Fields("u32 first, count, next")


class StoredLines(Shared):
    """Memory from ``begin`` in which an operation of a block stores one grain per lane, and the ``lines`` of this
    memory.

    Rows of a warp that begin before ``room`` are inside the memory. The lines contain a ``record`` for warp 0. Both are
    valid while ``own`` is the first action of the block after its last fence.
    """

    _fields_ = Fields("u64 begin, room, lines; u32 launch, record, own, grain")


SPANS = 16
"""Spans of global memory that the code of a warp is known to access, by where it does."""

WRITTEN_ROWS = 64
"""Rows of a block's shared memory that were seen to be written, and stay so."""

VALUES = 8
"""Elements that a lane loads or stores at a time, at the most, and rows of a matrix of ``ldmatrix``."""


class Origin(Shared):
    """The origin of a raw value in a thread: a load of ``size`` bytes at a PTX line (0: no load).

    ``parent`` is the number of the ``Stored`` that left the value in memory, or 0.
    """

    _fields_ = Fields("u64 address; u32 line, flags, size, parent")


PRODUCTS = 32
"""Products of a warp by ``wgmma`` that nobody has waited for; of more, the oldest count as waited for."""


class Reading(Shared):
    """A ``wgmma`` product that may still read its operands in memory, at the descriptors ``a`` and ``b``.

    ``after`` counts the groups that its warp has committed since the product began. ``first`` is set if its warp is the
    first of the four that continued. ``told`` is the block's count of barrier arrivals when the product began. Events
    from ``since`` on happened after that.
    """

    _fields_ = Fields("const struct Product *product; u64 a, b, memory; u32 flags, line, after, told, first, since")


class LineDeed(Shared):
    """The last ``deed`` of a block at a line and of a kind, by both."""

    _fields_ = Fields("u32 key, deed")


class Across(Shared):
    """The order of a block relative to other blocks.

    The block's actions since its last fence have the numbers from ``own`` up to ``next``. More numbers are reserved up
    to ``end``. ``clock`` is the number of its clock, and ``fence`` is the value of the clock at the last fence.
    ``known`` is its knowledge of other blocks if ``informed`` is set. ``learns`` are bits of the objects that it is
    ``waiting`` to learn from. At the grid's barrier, it waits for the end of a ``turn``, even or odd. It last acquired
    from the object ``source``, in its ``source_version``. It last released to the object ``target``, with its knowledge
    in ``target_version``. The current version of its knowledge is ``known_version``.
    """

    _fields_ = Fields(
        f"u32 own, next, end, clock, fence, informed, waiting, turn, source, source_version, target, "
        f"target_version, known_version, unused[3], known[{BLOCK_CLOCKS}], "
        f"learns[{TELLERS // 32}]; struct LineDeed recent[{RECENT}]"
    )


class Tracker(Shared):
    """The order of a block's warps. ``owner`` tells which block of which launch it is made ready for.

    ``clocks[w][v]`` is what warp w knows of v; ``syncs`` counts how often a warp's lanes have met; ``arrivals`` has the
    generation in which a warp came to a barrier last. ``events`` counts what the warps do, up to ``room``.

    ``met[w]`` is the first event after the lanes of w have met last, ``settled[w]`` the first one that may be
    unordered with what w does. More than barriers of all warps changed clocks and ``met`` where they are
    ``stirred``. What is not settled is unordered as long as all is ``plain``: nothing orders but barriers at
    which all warps wait. ``turn`` counts these as long as all is plain, and is to be added to clocks and
    ``syncs``. There is a record for each grain of 1 << ``grain`` bytes; ``has_objects`` where clocks of objects
    are used. The event ``written`` is the last write, ``unfenced`` the first one that no fence for the
    asynchronous proxy comes after, ``unmade`` the first one with no such fence even of what makes mbarriers.
    ``log`` holds accesses that are no race with any other since the last barrier of all warps; where nothing
    needs their records before the next one, nothing does later.
    ``stored`` tells that
    there are writes: then in this ``phase`` each band of grains has rules, or for some phases if it is ``worded``
    each grain has a word: see ``bands.h`` and ``phase.h``. Up to ``quick`` accesses are logged with no further
    look, and if ``marking`` is 0, all that is read was written. The event ``weak`` is the last one
    that is not atomic. Some lanes have ``begun`` with the instruction
    that was looked at last. All of the block's memory was written if it is ``full``, which is looked for at the
    access ``look_at`` of so many ``looks``. Rows that were read and found written are among ``seen``. Where
    ``raw`` values were loaded, ``origins`` has the last one of each thread. ``readings`` are products that a warp
    has not waited for, as many as it has in ``reading``; ``told`` counts releases but for the meetings of
    warpgroups. ``across`` is about global memory.

    ``course`` tells whether the block follows ``pattern`` in this phase, the ``previous`` one being that of the phase
    before; the next access of it is ``ahead``. So many patterns are ``known``, whose ``steps`` end at ``step``, those
    by lanes at addresses of their own at ``far``; they are found by ``links`` from their first step, and by ``path``
    from the number of ``turns`` of the block. So many were ``made`` and so often was one ``followed``. Where lanes
    of a warp met in this phase, it ``meets``, and ``meetings`` count that for each warp, unless a pattern is followed.
    """

    _fields_ = Fields(
        "u64 owner, launch; u32 events, room, plain, grain, has_objects, stirred, turn, written, logged, "
        "scattered, full, looks, look_at, raw, unfenced, weak, stored, phase, begun, told, worded, quick, marking, "
        "course, pattern, previous, known, made, followed, step, far, turns, meets, unmade; "
        "const struct Logged *ahead; u32 "
        f"clocks[{WARPS}][{WARPS}], syncs[{WARPS}], met[{WARPS}], settled[{WARPS}], arrivals[{WARPS}][{SLOTS}]; "
        f"struct Slot slots[{SLOTS}][2]; u32 objects[{OBJECTS}][{WARPS}]; struct Logged log[{LOG}]; "
        f"struct Scattered scatter[{SCATTERED + FAR_STEPS}]; struct Logged steps[{PATTERN_STEPS}]; "
        f"struct AccessPattern patterns[{PATTERNS}]; u32 links[{LINKS}], path[{PATH}], meetings[{WARPS}]; "
        f"struct Origin origins[{WARPS * WARP}]; struct Logged seen[{WRITTEN_ROWS}]; u32 reading[{WARPS}]; "
        f"struct Reading readings[{WARPS}][{PRODUCTS}]; struct Across across"
    )


class Place(Shared):
    """Where a warp runs. The emitted code says so when a kernel or a function begins, and block and warp each time.

    ``local_bytes`` is a thread's local memory in this function, ``kernel_local`` where that of the kernel is;
    it is that of the first warp at ``local_first``, and of each warp ``local_step`` further. ``called`` is 0 in a
    kernel and 1 in a function that it calls; ``goes_on`` is 1 where a part of the kernel ran before. ``seen_*`` are for
    which block and warp native code has made ready what it keeps. ``side`` is the block's place among those that run
    side by side, whose shared memory begins at ``group``; native code looks both up, and what it keeps of the cluster:
    ``others``, null where that is not looked at.
    Lanes whose store was looked at last are known to be ``apart`` if that is 1.
    ``addresses`` and ``values`` are what the lanes hand over, ``data`` (0: none) what they are about to store, in parts
    of ``part_bytes``. ``span`` is the memory that was accessed last, or null, ``window`` where it is kept that all of
    the shared memory was written. If ``raw`` is 1, some of what was loaded last was never written: all bits of an
    element in the lanes ``raw_lanes``, ``raw_bits`` of one in a lane. Something was ``ever`` raw. ``spans`` are
    those of global memory that sites accessed last. Since the last ``wgmma.fence``, registers of products were
    ``accessed``, as bits of their classes, last at the line ``accessed_at`` (0: there was no fence yet).
    """

    _fields_ = Fields(
        f"u64 addresses[{WARP}], values[{WARP}]; "  # first, so that a vector of them lies in one line of the cache
        "const struct Watch *watch; struct Tracker *piece; const struct Span *span; u64 kernel_local; "
        "struct Launch *launch; "
        "const struct Block *state; u64 shared, cluster, group, block, local, local_first, local_step, "
        "local_bytes, seen_block; "
        f"struct Cluster *others; u32 first, warp, side, seen_warp, called, goes_on; const u8 *data; "
        f"u64 part_bytes; u64 *window; u32 apart, unused, accessed, accessed_at, raw, ever, raw_lanes[{VALUES}]; "
        f"u64 raw_bits[{VALUES}][{WARP}]; u64 spans[{SPANS}]"
    )
