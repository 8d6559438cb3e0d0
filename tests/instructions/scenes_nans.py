"""Scenes of atomic sums of NaNs: every float type, in global and shared memory, one place a thread."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from instructions.corners import specials
from instructions.scene import Scene, entry

__all__ = ["SCENES"]

_TYPES = {"f32": "f32", "f64": "f64", "f16": "b16", "bf16": "b16", "f16x2": "b32", "bf16x2": "b32"}


def _words(type_: str) -> npt.NDArray[np.unsignedinteger]:
    """All special values, above themselves in pairs."""
    kind = type_.removesuffix("x2")
    values = specials(kind)
    return values.astype(np.uint32) * np.uint32(0x10001) if type_.endswith("x2") else values


def _scene(type_: str) -> Scene:
    register, values = _TYPES[type_], _words(type_)
    size, count = values.itemsize, len(values)
    name = f"add.noftz.{type_}" if "f16" in type_ else f"add.{type_}"
    old, added = (a.ravel().copy() for a in np.meshgrid(values, values))
    lines = [
        f".reg .b32 i, s; .reg .b64 off, at; .reg .{register} x, y; .reg .pred out;",
        f".shared .align 8 .b{8 * size} mem[32]; mov.u32 s, mem;",
        "mov.u32 i, %ctaid.x; mov.u32 s, %ntid.x; mul.lo.u32 i, i, s; mov.u32 s, %tid.x; add.u32 i, i, s;",
        f"setp.ge.u32 out, i, {count * count}; @out ret;",
        f"mul.wide.u32 off, i, {size}; add.u64 at, p1, off; ld.global.{register} y, [at];",
        f"add.u64 at, p0, off; ld.global.{register} x, [at]; red.global.{name} [at], y;",
        f"mad.lo.u32 s, s, {size}, 0; cvt.u64.u32 at, s; mov.u64 off, mem; add.u64 at, at, off;",
        f"st.shared.{register} [at], x; red.shared.{name} [at], y; ld.shared.{register} x, [at];",
        f"mul.wide.u32 off, i, {size}; add.u64 at, p2, off; st.global.{register} [at], x;",
    ]
    arrays = (old, added, np.zeros_like(old))
    return Scene(f"nan_{name}", entry("\n".join(lines), 3), arrays, -(-count * count // 32), 32)


SCENES = tuple(map(_scene, _TYPES))
