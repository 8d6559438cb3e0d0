"""What machine code has to know of a signature: the kind, place and size of each parameter, and nothing else.

Two kernels with the same layout share their machine code; their types, devices and messages are data.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

from cujit.signature import Parameter, ParameterClass, Signature

__all__ = ["MOST_BYTES", "MOST_FIELDS", "Field", "FieldKind", "Layout", "layout_of"]

MOST_FIELDS = 64
"""Parameters that machine code reads; it marks in one word which Python read."""

MOST_BYTES = 4096
"""Bytes of parameters that machine code keeps on the stack, where a call may be inside another's reader.

Source: CUDA C++ Programming Guide, "Function Parameters": 4 KB for every architecture, 32 764 bytes since CUDA 12.1.
"""

_POINTER_BYTES = 8


class FieldKind(enum.Enum):
    """How machine code reads a parameter; all leave to Python what they do not take."""

    SIGNED = "s"
    UNSIGNED = "u"
    WORD = "w"
    """An integer of either sign; of 8 bytes a pointer too."""
    FLOAT = "f"
    BOOL = "b"
    POINTER = "p"
    PYTHON = "o"
    """Always left to Python."""


class Field(NamedTuple):
    """One parameter; ``offset`` and ``size`` are in bytes."""

    kind: FieldKind
    offset: int
    size: int

    @property
    def is_pointer(self) -> bool:
        """Whether an address can go there."""
        return self.kind is FieldKind.POINTER or (self.kind is FieldKind.WORD and self.size == _POINTER_BYTES)


class Layout(NamedTuple):
    """The parameters of a kernel in order; ``size`` is that of the parameter buffer in bytes."""

    fields: tuple[Field, ...]
    size: int


def layout_of(signature: Signature) -> Layout | None:
    """Give the layout of a signature; None if machine code does not take so much."""
    if len(signature) > MOST_FIELDS or signature.size > MOST_BYTES:
        return None
    fields = (Field(_kind(p), offset, p.size) for p, offset in zip(signature, signature.offsets, strict=True))
    return Layout(tuple(fields), signature.size)


_WORDS = {
    ParameterClass.SIGNED: FieldKind.SIGNED,
    ParameterClass.UNSIGNED: FieldKind.UNSIGNED,
    ParameterClass.BITS: FieldKind.WORD,
    ParameterClass.UNKNOWN: FieldKind.WORD,
}


def _kind(p: Parameter) -> FieldKind:
    """Choose a reader that agrees with ``devices.arguments`` in whatever it takes."""
    if p.kind is ParameterClass.POINTER and p.size == _POINTER_BYTES:
        return FieldKind.POINTER
    if p.kind is ParameterClass.FLOAT and p.size in (4, 8):
        return FieldKind.FLOAT
    if p.kind is ParameterClass.BOOL and p.size == 1:
        return FieldKind.BOOL
    return _WORDS.get(p.kind, FieldKind.PYTHON) if p.size in (1, 2, 4, 8) else FieldKind.PYTHON
