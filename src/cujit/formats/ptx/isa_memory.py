"""The instructions that move and convert data: loads, stores, moves, conversions, copies, textures.

Source: PTX ISA manual 9.1, sections 9.7.9 to 9.7.11. ``isa.py`` says
how far they were checked.
"""

from __future__ import annotations

from cujit.formats.ptx.isa_sets import Forms

__all__ = ["MEMORY"]

_LOAD_CACHE = "{.EVICT1} {.EVICT2} {.HINT} {.PREFETCH}"
_STORE_CACHE = "{.EVICT1} {.EVICT2} {.HINT}"

_MOVE = (
    Forms("9.7.9.3", "1.0", 10, ("mov .pred|PLAIN",)),
    Forms("9.7.9.3", "1.0", 10, ("mov .v2|v4 .PLAIN",)),  # Special registers such as %tid are vectors.
    Forms("9.7.9.4", "8.3", 70, ("mov .b128",)),
    Forms("9.7.9.5", "3.0", 30, ("shfl .up|down|bfly|idx .b32",)),
    Forms("9.7.9.6", "6.0", 30, ("shfl .sync .up|down|bfly|idx .b32",)),
    Forms("9.7.9.7", "2.0", 20, ("prmt .b32", "prmt .b32 .f4e|b4e|rc8|ecl|ecr|rc16")),
)
_LOAD_STORE = (
    Forms("9.7.9.8", "1.0", 10, ("ld {.SPACE} {.VEC} .MOVABLE",)),
    Forms("9.7.9.8", "1.1", 10, ("ld .volatile {.SPACE} {.PREFETCH} {.VEC} .MOVABLE",)),
    Forms("9.7.9.8", "2.0", 20, ("ld {.SPACE} .COP {.VEC} .MOVABLE",)),
    Forms("9.7.9.8", "6.0", 70, ("ld .weak {.SPACE} {.COP} {.VEC} .MOVABLE",)),
    Forms("9.7.9.8", "6.0", 70, ("ld .relaxed|acquire .SCOPE {.SPACE} {.VEC} .MOVABLE",)),
    Forms("9.7.9.8", "7.4", 70, (f"ld {{.weak}} {{.SPACE}} {{.COP}} {_LOAD_CACHE} {{.VEC}} .MOVABLE",)),
    Forms("9.7.9.8", "7.4", 70, (f"ld .relaxed|acquire .SCOPE {{.SPACE}} {_LOAD_CACHE} {{.VEC}} .MOVABLE",)),
    Forms("9.7.9.8", "8.2", 70, ("ld .mmio .relaxed .sys {.global} .MOVABLE",)),
    Forms("9.7.9.9", "3.1", 32, ("ld .global {.ca|cg|cs} .nc {.VEC} .MOVABLE",)),
    Forms("9.7.9.9", "7.4", 70, (f"ld .global {{.ca|cg|cs}} .nc {_LOAD_CACHE} {{.VEC}} .MOVABLE",)),
    Forms("9.7.9.10", "2.0", 20, ("ldu {.global} {.VEC} .MOVABLE",)),
    Forms("9.7.9.11", "1.0", 10, ("st {.SPACE} {.VEC} .MOVABLE",)),
    Forms("9.7.9.11", "1.1", 10, ("st .volatile {.SPACE} {.VEC} .MOVABLE",)),
    Forms("9.7.9.11", "2.0", 20, ("st {.SPACE} .STORECOP {.VEC} .MOVABLE",)),
    Forms("9.7.9.11", "6.0", 70, ("st .weak {.SPACE} {.STORECOP} {.VEC} .MOVABLE",)),
    Forms("9.7.9.11", "6.0", 70, ("st .relaxed|release .SCOPE {.SPACE} {.VEC} .MOVABLE",)),
    Forms("9.7.9.11", "7.4", 70, (f"st {{.weak}} {{.SPACE}} {{.STORECOP}} {_STORE_CACHE} {{.VEC}} .MOVABLE",)),
    Forms("9.7.9.11", "7.4", 70, (f"st .relaxed|release .SCOPE {{.SPACE}} {_STORE_CACHE} {{.VEC}} .MOVABLE",)),
    Forms("9.7.9.11", "8.2", 70, ("st .mmio .relaxed .sys {.global} .MOVABLE",)),
    Forms(
        "9.7.9.12",
        "8.1",
        90,
        ("st .async {.weak} {.shared::cluster} .mbarrier::complete_tx::bytes {.VEC} .MOVABLE",),
    ),
    Forms("9.7.9.12", "8.7", 100, ("st .async {.mmio} .release .SCOPE {.global} .MOVABLE",)),
    Forms("9.7.9.13", "8.6", 100, ("st .bulk {.weak} {.shared::cta}",)),
    Forms("9.7.9.14", "8.1", 90, ("multimem ...",)),
    Forms("9.7.9.15", "2.0", 20, ("prefetch {.global|local} .L1|L2", "prefetchu .L1")),
    Forms("9.7.9.15", "7.4", 80, ("prefetch .global .L2::evict_last|L2::evict_normal",)),
    Forms("9.7.9.15", "8.0", 90, ("prefetch {.const|param} .tensormap",)),
    Forms("9.7.9.16", "7.4", 80, ("applypriority {.global} .L2::evict_normal",)),
    Forms("9.7.9.17", "7.4", 80, ("discard {.global} .L2",)),
    Forms(
        "9.7.9.18",
        "7.4",
        80,
        (
            "createpolicy .fractional .CREATED {.CREATED} .b64",
            "createpolicy .range {.global} .CREATED {.CREATED} .b64",
            "createpolicy .cvt .L2 .b64",
        ),
    ),
    Forms("9.7.9.19", "2.0", 20, ("isspacep .global|local|shared",)),
    Forms("9.7.9.19", "3.1", 20, ("isspacep .const",)),
    Forms("9.7.9.19", "7.7", 70, ("isspacep .param|param::entry",)),
    Forms("9.7.9.19", "7.8", 30, ("isspacep .shared::cta",)),
    Forms("9.7.9.19", "7.8", 90, ("isspacep .shared::cluster",)),
    Forms("9.7.9.20", "2.0", 20, ("cvta {.to} .global|local|shared .u32|u64",)),
    Forms("9.7.9.20", "3.1", 20, ("cvta {.to} .const .u32|u64",)),
    Forms("9.7.9.20", "7.7", 70, ("cvta {.to} .param|param::entry .u32|u64",)),
    Forms("9.7.9.20", "7.8", 30, ("cvta {.to} .shared::cta .u32|u64",)),
    Forms("9.7.9.20", "7.8", 90, ("cvta {.to} .shared::cluster .u32|u64",)),
)
_EIGHT = "e4m3x2|e5m2x2"
_SIX = "e2m3x2|e3m2x2"
_CONVERT = (
    Forms("9.7.9.21", "1.0", 10, ("cvt {.IRND|RND} {.ftz} {.sat} .CONVERTIBLE .CONVERTIBLE",)),
    Forms("9.7.9.21", "7.0", 80, ("cvt .rn|rz {.relu} .f16 .f32",)),
    Forms("9.7.9.21", "7.0", 80, ("cvt .rn|rz {.relu} {.satfinite} .f16x2|bf16|bf16x2 .f32",)),
    Forms("9.7.9.21", "8.1", 70, ("cvt .rn|rz .satfinite .f16 .f32",)),
    Forms("9.7.9.21", "8.1", 80, ("cvt .rn|rz .relu .satfinite .f16 .f32",)),
    Forms("9.7.9.21", "7.1", 80, ("cvt .f32 .bf16",)),
    Forms("9.7.9.21", "7.8", 90, ("cvt {.IRND|RND} {.ftz} {.sat} .CONVERTIBLE|bf16 .CONVERTIBLE|bf16",)),
    Forms("9.7.9.21", "7.0", 80, ("cvt .rna {.satfinite} .tf32 .f32",)),
    Forms("9.7.9.21", "7.8", 90, ("cvt .rn|rz {.satfinite} {.relu} .tf32 .f32",)),
    Forms("9.7.9.21", "8.1", 89, (f"cvt .rn .satfinite {{.relu}} .{_EIGHT} .f32|f16x2",)),
    Forms("9.7.9.21", "8.1", 89, (f"cvt .rn {{.relu}} .f16x2 .{_EIGHT}",)),
    Forms("9.7.9.21", "9.1", 100, (f"cvt .rn .satfinite {{.relu}} .{_EIGHT} .bf16x2",)),
    Forms("9.7.9.21", "9.1", 100, (f"cvt .rn .satfinite {{.relu}} .{_SIX}|e2m1x2 .f16x2|bf16x2",)),
    Forms("9.7.9.21", "8.6", 100, (f"cvt .rn .satfinite {{.relu}} .{_SIX}|e2m1x2 .f32",)),
    Forms("9.7.9.21", "8.6", 100, (f"cvt .rn {{.relu}} .f16x2 .{_SIX}|e2m1x2",)),
    Forms("9.7.9.21", "8.6", 100, ("cvt .rz|rp {.satfinite} .ue8m0x2 .f32|bf16x2",)),
    Forms("9.7.9.21", "8.6", 100, ("cvt .rn .bf16x2 .ue8m0x2",)),
    Forms("9.7.9.21", "8.7", 100, ("cvt .rs {.relu} {.satfinite} .f16x2|bf16x2 .f32",)),
    Forms(
        "9.7.9.21",
        "8.7",
        100,
        ("cvt .rs {.relu} .satfinite .e4m3x4|e5m2x4|e2m3x4|e3m2x4|e2m1x4 .f32",),
    ),
    Forms("9.7.9.22", "6.5", 72, ("cvt .pack .sat .u16|s16 .s32", "cvt .pack .sat .u8|s8|u4|s4|u2|s2 .s32 .b32")),
    Forms("9.7.9.23", "7.8", 90, ("mapa {.shared::cluster} .u32|u64",)),
    Forms("9.7.9.24", "7.8", 90, ("getctarank {.shared::cluster} .u32|u64",)),
)
_ASYNCHRONOUS = (
    Forms("9.7.9.25.3.1", "7.0", 80, ("cp .async .ca|cg .shared|shared::cta .global {.HINT} {.PREFETCH}",)),
    Forms("9.7.9.25.3.2", "7.0", 80, ("cp .async .commit_group",)),
    Forms("9.7.9.25.3.3", "7.0", 80, ("cp .async .wait_group", "cp .async .wait_all")),
    Forms("9.7.13.15", "7.0", 80, ("cp .async .mbarrier .arrive {.noinc} {.shared|shared::cta} .b64",)),
    Forms("9.7.9.25", "8.0", 90, ("cp .async .bulk ...", "cp .reduce .async .bulk ...")),
    Forms("9.7.9.27", "8.3", 90, ("tensormap .replace ...",)),
    Forms("9.7.13.16", "8.3", 90, ("tensormap .cp_fenceproxy ...",)),
)
_TEXTURE = (
    Forms("9.7.10", "1.0", 10, ("tex {.base|level|grad} .GEOMETRY ...",)),
    Forms("9.7.10", "2.3", 20, ("tld4 .r|g|b|a .2d|a2d|cube|acube ...",)),
    Forms("9.7.10", "1.5", 10, ("txq ...",)),
    Forms("9.7.10", "2.3", 30, ("istypep .texref|samplerref|surfref",)),
    Forms("9.7.11", "1.5", 10, ("suld .b .1d|2d|3d|a1d|a2d ...", "sust .b|p .1d|2d|3d|a1d|a2d ...")),
    Forms("9.7.11", "2.0", 20, ("sured .b|p .add|min|max|and|or .1d|2d|3d ...",)),
    Forms("9.7.11", "1.5", 10, ("suq ...",)),
)

MEMORY: tuple[Forms, ...] = (*_MOVE, *_LOAD_STORE, *_CONVERT, *_ASYNCHRONOUS, *_TEXTURE)
"""Every form of the sections above."""
