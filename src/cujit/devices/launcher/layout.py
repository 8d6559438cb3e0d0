"""The facts about a signature that machine code needs: the kind, offset, and size of each parameter.

The machine code is the same for all signatures. Only the layout data differs.
"""

from __future__ import annotations

import ctypes
import enum
import functools

from cujit.signature import Parameter, ParameterClass, Signature
from cujit.values import NamedTuple

MOST_FIELDS = 64
"""Parameters that machine code reads; it marks in one word which Python read."""

MOST_BYTES = 4096
"""Bytes of parameters that machine code keeps on the stack, where a call may be inside another's reader.

Source: CUDA C++ Programming Guide, "Function Parameters": 4 KB for every architecture, 32 764 bytes since CUDA 12.1.
"""

_POINTER_BYTES = 8


class FieldKind(enum.IntEnum):
    """The reader that machine code uses for a parameter. Every reader leaves unsupported values to Python."""

    BYTES = 0
    """The bytes of a structure of a type, or a dtype, that was found right; else left to Python."""
    POINTER = 1
    WORD = 2
    """An integer of 64 bits of either sign, or a pointer."""
    FLOAT = 3
    BOOL = 4
    INTEGER = 5
    """From ``low`` to ``high``."""
    LARGE = 6
    """An integer of 64 bits without a sign."""
    OPAQUE = 7
    """What only the size is known of: as INTEGER or WORD, and NumPy's scalars of that very size alone."""
    ADDRESS = 8
    """A pointer, or an int that is an address."""


class Field(ctypes.Structure):
    """One parameter; ``offset`` and ``size`` are in bytes, ``low`` and ``high`` the bounds of an integer."""

    _fields_ = (
        ("kind", ctypes.c_uint32),
        ("size", ctypes.c_uint32),
        ("offset", ctypes.c_uint64),
        ("low", ctypes.c_int64),
        ("high", ctypes.c_int64),
    )

    @property
    def is_pointer(self) -> bool:
        """Whether an address can go there."""
        return self.kind in (FieldKind.POINTER, FieldKind.ADDRESS, FieldKind.WORD) or (
            self.kind == FieldKind.OPAQUE and self.size == _POINTER_BYTES
        )


class Layout(NamedTuple):
    """The parameters of a kernel in order. ``size`` is the size of the parameter buffer in bytes.

    ``address`` is the address of the fields.
    """

    fields: ctypes.Array[Field]
    size: int
    address: int


@functools.lru_cache(1024)
def layout_of(signature: Signature, *, takes_ints: bool = False) -> Layout | None:
    """Return the layout of a signature, which matches the signature's ``Packer``. Return None if the signature is too
    large for machine code.
    """
    if len(signature) > MOST_FIELDS or signature.size > MOST_BYTES:
        return None
    fields = [_field(p, offset) for p, offset in zip(signature, signature.offsets, strict=True)]
    for field in fields:
        if takes_ints and field.kind == FieldKind.POINTER:
            field.kind = FieldKind.ADDRESS
    table = (Field * len(fields))(*fields)
    return Layout(table, signature.size, ctypes.addressof(table))


_LARGE = {ParameterClass.UNSIGNED: FieldKind.LARGE, ParameterClass.BITS: FieldKind.WORD}
"""How integers of 64 bits are read that are not all from ``low`` to ``high``."""

_INTEGERS = (ParameterClass.SIGNED, ParameterClass.UNSIGNED, ParameterClass.BITS, ParameterClass.UNKNOWN)


def _field(p: Parameter, offset: int) -> Field:
    """Return a field with a reader that accepts values only as ``devices.arguments`` does. A word accepts integers of
    either sign.
    """
    bits, kind, low, high = 8 * p.size, FieldKind.BYTES, 0, 0
    if p.kind is ParameterClass.POINTER and p.size == _POINTER_BYTES:
        kind = FieldKind.POINTER
    elif p.kind is ParameterClass.FLOAT and p.size in (4, 8):
        kind = FieldKind.FLOAT
    elif p.kind is ParameterClass.BOOL and p.size == 1:
        kind = FieldKind.BOOL
    elif p.kind in _INTEGERS and p.size in (1, 2, 4, 8):
        kind = _LARGE.get(p.kind, FieldKind.INTEGER) if p.size == 8 else FieldKind.INTEGER
        if p.kind is ParameterClass.UNKNOWN:
            kind = FieldKind.OPAQUE
        low = 0 if p.kind is ParameterClass.UNSIGNED else -(1 << bits - 1)
        high = (1 << bits - 1) - 1 if p.kind is ParameterClass.SIGNED or bits == 64 else (1 << bits) - 1
    return Field(kind, p.size, offset, low, high)
