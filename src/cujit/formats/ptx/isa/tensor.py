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


def _moves(operation: str, packs: str) -> tuple[str, ...]:
    """The forms of a load or a store."""
    found = []
    for shape, most in _SHAPES:
        times = "|".join(f"x{1 << k}" for k in range(most.bit_length()))
        found.append(f"tcgen05 .{operation} .sync .aligned {shape} .{times} {{.{packs}}} .b32")
    return tuple(found)


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
        f"tcgen05 .cp {_GROUP} .128x256b|128x128b",
        f"tcgen05 .cp {_GROUP} .64x128b .warpx2::02_13|warpx2::01_23",
        f"tcgen05 .cp {_GROUP} .32x128b .warpx4",
        f"tcgen05 .mma {_GROUP} .kind::f16|kind::tf32|kind::f8f6f4 {{.{_A}}}",
    ),
    Forms(
        "9.7.16",
        "8.6",
        "100f 110f",
        f"tcgen05 .mma {_GROUP} .kind::mxf8f6f4 .block_scale {{.scale_vec::1X}} {{.{_A}}}",
        f"tcgen05 .mma {_GROUP} .kind::mxf4 .block_scale {{.scale_vec::2X}} {{.{_A}}}",
        f"tcgen05 .mma {_GROUP} .kind::mxf4nvf4 .block_scale .scale_vec::2X|scale_vec::4X {{.{_A}}}",
    ),
    Forms(
        "9.7.16",
        "8.8",
        "100f 110f",
        f"tcgen05 .mma {_GROUP} .kind::mxf8f6f4|kind::mxf4 .block_scale .block32 {{.{_A}}}",
        f"tcgen05 .mma {_GROUP} .kind::mxf4nvf4 .block_scale .block16|block32 {{.{_A}}}",
    ),
    Forms("9.7.16", "8.6", "100a 101a 110a", f"tcgen05 .mma {_GROUP} .kind::i8 {{.{_A}}}"),
    Forms("9.7.16", "8.6", 100, "tcgen05 ..."),
)
"""Every form; the last row stands for the forms that are not listed yet."""
