"""What a kernel takes, as far as a loaded image tells."""

from __future__ import annotations

from cujit.signature import Parameter, ParameterClass, Signature

__all__ = ["signature_of_layout"]


def signature_of_layout(layout: list[tuple[int, int]]) -> Signature:
    """Make the signature of parameters of which only offset and size in bytes are known."""
    return Signature(tuple(Parameter(ParameterClass.UNKNOWN, size, offset=offset) for offset, size in layout))
