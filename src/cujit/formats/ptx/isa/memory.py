"""The instructions that move and convert data: loads, stores, moves, conversions, copies, textures.

Source: PTX ISA manual 9.1, sections 9.7.9 to 9.7.11. ``table.py`` says
how far they were checked.
"""

from __future__ import annotations

import itertools

from cujit.formats.ptx.isa.copies import COPIES, TEXTURE
from cujit.formats.ptx.isa.sets import Forms

_LOAD_CACHE = "{.EVICT1} {.EVICT2} {.HINT} {.PREFETCH}"
_STORE_CACHE = "{.EVICT1} {.EVICT2} {.HINT}"

_MOVE = (
    Forms("9.7.9.3", "1.0", 10, "mov .pred|PLAIN"),
    Forms("9.7.9.3", "1.0", 10, "mov .v2|v4 .PLAIN"),  # Special registers such as %tid are vectors.
    Forms("9.7.9.4", "8.3", 70, "mov .b128"),
    Forms("9.7.9.5", "3.0", 30, "shfl .up|down|bfly|idx .b32"),
    Forms("9.7.9.6", "5.1", 30, "shfl .sync .up|down|bfly|idx .b32"),
    Forms("9.7.9.7", "2.0", 20, "prmt .b32", "prmt .b32 .f4e|b4e|rc8|ecl|ecr|rc16"),
)
_LOAD_STORE = (
    Forms("9.7.9.8", "1.0", 10, "ld {.SPACE} {.VEC} .MOVABLE"),
    Forms("9.7.9.8", "1.1", 10, "ld .volatile {.VOLATILESPACE} {.EVICT2} {.PREFETCH} {.VEC} .MOVABLE"),
    Forms("9.7.9.8", "2.0", 20, "ld {.SPACE} .COP {.VEC} .MOVABLE"),
    Forms("9.7.9.8", "5.1", 70, "ld .weak {.SPACE} {.COP} {.VEC} .MOVABLE"),
    Forms("9.7.9.8", "5.1", 70, "ld .relaxed|acquire .SCOPE {.ORDEREDSPACE} {.VEC} .MOVABLE"),
    Forms("9.7.9.8", "7.4", 70, f"ld {{.weak}} {{.SPACE}} {{.COP}} {_LOAD_CACHE} {{.VEC}} .MOVABLE"),
    Forms("9.7.9.8", "7.4", 70, f"ld .relaxed|acquire .SCOPE {{.ORDEREDSPACE}} {_LOAD_CACHE} {{.VEC}} .MOVABLE"),
    Forms("9.7.9.8", "8.2", 70, "ld .mmio .relaxed .sys {.global} .MOVABLE"),
    Forms("9.7.9.8", "9.3", 70, "ld .mmio .acquire .sys {.global} .MOVABLE"),
    Forms(
        "9.7.9.8",
        "9.4",
        90,
        "ld .proxy::readonly {.global} {.EVICT2} {.VEC} .PLAIN|b8|u8|s8",
        "ld .proxy::readonly .global .nc {.EVICT2} {.VEC} .PLAIN|b8|u8|s8",
    ),
    Forms("9.7.9.9", "3.1", 32, "ld .global {.ca|cg|cs} .nc {.VEC} .MOVABLE"),
    Forms("9.7.9.9", "7.4", 70, f"ld .global {{.ca|cg|cs}} .nc {_LOAD_CACHE} {{.VEC}} .MOVABLE"),
    Forms("9.7.9.10", "2.0", 20, "ldu {.global} {.VEC} .MOVABLE"),
    Forms("9.7.9.11", "1.0", 10, "st {.STORESPACE} {.VEC} .MOVABLE"),
    Forms("9.7.9.11", "1.1", 10, "st .volatile {.VOLATILESPACE} {.EVICT2} {.VEC} .MOVABLE"),
    Forms("9.7.9.11", "2.0", 20, "st {.STORESPACE} .STORECOP {.VEC} .MOVABLE"),
    Forms("9.7.9.11", "5.1", 70, "st .weak {.STORESPACE} {.STORECOP} {.VEC} .MOVABLE"),
    Forms("9.7.9.11", "5.1", 70, "st .relaxed|release .SCOPE {.ORDEREDSPACE} {.VEC} .MOVABLE"),
    Forms("9.7.9.11", "7.4", 70, f"st {{.weak}} {{.STORESPACE}} {{.STORECOP}} {_STORE_CACHE} {{.VEC}} .MOVABLE"),
    Forms("9.7.9.11", "7.4", 70, f"st .relaxed|release .SCOPE {{.ORDEREDSPACE}} {_STORE_CACHE} {{.VEC}} .MOVABLE"),
    Forms("9.7.9.11", "8.2", 70, "st .mmio .relaxed .sys {.global} .MOVABLE"),
    Forms("9.7.9.11", "9.3", 70, "st .mmio .release .sys {.global} .MOVABLE"),
    Forms(
        "9.7.9.12",
        "8.1",
        90,
        "st .async {.weak} {.shared::cluster} .mbarrier::complete_tx::bytes {.v2|v4} .b32|u32|s32|f32",
        "st .async {.weak} {.shared::cluster} .mbarrier::complete_tx::bytes {.v2} .b64|u64|s64|f64",
    ),
    Forms(
        "9.7.9.12",
        "8.7",
        100,
        "st .async .release .gpu|sys {.global} .PLAIN",
        "st .async .mmio .release .sys {.global} .PLAIN",
    ),
    Forms("9.7.9.13", "8.6", 100, "st .bulk {.weak} {.shared::cta}"),
    Forms("9.7.9.14", "8.1", 90, "multimem ..."),
    Forms("9.7.9", "9.3", 100, "fabric ..."),  # no manual has it yet; ptxas 13.3 to 13.5 do
    Forms("9.7.9.15", "2.0", 20, "prefetch {.global|local} .L1|L2", "prefetchu .L1"),
    Forms("9.7.9.15", "7.4", 80, "prefetch {.global} .L2::evict_last|L2::evict_normal"),
    Forms("9.7.9.15", "8.0", 90, "prefetch {.const|param} .tensormap"),
    Forms("9.7.9.15", "9.4", 90, "prefetch {.global} {.L2::evict_last|L2::evict_normal} .L1::32B .valid_addr"),
    Forms("9.7.9.16", "7.4", 80, "applypriority {.global} .L2::evict_normal"),
    Forms(
        "9.7.9.16",
        "9.4",
        "107f",
        "applypriority .async .bulk {.global} .bulk_group .L2::evict_normal",
        "applypriority .async .bulk .tensor .1d|2d|3d|4d|5d {.global} .bulk_group {.tile} {.override::global_address} "
        ".L2::evict_normal",
        "applypriority .async .bulk .tensor .2d {.global} .bulk_group .tile::gather4 {.override::global_address} "
        ".L2::evict_normal",
        "applypriority .async .bulk .tensor .3d|4d|5d {.global} .bulk_group .im2col|im2col::w|im2col::w::128 "
        ".L2::evict_normal",
    ),
    Forms("9.7.9.17", "7.4", 80, "discard {.global} .L2"),
    Forms(
        "9.7.9.18",
        "7.4",
        80,
        "createpolicy .fractional .CREATED {.L2::evict_first|L2::evict_unchanged} .b64",
        "createpolicy .range {.global} .CREATED {.L2::evict_first|L2::evict_unchanged} .b64",
        "createpolicy .cvt .L2 .b64",
    ),
    Forms("9.7.9.19", "2.0", 20, "isspacep .global|local|shared"),
    Forms("9.7.9.19", "3.1", 20, "isspacep .const"),
    Forms("9.7.9.19", "7.7", 70, "isspacep .param|param::entry"),
    Forms("9.7.9.19", "2.0", 20, "isspacep .shared::cta"),
    Forms("9.7.9.19", "7.8", 90, "isspacep .shared::cluster"),
    Forms("9.7.9.20", "2.0", 20, "cvta {.to} .global|local|shared .u32|u64"),
    Forms("9.7.9.20", "3.1", 20, "cvta {.to} .const .u32|u64"),
    Forms("9.7.9.20", "7.7", 70, "cvta {.to} .param|param::entry .u32|u64"),
    Forms("9.7.9.20", "2.0", 20, "cvta {.to} .shared::cta .u32|u64"),
    Forms("9.7.9.20", "7.8", 90, "cvta {.to} .shared::cluster .u32|u64"),
)
_EIGHT = "e4m3x2|e5m2x2"
_SIX = "e2m3x2|e3m2x2"
_SCALED = "{.scaled::n2::ue8m0}"
_ONE_SCALE = "{.scaled::n1::ue8m0}"


def _saturated() -> tuple[str, ...]:
    """Return the integer conversions that can saturate, because the result type lacks some values of
    the source type.
    """
    signs, sizes = "us", (8, 16, 32, 64)
    forms = []
    for to, bits in itertools.product(signs, sizes):
        larger = {(sign, size) for sign, size in itertools.product(signs, sizes) if size > bits}
        of_sign = {(sign, bits) for sign in signs if sign != to}
        negative = {("s", size) for size in sizes if to == "u"}
        sources = sorted(larger | of_sign | negative, key=lambda source: (source[1], source[0]))
        forms.append(f"cvt .sat .{to}{bits} .{'|'.join(f'{sign}{size}' for sign, size in sources)}")
    return tuple(forms)


_SPARSE_NUMBERS = ".x1|x2|x4|x8|x16|x32|x64"
_SPARSE = (
    Forms(
        "9.7.9",
        "9.4",
        "107a",
        f"spcompress .b8|b16 .b2|b4 .sp::2:4 {_SPARSE_NUMBERS}",
        f"spdecompress .b8|b16 .b2|b4 .sp::1:2|sp::1:4|sp::1:8|sp::1:16|sp::2:4|sp::2:8|sp::2:16|sp::4:8|sp::4:16 "
        f"{_SPARSE_NUMBERS}",
    ),
)
_CONVERT = (
    Forms("9.7.9.21", "1.0", 10, "cvt .WHOLE .WHOLE", *_saturated()),
    Forms(
        "9.7.9.21",
        "1.0",
        10,
        "cvt .RND {.ftz} {.sat} .f32 .WHOLE|f64",
        "cvt .RND {.sat} .f16|f64 .WHOLE",
        "cvt .RND {.ftz} {.sat} .f16 .f32",
        "cvt .RND {.sat} .f16 .f64",
        "cvt .IRND {.ftz} {.sat} .WHOLE .f32",
        "cvt .IRND {.sat} .WHOLE .f16|f64",
        "cvt {.ftz} {.sat} .f32 .f16",
        "cvt {.ftz} {.sat} .f64 .f32",
        "cvt {.sat} .f64 .f16",
        "cvt {.IRND} {.ftz} {.sat} .f32 .f32",
        "cvt {.IRND} {.sat} .f16 .f16",
        "cvt {.IRND} {.sat} .f64 .f64",
    ),
    Forms("9.7.9.21", "7.0", 80, "cvt .rn|rz .relu .f16 .f32"),
    Forms("9.7.9.21", "7.0", 80, "cvt .rn|rz {.relu} {.satfinite} .f16x2|bf16|bf16x2 .f32"),
    Forms("9.7.9.21", "8.1", 70, "cvt .rn|rz .satfinite .f16 .f32"),
    Forms("9.7.9.21", "8.1", 80, "cvt .rn|rz .relu .satfinite .f16 .f32"),
    Forms("9.7.9.21", "7.0", 80, "cvt .RND .ftz .bf16 .f32", "cvt .rm|rp .bf16 .f32"),
    Forms("9.7.9.21", "7.1", 80, "cvt {.RND} .f32 .bf16"),
    Forms("9.7.9.21", "7.1", "80= 86= 87= 89= 90", "cvt {.RND} .ftz .f32 .bf16"),
    Forms(
        "9.7.9.21",
        "7.8",
        90,
        "cvt .RND .bf16 .WHOLE|f64",
        "cvt {.RND} .bf16 .f16",
        "cvt {.RND} .f16|f64 .bf16",
        "cvt {.IRND} .bf16 .bf16",
        "cvt .IRND .WHOLE .bf16",
    ),
    Forms("9.7.9.21", "7.0", 80, "cvt .rna {.satfinite} .tf32 .f32"),
    Forms("9.7.9.21", "7.8", 90, "cvt .rn|rz {.satfinite} {.relu} .tf32 .f32"),
    Forms("9.7.9.21", "8.1", "89 90@7.8", f"cvt .rn .satfinite {{.relu}} .{_EIGHT} .f32|f16x2"),
    Forms("9.7.9.21", "8.1", "89 90@7.8", f"cvt .rn {{.relu}} .f16x2 .{_EIGHT}"),
    Forms("9.7.9.21", "9.1", 100, f"cvt .rn .satfinite {{.relu}} .{_EIGHT} .bf16x2"),
    Forms("9.7.9.21", "9.1", 100, f"cvt .rn .satfinite {{.relu}} .{_SIX}|e2m1x2 .f16x2|bf16x2"),
    Forms("9.7.9.21", "8.6", 100, f"cvt .rn .satfinite {{.relu}} .{_SIX}|e2m1x2 .f32"),
    Forms("9.7.9.21", "8.6", "100f 110", "cvt .rn .satfinite {.relu} .e2m1x2 .f16x2"),
    Forms("9.7.9.21", "8.6", 100, f"cvt .rn {{.relu}} .f16x2 .{_SIX}|e2m1x2"),
    Forms("9.7.9.21", "8.6", 100, "cvt .rz|rp {.satfinite} .ue8m0x2 .f32|bf16x2"),
    Forms("9.7.9.21", "8.6", 100, "cvt .rn .bf16x2 .ue8m0x2"),
    Forms("9.7.9.21", "9.1", 100, f"cvt .rn .satfinite {{.relu}} {_SCALED} .s2f6x2 .f32|bf16x2"),
    Forms("9.7.9.21", "9.1", 100, f"cvt .rn {{.satfinite}} {{.relu}} {_SCALED} .bf16x2 .s2f6x2"),
    Forms("9.7.9.21", "9.2", 100, f"cvt .rn {{.satfinite}} {{.relu}} {_SCALED} .bf16x2 .{_EIGHT}|{_SIX}|e2m1x2"),
    Forms("9.7.9.21", "8.7", 100, "cvt .rs {.relu} {.satfinite} .f16x2|bf16x2 .f32"),
    Forms("9.7.9.21", "8.7", 100, "cvt .rs {.relu} .satfinite .e4m3x4|e5m2x4|e2m3x4|e3m2x4|e2m1x4 .f32"),
    Forms(
        "9.7.9.21",
        "9.4",
        "107f",
        "cvt .RND .pzo .f16|bf16 .f32",
        "cvt .rn|rz {.relu} {.satfinite} .pzo .f16|bf16|f16x2|bf16x2|tf32 .f32",
        f"cvt .rn|rz .satfinite {{.relu}} {{.pzo}} {_ONE_SCALE} .{_EIGHT}|{_SIX}|e2m1x2 .f32|f16x2|bf16x2",
        f"cvt .rn|rz {{.satfinite}} {_ONE_SCALE} .ue5m3x2 .f32|f16x2|bf16x2",
        "cvt .rp {.satfinite} .ue5m3x2 .f32|f16x2|bf16x2",
        "cvt .rn .f16x2 .ue5m3x2",
        f"cvt .rn {{.satfinite}} {_SCALED} .bf16x2 .ue5m3x2",
    ),
    Forms("9.7.9.22", "6.5", 72, "cvt .pack .sat .u16|s16 .s32", "cvt .pack .sat .u8|s8|u4|s4|u2|s2 .s32 .b32"),
    Forms("9.7.9.23", "7.8", 90, "mapa {.shared::cluster} .u32|u64"),
    Forms("9.7.9.24", "7.8", 90, "getctarank {.shared::cluster} .u32|u64"),
)
_ASYNCHRONOUS = (
    Forms("9.7.9.25.3.1", "7.0", 80, "cp .async .ca|cg .shared|shared::cta .global {.HINT} {.PREFETCH}"),
    Forms("9.7.9.25.3.2", "7.0", 80, "cp .async .commit_group"),
    Forms("9.7.9.25.3.3", "7.0", 80, "cp .async .wait_group", "cp .async .wait_all"),
    Forms("9.7.13.15", "7.0", 80, "cp .async .mbarrier .arrive {.noinc} {.shared|shared::cta} .b64"),
)

MEMORY: tuple[Forms, ...] = (*_MOVE, *_LOAD_STORE, *_CONVERT, *_SPARSE, *_ASYNCHRONOUS, *COPIES, *TEXTURE)
"""Every form of the sections above."""
