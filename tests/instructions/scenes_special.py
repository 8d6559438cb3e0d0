"""Scenes of special registers whose values do not depend on where or when a block runs."""

from __future__ import annotations

import numpy as np

from instructions.scene import Scene, entry

__all__ = ["SCENES"]

_GRID, _BLOCK = (3, 2, 2), (20, 3, 2)
_THREADS = 12 * 120
_VECTORS = "tid ntid ctaid nctaid clusterid nclusterid cluster_ctaid cluster_nctaid"
_WORDS = (
    "laneid lanemask_eq lanemask_le lanemask_lt lanemask_ge lanemask_gt cluster_ctarank cluster_nctarank "
    "dynamic_smem_size total_smem_size"
)
_PLACE = """
.reg .b32 t, x, y, z, w; .reg .b64 o; .reg .pred p;
mov.u32 x, %nctaid.x; mov.u32 y, %nctaid.y; mov.u32 z, %ctaid.z; mov.u32 w, %ctaid.y;
mad.lo.u32 t, z, y, w; mov.u32 w, %ctaid.x; mad.lo.u32 t, t, x, w;
mov.u32 x, %ntid.x; mov.u32 y, %ntid.y; mov.u32 z, %ntid.z; mul.lo.u32 w, x, y; mul.lo.u32 w, w, z; mul.lo.u32 t, t, w;
mov.u32 z, %tid.z; mov.u32 w, %tid.y; mad.lo.u32 z, z, y, w; mov.u32 w, %tid.x; mad.lo.u32 z, z, x, w;
add.u32 t, t, z; mul.wide.u32 o, t, 4; add.u64 p0, p0, o;
"""


def _stored(names: list[str]) -> str:
    return "".join(f"mov.u32 x, %{name}; st.global.u32 [p0+{4 * _THREADS * k}], x;\n" for k, name in enumerate(names))


def _scene(name: str, body: str, values: int, shared_bytes: int = 0, outside: str = "") -> Scene:
    zeros = np.zeros(values * _THREADS, np.uint32)
    text = entry(_PLACE + body, 1, outside=outside)
    return Scene(f"special_{name}", text, (zeros,), _GRID, _BLOCK, shared_bytes)


_COMPONENTS = [f"{name}.{axis}" for name in _VECTORS.split() for axis in "xyzw"]
_SHARED = ".shared .align 4 .b8 mine[200];\n"
_EXPLICIT = "mov.pred p, %is_explicit_cluster; selp.u32 x, 1, 0, p; st.global.u32 [p0], x;\n"
_USE = "mov.u32 x, mine; st.shared.u32 [x], x;\n"

SCENES: tuple[Scene, ...] = (
    _scene("components", _stored(_COMPONENTS), len(_COMPONENTS)),
    _scene("words", _USE + _stored(_WORDS.split()), len(_WORDS.split()), 72, _SHARED),
    _scene("explicit_cluster", _EXPLICIT, 1),
)
