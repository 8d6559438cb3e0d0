"""What kernels and the native code of textures (``runtime/textures.c``) tell each other."""

from __future__ import annotations

import ctypes

from cujit.devices.cpu.ir.program import WARP
from cujit.devices.cpu.ir.structures import fields

__all__ = ["BOUNDS", "OPERATIONS", "Exchange"]

BOUNDS = ("trap", "clamp", "zero")
"""What becomes of a surface access out of bounds, by number."""

OPERATIONS = ("load", "store", "format", "add", "and", "or", "smin", "umin", "smax", "umax", "min", "max")
"""What ``cujit_surface`` does, by number; ``min`` and ``max`` are signed if the surface's format is."""


class Exchange(ctypes.Structure):
    """What the lanes of a warp ask of textures, and what they get: words of 32 bits, ``values`` of 64.

    Coordinates are integers, or the bits of floats; ``dx`` to ``dz`` are offsets in elements.
    """

    _fields_ = fields(
        f"u64 handle[{WARP}]; u32 layer[{WARP}], x[{WARP}], y[{WARP}], z[{WARP}], dx[{WARP}], dy[{WARP}], dz[{WARP}]; "
        f"u64 values[4][{WARP}]"
    )
