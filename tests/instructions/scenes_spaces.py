"""Scenes of state spaces: every form of address for what accesses memory, with a space named and with none.

An address is a variable, a variable and an offset, a register with an address of the space, or one with a generic
address. Each access finds the variable freshly filled; what it gave and parts of the variable are copied out.
"""

from __future__ import annotations

import numpy as np

from instructions.scene import Scene, entry

__all__ = ["SCENES"]

_WORDS = 128
_WATCHED = (0, 16)
"""Where four words of the variable begin that are copied out: what the accesses may touch."""
_START = """
.reg .b32 i, r<4>, s<4>, own32; .reg .b64 w<2>, own, gen, far, to; .reg .pred t, one;
mov.u32 i, %tid.x; setp.eq.u32 one, i, 0; mov.b32 r0, 0; mov.b32 r1, 0; mov.b32 r2, 0; mov.b32 r3, 0;
mov.b64 w0, 0; mov.b64 w1, 0; mul.wide.u32 to, i, 64; add.u64 to, to, p1;
"""
_FORMS = (
    ("m", True), ("m+64", True), ("m", False), ("m+64", False), ("own+64", True), ("own32+64", True), ("gen", False),
    ("gen+64", False), ("far+-64", False),
)  # fmt: skip
"""Addresses, and whether the instruction names the space."""

# What each does at the address ``@``, ``#`` being the space; what it gives is left in r0 to r3, w0, w1.
_LOADS = {
    "ld": "ld#.b32 r0, [@];",
    "ld_u8": "ld#.u8 r0, [@];",
    "ld_v2": "ld#.v2.b32 {r0, r1}, [@];",
    "ld_v4": "ld#.v4.b32 {r0, r1, r2, r3}, [@];",
    "ld_b64": "@one ld#.b64 w0, [@];",
}
_STORES = {
    "st": "st#.b32 [@], 77;",
    "st_v2": "@one st#.v2.b32 [@], {5, 6};",
    "st_v4": "st#.v4.b32 [@], {5, 6, 7, 8};",
    "st_b8": "st#.u8 [@], 200;",
}
_ORDERED = {
    "ld_volatile": "ld.volatile#.u8 r0, [@];",
    "ld_acquire": "ld.acquire.gpu#.b32 r0, [@];",
    "st_release": "st.release.gpu#.b32 [@], 9;",
    "atom_add": "@one atom#.add.u32 r0, [@], 3;",
    "atom_cas": "@one atom#.cas.b32 r0, [@], 1016, 6;",
    "atom_exch": "@one atom#.exch.b64 w0, [@], 9;",
    "atom_max": "@one atom#.max.s32 r0, [@], 100000;",
    "red_add": "red#.add.u32 [@], 3;",
    "red_f32": "red#.add.f32 [@], 0f3F800000;",
}
_SHARED = {
    "mbarrier": (
        "@one mbarrier.init#.b64 [@], 1; @one mbarrier.arrive#.b64 w0, [@]; @one mbarrier.test_wait#.b64 t, [@], w0;"
        "@one selp.b32 r0, 1, 2, t; @one mbarrier.inval#.b64 [@]; @one st#.b64 [@], 4; mov.b64 w0, 0;"
    ),
    "ldmatrix": "ldmatrix.sync.aligned.m8n8.x1#.b16 {r0}, [@];",
    "stmatrix": "mov.b32 r0, 5; stmatrix.sync.aligned.m8n8.x1#.b16 [@], {r0};",
}
_ACCESSES = (
    *((name, space, text) for name, text in _LOADS.items() for space in ("shared", "local", "global", "const")),
    *((name, space, text) for name, text in _STORES.items() for space in ("shared", "local", "global")),
    *((name, space, text) for name, text in _ORDERED.items() for space in ("shared", "global")),
    *((name, "shared", text) for name, text in _SHARED.items()),
    ("prefetch", "global", "prefetch#.L1 [@]; ld#.b32 r0, [@];"),
    ("prefetch", "local", "prefetch#.L2 [@]; ld#.b32 r0, [@];"),
)  # fmt: skip


def _numbers(first: int, count: int) -> str:
    return ", ".join(str(1000 + first + k) for k in range(count))


def _scene(name: str, space: str, template: str) -> Scene:
    """Do one access with every form of address."""
    filled = f" = {{{_numbers(0, _WORDS)}}}" if space == "const" else ""
    declared = f".{space} .align 16 .b32 m[{_WORDS}]{filled};\n"
    narrow = "mov.u32 own32, m; " if space in ("shared", "local") else ""
    inside, outside = (declared, "") if space in ("shared", "local") else ("", declared)
    lines = [_START, inside, f"mov.u64 own, m; {narrow}cvta.{space}.u64 gen, own;\n"]
    forms = [f for f in _FORMS if (f[0] != "own32+64" or narrow) and (space != "const" or f[0][0] != "m" or f[1])]
    for address, says_space in forms:
        if space == "local":
            lines += [f"st.local.v4.b32 [own+{4 * k}], {{{_numbers(k, 4)}}};\n" for k in _WATCHED]
        elif space != "const":
            lines.append("mad.wide.u32 far, i, 16, own; mad.lo.u32 s0, i, 4, 1000;\n")
            lines += [f"add.u32 s{k}, s0, {k};\n" for k in range(1, 4)]
            lines.append(f"st.{space}.v4.b32 [far], {{s0, s1, s2, s3}};\n")
        lines.append("add.u64 far, gen, 128;\n")
        text = template.replace("#", f".{space}" if says_space else "").replace("@one", "%1").replace("@", address)
        lines.append(f"bar.warp.sync -1; {text.replace('%1', '@one')} bar.warp.sync -1;\n")
        lines.append("st.global.v4.b32 [to], {r0, r1, r2, r3}; st.global.v2.b64 [to+16], {w0, w1};\n")
        lines += [
            f"ld.{space}.v4.b32 {{s0, s1, s2, s3}}, [own+{4 * k}]; st.global.v4.b32 [to+{at}], {{s0, s1, s2, s3}};\n"
            for at, k in zip((32, 48), _WATCHED, strict=True)
        ]
        lines.append(f"add.u64 to, to, {64 * 32}; bar.warp.sync -1;\n")
    text = entry("".join(lines), 2, outside=outside)
    return Scene(
        f"space_{space}_{name}", text, (np.zeros(4, np.uint32), np.zeros((len(forms), 32, 16), np.uint32)), 1, 32
    )


SCENES = tuple(_scene(*access) for access in _ACCESSES)
