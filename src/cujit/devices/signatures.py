"""What a kernel takes, put together from what the build told and what the loaded image tells."""

from __future__ import annotations

from dataclasses import replace

from cujit.signature import Parameter, ParameterClass, Signature

__all__ = ["merge_signatures", "signature_of_layout"]


def merge_signatures(told: Signature | None, loaded: Signature) -> Signature:
    """Join the C++ types that a build told with the sizes and places that a loaded image has.

    Where the two contradict each other, the image is right: it is what runs.
    """
    if told is None or len(told) != len(loaded):
        return loaded
    return Signature(tuple(map(_merge, told, loaded)))


def _merge(told: Parameter, loaded: Parameter) -> Parameter:
    if told.kind is ParameterClass.UNKNOWN or (told.size and loaded.size and told.size != loaded.size):
        return loaded
    return replace(told, size=loaded.size or told.size, align=loaded.align or told.align, offset=loaded.offset)


def signature_of_layout(layout: list[tuple[int, int]]) -> Signature:
    """Make the signature of parameters of which only offset and size in bytes are known."""
    return Signature(tuple(Parameter(ParameterClass.UNKNOWN, size, offset=offset) for offset, size in layout))
