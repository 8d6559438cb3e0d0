"""How machine code and Python share structures in memory: the notation of C."""

from __future__ import annotations

import ctypes
from typing import Any

STRUCTURES: dict[str, type[Shared]] = {}
"""Every structure by its name, those that it holds before it."""

_TYPES: dict[str, Any] = {
    "u8": ctypes.c_uint8, "i16": ctypes.c_int16, "u32": ctypes.c_uint32, "i32": ctypes.c_int32, "u64": ctypes.c_uint64,
    "i64": ctypes.c_int64, "f32": ctypes.c_float,
}  # fmt: skip


class Fields(tuple[tuple[str, Any], ...]):
    """The fields of a structure for ``ctypes``, and the C ``text`` that declares them. A pointer is a number.

    For example: ``u64 begin, values[4]; struct Slot slots[2][3]; u8 *marks``
    """

    text: str

    def __new__(cls, text: str) -> Fields:
        """Read the text."""
        found = []
        for declaration in text.split(";"):
            kind, names = declaration.strip().removeprefix("const ").removeprefix("struct ").split(" ", 1)
            for declared in names.split(","):
                name, *sizes = declared.strip(" *]").split("[")
                type_ = ctypes.c_uint64 if "*" in declared else _TYPES[kind] if kind in _TYPES else STRUCTURES[kind]
                for size in reversed(sizes):
                    type_ *= int(size.rstrip("]"))
                found.append((name, type_))
        made = super().__new__(cls, found)
        made.text = text
        return made


class Shared(ctypes.Structure):
    """A structure of the run-time in C, under its name there."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        STRUCTURES[cls.__name__] = cls
