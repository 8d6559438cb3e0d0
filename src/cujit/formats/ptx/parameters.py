"""Signatures of PTX entries, and sizes of PTX variables in bytes."""

from __future__ import annotations

import math

from cujit.formats.ptx.syntax import Function, Variable
from cujit.signature import Parameter, ParameterClass, Signature

ELEMENT_BYTES: dict[str, int] = {
    **{f".{letter}{bits}": bits // 8 for letter in "bsuf" for bits in (8, 16, 32, 64)},
    ".b128": 16,
    ".f16": 2,
    ".f16x2": 4,
    ".bf16": 2,
    ".bf16x2": 4,
    ".tf32": 4,
    ".e4m3": 1,
    ".e5m2": 1,
    ".e4m3x2": 2,
    ".e5m2x2": 2,
    ".pred": 1,
    ".texref": 8,
    ".samplerref": 8,
    ".surfref": 8,
}
"""Bytes of one element of the types that the parser reads; an opaque one is a handle of 8 bytes as a parameter.

Source: PTX ISA 9.1, "Fundamental Types", "Packed Data Types" and "Opaque Types".
"""

_KINDS = {"f": ParameterClass.FLOAT, "s": ParameterClass.SIGNED}


def _element(variable: Variable) -> int:
    return ELEMENT_BYTES[f".{variable.type}"] * variable.vector


def alignment(variable: Variable) -> int:
    """Return the alignment of a variable in bytes: the declared alignment, otherwise the alignment of its type."""
    return variable.align or _element(variable)


def bytes_of(variable: Variable) -> int:
    """Count the bytes of a variable; 0 for an array without a size."""
    return _element(variable) * math.prod(variable.shape)


def signature_of_entry(function: Function) -> Signature:
    """Return the signature of an entry: PTX types, sizes, and alignments, which determine the offsets.

    Compilers write ``.u32`` for both int and unsigned. They write ``.u64`` for 64-bit integers and, below compute_100,
    also for pointers. Such a parameter is BITS. Hidden parameters are omitted, because a driver sets them.
    """
    return Signature(tuple(_parameter(p) for p in function.parameters if p.linkage != "hidden"))


def _parameter(p: Variable) -> Parameter:
    size, align = bytes_of(p), alignment(p)
    if p.shape or p.vector > 1:
        return Parameter(ParameterClass.AGGREGATE, size, align, f".b8[{size}]")
    kind = ParameterClass.POINTER if p.is_ptr else _KINDS.get(p.type[0], ParameterClass.BITS)
    return Parameter(kind, size, align, f".{p.type}")
