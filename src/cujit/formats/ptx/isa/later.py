"""Modifiers that are newer than their forms, and the words of open forms.

Source: PTX ISA manual 9.1, "PTX ISA Notes" and "Target ISA Notes" of the instructions of chapter 9.7. They were
compared with the requirements of ptxas 13.5 for a statement with each modifier. They were also compared with the
statements that ptxas 11.7 to 13.4 accept (``tests/toolkits`` runs the same statements again).
"""

from __future__ import annotations

import functools

from cujit.formats.ptx.isa.sets import SETS
from cujit.formats.ptx.isa.since import Since, since
from cujit.values import NamedTuple, dataclass

Version = tuple[int, int]


@dataclass(frozen=True)
class Later:
    """Words of a mnemonic that need a newer version or target than its form does.

    ``opcodes`` is empty if the row is for every opcode. The mnemonic must have one word from each set in ``words``, and
    no word in ``absent``. It must also have at least ``operands`` operands.
    """

    opcodes: frozenset[str]
    words: tuple[frozenset[str], ...]
    absent: frozenset[str]
    operands: int
    since: Since

    def applies(self, opcode: str, modifiers: tuple[str, ...], operands: int) -> bool:
        """Return whether an instruction has the words."""
        return (
            (not self.opcodes or opcode in self.opcodes)
            and operands >= self.operands
            and all(not choices.isdisjoint(modifiers) for choices in self.words)
            and self.absent.isdisjoint(modifiers)
        )


class _Row(NamedTuple):
    """One line of the table in its written form. ``*`` means every opcode, and ``!word`` means that
    the word is absent.
    """

    opcodes: str
    words: str
    ptx: str
    targets: str = "10"
    operands: int = 0


_AS_SHARED = "10= 11= 12= 13= 20= 21= 30= 32= 35= 37= 50= 52= 53= 60= 61= 62= 70= 72= 75= 80= 86= 87= 88@7.8"
"""Since when ``shared::cta`` is there: ptxas 11.7 reads it as ``shared`` in every version, for the targets it knows."""

_MEMORY = (
    _Row("*", "shared::cta !async", "1.0", _AS_SHARED),
    _Row("cp", "shared::cta async mbarrier", "1.0", _AS_SHARED),
    _Row("st red mbarrier fence", "shared::cta async", "7.8"),
    _Row("*", "shared::cluster", "7.8", "90"),
    _Row("*", "cluster", "7.8", "90"),
    _Row("*", "param::entry|param::func", "8.3"),
    _Row("*", "L2::cache_hint", "7.4", "80"),
    _Row("ld ldu st", "b128", "8.3", "70"),
    _Row("ld st", "mmio b128", "8.4", "70"),
    _Row("ld st", "volatile local", "9.1"),
    _Row("ld st", "v8 b32|u32|s32|f32", "8.8", "100"),
    _Row("ld st", "v4 b64|u64|s64|f64", "8.8", "100"),
    _Row("ld st", "L2::evict_first|L2::evict_last|L2::evict_normal", "8.8", "100"),
    _Row("ld", "L2::64B|L2::128B", "7.4", "75"),
    _Row("ld", "L2::256B", "7.4", "80"),
    _Row("cp", "L2::64B|L2::128B|L2::256B", "7.4", "80"),
    _Row("atom red", "relaxed|acquire|release|acq_rel", "5.1", "70"),
    _Row("atom red", "cta|gpu|sys", "5.0", "60"),
    _Row("atom", "sys b128", "8.4", "90"),
    _Row("red", "async release", "8.7", "100"),
    _Row("red", "async release and|or|xor|inc|dec|min|max|s64", "8.7", "100"),
    _Row("multimem", "acc::f32", "8.2", "90"),
    _Row("multimem", "acc::f16|e4m3|e5m2|e4m3x2|e5m2x2|e4m3x4|e5m2x4", "8.6", "100f 110f 120a 121a"),
)
_TEXTURE = (
    _Row("tex", "2dms|a2dms", "3.2", "30"),
    _Row("tex", "f16|f16x2", "4.2", "53"),
    _Row("tex", "grad cube|acube", "4.3"),
    _Row("tld4", "a2d|cube|acube", "4.3", "30"),
    _Row("txq", "array_size|num_mipmap_levels", "4.1"),
    _Row("txq", "num_samples", "4.1", "30"),
    _Row("txq", "level", "4.3", "30"),
    _Row("suq", "array_size", "4.1"),
    _Row("suq", "memory_layout", "4.2"),
    _Row("sust", "p a1d|a2d", "4.1", "30"),
    _Row("sured", "min|max u64|s64", "8.1", "50"),
)
_CONVERT = (
    _Row("cvt", "satfinite f16|f16x2|bf16|bf16x2|tf32 f32 !rs", "8.1"),
    _Row("cvt", "satfinite rn|rz tf32", "8.6", "100"),
    _Row("cvt", "e2m3x2|e3m2x2|e2m1x2|ue8m0x2", "8.6", "100f 110f 120f"),
    _Row("cvt", "rs", "8.7", "100a 103a 107a"),
    _Row("cvt", "s2f6x2", "9.1", "100a 103a 107a 110a 120a 121a"),
    _Row("cvt", "pack u4|s4|u2|s2", "6.5", "75"),
    _Row("cvt", "e4m3x2|e5m2x2 bf16x2", "9.1", "100f 110f 120f"),
    _Row("cvt", "e2m1x2 bf16x2 satfinite", "9.1", "100f 110f 120f"),
)
_ARITHMETIC = (
    _Row("min max", "f32", "8.8", "100", operands=4),
    _Row("add sub min max neg", "u8x4|s8x4", "9.2", "107f 120f"),
    _Row("add sub", "sat u16x2|s16x2|u32|u8x4|s8x4", "9.2", "107f 120f"),
    _Row("redux", "f32", "8.6", "100f"),
)
_SYNCHRONISE = (
    _Row("barrier", "cluster release|relaxed|acquire", "8.0", "90"),
    _Row("mbarrier", "release|acquire", "8.0", "80"),
    _Row("mbarrier", "shared::cluster", "8.0", "90"),
    _Row("mbarrier", "arrive|arrive_drop|test_wait|try_wait relaxed", "8.6", "90"),
    _Row("mbarrier", "test_wait parity", "7.1", "80"),
    _Row("mbarrier", "arrive|arrive_drop !noComplete !expect_tx", "7.8", "90", operands=3),
    _Row("fence", "proxy async", "8.0", "90"),
    _Row("fence", "proxy tensormap::generic", "8.3", "90"),
    _Row("fence", "proxy async::generic", "8.6", "90"),
    _Row("clusterlaunchcontrol", "multicast::cluster::all", "8.6", "100f 110f 120f"),
    _Row("setmaxnreg", "", "8.0", "90a 100f 110f 120f"),
)
_COPY = (
    _Row("cp", "bulk shared::cta global mbarrier::complete_tx::bytes", "8.6", "90"),
    _Row("cp", "cp_mask", "8.6", "100"),
    _Row("cp", "ignore_oob", "9.2", "90"),
    _Row("cp", "bulk weak|relaxed", "9.3", "90"),
    _Row("cp", "bulk noftz f32", "9.4", "90"),
    _Row("cp", "multicast::cluster::16b", "9.4", "90"),
    _Row("cp", "multicast::cluster::32b", "9.4", "107f"),
    _Row("cp", "bulk relaxed shared::cluster global", "9.3", "90a 100f 110f"),
    _Row("cp", "REPORT", "9.4", "107f"),
    _Row("cp", "bulk L2::evict_last", "9.4", "107f"),
    _Row("cp applypriority", "override::global_address", "9.4", "107f"),
    _Row("cp", "im2col_no_offs::w", "9.4", "107f"),
    _Row("cp", "sync_restrict::proxy::async", "9.5", "90"),
    _Row("cp", "tile::gather4|im2col::w", "8.6", "100"),
    _Row("cp", "tile::gather4|im2col::w prefetch|shared::cluster", "8.6", "100f 110f"),
    _Row("cp", "tile::scatter4|im2col::w::128|cta_group::1|cta_group::2", "8.6", "100f 110f"),
    _Row("tensormap", "replace", "8.3", "90a 100f 110f 120f"),
    _Row("tensormap", "swizzle_atomicity", "8.6", "100f 110f 120f"),
)
_MATRIX = (
    _Row("ldmatrix", "m16n16|m8n16 !s4", "8.6", "100f 110f 120f"),
    _Row("stmatrix", "m16n8", "8.6", "100f 110f 120f"),
    _Row("wmma", "aligned", "6.3", "70"),
    _Row("wmma", "m32n8k16|m8n32k16", "6.1", "70"),
    _Row("wmma", "u8|s8", "6.3", "72"),
    _Row("wmma", "m8n8k32|m8n8k128", "6.3", "75"),
    _Row("wmma", "bf16|tf32|f64", "7.0", "80"),
    _Row("wmma", "and", "7.1", "80"),
    _Row("mma", "m16n8k8|m8n8k16|m8n8k32", "6.5", "75"),
    _Row("mma", "m8n8k128", "7.0", "75"),
    _Row("mma", "m16n8k4|m16n8k16|m16n8k32|m16n8k64|m16n8k128|m16n8k256", "7.0", "80"),
    _Row("mma", "bf16|tf32|f64", "7.0", "80"),
    _Row("mma", "and", "7.1", "80"),
    _Row("mma", "f64 m16n8k4|m16n8k8|m16n8k16", "7.8", "90"),
    _Row("mma", "sp", "7.1", "80"),
    _Row("mma", "sp::ordered_metadata", "8.5", "80"),
    _Row("mma", "e4m3|e5m2", "8.4", "89"),
    _Row("mma", "e4m3|e5m2 f16|m16n8k16", "8.7", "89"),
    _Row("mma", "sp::ordered_metadata e4m3|e5m2 f16", "8.7", "120f"),
    _Row("mma", "kind::f8f6f4|kind::mxf8f6f4|kind::mxf4|kind::mxf4nvf4|block_scale|e2m1|e2m3|e3m2", "8.7", "120f"),
    _Row("mma", "sp::ordered_metadata kind::mxf4|kind::mxf4nvf4", "8.7", "120a 121a"),
    _Row("mma", "scale_vec::4X ue8m0", "9.1", "120f"),
    _Row("wgmma", "", "8.0", "90a"),
    _Row("wgmma", "sp", "8.2", "90a"),
    _Row("tcgen05", "", "8.6", "100f 110f"),
    _Row("tcgen05", "shift", "8.6", "100a 101a 103a 107a 110a"),
    _Row("tcgen05", "kind::i8", "8.6", "100a 101a 110a"),
    _Row("tcgen05", "ld red", "8.8", "103f 110f"),
)


def _later(row: _Row) -> Later:
    words = row.words.split()
    return Later(
        frozenset() if row.opcodes == "*" else frozenset(row.opcodes.split()),
        tuple(frozenset(SETS.get(word, word.split("|"))) for word in words if not word.startswith("!")),
        frozenset(word[1:] for word in words if word.startswith("!")),
        row.operands,
        since(row.ptx, row.targets),
    )


LATER: tuple[Later, ...] = tuple(
    _later(row) for row in (*_MEMORY, *_TEXTURE, *_CONVERT, *_ARITHMETIC, *_SYNCHRONISE, *_COPY, *_MATRIX)
)
"""Every row of the tables above."""


class Removed(NamedTuple):
    """Instructions that an ISA version removed, for an architecture and later ones.

    They have one of ``opcodes``, each of ``words`` (``|`` separates choices), and none of ``without``.
    """

    opcodes: str
    words: str
    without: str
    ptx: Version
    sm: int

    def applies(self, opcode: str, modifiers: tuple[str, ...]) -> bool:
        """Return whether an instruction was removed."""
        return (
            opcode in self.opcodes.split()
            and all(not set(word.split("|")).isdisjoint(modifiers) for word in self.words.split())
            and set(self.without.split()).isdisjoint(modifiers)
        )


_ROUNDED = "rn rz rm rp approx full"
_REMOVED = (
    Removed("shfl vote", "", "sync", (6, 4), 70),
    Removed("div rcp sqrt mad", "f32|f64", _ROUNDED, (1, 4), 10),
    Removed("rsqrt sin cos lg2 ex2", "f32|f64", "approx", (1, 4), 10),
    Removed("wmma", "", "aligned", (6, 3), 70),
    Removed("wmma", "mma f16|f32 satfinite", "", (6, 5), 70),
)
"""Source: PTX ISA manual 9.1, 9.7.9.5 "shfl (deprecated)", 9.7.13.8 "vote (deprecated)", the notes of the others; and
what nvJitLink 13.5 takes with ``.version`` 1.3, 6.2 and 9.5.
"""


@functools.lru_cache(maxsize=4096)
def removed_of(opcode: str, modifiers: tuple[str, ...]) -> Removed | None:
    """Return the row with the version that removed an instruction, or None if no version removed it."""
    return next((row for row in _REMOVED if row.applies(opcode, modifiers)), None)


# The words of the open forms, as far as they were tried; another word is not known to be as old as its form.
_INTEGERS = "u8 s8 u4 s4 b1 s32 u32 b32 u64 s64 b64 b16 u16 s16"
_FLOATS = "f16 bf16 f32 f64 tf32 f16x2 bf16x2"
_OPEN_WORDS = {
    "fabric": "submit",
    "tcgen05": "alloc dealloc relinquish_alloc_permit ld st wait::ld wait::st cp shift commit mma red "
    "fence::before_thread_sync fence::after_thread_sync cta_group::1 cta_group::2 sync aligned shared::cta "
    "shared::cluster b32 b64 f32 16x64b 16x128b 16x256b 32x32b 16x32bx2 x1 x2 x4 x8 x16 x32 x64 x128 pack::16b "
    "unpack::16b min max 128x256b 4x256b 128x128b down mbarrier::arrive::one kind::f16 kind::tf32 "
    "kind::f8f6f4 kind::i8",
    "multimem": "ld_reduce st red relaxed release weak cta gpu sys cluster global add min max and or xor acc::f32 "
    f"acc::f16 v2 v4 v8 e4m3 e5m2 e4m3x2 e5m2x2 e4m3x4 e5m2x4 {_INTEGERS} {_FLOATS}",
}


@functools.cache
def open_words(opcode: str) -> frozenset[str]:
    """Return the known words of an opcode's open forms."""
    return frozenset(_OPEN_WORDS.get(opcode, "").split())


@functools.lru_cache(maxsize=4096)
def later_of(opcode: str, modifiers: tuple[str, ...], operands: int) -> tuple[Later, ...]:
    """Find the rows that apply to an instruction of that many operands."""
    return tuple(row for row in LATER if row.applies(opcode, modifiers, operands))
