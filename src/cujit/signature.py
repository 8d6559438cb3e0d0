"""The known parameters of a kernel."""

from __future__ import annotations

import enum
from collections.abc import Iterator

from cujit.values import dataclass, replace

__all__ = ["Parameter", "ParameterClass", "Signature"]


class ParameterClass(enum.Enum):
    """How to interpret the bytes of a parameter.

    Example::

        assert [*kernel.signature][1].kind is cujit.signature.ParameterClass.POINTER
    """

    POINTER = "pointer"
    SIGNED = "signed integer"
    UNSIGNED = "unsigned integer"
    BOOL = "bool"
    FLOAT = "floating point"
    BITS = "integer or pointer"
    """A word whose meaning the image does not tell (PTX ``.u64`` below compute_100)."""
    AGGREGATE = "structure"
    """Passed by value as bytes."""
    UNKNOWN = "unknown"
    """Only the size is known (a cubin)."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of a kernel.

    ``type`` is the C++ type (``float const*``) if the build provides it, otherwise the PTX type (``.u64``) or "".
    ``size`` and ``align`` are in bytes, or 0 if unknown. ``pointee`` is the C++ type that a pointer points to.
    ``offset`` is the byte offset in the parameter buffer of a loaded image, or None if the offset follows only from the
    alignment.

    Example::

        first, *_ = kernel.signature
        print(first.type, first.size, first.offset)
    """

    kind: ParameterClass
    size: int
    align: int = 0
    type: str = ""
    pointee: str = ""
    offset: int | None = None

    def __str__(self) -> str:
        return self.type or f"{self.kind.value} of {self.size} bytes"


@dataclass(frozen=True)
class Signature:
    """The parameters of a kernel, in order.

    Example::

        print(kernel.signature, len(kernel.signature))
    """

    parameters: tuple[Parameter, ...] = ()

    def __iter__(self) -> Iterator[Parameter]:
        return iter(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.parameters))})"

    @property
    def offsets(self) -> tuple[int, ...]:
        """The byte offset of each parameter in the parameter buffer, as recorded in the image or computed from the
        alignment.

        Source: PTX ISA 9.1, "Kernel Function Parameters" and the natural alignment of ``.param``. Parameters that
        are aligned to more than 16 bytes lie elsewhere on sm_90, where ptxas aligns them in the constant bank,
        whose parameters begin at 0x210 (measured with NVRTC 12.9 and 13.4).
        """
        offsets, end = [], 0
        for p in self.parameters:
            align = p.align or min(p.size & -p.size or 1, 16)
            end = (end + align - 1) // align * align if p.offset is None else p.offset
            offsets.append(end)
            end += p.size
        return tuple(offsets)

    @property
    def size(self) -> int:
        """Size of the parameter buffer in bytes."""
        return self.offsets[-1] + self.parameters[-1].size if self.parameters else 0


def merge_signatures(stated: Signature | None, loaded: Signature) -> Signature:
    """Merge the types from a build or PTX with the sizes and offsets from an image.

    If they contradict each other, the image is right, because it runs. Equal kernels of a library share the two inputs,
    and get the same result.
    """
    if stated is None or len(stated) != len(loaded):
        return loaded
    found = _merged.get((id(stated), id(loaded)))
    if found is None:
        if len(_merged) >= _MOST_MERGED:
            _merged.clear()
        merged = Signature(tuple(map(_merge, stated, loaded)))
        found = _merged.setdefault((id(stated), id(loaded)), (merged, stated, loaded))
    return found[0]


_MOST_MERGED = 256
_merged: dict[tuple[int, int], tuple[Signature, Signature, Signature]] = {}
"""Signatures by the two that they were made of, which are kept, so that no other gets their address."""


def _merge(stated: Parameter, loaded: Parameter) -> Parameter:
    if stated.kind is ParameterClass.UNKNOWN or (stated.size and loaded.size and stated.size != loaded.size):
        return loaded
    # PTX below compute_100 does not tell pointers from integers; machine code of sm_100 and later may.
    is_pointer = stated.kind is ParameterClass.BITS and loaded.kind is ParameterClass.POINTER
    return replace(
        stated,
        kind=loaded.kind if is_pointer else stated.kind,
        size=loaded.size or stated.size,
        align=loaded.align or stated.align,
        offset=loaded.offset,
    )
