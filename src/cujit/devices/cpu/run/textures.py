"""Textures and surfaces of the CPU device: plain memory in row order, and a descriptor. The handle is the descriptor's
address.
"""

from __future__ import annotations

import ctypes
import struct
from typing import TYPE_CHECKING

import numpy as np

from cujit.devices.arrays.array import DeviceArray
from cujit.devices.cpu.ir.refusals import Refusals
from cujit.devices.cpu.run.launch import HostBlock
from cujit.devices.cpu.run.mappings import ALIGNMENT
from cujit.devices.textures.texture import Extent, Filter, Sampling, TexelFormat, Texels, TextureHandle, TextureUnit

if TYPE_CHECKING:
    from cujit.formats.ptx.syntax import PtxModule
from cujit.devices.cpu.native.shared import Fields, Shared

TEXTURE_MARK = 0x5845545F54494A43
SURFACE_MARK = 0x5255535F54494A43
"""What a descriptor begins with, so that a wrong number for a handle is noticed."""

FORMATS = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "float16", "float32")
"""By ``Descriptor.format``."""


class Descriptor(Shared):
    """The description of a texture or surface for machine code.

    ``row`` and ``slice`` are the distances in bytes between rows and between slices. ``depth`` is the number of slices
    or layers, and ``layers`` is 0 without layers. ``address_*`` and ``filter`` are the numbers of ``AddressMode`` and
    ``Filter``. ``border`` contains words as the instruction returns them, with 0 for missing channels.
    ``linear_memory`` is set for a single row that is read in place. ``in_blocks`` is set for data that a GPU keeps in
    an array, without consecutive rows.
    """

    _fields_ = Fields(
        "u64 mark; u8 *base; i64 row, slice; i32 width, height, depth, layers, texel_bytes, channels, format, "
        "address_0, address_1, address_2, filter, normalized, as_float, srgb, levels, samples, linear_memory, "
        "in_blocks; u32 border[4]"
    )


class CpuTextures(TextureUnit):
    """Textures of host memory."""

    alignment = ALIGNMENT

    def allocate(self, extent: Extent, format: TexelFormat) -> HostBlock:
        """Allocate memory for texels, with consecutive rows."""
        return HostBlock(extent.width * extent.rows * extent.slices * format.texel_bytes)

    def upload(self, texels: Texels, data: memoryview) -> None:
        """Copy host bytes into texels."""
        ctypes.memmove(_block(texels).address, np.frombuffer(data, np.uint8).ctypes.data, data.nbytes)

    def download(self, data: memoryview, texels: Texels) -> None:
        """Copy texels to the host."""
        ctypes.memmove((ctypes.c_char * data.nbytes).from_buffer(data), _block(texels).address, data.nbytes)

    def texture(
        self, source: Texels | DeviceArray, extent: Extent, format: TexelFormat, sampling: Sampling
    ) -> TextureHandle:
        """Make a descriptor of a texture."""
        base = _block(source).address if isinstance(source, Texels) else source.address
        is_line = not isinstance(source, Texels) and not extent.height
        made = texture_descriptor(base, extent, format, sampling, is_line=is_line)
        made.in_blocks = isinstance(source, Texels)
        return _handle(made)

    def surface(self, texels: Texels) -> TextureHandle:
        """Make a descriptor of a surface."""
        return _handle(surface_descriptor(_block(texels).address, texels.extent, texels.format))


def _block(texels: Texels) -> HostBlock:
    assert isinstance(texels.memory, HostBlock)
    return texels.memory


def texture_descriptor(
    base: int,
    extent: Extent,
    format: TexelFormat,
    sampling: Sampling,
    *,
    row_bytes: int | None = None,
    is_line: bool = False,
    is_empty: bool = False,
) -> Descriptor:
    """Return the descriptor of a texture in memory. Its address is the handle, which is valid while the descriptor
    exists.

    Args:
        base: address of the first element.
        extent: sizes in elements.
        format: dtype of the elements.
        sampling: sampling mode of the texture.
        row_bytes: distance between rows in bytes, or None for rows without gaps.
        is_line: whether the texture is plain memory, read by element numbers.
        is_empty: whether the texture has no element. All lookups then return zeros, and never read ``base``.
    """
    made = _descriptor(TEXTURE_MARK, base, extent, format, row_bytes)
    if is_empty:
        made.base, made.texel_bytes, made.row, made.slice = ctypes.addressof(_ZEROS), 0, 0, 0
    made.address_0, made.address_1, made.address_2 = (m.value for m in sampling.address)
    made.filter = int(sampling.filter is Filter.LINEAR)
    made.normalized, made.as_float, made.srgb = sampling.normalized, sampling.as_float, sampling.srgb
    made.linear_memory = is_line
    is_float = format.is_float or sampling.as_float
    made.border[: format.channels] = [_word(b, is_float) for b in sampling.border[: format.channels]]
    return made


_ZEROS = (ctypes.c_uint64 * 2)()
"""The largest element, of zeros: the one place that lookups in a texture without elements read."""


def surface_descriptor(base: int, extent: Extent, format: TexelFormat, *, row_bytes: int | None = None) -> Descriptor:
    """Return the descriptor of a surface in memory, as ``texture_descriptor`` does for a texture."""
    return _descriptor(SURFACE_MARK, base, extent, format, row_bytes)


def _descriptor(mark: int, base: int, extent: Extent, format: TexelFormat, row_bytes: int | None) -> Descriptor:
    row = extent.width * format.texel_bytes if row_bytes is None else row_bytes
    return Descriptor(
        mark=mark,
        base=base,
        row=row,
        slice=row * extent.rows,
        width=extent.width,
        height=extent.rows,
        depth=extent.slices,
        layers=extent.layers // (6 if extent.cube else 1),
        texel_bytes=format.texel_bytes,
        channels=format.channels,
        format=FORMATS.index(format.dtype.name),
    )


def _handle(made: Descriptor) -> TextureHandle:
    def release() -> None:
        made.mark = 0  # its memory stays until the function goes, which holds it

    return TextureHandle(ctypes.addressof(made), release)


def _word(value: float, is_float: bool) -> int:
    """Bits of a channel of the border as the instruction returns it."""
    if is_float:
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    return int(value) & 0xFFFFFFFF


_REFERENCES = ("texref", "samplerref", "surfref")


def note_references(module: PtxModule, refusals: Refusals) -> bool:
    """Record a refusal of each texture, sampler, and surface that a module declares, and return whether there are any.

    These references have no size, so a module with references can't be laid out or flattened.
    """
    parameters = [p for function in module.functions for p in function.parameters]
    found = [v for v in (*module.variables, *parameters) if v.type in _REFERENCES]
    for v in found:
        why = "a texture or surface reference; textures are passed as a 64-bit cudaTextureObject_t"
        refusals.add(v.line, f".{v.type} {v.name}", why)
    return bool(found)
