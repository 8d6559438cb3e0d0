"""Why the CPU device refuses forms of the instruction table."""

from __future__ import annotations

from cujit.formats.ptx.isa.semantics import Form, choices_of

__all__ = ["UNKNOWN", "reason"]

UNKNOWN = "an instruction that the CPU device does not execute yet"

_REASONS = (
    ("tcgen05", "tensor memory of sm_100, which the CPU device does not have"),
    ("multimem", "an address of several GPUs' memory at once, and there is one device"),
    ("istypep", "it asks what a .texref, .samplerref or .surfref is; textures are passed by their handles"),
    ("clusterlaunchcontrol .multicast::cluster::all", "an answer to all blocks of a cluster"),
    ("tex .2dms|a2dms", "no texture here has several samples"),
    ("txq .force_unnormalized_coords", "a .samplerref has it, and textures are passed by their handles"),
    ("txq|suq .channel_data_type|channel_order", "its numbers are not documented for CUDA C++"),
    ("tensormap .interleave_layout|swizzle_atomicity", "maps of the CPU device have no such field"),
    ("cp .tile::gather4|tile::scatter4", "rows of a tensor at coordinates of their own, of sm_100"),
    ("cp .im2col::w|im2col::w::128", "im2col of one axis, of sm_100"),
    ("wmma .satfinite .f16|f32", "saturated products of f16, which PTX 6.5 took away"),
)


def reason(form: Form) -> str:
    """Say why a form of the instruction table is refused; nothing of one that is executed."""
    for refused, why in _REASONS:
        if form.opcode in refused.split()[0].split("|") and form.has(choices_of(refused)):
            return why
    return ""
