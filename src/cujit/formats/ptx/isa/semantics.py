"""The meaning of every instruction: its operands, its effect, and how lanes execute it. All passes use this table.

A row is for a family of instructions, in the notation of the tables of ``formats.ptx.isa``. It begins with opcodes and
then words that must all be present (``|`` separates choices). The first row that matches an operation is used. Its
``writes|reads`` contains a letter for each operand that the operation writes and reads. A scalar is a register, or a
number instead of a register:

    T  scalar of the first type       p  predicate, or its negation     m  memory
    S  … of the last type             P  …, or an integer               h  … with a handle of a texture
    D  … twice as wide as that        C  the carry, unnamed in texts    t  …, and coordinates
    W  integer of 32 bits             L  label                          v  values of an access, one or more
    Q  … of 64 bits                   c  a number: integer              V  …, in registers as wide or wider
    Z  … of 32 or 64 bits             f  …, float                       N  the parts of a register, in braces
    O  source of ``mov``: S, an       _  nothing                        A  matrix of the first type, in braces
       address, special register      R  register of the last type      a  … of the last type
    J  S, or an address               d  … of 32 bits, for integers     F  … of a factor
    X  result of ``cvt``              r  … of 32 bits                   E  register of 32 bits, in braces or not
                                      n  … of 8 bits                    s  scalar of the second type
    Y  source of ``cvt``              e  … of 32 bits, for bits         g  two numbers of 16 bits, in braces
    U  S, or wider                    x  … of 32 bits or wider          k  four scalars, in braces
    y  integer of 32 bits or wider    G  f32, one or more               l  integers, in braces

Some letters are present only with a modifier. ``B`` is the predicate that ``.and`` combines with, and ``H`` is a cache
policy. ``K`` is a scale, ``M`` is a mask of blocks or bytes, and ``I`` is the offsets of im2col mode.

``?``, ``+``, ``*``, ``{}``, ``[]``, and ``()`` are as in regular expressions. A first ``=`` means that the written
operand is also read. A single ``*`` means operands that no pass checks. The readers of programs determine which
registers and numbers match a type. ``immediates`` determines which integers a position allows. Source: PTX ISA 9.1,
chapter 9.7, the syntax and the description of each instruction.

If an opcode of the instruction table has no row, the import fails. No pass has a default for an unknown instruction.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Iterable, Mapping
from typing import TypeAlias, TypeVar

from cujit.forks import cached_property
from cujit.formats.ptx.isa.sets import SETS, TYPES
from cujit.formats.ptx.isa.table import opcodes, place_of
from cujit.values import dataclass, group_by


class Effect(enum.Enum):
    """The effect of an operation, except for writing its registers."""

    PURE = "depends on nothing but what it reads of registers, and does nothing else"
    READS = "reads memory"
    WRITES = "writes memory"
    UPDATES = "reads memory and writes it"
    ORDERS = "orders the accesses before and behind it"
    ARRIVES = "tells a barrier that it has come, and goes on"
    SYNCHRONISES = "waits for other threads or for copies, or counts what others wait for"
    CONTROLS = "decides where to go on"
    SIGNALS = "does something that no other operation sees: a hint, a pause, a trap"


class Collective(enum.IntEnum):
    """The threads that must arrive at an operation before any of them executes it, smallest scope first.

    An operation with a scope holds each warp until all warps of the scope have arrived. No instruction has the grid's
    scope.
    """

    LANE = 0
    WARP = 1
    WARPGROUP = 2
    BLOCK = 3
    CLUSTER = 4


class Lanes(enum.Enum):
    """How the lanes of a warp do an operation."""

    EACH = "each alone; what is the same in all lanes before is the same behind"
    OWN = "each alone, and with a result of its own"
    MEMBERS = "the lanes of a mask, together"
    WARP = "the whole warp together"
    WARPGROUP = "four warps together, from one whose number is a multiple of four"
    BLOCK = "all of a block, which meet at a barrier"
    CLUSTER = "all of a cluster, which meet at its barrier"

    @cached_property
    def scope(self) -> Collective:
        """The threads that must arrive at the operation."""
        return Collective[self.name] if self.name in Collective.__members__ else Collective(self is Lanes.MEMBERS)


class Trait(enum.Flag):
    """Additional properties of an operation that passes need."""

    NONE = 0
    COMPUTES = enum.auto()
    """Of f32 it makes a number, or the one NaN of GPUs."""
    COMPARES = enum.auto()
    """It looks at the bits that make a NaN one, and at no others of it."""
    COPIES = enum.auto()
    """Its result is one of its first two sources, bit by bit."""
    NARROW = enum.auto()
    """It can be emitted for some of the lanes as for all of them."""
    CHEAP = enum.auto()
    """To do it again costs less than to keep its result."""
    STACK = enum.auto()
    """It has to do with the stack of a thread."""
    CLUSTER = enum.auto()
    """It tells of other blocks of the cluster, whatever space it names."""
    EXPLICIT = enum.auto()
    """A launch that names no cluster ends at it with an illegal instruction.

    Source: an H200, driver of CUDA 13.0, 2026-11-29: 50 kernels, each with and without a cluster."""
    POLLS = enum.auto()
    """It looks for what another thread does, or gives it time for that."""


class Type(str):
    """An operand type: its word, and the properties that the word specifies."""

    @cached_property
    def kind(self) -> str:
        """``s``, ``u``, ``b``, ``f``, ``bf`` or ``tf``; empty for predicates, small floats and references."""
        found = _NUMBERED.fullmatch(self)
        return found[1] if found else ""

    @cached_property
    def bits(self) -> int:
        """Total width of all elements in bits, such as 32 for ``f16x2``. It is 0 if the word does not specify the
        width.

        Source: PTX ISA 9.1, "Fundamental Types" and "Packed Data Types".
        """
        found = _NUMBERED.fullmatch(self)
        return int(found[2]) * int(found[3] or 1) if found else int(self == "pred")

    @property
    def is_signed(self) -> bool:
        """Whether it is of signed integers."""
        return self.kind == "s"

    @property
    def is_one_integer(self) -> bool:
        """Whether it is one integer, or bits, and no vector of such in one register."""
        return self.kind in ("s", "u", "b") and "x" not in self


_NUMBERED = re.compile(r"([subf]|bf|tf)([0-9]+)(?:x([0-9]))?")


class Order(enum.Enum):
    """The memory ordering of an access as its PTX word, strongest last."""

    WEAK = "weak"
    VOLATILE = "volatile"
    RELAXED = "relaxed"
    ACQUIRE = "acquire"
    RELEASE = "release"
    ACQ_REL = "acq_rel"
    SC = "sc"


@dataclass(frozen=True, eq=False)
class Meaning:
    """A row of the table: the meaning of operations of some forms.

    ``form`` contains opcodes and words. ``writes`` and ``reads`` are strings of letters that the module docstring
    defines.
    """

    form: str
    writes: str
    reads: str
    effect: Effect
    lanes: Lanes
    traits: Trait

    @cached_property
    def words(self) -> tuple[frozenset[str], ...]:
        """The words that must be there: one of each set."""
        return choices_of(self.form)

    def takes(self, modifiers: tuple[str, ...]) -> bool:
        """Whether an operation of one of its opcodes is one of the row."""
        return not any(choices.isdisjoint(modifiers) for choices in self.words)


@functools.cache
def choices_of(form: str) -> tuple[frozenset[str], ...]:
    """Return the words after the opcodes of a row, as sets of choices. An operation must have one word of each set."""
    return tuple(place_of(word).choices for word in form.split()[1:])


_Row: TypeAlias = tuple[str, str] | tuple[str, str, str]
ANYTHING = "*"
"""Operands that nobody checks."""


def _row(effect: Effect, lanes: Lanes, form: str, operands: str, traits: str = "") -> Meaning:
    """Make a row of texts: form, operands, and perhaps traits."""
    writes, _, reads = operands.partition("|") if operands != ANYTHING else (ANYTHING, "", ANYTHING)
    found = functools.reduce(Trait.__or__, (Trait[word.upper()] for word in traits.split()), Trait.NONE)
    return Meaning(form, writes, reads, effect, lanes, found)


_PAIRS = "f16x2|bf16x2|e4m3x2|e5m2x2|e2m3x2|e3m2x2|e2m1x2|ue8m0x2|ue5m3x2|s2f6x2"
# What ``flatten`` makes of calls, labels, moves of parts and memory that is kept for libraries has a row too. So has
# what ``control.plan`` adds: fences around an access, halves of an atomic operation, where warps meet. A name with a
# dot is of ours.
_FAMILIES: Mapping[tuple[Effect, Lanes], tuple[_Row, ...]] = {
    (Effect.PURE, Lanes.EACH): (
        ("add|sub .cc", "TC|SS"),
        ("addc|subc .cc", "TC|SSC"),
        ("addc|subc", "T|SSC"),
        ("mad .cc", "TC|SSS"),
        ("madc .cc", "TC|SSSC"),
        ("madc", "T|SSSC"),
        ("clmad", "T|SSS"),
        ("add|sub .f32 .f16|bf16", "T|ST", "computes narrow cheap"),
        ("add|sub|mul .f32x2 .f16x2|bf16x2", "T|sS", "computes narrow cheap"),
        ("mul .f16x2 .bf16x2", "T|sS", "computes narrow cheap"),
        ("fma .f32x2 .f16x2|bf16x2", "T|sSS", "computes narrow"),
        ("mul .wide", "D|SS", "computes narrow cheap"),
        ("add|sub|mul", "T|SS", "computes narrow cheap"),
        ("mad .wide", "D|SSD", "computes narrow cheap"),
        ("mad", "T|SSS", "computes narrow cheap"),
        ("fma .f32 .f16|bf16", "T|SST", "computes narrow"),
        ("fma", "T|SSS", "computes narrow"),
        ("min|max .f32 .xorsign", "T|SS", "computes narrow"),
        ("min|max .f32 .abs", "T|SSS", "computes narrow"),
        ("min|max .f32", "T|SSS?", "computes narrow"),
        ("div|min|max", "T|SS", "computes narrow"),
        ("neg", "T|S", "computes narrow cheap"),
        ("abs|rcp|sqrt|rsqrt|sin|cos|lg2|ex2|tanh", "T|S", "computes narrow"),
        ("mul24|rem", "T|SS"),
        ("szext", "T|SW"),
        ("bmsk", "W|WW"),
        ("mad24|sad|prmt|fns|vmad", "T|SSS"),
        ("dp4a|dp2a", "W|TSW"),
        ("shf", "T|SSW"),
        ("bfe", "T|SWW"),
        ("bfi", "T|SSWW"),
        ("popc|clz|bfind", "W|S"),
        ("brev|cnot", "T|S"),
        ("copysign", "T|SS", "narrow"),
        ("and|or", "T|SS", "narrow cheap"),
        ("xor", "T|SS", "narrow"),
        ("not", "T|S", "narrow"),
        ("shl|shr", "T|SW", "narrow cheap"),
        ("lop3 .and|or", "[T_][p_]|SSScP"),
        ("lop3", "[T_]|SSSc"),
        ("testp", "p|S", "compares"),
        ("set", "T|SSB", "compares narrow"),
        ("setp", "[p_]{1,2}|SSB", "compares narrow"),
        ("selp", "T|SSP", "copies narrow"),
        ("slct", "T|TTS", "narrow"),
        ("mov", "[TN]|O|N", "copies narrow cheap"),
        ("mov.join|mov.split", "*", "narrow cheap"),
        ("mov.vector", "v|v"),
        ("cvt .pack .b32", "x|yyU", "narrow cheap"),
        ("cvt .pack", "x|yy", "narrow cheap"),
        ("cvt .rs .f16x2|bf16x2", "X|YYe", "narrow cheap"),
        ("cvt .rs", "X|ke", "narrow cheap"),
        (f"cvt .f32 .{_PAIRS}", "X|YYK", "narrow cheap"),
        ("cvt", "X|YK", "narrow cheap"),
        ("cvta .to", "T|S", "cheap"),
        ("cvta", "T|J", "cheap"),
        ("isspacep", "p|Z"),
        ("istypep", "p|Q"),
        ("mapa", "T|JW", "cluster"),
        ("getctarank", "W|J", "cluster"),
        ("createpolicy .cvt", "Q|Q"),
        ("createpolicy .range", "Q|mWW"),
        ("createpolicy", "Q|f?"),
        ("clusterlaunchcontrol .is_canceled", "p|S"),
        ("clusterlaunchcontrol .query_cancel", "v|S"),
        ("vset .add|min|max", "W|SSW"),
        ("vset", "W|SSW?"),
        ("vadd|vsub|vabsdiff|vmin|vmax|vshl|vshr .add|min|max", "T|SSS"),
        ("vadd|vsub|vabsdiff|vmin|vmax|vshl|vshr", "T|SSS?"),
        ("vset2|vset4", "W|RRd"),
        ("vadd2|vsub2|vavrg2|vabsdiff2|vmin2|vmax2|vadd4|vsub4|vavrg4|vabsdiff4|vmin4|vmax4", "T|RRR"),
        ("spcompress|spdecompress", "*"),
        ("param.get|param.put", "*"),
    ),
    (Effect.READS, Lanes.EACH): (
        ("ld|ldu", "V|mH"),
        ("stacksave", "T|", "stack"),
        ("tensormap .query", "p|m"),
    ),
    (Effect.READS, Lanes.OWN): (
        ("tex .level", "v[p_]?|tSl?S?"),
        ("tex .grad", "v[p_]?|tGGl?S?"),
        ("tex|tld4", "v[p_]?|tl?S?"),
        ("suld", "V[p_]?|t"),
        ("txq .level", "T|hW"),
        ("txq|suq", "T|h"),
        ("call.arguments", "*", "stack"),
    ),
    (Effect.UPDATES, Lanes.EACH): (
        ("red .mbarrier::complete_tx::bytes", "|mvm", "explicit"),
        ("red", "|mvH"),
        ("sured", "|tU"),
        ("cp .reduce .tensor", "|tmH"),
        ("cp .reduce .mbarrier::complete_tx::bytes", "|mmWm", "explicit"),
        ("cp .reduce", "|mmWH"),
        ("multimem|fabric", "*"),
        ("tcgen05 .cp", "|mQ"),
        ("tcgen05 .shift", "|m"),
        ("tcgen05 .mma .sp .block_scale", "|m(m|Q)QmWmmP"),
        ("tcgen05 .mma .ws .sp", "|m(m|Q)QmWPQ?"),
        ("tcgen05 .mma .ws", "|m(m|Q)QWPQ?"),
        ("tcgen05 .mma .sp .kind::f8f6f4", "|m(m|Q)QmWl?P"),
        ("tcgen05 .mma .sp", "|m(m|Q)QmWl?Pc?"),
        ("tcgen05 .mma .block_scale", "|m(m|Q)QWmmP"),
        ("tcgen05 .mma .kind::f8f6f4", "|m(m|Q)QWl?P"),
        ("tcgen05 .mma", "|m(m|Q)QWl?Pc?"),
        ("stackrestore", "|R", "stack"),
        ("atom.put|atom.run", "*"),
    ),
    (Effect.UPDATES, Lanes.OWN): (
        ("atom .cas", "v|mvvH", "polls"),
        ("atom", "v|mvH", "polls"),
        ("alloca", "T|SS?", "stack"),
        ("call.function|call.exit", "*", "stack"),
    ),
    (Effect.SIGNALS, Lanes.EACH): (
        ("cp .prefetch .tensor", "|tIH"),
        ("cp .prefetch", "|mWH"),
        ("prefetch|prefetchu", "|m"),
        ("applypriority .tensor", "|tI"),
        ("applypriority .bulk", "|mW"),
        ("applypriority|discard", "|mc"),
        ("access.begin|access.end", "*"),
        ("pmevent .mask", "|c"),
        ("pmevent", "|c"),
        ("trace", "|c"),
        ("griddepcontrol|trap|brkpt", "|"),
        ("nanosleep", "|W", "polls"),
    ),
    (Effect.SIGNALS, Lanes.WARP): (("setmaxnreg", "|c"),),
    (Effect.SYNCHRONISES, Lanes.EACH): (
        ("cp .commit_group|wait_all", "|"),
        ("cp .wait_group", "|c"),
        ("cp .mbarrier", "|m"),
        ("tcgen05 .commit", "|mM"),
    ),
    (Effect.WRITES, Lanes.WARP): (
        ("tensormap .cp_fenceproxy", "|mmc"),
        ("wmma .store", "|maW?"),
        ("stmatrix", "|mF"),
        ("tcgen05 .st .16x32bx2", "|mcA"),
        ("tcgen05 .st", "|mA"),
    ),
    (Effect.WRITES, Lanes.EACH): (
        ("st .mbarrier::complete_tx::bytes", "|mvm", "explicit"),
        ("st .async", "|mvH"),
        ("st .bulk", "|mZc"),
        ("st", "|mVH"),
        ("sust", "|tV"),
        ("cp .tensor .mbarrier::complete_tx::bytes", "|mtmIMH"),
        ("cp .tensor", "|tmH"),
        ("cp .bulk .shared::cluster .shared::cta", "|mmWm", "explicit"),
        ("cp .bulk .ignore_oob", "|mmWWWmH"),
        ("cp .bulk .mbarrier::complete_tx::bytes", "|mmWmMH"),
        ("cp .bulk .cp_mask", "|mmWHM"),
        ("cp .bulk", "|mmWH"),
        ("cp .ca", "|mmc(W|P)?H"),
        ("cp .cg", "|mmc(W|P)?H"),
        ("tensormap .box_dim|global_dim|global_stride|element_stride", "|mcS"),
        ("tensormap .elemtype|interleave_layout|swizzle_mode|swizzle_atomicity|fill_mode", "|mc"),
        ("tensormap .alloc_small|alloc_large|alloc_same .global_address", "|mS"),
        ("tensormap .alloc_small|alloc_large|alloc_same", "|m"),
        ("tensormap", "|mS"),
        ("clusterlaunchcontrol .try_cancel .multicast::cluster::all", "|mm", "cluster"),
        ("clusterlaunchcontrol .try_cancel", "|mm"),
        ("shared.clear", "*"),
    ),
    (Effect.PURE, Lanes.WARP): (
        ("mma .sp|sp::ordered_metadata .block_scale", "A|FFarcEgEg"),
        ("mma .sp|sp::ordered_metadata", "A|FFarc"),
        ("mma .block_scale", "A|FFaEgEg"),
        ("mma", "A|FFa"),
        ("wmma .mma", "A|FFa"),
        ("movmatrix", "r|r"),
    ),
    (Effect.READS, Lanes.WARP): (
        ("wmma .load .c", "A|mW?"),
        ("wmma .load", "F|mW?"),
        ("ldmatrix", "F|m"),
        ("tcgen05 .ld .red .16x32bx2", "AA|mc"),
        ("tcgen05 .ld .red", "AA|m"),
        ("tcgen05 .ld .16x32bx2", "A|mc"),
        ("tcgen05 .ld", "A|m"),
    ),
    (Effect.READS, Lanes.WARPGROUP): (
        ("wgmma .mma_async .sp", "A|=A(F|Q)QrcPc*"),
        ("wgmma .mma_async", "A|=A(F|Q)QPc*"),
    ),
    (Effect.SYNCHRONISES, Lanes.WARPGROUP): (
        ("warpgroup.meet", "*"),
        ("wgmma .wait_group", "|c"),
        ("wgmma .fence|commit_group", "|"),
    ),
    (Effect.PURE, Lanes.MEMBERS): (
        ("shfl .sync", "Tp?|SSSW"),
        ("vote .sync", "T|PW"),
        ("match .all", "W[p_]?|SW"),
        ("match", "W|SW"),
        ("redux .f32", "T|SW"),
        ("redux", "W|WW"),
        ("elect", "[W_][p_]|W"),
    ),
    # The old forms are for the lanes that are there.
    (Effect.PURE, Lanes.OWN): (
        ("shfl", "Tp?|SSS"),
        ("vote", "T|P"),
        ("activemask", "T|"),
    ),
    (Effect.ORDERS, Lanes.EACH): (
        ("fence .tensormap::generic .acquire", "|mc"),
        ("fence|membar", "|"),
        ("tcgen05 .fence::before_thread_sync|fence::after_thread_sync", "|"),
    ),
    (Effect.SYNCHRONISES, Lanes.MEMBERS): (("bar .warp", "|W"),),
    (Effect.ARRIVES, Lanes.CLUSTER): (("barrier .cluster .arrive", "|"),),
    (Effect.SYNCHRONISES, Lanes.CLUSTER): (("barrier .cluster", "|"),),
    (Effect.ARRIVES, Lanes.BLOCK): (("bar|barrier .arrive", "|WW"),),
    (Effect.SYNCHRONISES, Lanes.BLOCK): (
        ("bar|barrier .red", "T|W{1,2}P"),
        ("bar|barrier", "|W{1,2}"),
    ),
    (Effect.SYNCHRONISES, Lanes.OWN): (
        ("mbarrier .init", "|mW"),
        ("mbarrier .inval", "|m"),
        ("mbarrier .check_layout", "p|m"),
        ("mbarrier .arrive|arrive_drop .expect_tx .multicast::cluster::32b", "_|mWW"),
        ("mbarrier .arrive|arrive_drop .multicast::cluster::32b", "_|mWW?"),
        ("mbarrier .expect_tx|complete_tx .multicast::cluster::32b", "|mWW"),
        ("mbarrier .arrive|arrive_drop .expect_tx .shared::cluster", "_|mW"),
        ("mbarrier .arrive|arrive_drop .shared::cluster", "_|mW?"),
        ("mbarrier .arrive|arrive_drop .noComplete", "[Q_]|mW"),
        ("mbarrier .arrive|arrive_drop .expect_tx", "[Q_]|mW"),
        ("mbarrier .arrive|arrive_drop", "[Q_]|mW?"),
        ("mbarrier .expect_tx|complete_tx", "|mW"),
        ("mbarrier .pending_count", "W|Q"),
        ("mbarrier .try_wait .parity .phase_type::primary", "pp?|n?mWW?", "polls"),
        ("mbarrier .try_wait .phase_type::primary", "pp?|n?mQW?", "polls"),
        ("mbarrier .test_wait .parity .phase_type::primary", "pp?|n?mW", "polls"),
        ("mbarrier .test_wait .phase_type::primary", "pp?|n?mQ", "polls"),
        ("mbarrier .try_wait .parity", "p|mWW?", "polls"),
        ("mbarrier .try_wait", "p|mQW?", "polls"),
        ("mbarrier .test_wait .parity", "p|mW", "polls"),
        ("mbarrier .test_wait", "p|mQ", "polls"),
    ),
    (Effect.CONTROLS, Lanes.EACH): (
        ("bra", "|L"),
        ("brx", "|WL"),
        ("ret|exit", "|"),
        ("call", "*"),
        ("label", "*"),
    ),
    (Effect.SIGNALS, Lanes.OWN): (("call.extern", "*"),),
    (Effect.ORDERS, Lanes.WARP): (("tcgen05 .wait::ld|wait::st", "|"),),
    (Effect.UPDATES, Lanes.WARP): (
        ("tcgen05.unwaited", "*"),
        ("tcgen05 .alloc", "|mW"),
        ("tcgen05 .dealloc", "|WW"),
        ("tcgen05 .relinquish_alloc_permit", "|"),
        ("tcgen05", "*"),
    ),
}
TABLE = tuple(_row(*key, *row) for key, rows in _FAMILIES.items() for row in rows)
"""Every row; those of one opcode in the order in which they are asked."""

UNKNOWN = Meaning("", ANYTHING, ANYTHING, Effect.UPDATES, Lanes.OWN, Trait.NONE)
"""What no row takes: an instruction of a newer ISA, which ``flatten`` carries as far as where it is refused."""


_ROWS = group_by((opcode, row) for row in TABLE for opcode in row.form.split()[0].split("|"))
if missing := sorted(opcodes() - _ROWS.keys()):
    raise LookupError(f"these instructions have no semantics: {', '.join(missing)}")


@dataclass(frozen=True, eq=False)
class Form:
    """An opcode with its modifiers and their meaning. All operations of the form share this object.

    ``types`` are the modifiers that are operand types, and ``words`` are the other modifiers, each in order. ``spaces``
    are the state spaces among the words, each as one word (``cluster`` is ``shared::cluster``). ``space`` is the first
    state space, or ``generic``. ``scope`` is the word for the threads that observe an order or use a barrier, or empty.
    ``vector`` is the number of elements of ``.v2`` and similar modifiers.
    """

    opcode: str
    modifiers: tuple[str, ...]
    meaning: Meaning
    types: tuple[Type, ...]
    words: tuple[str, ...]
    spaces: tuple[str, ...]
    space: str
    order: Order
    scope: str
    vector: int

    def has(self, places: tuple[frozenset[str], ...]) -> bool:
        """Whether one word of each set is there."""
        return not any(choices.isdisjoint(self.modifiers) for choices in places)

    # -- operands ----------------------------------------------------------------------------------------

    @property
    def has_result(self) -> bool:
        """Whether the first operand is written."""
        return bool(self.meaning.writes)

    @property
    def result_operands(self) -> int:
        """How many operands are written: two by ``tcgen05.ld.red``."""
        return 2 if self.meaning.writes == "AA" else 1

    @property
    def reads_result(self) -> bool:
        """Whether the written operand is read first, as the accumulator of ``wgmma.mma_async`` is."""
        return self.meaning.reads.startswith("=")

    @property
    def is_jump(self) -> bool:
        """Whether it decides where to go on; that ends a basic block."""
        return self.meaning.effect is Effect.CONTROLS

    # -- memory ------------------------------------------------------------------------------------------

    @property
    def is_load(self) -> bool:
        """Whether the operation loads from memory for each lane independently: ``ld``, ``ldu``."""
        return self.opcode in ("ld", "ldu")

    @cached_property
    def is_strong(self) -> bool:
        """Whether an access is more than weak. Source: PTX ISA 9.1, "Memory Consistency Model: Operation Types"."""
        return self.order is not Order.WEAK

    @cached_property
    def tells_others(self) -> bool:
        """Whether the operation may make earlier stores visible to other blocks: a fence, an atomic,
        or a strong store.
        """
        effect = self.meaning.effect
        updates = effect is Effect.UPDATES and Trait.STACK not in self.meaning.traits
        return updates or effect is Effect.ORDERS or (effect is Effect.WRITES and self.is_strong)

    @cached_property
    def names_cluster(self) -> bool:
        """Whether it may have to do with the memory of another block of the cluster."""
        pairs = "cta_group::2" in self.words
        return pairs or "cluster" in self.spaces or Trait.CLUSTER in self.meaning.traits

    @property
    def needs_cluster(self) -> bool:
        """Whether only launches that name a cluster can do it; one of a single block will do."""
        return Trait.EXPLICIT in self.meaning.traits

    # -- other threads -----------------------------------------------------------------------------------

    @cached_property
    def is_poll(self) -> bool:
        """Whether the operation reads a value that another thread may write concurrently."""
        return Trait.POLLS in self.meaning.traits or (self.meaning.effect is Effect.READS and self.is_strong)

    @cached_property
    def is_per_lane(self) -> bool:
        """Whether the results may differ from lane to lane though the sources do not."""
        return self.meaning.lanes is not Lanes.EACH

    @property
    def names_members(self) -> bool:
        """Whether lanes do it with the others of its member mask."""
        return self.meaning.lanes is Lanes.MEMBERS

    @cached_property
    def collective(self) -> Collective:
        """The threads that must arrive at the operation before any of them executes it."""
        return self.meaning.lanes.scope

    @cached_property
    def is_whole_warp(self) -> bool:
        """Whether all lanes of the warp do it together, maybe with other warps."""
        return self.meaning.lanes in (Lanes.WARP, Lanes.WARPGROUP)

    @cached_property
    def is_site(self) -> bool:
        """Whether lanes may have to wait at it for other lanes or warps."""
        return self.collective > Collective.LANE

    @cached_property
    def is_barrier(self) -> bool:
        """Whether it waits for other warps: a barrier of the block or of the cluster."""
        return self.collective >= Collective.BLOCK and self.meaning.effect is Effect.SYNCHRONISES

    @property
    def is_aligned(self) -> bool:
        """Whether all lanes of a warp arrive at a barrier together. Source: PTX ISA 9.1, "bar": as
        with ``.aligned``.
        """
        return self.opcode == "bar" or "aligned" in self.words

    @cached_property
    def needs_others(self) -> bool:
        """Whether lanes do it only with others: all but an arrival that is not ``.aligned``."""
        return self.meaning.effect is not Effect.ARRIVES or self.is_aligned


_T = TypeVar("_T")
# The type of a scale is no operand's: it is a word like ue4m3.
_TYPES = {word: Type(word) for word in TYPES if word != "ue8m0"}
_SPACES = {word: word for word in SETS["SPACE"]}
_SPACES |= {"shared::cta": "shared", "shared::cluster": "cluster", "param::entry": "param"}
_SCOPES = {word: word for word in (*SETS["SCOPE"], "gl")}
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
_SYNONYMS = {"multicast::cluster::16b": "multicast::cluster"}
"""Words that say in more letters what another one says."""


def _first(meanings: Mapping[str, _T], words: Iterable[str], default: _T) -> _T:
    """Return the meaning of the first word that has a meaning."""
    return next((meanings[word] for word in words if word in meanings), default)


@functools.lru_cache(maxsize=4096)
def form_of(opcode: str, *modifiers: str) -> Form:
    """Return the form of an opcode with its modifiers."""
    modifiers = tuple(_SYNONYMS.get(word, word) for word in modifiers)
    spaces = tuple(_SPACES[word] for word in modifiers if word in _SPACES)
    return Form(
        opcode,
        modifiers,
        next((row for row in _ROWS.get(opcode, ()) if row.takes(modifiers)), UNKNOWN),
        tuple(_TYPES[word] for word in modifiers if word in _TYPES),
        tuple(word for word in modifiers if word not in _TYPES),
        spaces,
        spaces[0] if spaces else "generic",
        next((order for order in reversed(Order) if order.value in modifiers), Order.WEAK),
        _first(_SCOPES, modifiers, ""),
        _first(_VECTORS, modifiers, 1),
    )
