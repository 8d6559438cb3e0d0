"""Unpacking of payloads, bounded by the size that was declared for them."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence

import lz4.block
import zstandard

from cujit.errors import FormatError

_MAX_BYTES = 1 << 30  # no image comes near it
# What one packed byte can stand for at most. Sources: LZ4 block format, a length byte counts 255; RFC 8878, a
# block is at most 128 KiB and takes at least 3 bytes of header and 1 of content.
_LZ4_RATIO = 255
_ZSTD_RATIO = (128 << 10) // 4


class Compression(enum.Enum):
    """How a payload is packed."""

    NONE = "none"
    LZ4 = "lz4"
    """One raw LZ4 block."""
    ZSTD = "zstd"
    """One zstd frame that tells its content's size."""


def unpack(packed: bytes, compression: Compression, size: int, offset: int) -> bytes:
    """Decompress bytes to ``size`` bytes. ``offset`` is their file offset for errors.

    Raises:
        FormatError: the bytes can't be decompressed, have another size, or the size is impossible.
    """
    if compression is Compression.NONE:
        return packed
    ratio = _LZ4_RATIO if compression is Compression.LZ4 else _ZSTD_RATIO
    if size > min(_MAX_BYTES, (len(packed) + 1) * ratio):
        raise FormatError(
            f"{len(packed)} bytes of {compression.value} data can't decompress to {size} bytes", offset=offset
        )
    try:
        data = _unpack_lz4(packed, size) if compression is Compression.LZ4 else _unpack_zstd(packed, size)
    except (lz4.block.LZ4BlockError, zstandard.ZstdError, ValueError, OverflowError) as e:
        raise FormatError(f"the {compression.value} payload is damaged: {e}", offset=offset) from e
    if len(data) != size:
        raise FormatError(f"the data decompressed to {len(data)} bytes, expected {size}", offset=offset)
    return data


def _unpack_lz4(packed: bytes, size: int) -> bytes:
    return bytes(lz4.block.decompress(packed, uncompressed_size=size))


def _unpack_zstd(packed: bytes, size: int) -> bytes:
    declared = zstandard.frame_content_size(packed)
    if declared != size:
        raise ValueError(f"the frame declares {declared} bytes, but the entry declares {size}")
    return zstandard.ZstdDecompressor().decompress(packed)


def unpack_pieces(packed: bytes, sizes: Sequence[int], offset: int) -> Iterator[bytes]:
    """Decompress a zstd frame in pieces, so that no more memory is allocated than the size of the pieces.

    Raises:
        FormatError: the frame doesn't have pieces of these sizes. ``offset`` is its file offset.
    """
    total = sum(sizes)
    if total > min(_MAX_BYTES, (len(packed) + 1) * _ZSTD_RATIO):
        raise FormatError(f"{len(packed)} bytes of zstd data can't decompress to {total} bytes", offset=offset)
    try:
        declared = zstandard.frame_content_size(packed)
        if declared != total:
            raise ValueError(f"the frame declares {declared} bytes, but the pieces declare {total}")
        with zstandard.ZstdDecompressor().stream_reader(packed) as reader:
            for size in sizes:
                piece = reader.read(size) if size else b""
                if len(piece) != size:
                    raise ValueError(f"a piece decompressed to {len(piece)} bytes, expected {size}")
                yield piece
            if reader.read(1):
                raise ValueError("the payload decompresses to more bytes than it declares")
    except (zstandard.ZstdError, ValueError, OverflowError) as e:
        raise FormatError(f"the zstd payload is damaged: {e}", offset=offset) from e
