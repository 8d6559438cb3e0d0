"""The sets of modifiers that the forms of instructions share, and the shape of the tables."""

from __future__ import annotations

from cujit.values import group_by


class Forms:
    """Instruction forms from one section of the manual that were introduced together.

    ``ptx`` is the first ISA version. ``sm`` is the number of the first architecture (10 means every one), or a list of
    targets. A list has the notation of ``isa.since``, and its first target has the first architecture.
    """

    def __init__(self, section: str, ptx: str, sm: int | str, *forms: str) -> None:
        self.section, self.ptx, self.targets, self.forms = section, ptx, str(sm), forms


# Source: PTX ISA manual 9.1, the "Syntax" of the instructions in chapter 9.7 that use them.
_WORDS: dict[str, str] = {
    "INT": "u16 u32 u64 s16 s32 s64",
    "WHOLE": "u8 u16 u32 u64 s8 s16 s32 s64",
    "UNSIGNED": "u16 u32 u64",
    "SIGNED": "s16 s32 s64",
    "INT32": "u32 s32",
    "INT64": "u64 s64",
    "BITS": "b16 b32 b64",
    "BITSP": "pred b16 b32 b64",
    "HALF": "f16 f16x2 bf16 bf16x2",
    "PLAIN": "b16 b32 b64 u16 u32 u64 s16 s32 s64 f32 f64",
    "MOVABLE": "b8 b16 b32 b64 b128 u8 u16 u32 u64 s8 s16 s32 s64 f32 f64",
    "RND": "rn rz rm rp",
    "IRND": "rni rzi rmi rpi",
    "FLOATCMP": "eq ne lt le gt ge equ neu ltu leu gtu geu num nan",
    "UNSIGNEDCMP": "eq ne lt le gt ge lo ls hi hs",
    "SIGNEDCMP": "eq ne lt le gt ge",
    "BOOL": "and or xor",
    "SPACE": "const global local param param::entry param::func shared shared::cta shared::cluster",
    "STORESPACE": "global local param param::func shared shared::cta shared::cluster",
    "VOLATILESPACE": "global local shared shared::cta shared::cluster",
    "ORDEREDSPACE": "global shared shared::cta shared::cluster",
    "COP": "ca cg cs lu cv",
    "STORECOP": "wb cg cs wt",
    "EVICT1": "L1::evict_normal L1::evict_unchanged L1::evict_first L1::evict_last L1::no_allocate",
    "EVICT2": "L2::evict_normal L2::evict_first L2::evict_last",
    "HINT": "L2::cache_hint",
    "PREFETCH": "L2::64B L2::128B L2::256B",
    "CREATED": "L2::evict_last L2::evict_normal L2::evict_first L2::evict_unchanged",
    "SCOPE": "cta cluster gpu sys",
    "VEC": "v2 v4 v8",
    "SHARED": "shared shared::cta shared::cluster",
    "GEOMETRY": "1d 2d 3d a1d a2d cube acube 2dms a2dms",
    "VIDEO": "u32 s32",
    "REPORT": "mbarrier::report::disabled mbarrier::report::validity::per_element::ff "
    "mbarrier::report::validity::per_16bytes::80000000 mbarrier::report::validity::per_16bytes::8000 "
    "mbarrier::report::validity::per_16bytes::80 mbarrier::report::validity::per_16bytes::8",
}

# Source: PTX ISA manual 9.1, 5.2 "Types", and the types of the matrix and conversion instructions.
_WORDS["TYPE"] = (
    "pred b1 b4 b8 b16 b32 b64 b128 u2 u4 u8 u16 u32 u64 s2 s4 s8 s16 s32 s64 "
    "f16 f16x2 bf16 bf16x2 tf32 f32 f32x2 f64 u16x2 s16x2 u8x4 s8x4 e4m3 e5m2 e4m3x2 e5m2x2 e4m3x4 e5m2x4 "
    "e2m3 e3m2 e2m1 e2m3x2 e3m2x2 e2m1x2 e2m3x4 e3m2x4 e2m1x4 ue8m0 ue8m0x2 ue5m3x2 s2f6x2 texref samplerref surfref"
)
SETS: dict[str, tuple[str, ...]] = {name: tuple(words.split()) for name, words in _WORDS.items()}
"""What the words in capitals stand for."""

TYPES = frozenset(SETS["TYPE"])
"""Every modifier that names an operand type."""

_LEADING = (
    ("mul mad mul24 mad24 madc dp2a clmad", "lo hi wide"),
    ("shf", "l r"),
    ("div", "full"),
    ("bar barrier", "cta cluster arrive wait red warp"),
    ("cp", "async reduce bulk tensor prefetch commit_group wait_group wait_all mbarrier arrive"),
    ("fence membar", "proxy"),
    (
        "mbarrier",
        "init inval arrive arrive_drop expect_tx complete_tx test_wait try_wait parity pending_count check_layout",
    ),
    ("suld sust sured", "b p"),
    ("tensormap", "replace cp_fenceproxy query alloc_class_large"),
    ("clusterlaunchcontrol", "try_cancel async query_cancel"),
    ("createpolicy", "fractional range cvt"),
    ("cvt", "pack"),
    ("cvta", "to"),
    ("wgmma", "mma_async fence commit_group wait_group"),
    ("wmma", "load store mma a b c d"),
    ("setmaxnreg", "inc dec"),
    ("tex txq", "base level grad"),
    ("applypriority", "async bulk tensor"),
    ("trace", "mark"),
    ("st red", "async bulk"),
)
_ORDERED = (
    ("cp tensormap", "shared shared::cta shared::cluster global"),
    ("mma wmma", "row col"),
    ("mma", "f32 e2m1 ue4m3"),
    ("mma wmma wgmma", "and xor popc"),
    ("ldmatrix", "b8x16 b6x16_p32 b4x16_p64"),
)


def _by_opcode(rows: tuple[tuple[str, str], ...]) -> dict[str, list[frozenset[str]]]:
    return group_by((opcode, frozenset(words.split())) for opcodes, words in rows for opcode in opcodes.split())


LEADING = {opcode: frozenset().union(*groups) for opcode, groups in _by_opcode(_LEADING).items()}
"""Words that are part of the name of an instruction: they come first, in the order of its form.

Source: the orders that ptxas 13.0 and 13.5 take and refuse, tried with each word of every form in every place.
"""

ORDERED = _by_opcode(_ORDERED)
"""Groups of words that stand anywhere behind these, but among each other in the order of the form. Source: as above."""
