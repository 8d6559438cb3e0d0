"""What kernels and the native code of textures tell each other, and how that code is written.

Functions of IR are written with two short forms: ``%x = field i32 width`` loads a field of the ``Descriptor`` at
``%d``, and ``%x = lane i32 layer`` loads the element of lane ``%lane`` of a field of the ``Exchange`` at ``%data``.
"""

from __future__ import annotations

import ctypes
import re

from cujit.devices.cpu.program import WARP
from cujit.devices.cpu.textures import Descriptor

__all__ = ["BOUNDS", "OPERATIONS", "Exchange", "expanded"]

BOUNDS = ("trap", "clamp", "zero")
"""What becomes of a surface access out of bounds, by number."""

OPERATIONS = ("load", "store", "format", "add", "and", "or", "smin", "umin", "smax", "umax", "min", "max")
"""What ``cujit_surface`` does, by number; ``min`` and ``max`` are signed if the surface's format is."""


class Exchange(ctypes.Structure):
    """What the lanes of a warp ask of textures, and what they get: words of 32 bits, ``values`` of 64.

    Coordinates are integers, or the bits of floats; ``dx`` to ``dz`` are offsets in elements.
    """

    _fields_ = (
        ("handle", ctypes.c_uint64 * WARP),
        ("layer", ctypes.c_uint32 * WARP),
        ("x", ctypes.c_uint32 * WARP),
        ("y", ctypes.c_uint32 * WARP),
        ("z", ctypes.c_uint32 * WARP),
        ("dx", ctypes.c_uint32 * WARP),
        ("dy", ctypes.c_uint32 * WARP),
        ("dz", ctypes.c_uint32 * WARP),
        ("values", (ctypes.c_uint64 * WARP) * 4),
    )


_SHORT = re.compile(r"^  %(?P<name>[\w.]+) = (?P<form>field|lane) (?P<type>\w+) (?P<field>\w+)$", re.MULTILINE)


def expanded(text: str) -> str:
    """Write out the short forms."""
    return _SHORT.sub(_load, text)


def _load(m: re.Match[str]) -> str:
    name, type_, field = m["name"], m["type"], m["field"]
    if m["form"] == "field":
        at = f"getelementptr i8, ptr %d, i64 {getattr(Descriptor, field).offset}"
        return f"  %{name}.at = {at}\n  %{name} = load {type_}, ptr %{name}.at"
    start = f"  %{name}.all = getelementptr i8, ptr %data, i64 {getattr(Exchange, field).offset}"
    at = f"  %{name}.at = getelementptr {type_}, ptr %{name}.all, i32 %lane"
    return f"{start}\n{at}\n  %{name} = load {type_}, ptr %{name}.at"
