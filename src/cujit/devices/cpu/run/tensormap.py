"""Tensor maps of the CPU device: 128 bytes that describe a tensor in memory and the box that one copy transfers.

A GPU's tensor map is opaque, and only its driver can create it. The CPU device's format is different, with the same
meaning.
"""

from __future__ import annotations

from cujit.devices.cpu.native.shared import Fields, Shared
from cujit.devices.tensormaps.im2col import Im2col
from cujit.devices.tensormaps.tiling import MAX_RANK, DataType, Tiling

MARK = 0x50414D52534E4554
IM2COL_MARK = 0x4C4F4332534E4554
"""What our maps end with, so that a map that somebody else made, or for another mode, is noticed."""
CLOSED = 1 << 63
"""Set in the mark where nothing behind the last element is the array's, so that no copy may write there."""

# Numbers of the types in PTX. Source: PTX ISA 9.1, 9.7.9.28 "tensormap.replace", table "new_val validity".
_PTX_NUMBERS = {
    DataType.UINT8: 0, DataType.UINT16: 1, DataType.UINT32: 2, DataType.INT32: 3, DataType.UINT64: 4,
    DataType.INT64: 5, DataType.FLOAT16: 6, DataType.FLOAT32: 7, DataType.FLOAT32_FTZ: 8, DataType.FLOAT64: 9,
    DataType.BFLOAT16: 10, DataType.TFLOAT32: 11, DataType.TFLOAT32_FTZ: 12,
}  # fmt: skip

ELEMENT_BYTES = {number: type_.bytes for type_, number in _PTX_NUMBERS.items()}
"""Bytes of an element, by PTX's number of its type."""

ROUNDED = tuple(_PTX_NUMBERS[t] for t in (DataType.TFLOAT32, DataType.TFLOAT32_FTZ))
"""PTX's numbers of the types that a load rounds to 10 bits of fraction."""


class TensorMap(Shared):
    """The 128 bytes of a tensor map.

    ``sizes`` and ``box`` count elements, innermost dimension first. ``strides`` are the byte strides of dimension 1 and
    higher. ``element`` is PTX's number of the element type. ``last_dimension`` is the rank minus 1. A size of 0 means
    2**32. ``lower`` and ``upper`` are the corners of im2col mode, W first. In that mode, the box contains channels and
    pixels.
    """

    _fields_ = Fields(
        "u64 global_address, strides[4]; u32 sizes[5], box[5], element_strides[5], last_dimension; u8 element, "
        "element_bytes, swizzle, fill; i16 lower[3], upper[3]; u64 mark"
    )


def field_offset(name: str) -> int:
    """Return the offset of a field of ``TensorMap`` in bytes."""
    return int(getattr(TensorMap, name).offset)


def encode(tiling: Tiling) -> bytes:
    """Write the map of a tensor and a box that were checked; how the L2 cache fetches has no effect here."""
    rank, element = tiling.rank, tiling.data_type
    given = TensorMap(
        global_address=tiling.address, last_dimension=rank - 1, element=_PTX_NUMBERS[element],
        element_bytes=element.bytes, swizzle=int(tiling.swizzle), fill=int(tiling.fill), mark=MARK,
    )  # fmt: skip
    given.strides[: rank - 1] = tiling.strides[-2::-1] if rank > 1 else ()
    for k in range(MAX_RANK):
        inside = k < rank
        given.sizes[k] = tiling.shape[rank - 1 - k] % (1 << 32) if inside else 1
        given.box[k] = tiling.box[rank - 1 - k] if inside else 1
        given.element_strides[k] = tiling.steps[rank - 1 - k] if inside else 1
    if isinstance(tiling, Im2col):
        given.mark = IM2COL_MARK
        given.box[0], given.box[1] = tiling.box[-1], tiling.pixels
        given.lower[: rank - 2] = tiling.lower[::-1]
        given.upper[: rank - 2] = tiling.upper[::-1]
    if not tiling.has_room:
        given.mark |= CLOSED
    return bytes(given)
