"""The instructions of tensor memory.

Source: PTX ISA manual 9.1, section 9.7.16. ``table.py`` says how far they were checked.
"""

from __future__ import annotations

from cujit.formats.ptx.isa.sets import Forms

_GROUP = ".cta_group::1|cta_group::2"
_SHAPES = (
    (".16x64b|32x32b|16x32bx2", 128),
    (".16x128b", 64),
    (".16x256b", 32),
)
"""How registers lie, and how often they do so at most."""

_A = "collector::a::fill|collector::a::use|collector::a::lastuse|collector::a::discard"
_B = "|".join(f"collector::b{n}::{use}" for n in range(4) for use in ("fill", "use", "lastuse", "discard"))

_COPIES = (".128x256b|4x256b|128x128b", ".64x128b .warpx2::02_13|warpx2::01_23", ".32x128b .warpx4")
_FLOATS = "kind::f16|kind::tf32|kind::f8f6f4"


def _moves(operation: str, packs: str) -> tuple[str, ...]:
    """The forms of a load or a store."""
    found = []
    for shape, most in _SHAPES:
        times = "|".join(f"x{1 << k}" for k in range(most.bit_length()))
        found.append(f"tcgen05 .{operation} .sync .aligned {shape} .{times} {{.{packs}}} .b32")
    return tuple(found)


def _reductions() -> tuple[str, ...]:
    """The forms of a load that reduces."""
    times = "|".join(f"x{1 << k}" for k in range(1, 8))
    loaded = f"tcgen05 .ld .red .sync .aligned .32x32b|16x32bx2 .{times} .min|max"
    return f"{loaded} {{.abs}} {{.NaN}} .f32", f"{loaded} .u32|s32"


def _multiplies(kind: str, *, stationary: bool = True) -> tuple[str, ...]:
    """The forms of products of a dense or a sparse A, with collectors of A, and where B is collected."""
    found = [f"tcgen05 .mma {{.sp}} {_GROUP} {kind} {{.{_A}}}"]
    return (*found, *[f"tcgen05 .mma .ws {{.sp}} .cta_group::1 {kind} {{.{_B}}}"] * stationary)


TENSOR: tuple[Forms, ...] = (
    Forms(
        "9.7.16",
        "8.6",
        "100f 110f",
        f"tcgen05 .alloc {_GROUP} .sync .aligned {{.shared::cta}} .b32",
        f"tcgen05 .dealloc {_GROUP} .sync .aligned .b32",
        f"tcgen05 .relinquish_alloc_permit {_GROUP} .sync .aligned",
        *_moves("ld", "pack::16b"),
        *_moves("st", "unpack::16b"),
        "tcgen05 .wait::ld|wait::st .sync .aligned",
        "tcgen05 .fence::before_thread_sync|fence::after_thread_sync",
        f"tcgen05 .commit {_GROUP} .mbarrier::arrive::one {{.shared::cluster}} {{.multicast::cluster}} .b64",
        *(f"tcgen05 .cp {_GROUP} {shape}" for shape in _COPIES),
        *(f"tcgen05 .cp {_GROUP} {shape} .b8x16 .b4x16_p64|b6x16_p32" for shape in _COPIES),
        *_multiplies(f".{_FLOATS}"),
    ),
    Forms(
        "9.7.16",
        "8.6",
        "100f 110f",
        *_multiplies(".kind::mxf8f6f4 .block_scale {.scale_vec::1X}", stationary=False),
        *_multiplies(".kind::mxf4 .block_scale {.scale_vec::2X}", stationary=False),
        *_multiplies(".kind::mxf4nvf4 .block_scale .scale_vec::2X|scale_vec::4X", stationary=False),
    ),
    Forms(
        "9.7.16",
        "8.8",
        "100f 110f",
        *_multiplies(".kind::mxf8f6f4|kind::mxf4 .block_scale .block32", stationary=False),
        *_multiplies(".kind::mxf4nvf4 .block_scale .block16|block32", stationary=False),
    ),
    Forms("9.7.16", "8.6", "100a 101a 110a", *_multiplies(".kind::i8")),
    Forms("9.7.16", "8.6", "100a 101a 103a 107a 110a", f"tcgen05 .shift {_GROUP} .down"),
    Forms("9.7.16", "8.8", "103f 110f", *_reductions()),
    Forms("9.7.16", "8.6", 100, "tcgen05 ..."),
)
"""Every form; the last row stands for the forms that are not listed yet."""
