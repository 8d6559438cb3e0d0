"""The table rows for bulk copies, textures, and surfaces.

Source: PTX ISA manual 9.1, sections 9.7.9.25, 9.7.9.27, 9.7.10, 9.7.11 and 9.7.13.16. ``table.py`` describes how far
they were checked.
"""

from __future__ import annotations

from cujit.formats.ptx.isa.sets import Forms

_FROM_SHARED = ".global .shared::cta"
_BETWEEN = ".shared::cluster .shared::cta .mbarrier::complete_tx::bytes"
_BYTES = ".mbarrier::complete_tx::bytes"
_MANY = "{.multicast::cluster|multicast::cluster::16b|multicast::cluster::32b}"
_GROUP = "{.cta_group::1|cta_group::2}"
_REDUCE = "cp .reduce .async .bulk"
_TILES = ".1d|2d|3d|4d|5d"
_IMAGES = ".3d|4d|5d"
_OVERRIDE = "{.override::global_address}"
_OVERRIDES = (
    (".1d", ".override::global_address .override::global_dim"),
    (".2d|3d|4d|5d", ".override::global_address .override::global_dim_stride"),
)
_LOADED = ((_TILES, "{.tile}"), (".2d", ".tile::gather4"), (_IMAGES, ".im2col|im2col::w|im2col::w::128"))
_STORED = ((_TILES, "{.tile}"), (".2d", ".tile::scatter4"), (_IMAGES, ".im2col_no_offs|im2col_no_offs::w"))
_REDUCED = ((_TILES, "{.tile}"), (_IMAGES, ".im2col_no_offs|im2col_no_offs::w"))
"""Ranks of tensors with the modes that they are copied in."""

_STRENGTHS = ((" {.weak}", ""), ("", " .b128"), (" .relaxed .SCOPE", " .b128"))
"""Orders of bulk copies, and the type of the pieces that ordered ones have."""
_OPERATIONS = "add|min|max|inc|dec|and|or|xor"
_IN_CLUSTER = (".and|or|xor .b32", ".add|min|max .u32|s32", ".inc|dec .u32", ".add .u64")
_IN_MEMORY = (
    ".and|or|xor .b32|b64",
    ".add|min|max .u32|s32|u64",
    ".min|max .s64",
    ".inc|dec .u32",
    ".add .f32|f64",
    ".add .noftz .f16|bf16|f32",
    ".min|max .f16|bf16",
)
"""Operations and types of bulk reductions in the shared memory of a cluster, and in global memory."""


def _with_overrides(modes: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str, str], ...]:
    """Return ranks and modes, each with the values that the instruction may specify instead of the tensor map.

    Tiles allow the most values.
    """
    return (*((*each, _OVERRIDE) for each in modes), *((rank, "{.tile}", other) for rank, other in _OVERRIDES))


COPIES: tuple[Forms, ...] = (
    Forms(
        "9.7.9.25",
        "8.0",
        90,
        *(
            f"cp .async .bulk{order} .shared::cluster .global {_BYTES} {{.REPORT}} {_MANY} {{.HINT}}{pieces}"
            for order, pieces in _STRENGTHS
        ),
        *(
            f"cp .async .bulk{order} .shared::cta .global {_BYTES} {{.REPORT}} {{.HINT}} {{.ignore_oob}}{pieces}"
            for order, pieces in _STRENGTHS
        ),
        f"cp .async .bulk {{.weak}} {_BETWEEN}",
        f"cp .async .bulk {_BETWEEN} .b128",
        f"cp .async .bulk .relaxed .cta|cluster {_BETWEEN} .b128",
        *(
            f"cp .async .bulk{order} {_FROM_SHARED} .bulk_group {{.HINT}} {{.cp_mask}}{pieces}"
            for order, pieces in _STRENGTHS
        ),
        "cp .async .bulk .prefetch .L2 .global {.HINT|L2::evict_last}",
        "cp .async .bulk .commit_group",
        "cp .async .bulk .wait_group {.read|sync_restrict::proxy::async}",
        *(
            f"cp .async .bulk .tensor {rank} {to} .global {mode} {_BYTES} {{.REPORT}}{many} {_GROUP} {{.HINT}} {other}"
            for to, many in ((".shared::cluster", f" {_MANY}"), (".shared::cta", ""))
            for rank, mode, other in _with_overrides(_LOADED)
        ),
        *(
            f"cp .async .bulk .tensor {rank} {_FROM_SHARED} {mode} .bulk_group {{.HINT}} {other}"
            for rank, mode, other in _with_overrides(_STORED)
        ),
        *(
            f"cp .async .bulk .prefetch .tensor {rank} .L2 .global {mode} {{.HINT|L2::evict_last}} {other}"
            for rank, mode, other in _with_overrides(_LOADED)
        ),
        *(f"{_REDUCE}{order} {_BETWEEN} {what}" for order in ("", " .relaxed .cta|cluster") for what in _IN_CLUSTER),
        *(
            f"{_REDUCE}{order} {_FROM_SHARED} .bulk_group {{.HINT}} {what}"
            for order in ("", " .relaxed .SCOPE")
            for what in _IN_MEMORY
        ),
        *(
            f"{_REDUCE} .tensor {rank} {_FROM_SHARED} .{_OPERATIONS} {mode} .bulk_group {{.HINT}} {other}"
            for rank, mode, other in _with_overrides(_REDUCED)
        ),
    ),
    Forms(
        "9.7.9.27",
        "8.3",
        90,
        "tensormap .replace .tile .global_address|global_stride {.global|shared::cta} .b1024 .b64",
        "tensormap .replace .tile .rank|box_dim|global_dim|element_stride|elemtype|interleave_layout|swizzle_mode"
        "|swizzle_atomicity|fill_mode {.global|shared::cta} .b1024 .b32",
    ),
    Forms(
        "9.7.9.27",
        "9.5",
        "90a 100f 110f 120f",
        "tensormap .replace .tile .global_address .alloc_small|alloc_large|alloc_same {.global|shared::cta} .b1024 "
        ".b64",
        "tensormap .replace .tile .alloc_small|alloc_large {.global|shared::cta} .b1024",
        "tensormap .query .alloc_class_large {.global|const|param|shared::cta} .b1024",
    ),
    Forms(
        "9.7.13.16",
        "8.3",
        90,
        "tensormap .cp_fenceproxy .global .shared::cta .tensormap::generic .release .SCOPE .sync .aligned",
    ),
)
"""Bulk copies, and the maps of tensors."""

_SURFACE = ".1d|2d|3d|a1d|a2d"
_OUTSIDE = ".trap|clamp|zero"
_FLAT = ".1d|2d|3d|a1d|a2d"


def _fetched(result: str) -> tuple[str, ...]:
    """Return the texture-lookup forms with ``result``: cubes by a direction, and samples by integers."""
    return (
        f"tex {{.base|level|grad}} {_FLAT} {result} .s32|f32",
        f"tex {{.base|level|grad}} .cube|acube {result} .f32",
        f"tex {{.base}} .2dms|a2dms {result} .s32",
    )


TEXTURE: tuple[Forms, ...] = (
    Forms("9.7.10", "1.0", 10, *_fetched(".v4 .u32|s32|f32|f16"), *_fetched(".v2 .f16x2")),
    Forms("9.7.10", "2.3", 20, "tld4 .r|g|b|a .2d|a2d|cube|acube .v4 .u32|s32|f32 .f32"),
    Forms(
        "9.7.10",
        "1.5",
        10,
        "txq .width|height|depth|channel_data_type|channel_order|normalized_coords|array_size|num_mipmap_levels"
        "|num_samples .b32",
        "txq .filter_mode|addr_mode_0|addr_mode_1|addr_mode_2|force_unnormalized_coords .b32",
        "txq .level .width|height|depth .b32",
    ),
    Forms("9.7.10", "4.0", 30, "istypep .texref|samplerref|surfref"),
    Forms(
        "9.7.11",
        "1.5",
        10,
        f"suld .b {_SURFACE} {{.ca|cg|cs|cv}} {{.v2|v4}} .b8|b16|b32 {_OUTSIDE}",
        f"suld .b {_SURFACE} {{.ca|cg|cs|cv}} {{.v2}} .b64 {_OUTSIDE}",
        f"sust .b {_SURFACE} {{.STORECOP}} {{.v2|v4}} .b8|b16|b32 {_OUTSIDE}",
        f"sust .b {_SURFACE} {{.STORECOP}} {{.v2}} .b64 {_OUTSIDE}",
        f"sust .p {_SURFACE} {{.v2|v4}} .b32 {_OUTSIDE}",
    ),
    Forms(
        "9.7.11",
        "2.0",
        20,
        f"sured .b .add .1d|2d|3d .u32|s32|u64 {_OUTSIDE}",
        f"sured .b .min|max .1d|2d|3d .u32|s32|u64|s64 {_OUTSIDE}",
        f"sured .b .and|or .1d|2d|3d .b32 {_OUTSIDE}",
        f"sured .p .add|min|max|and|or .1d|2d|3d .b32 {_OUTSIDE}",
    ),
    Forms("9.7.11", "1.5", 10, "suq .width|height|depth|channel_data_type|channel_order|array_size|memory_layout .b32"),
)
"""Textures and surfaces."""
