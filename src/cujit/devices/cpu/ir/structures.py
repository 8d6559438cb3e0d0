"""Structures that machine code and Python share: their fields, as the C of the run-time declares them."""

from __future__ import annotations

import ctypes
import re
from typing import Any

__all__ = ["fields"]

_TYPES: dict[str, Any] = {
    "u8": ctypes.c_uint8, "i16": ctypes.c_int16, "u32": ctypes.c_uint32, "i32": ctypes.c_int32, "u64": ctypes.c_uint64,
    "i64": ctypes.c_int64,
}  # fmt: skip


def fields(text: str, **structures: type[ctypes.Structure]) -> tuple[tuple[str, Any], ...]:
    """Read the fields of a structure: ``u64 begin, values[4]; Place where``. An address is a ``u64``."""
    found = []
    for declaration in text.split(";"):
        kind, _, names = declaration.strip().partition(" ")
        for declared in names.split(","):
            name, *sizes = re.findall(r"\w+", declared)
            type_ = structures.get(kind) or _TYPES[kind]
            for size in reversed(sizes):
                type_ *= int(size)
            found.append((name, type_))
    return tuple(found)
