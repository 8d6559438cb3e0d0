"""What every operation means to the CPU device: the one table that all passes and emitters ask.

A row is for a family of instructions, written as the tables of ``formats.ptx.isa`` write forms: opcodes, then words of
which each must be there (``|`` separates choices). The first row that an operation fits counts. It says what the
operation writes and reads, a letter for each operand, as ``writes|reads``:

    r  register              c  integer          m  memory                    S  scalar: any of ``rscf``
    p  predicate, or its     f  float            t  memory with coordinates   P  predicate, or an integer
       negation              s  address, or      g  group, and how many       L  label
    _  nothing                  special register    are in it                 C  the carry, which no text names

``?``, ``+``, ``*``, ``{}``, ``[]`` and ``()`` are as in regular expressions; ``=`` first stands for what is written,
and is read as well; ``*`` alone for operands that nobody checks. ``operands`` tells of the other capitals. Source: PTX
ISA 9.1, chapter 9.7, the syntax and the description of each instruction; of numbers that may stand in places, what
ptxas 13.0 takes of 31 from -1 to 2^32.

An opcode of the instruction table that has no row ends the import: no pass has a default for what it does not know.
"""

from __future__ import annotations

import enum
import functools
import re
from collections.abc import Container, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from cujit.forks import cached_property
from cujit.formats.ptx.isa import opcodes, place_of
from cujit.formats.ptx.isa_sets import SETS, TYPES

__all__ = [
    "ANYTHING",
    "UNKNOWN",
    "Effect",
    "Form",
    "Lanes",
    "Meaning",
    "Order",
    "Trait",
    "Type",
    "choices_of",
    "form_of",
]


class Effect(enum.Enum):
    """What an operation does beside writing its registers."""

    PURE = "depends on nothing but what it reads of registers, and does nothing else"
    READS = "reads memory"
    WRITES = "writes memory"
    UPDATES = "reads memory and writes it"
    ORDERS = "orders the accesses before and behind it"
    ARRIVES = "tells a barrier that it has come, and goes on"
    SYNCHRONISES = "waits for other threads or for copies, or counts what others wait for"
    CONTROLS = "decides where to go on"
    SIGNALS = "does something that no other operation sees: a hint, a pause, a trap"


class Lanes(enum.Enum):
    """How the lanes of a warp do an operation."""

    EACH = "each alone; what is the same in all lanes before is the same behind"
    OWN = "each alone, and with a result of its own"
    MEMBERS = "those that a mask names, together"
    WARP = "the whole warp together"
    BLOCK = "all of a block or a cluster, which meet at a barrier"


class Trait(enum.Flag):
    """What else passes want to know of an operation."""

    NONE = 0
    COMPUTES = enum.auto()
    """Of f32 it makes a number, or the one NaN of GPUs."""
    COMPARES = enum.auto()
    """It looks at no other bits of a NaN than those that make it one."""
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
    POLLS = enum.auto()
    """It looks for what another thread does, or gives it time for that."""


class Type(str):
    """An operand type: its word, and what that says."""

    @cached_property
    def kind(self) -> str:
        """``s``, ``u``, ``b``, ``f``, ``bf`` or ``tf``; empty for predicates, small floats and references."""
        found = _NUMBERED.fullmatch(self)
        return found[1] if found else ""

    @cached_property
    def bits(self) -> int:
        """Width in bits, of all elements together: 32 of ``f16x2``; 0 where the word does not say it.

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
    """How strong an access of memory is, as its word says; the strongest last."""

    WEAK = "weak"
    VOLATILE = "volatile"
    RELAXED = "relaxed"
    ACQUIRE = "acquire"
    RELEASE = "release"
    ACQ_REL = "acq_rel"
    SC = "sc"


@dataclass(frozen=True, eq=False)
class Meaning:
    """A row of the table: what the operations of some forms mean.

    ``form`` are opcodes and words, ``writes`` and ``reads`` texts of letters, as the module says. ``numbers`` has, by
    the place of an operand that is read, the numbers that may stand there.
    """

    form: str
    writes: str
    reads: str
    effect: Effect
    lanes: Lanes
    traits: Trait
    numbers: Numbers

    @cached_property
    def words(self) -> tuple[frozenset[str], ...]:
        """The words that must be there: one of each set."""
        return choices_of(self.form)

    def takes(self, modifiers: tuple[str, ...]) -> bool:
        """Whether an operation of one of its opcodes is one of the row."""
        return not any(choices.isdisjoint(modifiers) for choices in self.words)


@functools.cache
def choices_of(form: str) -> tuple[frozenset[str], ...]:
    """Read what stands behind the opcodes of a row: sets of words, of each of which one must be there."""
    return tuple(place_of(word).choices for word in form.split()[1:])


Numbers: TypeAlias = Mapping[int, Container[int]]
ANYTHING = "*"
"""Operands that nobody checks."""


def _rows(effect: Effect, lanes: Lanes, *rows: tuple[str, ...] | tuple[str, str, Numbers]) -> tuple[Meaning, ...]:
    """Make rows of texts: forms, operands, and perhaps traits, or the numbers that may stand in places."""
    return tuple(_row(effect, lanes, *row) for row in rows)


def _row(effect: Effect, lanes: Lanes, form: str, operands: str, more: str | Numbers = "") -> Meaning:
    writes, _, reads = operands.partition("|") if operands != ANYTHING else (ANYTHING, "", ANYTHING)
    words, numbers = (more, {}) if isinstance(more, str) else ("", more)
    traits = functools.reduce(Trait.__or__, (Trait[word.upper()] for word in words.split()), Trait.NONE)
    return Meaning(form, writes, reads, effect, lanes, traits, numbers)


_PAIRS = "f16x2|bf16x2|e4m3x2|e5m2x2|e2m3x2|e3m2x2|e2m1x2|ue8m0x2|s2f6x2"
_PURE = _rows(
    Effect.PURE,
    Lanes.EACH,
    ("add|sub .cc", "rC|SS"),
    ("addc|subc .cc", "rC|SSC"),
    ("addc|subc", "r|SSC"),
    ("mad .cc", "rC|SSS"),
    ("madc .cc", "rC|SSSC"),
    ("madc", "r|SSSC"),
    ("add|sub|mul", "r|SS", "computes narrow cheap"),
    ("mad", "r|SSS", "computes narrow cheap"),
    ("fma", "r|SSS", "computes narrow"),
    ("div", "r|SS", "computes narrow"),
    ("min|max .f32 .xorsign", "r|SS", "computes narrow"),
    ("min|max .f32 .abs", "r|SSS", "computes narrow"),
    ("min|max .f32", "r|SSS?", "computes narrow"),
    ("min|max", "r|SS", "computes narrow"),
    ("abs", "r|S", "computes narrow"),
    ("neg", "r|S", "computes narrow cheap"),
    ("rcp|sqrt|rsqrt|sin|cos|lg2|ex2|tanh", "r|S", "computes narrow"),
    ("mul24|rem|szext|bmsk", "r|SS"),
    ("mad24|sad|dp4a|dp2a|prmt|shf|fns", "r|SSS"),
    ("bfe", "r|SSS", {1: range(256), 2: range(256)}),
    ("bfi", "r|SSSS", {2: range(256), 3: range(256)}),
    ("popc|clz|brev|bfind|cnot", "r|S"),
    ("copysign", "r|SS", "narrow"),
    ("and|or", "[rp]|SS|PP", "narrow cheap"),
    ("xor", "[rp]|SS|PP", "narrow"),
    ("not", "[rp]|S|P", "narrow"),
    ("shl|shr", "r|SS", "narrow cheap"),
    ("lop3 .and|or", "[r_][p_]|SSScP"),
    ("lop3", "[r_]|SSSc"),
    ("testp", "p|S", "compares"),
    ("set", "r|SSB", "compares narrow"),
    ("setp", "[p_]{1,2}|SSB", "compares narrow"),
    ("selp", "r|SSP", "copies narrow"),
    ("slct", "r|SSS", "narrow"),
    ("mov", "[rp_]+|S|P|N", "copies narrow cheap"),
    ("cvt .pack .b32", "r|SSS", "narrow cheap"),
    ("cvt .pack", "r|SS", "narrow cheap"),
    ("cvt .rs .f16x2|bf16x2", "r|SSS", "narrow cheap"),
    ("cvt .rs", "r|g4S", "narrow cheap"),
    (f"cvt .f32 .{_PAIRS}", "r|SSK", "narrow cheap"),
    ("cvt", "r|SK", "narrow cheap"),
    ("cvta", "r|S", "cheap"),
    ("isspacep|istypep", "p|S"),
    ("mapa", "r|SS", "cluster"),
    ("getctarank", "r|S", "cluster"),
    ("createpolicy .cvt", "r|S"),
    ("createpolicy .range", "r|mSS"),
    ("createpolicy", "r|S?"),
    ("clusterlaunchcontrol .is_canceled", "p|S"),
    ("clusterlaunchcontrol .query_cancel", "[r_]V|S"),
    ("vadd|vsub|vabsdiff|vmin|vmax|vshl|vshr|vset .add|min|max", "r|SSS"),
    ("vadd|vsub|vabsdiff|vmin|vmax|vshl|vshr|vset", "r|SSS?"),
    ("vadd2|vsub2|vavrg2|vabsdiff2|vmin2|vmax2|vset2", "r|SSS"),
    ("vadd4|vsub4|vavrg4|vabsdiff4|vmin4|vmax4|vset4|vmad", "r|SSS"),
)
_MEMORY = (
    *_rows(Effect.READS, Lanes.EACH, ("ld|ldu", "[r_]V|mH")),
    *_rows(
        Effect.READS,
        Lanes.OWN,
        ("tex .level", "[r_]V[p_]?|tSN?S?"),
        ("tex .grad", "[r_]V[p_]?|tFFN?S?"),
        ("tex|tld4", "[r_]V[p_]?|tN?S?"),
        ("suld", "[r_]V[p_]?|t"),
        ("txq .level", "r|mS"),
        ("txq|suq", "r|m"),
    ),
    *_rows(
        Effect.UPDATES,
        Lanes.EACH,
        ("red .mbarrier::complete_tx::bytes", "|mGm"),
        ("red", "|mGH"),
        ("sured", "|tS"),
        ("cp .reduce .tensor", "|tmH"),
        ("cp .reduce .mbarrier::complete_tx::bytes", "|mmSm"),
        ("cp .reduce", "|mmSH"),
        ("multimem", "*"),
    ),
    *_rows(
        Effect.UPDATES,
        Lanes.OWN,
        ("atom .cas", "[r_]V|mGGH", "polls"),
        ("atom", "[r_]V|mGH", "polls"),
        ("alloca", "r|SS?", "stack"),
    ),
    *_rows(Effect.SIGNALS, Lanes.EACH, ("cp .prefetch .tensor", "|tIH"), ("cp .prefetch", "|mSH")),
    *_rows(
        Effect.SYNCHRONISES,
        Lanes.EACH,
        ("cp .commit_group|wait_all", "|"),
        ("cp .wait_group", "|c"),
        ("cp .mbarrier", "|m"),
    ),
    *_rows(
        Effect.WRITES,
        Lanes.EACH,
        ("st .mbarrier::complete_tx::bytes", "|mGm"),
        ("st .bulk", "|mSS"),
        ("st", "|mGH"),
        ("sust", "|tG"),
        ("cp .tensor .mbarrier::complete_tx::bytes", "|mtmIMH"),
        ("cp .tensor", "|tmH"),
        ("cp .bulk .mbarrier::complete_tx::bytes", "|mmSmMH"),
        ("cp .bulk .cp_mask", "|mmSHS"),
        ("cp .bulk", "|mmSH"),
        ("cp .ca", "|mmc(S|P)?H", {2: (4, 8, 16), 3: range(17)}),
        ("cp .cg", "|mmc(S|P)?H", {2: (16,), 3: range(17)}),
        ("tensormap .cp_fenceproxy", "|mmc", {2: (128,)}),
        ("tensormap .box_dim|global_dim|global_stride|element_stride", "|mc[rcs]"),
        ("tensormap", "|m[rcs]"),
        ("clusterlaunchcontrol .try_cancel", "|mm"),
    ),
    *_rows(Effect.READS, Lanes.EACH, ("stacksave", "r|", "stack")),
    *_rows(Effect.UPDATES, Lanes.EACH, ("stackrestore", "|S", "stack")),
)
_WIDE, _SCALED = "f16|bf16", "tf32|e4m3|e5m2"
_MATRICES = (
    *_rows(
        Effect.PURE,
        Lanes.WARP,
        ("mma .sp|sp::ordered_metadata .block_scale", "[r_]+|FFFScEg2Eg2", {4: range(4)}),
        ("mma .sp|sp::ordered_metadata", "[r_]+|FFFSc", {4: range(4)}),
        ("mma .block_scale", "[r_]+|FFFEg2Eg2"),
        ("mma", "[r_]+|FFF"),
        ("wmma .mma", "[r_]+|FFF"),
        ("movmatrix", "r|S"),
    ),
    *_rows(
        Effect.READS,
        Lanes.WARP,
        ("wmma .load", "[r_]+|mS?"),
        ("ldmatrix", "[r_]+|m"),
        (f"wgmma .mma_async .sp .{_WIDE}", "[r_]+|=FSScPc*", {6: (-1, 1), 7: (-1, 1), 8: (0, 1), 9: (0, 1)}),
        (f"wgmma .mma_async .sp .{_SCALED}", "[r_]+|=FSScPc*", {6: (-1, 1), 7: (-1, 1)}),
        ("wgmma .mma_async .sp", "[r_]+|=FSScPc*"),
        (f"wgmma .mma_async .{_WIDE}", "[r_]+|=FSPc*", {4: (-1, 1), 5: (-1, 1), 6: (0, 1), 7: (0, 1)}),
        (f"wgmma .mma_async .{_SCALED}", "[r_]+|=FSPc*", {4: (-1, 1), 5: (-1, 1)}),
        ("wgmma .mma_async", "[r_]+|=FSPc*"),
    ),
    *_rows(Effect.WRITES, Lanes.WARP, ("wmma .store", "|mFS?"), ("stmatrix", "|mF")),
    *_rows(Effect.SYNCHRONISES, Lanes.WARP, ("wgmma .wait_group", "|c"), ("wgmma .fence|commit_group", "|")),
    *_rows(Effect.UPDATES, Lanes.WARP, ("tcgen05", "*")),
)
_BARRIER: Numbers = {0: range(16), 1: range(0, 1 << 32, 32)}
_TOGETHER = (
    *_rows(
        Effect.PURE,
        Lanes.MEMBERS,
        ("shfl .sync", "[r_][p_]?|SSSS"),
        ("vote .sync", "[rp]|PS"),
        ("match .all", "[r_][p_]?|SS"),
        ("match", "r|SS"),
        ("redux", "r|SS"),
        ("elect", "[r_][p_]|S"),
    ),
    # The old forms are for the lanes that are there.
    *_rows(Effect.PURE, Lanes.OWN, ("shfl", "[r_][p_]?|SSS"), ("vote", "[rp]|P"), ("activemask", "r|")),
    *_rows(
        Effect.ORDERS, Lanes.EACH, ("fence .tensormap::generic .acquire", "|mS", {1: (128,)}), ("fence|membar", "|")
    ),
    *_rows(Effect.SYNCHRONISES, Lanes.MEMBERS, ("bar .warp", "|S")),
    *_rows(Effect.ARRIVES, Lanes.BLOCK, ("barrier .cluster .arrive", "|"), ("bar|barrier .arrive", "|SS", _BARRIER)),
    *_rows(
        Effect.SYNCHRONISES,
        Lanes.BLOCK,
        ("bar|barrier .red", "[rp]|S{1,2}P", _BARRIER),
        ("barrier .cluster", "|"),
        ("bar|barrier", "|S{1,2}", _BARRIER),
    ),
    *_rows(
        Effect.SYNCHRONISES,
        Lanes.OWN,
        ("mbarrier .init", "|mS"),
        ("mbarrier .inval", "|m"),
        ("mbarrier .arrive|arrive_drop .expect_tx|noComplete", "[r_]|mS"),
        ("mbarrier .arrive|arrive_drop", "[r_]|mS?"),
        ("mbarrier .expect_tx|complete_tx", "|mS"),
        ("mbarrier .pending_count", "r|S"),
        ("mbarrier .try_wait", "p|mSS?", "polls"),
        ("mbarrier .test_wait", "p|mS", "polls"),
    ),
)
_REST = (
    *_rows(
        Effect.CONTROLS,
        Lanes.EACH,
        ("bra", "|L"),
        ("brx", "|SL"),
        ("ret|exit", "|"),
        ("call", "*"),
    ),
    *_rows(
        Effect.SIGNALS,
        Lanes.EACH,
        ("prefetch|prefetchu", "|m"),
        ("applypriority|discard", "|mS", {1: (128,)}),
        ("setmaxnreg", "|c", {0: range(24, 257, 8)}),
        ("pmevent", "|c", {0: range(1 << 16)}),
        ("griddepcontrol|trap|brkpt", "|"),
        ("nanosleep", "|S", "polls"),
    ),
)
# What ``flatten`` makes of calls, of labels, and of memory that is kept for libraries. A name with a dot is no opcode
# of PTX.
_OWN = (
    *_rows(Effect.CONTROLS, Lanes.EACH, ("label", "*")),
    *_rows(Effect.PURE, Lanes.EACH, ("param.get|param.put", "*")),
    *_rows(Effect.WRITES, Lanes.EACH, ("shared.clear", "*")),
    *_rows(Effect.SIGNALS, Lanes.OWN, ("call.extern", "*")),
    *_rows(Effect.READS, Lanes.OWN, ("call.arguments", "*", "stack")),
    *_rows(Effect.UPDATES, Lanes.OWN, ("call.function|call.exit", "*", "stack")),
)
TABLE: tuple[Meaning, ...] = (*_PURE, *_MEMORY, *_MATRICES, *_TOGETHER, *_REST, *_OWN)
"""Every row."""

UNKNOWN = Meaning("", ANYTHING, ANYTHING, Effect.UPDATES, Lanes.OWN, Trait.NONE, {})
"""What no row takes: an instruction of a newer ISA, which ``flatten`` carries as far as where it is refused."""


def _by_opcode() -> dict[str, list[Meaning]]:
    found: dict[str, list[Meaning]] = {}
    for row in TABLE:
        for opcode in row.form.split()[0].split("|"):
            found.setdefault(opcode, []).append(row)
    return found


_ROWS = _by_opcode()
if missing := sorted(opcodes() - _ROWS.keys()):
    raise LookupError(f"instructions without a meaning: {', '.join(missing)}")


@dataclass(frozen=True, eq=False)
class Form:
    """An opcode with its modifiers, and what they say: made once for all operations of the form.

    ``types`` and ``words`` are the modifiers that are operand types, and the others, each in order; ``spaces`` are the
    state spaces among them, each in one word (``cluster`` is ``shared::cluster``), ``space`` the first, or
    ``generic``. ``scope`` is the word for who sees an order, or whom a barrier is for; empty if there is none.
    ``vector`` counts the elements that a ``.v2`` and its like has.
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
    def reads_result(self) -> bool:
        """Whether what is written is read before: the accumulator of ``wgmma.mma_async``."""
        return self.meaning.reads.startswith("=")

    @property
    def is_jump(self) -> bool:
        """Whether it decides where to go on; that ends a basic block."""
        return self.meaning.effect is Effect.CONTROLS

    # -- memory ------------------------------------------------------------------------------------------

    @property
    def is_load(self) -> bool:
        """Whether it is a load from memory of each lane alone: ``ld``, ``ldu``."""
        return self.opcode in ("ld", "ldu")

    @cached_property
    def is_strong(self) -> bool:
        """Whether an access is more than weak. Source: PTX ISA 9.1, "Memory Consistency Model: Operation Types"."""
        return self.order is not Order.WEAK

    @cached_property
    def tells_others(self) -> bool:
        """Whether other blocks may learn by it of what was stored before: by a fence, an atomic or a strong store."""
        effect = self.meaning.effect
        updates = effect is Effect.UPDATES and Trait.STACK not in self.meaning.traits
        return updates or effect is Effect.ORDERS or (effect is Effect.WRITES and self.is_strong)

    @cached_property
    def names_cluster(self) -> bool:
        """Whether it may have to do with the shared memory of another block of the cluster."""
        return "cluster" in self.spaces or Trait.CLUSTER in self.meaning.traits

    # -- other threads -----------------------------------------------------------------------------------

    @cached_property
    def is_poll(self) -> bool:
        """Whether it reads what another thread may write meanwhile."""
        return Trait.POLLS in self.meaning.traits or (self.meaning.effect is Effect.READS and self.is_strong)

    @cached_property
    def is_per_lane(self) -> bool:
        """Whether the results may differ from lane to lane though the sources do not."""
        return self.meaning.lanes is not Lanes.EACH

    @property
    def names_members(self) -> bool:
        """Whether lanes do it with those that its member mask names."""
        return self.meaning.lanes is Lanes.MEMBERS

    @property
    def is_whole_warp(self) -> bool:
        """Whether all lanes of the warp do it together."""
        return self.meaning.lanes is Lanes.WARP

    @cached_property
    def is_site(self) -> bool:
        """Whether lanes may have to wait at it for other lanes or warps."""
        return self.meaning.lanes in (Lanes.MEMBERS, Lanes.WARP, Lanes.BLOCK)

    @cached_property
    def is_barrier(self) -> bool:
        """Whether it waits for other warps: a barrier of the block or of the cluster."""
        return self.meaning.lanes is Lanes.BLOCK and self.meaning.effect is Effect.SYNCHRONISES

    @property
    def is_aligned(self) -> bool:
        """Whether all lanes of a warp come to a barrier together. Source: PTX ISA 9.1, "bar": as with ``.aligned``."""
        return self.opcode == "bar" or "aligned" in self.words

    @cached_property
    def needs_others(self) -> bool:
        """Whether lanes do it only with others: all but an arrival that is not ``.aligned``."""
        return self.meaning.effect is not Effect.ARRIVES or self.is_aligned


# The type of a scale is no operand's: it is a word like ue4m3.
_TYPES = {word: Type(word) for word in TYPES if word != "ue8m0"}
_SPACES = {word: word for word in SETS["SPACE"]}
_SPACES |= {"shared::cta": "shared", "shared::cluster": "cluster", "param::entry": "param"}
_SCOPES = frozenset((*SETS["SCOPE"], "gl"))
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}


@functools.lru_cache(maxsize=4096)
def form_of(opcode: str, *modifiers: str) -> Form:
    """Find out what an opcode means with its modifiers."""
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
        next((word for word in modifiers if word in _SCOPES), ""),
        next((_VECTORS[word] for word in modifiers if word in _VECTORS), 1),
    )
