"""The instructions of matrices: of a warp, and of a warpgroup.

Source: PTX ISA manual 9.1, sections 9.7.14 to 9.7.16. ``table.py`` says how far they were checked.
"""

from __future__ import annotations

from cujit.formats.ptx.isa.sets import Forms
from cujit.formats.ptx.isa.tensor import TENSOR

_SMEM = "{.shared|shared::cta}"
_MOVE = (
    Forms(
        "9.7.14",
        "6.5",
        75,
        f"ldmatrix .sync .aligned .m8n8 .x1|x2|x4 {{.trans}} {_SMEM} .b16",
        f"ldmatrix .sync .aligned .m8n16 .x1|x2|x4 {_SMEM} .b8x16 .b6x16_p32|b4x16_p64",
        f"ldmatrix .sync .aligned .m16n16 .x1|x2 .trans {_SMEM} .b8",
        f"ldmatrix .sync .aligned .m16n16 .x1|x2 .trans {_SMEM} .b8x16 .b6x16_p32|b4x16_p64",
    ),
    Forms(
        "9.7.14",
        "7.8",
        90,
        f"stmatrix .sync .aligned .m8n8 .x1|x2|x4 {{.trans}} {_SMEM} .b16",
        f"stmatrix .sync .aligned .m16n8 .x1|x2|x4 .trans {_SMEM} .b8",
    ),
    Forms("9.7.14", "9.4", "90a 100f 110f 120f", f"ldmatrix .sync .aligned .m8n16 .x1|x2|x4 {_SMEM} .s8 .s4"),
    Forms("9.7.14", "7.8", 75, "movmatrix .sync .aligned .m8n8 .trans .b16"),
)

# -- wmma: ``.aligned`` may be left out of the forms that are older than it ----------------------------------
_WIDE = "m16n16k16|m32n8k16|m8n32k16"
_WMMA = "wmma .mma .sync"
_SQUARE = ".row|col .row|col"
_FRAGMENT_SPACE = "{.global|shared|shared::cta}"
_BITS = ".row .col .m8n8k128 .s32 .b1 .b1 .s32"


def _fragments(aligned: str, shape: str, factor: str, result: str, layouts: str = ".row|col") -> tuple[str, ...]:
    """Return the load and store forms of a shape.

    ``layouts`` are the layouts of a. If a has only one layout, b has only the other layout.
    """
    tail = f".{shape} {_FRAGMENT_SPACE}"
    factors = [f"wmma .load .a|b .sync {aligned} {layouts} {tail} .{factor}"]
    if layouts == ".row":
        factors = [f"wmma .load .{m} .sync {aligned} .{n} {tail} .{factor}" for m, n in (("a", "row"), ("b", "col"))]
    return (
        *factors,
        f"wmma .load .c .sync {aligned} .row|col {tail} .{result}",
        f"wmma .store .d .sync {aligned} .row|col {tail} .{result}",
    )


_FRAGMENT = (
    Forms(
        "9.7.14",
        "5.1",
        70,
        *_fragments("{.aligned}", _WIDE, "f16", "f16|f32"),
        f"{_WMMA} {{.aligned}} {_SQUARE} .{_WIDE} .f16|f32 .f16|f32 {{.satfinite}}",
    ),
    Forms(
        "9.7.14",
        "6.3",
        72,
        *_fragments(".aligned", _WIDE, "u8|s8", "s32"),
        *(f"{_WMMA} .aligned {_SQUARE} .{_WIDE} .s32 .{t} .{t} .s32 {{.satfinite}}" for t in ("u8", "s8")),
    ),
    Forms(
        "9.7.14",
        "6.3",
        75,
        *_fragments(".aligned", "m8n8k32", "u4|s4", "s32", ".row"),
        *_fragments(".aligned", "m8n8k128", "b1", "s32", ".row"),
        *(f"{_WMMA} .aligned .row .col .m8n8k32 .s32 .{t} .{t} .s32 {{.satfinite}}" for t in ("u4", "s4")),
        f"wmma .mma .xor .popc .sync .aligned {_BITS}",
    ),
    Forms("9.7.14", "7.1", 80, f"wmma .mma .and .popc .sync .aligned {_BITS}"),
    Forms(
        "9.7.14",
        "7.0",
        80,
        f"wmma .load .a|b .sync .aligned .row|col .{_WIDE} {_FRAGMENT_SPACE} .bf16",
        *_fragments(".aligned", "m16n16k8", "tf32", "f32"),
        *_fragments(".aligned", "m8n8k4", "f64", "f64"),
        f"{_WMMA} .aligned {_SQUARE} .{_WIDE} .f32 .bf16 .bf16 .f32",
        f"{_WMMA} .aligned {_SQUARE} .m16n16k8 .f32 .tf32 .tf32 .f32",
        f"{_WMMA} .aligned {_SQUARE} .m8n8k4 {{.RND}} .f64 .f64 .f64 .f64",
    ),
)

# -- mma --------------------------------------------------------------------------------------------------
_BYTE = "e4m3|e5m2"
_SMALL = "e4m3|e5m2|e3m2|e2m3|e2m1"
_SUMS = ("f16", "f32")
_MMA = "mma .sync .aligned"
_SPARSE = "mma .sp|sp::ordered_metadata .sync .aligned"
_ORDERED = "mma .sp::ordered_metadata .sync .aligned"
_SCALED = ".row .col .kind::{kind} .block_scale {scale} .f32 .{a} .{a} .f32 .{by}"


def _scaled(head: str, shapes: tuple[str, str]) -> tuple[str, ...]:
    """The forms with a scale for each block: shapes for numbers of 8 bits and less, and of 4 bits."""
    eight, four = shapes
    return (
        f"{head} .{eight} " + _SCALED.format(kind="mxf8f6f4", scale="{.scale_vec::1X}", a=_SMALL, by="ue8m0"),
        f"{head} .{four} " + _SCALED.format(kind="mxf4", scale="{.scale_vec::2X}", a="e2m1", by="ue8m0"),
        f"{head} .{four} " + _SCALED.format(kind="mxf4nvf4", scale=".scale_vec::2X", a="e2m1", by="ue8m0"),
        f"{head} .{four} " + _SCALED.format(kind="mxf4nvf4", scale=".scale_vec::4X", a="e2m1", by="ue8m0|ue4m3"),
    )


_MULTIPLY = (
    Forms(
        "9.7.14",
        "6.4",
        70,
        f"{_MMA} .m8n8k4 .row|col .row|col .f16 .f16 .f16 .f16",
        f"{_MMA} .m8n8k4 .row|col .row|col .f32 .f16 .f16 .f16|f32",
        *(f"{_MMA} .m16n8k8|m16n8k16 .row .col .{d} .f16 .f16 .{d}" for d in _SUMS),
        f"{_MMA} .m16n8k8|m16n8k16 .row .col .f32 .bf16 .bf16 .f32",
        f"{_MMA} .m16n8k4|m16n8k8 .row .col .f32 .tf32 .tf32 .f32",
        f"{_MMA} .m8n8k4|m16n8k4|m16n8k8|m16n8k16 .row .col {{.RND}} .f64 .f64 .f64 .f64",
        f"{_MMA} .m8n8k16|m16n8k16|m16n8k32 .row .col {{.satfinite}} .s32 .u8|s8 .u8|s8 .s32",
        f"{_MMA} .m8n8k32|m16n8k32|m16n8k64 .row .col {{.satfinite}} .s32 .u4|s4 .u4|s4 .s32",
        f"{_MMA} .m8n8k128|m16n8k128|m16n8k256 .row .col .s32 .b1 .b1 .s32 .xor|and .popc",
        *(f"{_MMA} .m16n8k16|m16n8k32 .row .col .{d} .{_BYTE} .{_BYTE} .{d}" for d in _SUMS),
        *(f"{_MMA} .m16n8k32 .row .col .kind::f8f6f4 .{d} .{_SMALL} .{_SMALL} .{d}" for d in _SUMS),
        *_scaled(_MMA, ("m16n8k32", "m16n8k64")),
    ),
    Forms(
        "9.7.14",
        "7.1",
        80,
        *(f"{_SPARSE} .m16n8k16|m16n8k32 .row .col .{d} .f16 .f16 .{d}" for d in _SUMS),
        f"{_SPARSE} .m16n8k16|m16n8k32 .row .col .f32 .bf16 .bf16 .f32",
        f"{_SPARSE} .m16n8k8|m16n8k16 .row .col .f32 .tf32 .tf32 .f32",
        f"{_SPARSE} .m16n8k32|m16n8k64 .row .col {{.satfinite}} .s32 .u8|s8 .u8|s8 .s32",
        f"{_SPARSE} .m16n8k64|m16n8k128 .row .col {{.satfinite}} .s32 .u4|s4 .u4|s4 .s32",
        f"{_SPARSE} .m16n8k64 .row .col .f32 .{_BYTE} .{_BYTE} .f32",
        f"{_ORDERED} .m16n8k64 .row .col .f16 .{_BYTE} .{_BYTE} .f16",
        *(f"{_ORDERED} .m16n8k64 .row .col .kind::f8f6f4 .{d} .{_SMALL} .{_SMALL} .{d}" for d in _SUMS),
        *_scaled(_ORDERED, ("m16n8k64", "m16n8k128")),
    ),
)

# -- wgmma ------------------------------------------------------------------------------------------------
_EVERY_8 = tuple(range(8, 257, 8))
_INTEGER_N = (8, 16, 24, 32, *range(48, 257, 16))


def _shapes(columns: tuple[int, ...], depth: int) -> str:
    return "|".join(f"m64n{n}k{depth}" for n in columns)


def _warpgroup(head: str, depths: int) -> tuple[str, ...]:
    """The forms of a head; sparse ones go ``depths`` times as deep."""
    return (
        f"{head} .{_shapes(_EVERY_8, 16 * depths)} .f16|f32 .f16 .f16",
        f"{head} .{_shapes(_EVERY_8, 16 * depths)} .f32 .bf16 .bf16",
        f"{head} .{_shapes(_EVERY_8, 8 * depths)} .f32 .tf32 .tf32",
        f"{head} .{_shapes(_EVERY_8, 32 * depths)} .f16|f32 .{_BYTE} .{_BYTE}",
        *(f"{head} .{_shapes(_INTEGER_N, 32 * depths)} {{.satfinite}} .s32 .{t} .{t}" for t in ("u8", "s8")),
    )


def _mixed(head: str, depths: int) -> tuple[str, ...]:
    """The forms of a head for signed numbers times unsigned ones."""
    shapes = _shapes(_INTEGER_N, 32 * depths)
    return tuple(f"{head} .{shapes} {{.satfinite}} .s32 .{a} .{b}" for a, b in (("u8", "s8"), ("s8", "u8")))


_WARPGROUP = (
    Forms(
        "9.7.15",
        "8.0",
        90,
        *_warpgroup("wgmma .mma_async .sync .aligned", 1),
        f"wgmma .mma_async .sync .aligned .{_shapes(_INTEGER_N, 256)} .s32 .b1 .b1 .and .popc",
        *_warpgroup("wgmma .mma_async .sp .sync .aligned", 2),
        "wgmma .fence|commit_group|wait_group .sync .aligned",
    ),
    Forms("9.7.15", "8.4", 90, *_mixed("wgmma .mma_async .sync .aligned", 1)),
    Forms("9.7.15", "8.4", 90, *_mixed("wgmma .mma_async .sp .sync .aligned", 2)),
)

MATRIX: tuple[Forms, ...] = (*_MOVE, *_FRAGMENT, *_MULTIPLY, *_WARPGROUP, *TENSOR)
"""Every form of the sections above."""
