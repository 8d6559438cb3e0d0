"""The entries of a fatbin: their headers and their original payloads.

Source of the layout: as in ``fatbin``. Numbers are little-endian, and every offset is from the entry's header.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator

from cujit.arch import Arch, ArchKind
from cujit.arch.support import Version
from cujit.errors import ArchError, FormatError
from cujit.formats.elf import elf_length
from cujit.formats.unpack import Compression, unpack
from cujit.values import dataclass, field

_ENTRY = struct.Struct("<HHIQIIHHIIIQQQ")
_PAIR = struct.Struct("<II")
_CONCATENATED = 0x100


class EntryKind(enum.Enum):
    """The kind of image in an entry."""

    PTX = 1
    CUBIN = 2
    LTOIR = 8
    TILEIR = 0x80
    OTHER = 0
    """Of a kind that cujit does not know; ``FatbinEntry.code`` has its number."""


class FatbinFlag(enum.IntFlag):
    """The flags of an entry with a known meaning."""

    BITS_64 = 0x1
    DEBUG = 0x2
    CUDA = 0x4
    OPENCL = 0x8
    HOST_LINUX = 0x10
    HOST_MAC = 0x20
    HOST_WINDOWS = 0x40
    LZ4 = 0x2000
    ZSTD = 0x8000
    SCRAMBLED = 0x10000
    ARCH_SPECIFIC = 0x100000
    FAMILY_SPECIFIC = 0x200000


_ARCH_KINDS = {EntryKind.PTX: ArchKind.VIRTUAL, EntryKind.LTOIR: ArchKind.LTO}


@dataclass(frozen=True)
class FatbinEntry:
    """One image in a fatbin.

    ``code`` is the number of its kind. ``version`` is the PTX ISA version of PTX, the ABI version of a cubin, or the
    container version of LTO-IR. ``offset`` is the offset of the entry's header in the file. ``stored_bytes`` is the
    size of the stored payload, and ``size`` is its unpacked size. Both may include padding. ``flags`` includes unknown
    bits.
    """

    kind: EntryKind
    code: int
    arch: Arch | None
    version: Version
    flags: int
    identifier: str
    options: str
    compression: Compression
    offset: int
    stored_bytes: int
    size: int
    _stored: _Stored = field(repr=False, compare=False)

    @property
    def is_compressed(self) -> bool:
        """Whether the payload is packed."""
        return self.compression is not Compression.NONE

    @property
    def is_debug(self) -> bool:
        """Whether it was built with ``-G`` or ``-g``."""
        return bool(self.flags & FatbinFlag.DEBUG)

    def payload(self) -> bytes:
        """Return the unpacked image. A cubin is cut to its length, and PTX has no trailing NUL characters.

        Raises:
            FormatError: the payload doesn't have the declared size, isn't an ELF file for a cubin, or is compressed
                LTO-IR (a private format of NVIDIA).
        """
        if self.flags & FatbinFlag.SCRAMBLED:
            raise FormatError(
                "only nvJitLink can read compressed LTO-IR in a fatbin",
                offset=self.offset,
                help="link the whole fatbin, or bundle without compression",
            )
        data = self._stored.read()
        if self.kind is EntryKind.CUBIN:
            try:
                return data[: elf_length(data)]
            except FormatError as e:
                raise FormatError(f"entry {self}: {e.message}", offset=self.offset) from e
        return data.rstrip(b"\0") if self.kind is EntryKind.PTX else data

    def __str__(self) -> str:
        return f"{self.kind.name.lower()} {self.arch}" if self.arch else f"{self.kind.name.lower()}"


class Recent:
    """The shared payload of a file that was unpacked last; its entries, read in turn, unpack it once."""

    def __init__(self) -> None:
        self._last: tuple[int, bytes] = (-1, b"")

    def unpacked(self, stored: _Stored) -> bytes:
        """Return the unpacked payload. The most recent payload is cached."""
        start, data = self._last
        if start != stored.start:
            data = stored.unpack()
            self._last = (stored.start, data)
        return data


@dataclass(frozen=True)
class _Stored:
    """Where the bytes of a payload are, and how they are packed; a concatenated one is a slice of the unpacked."""

    data: bytes
    start: int
    end: int
    compression: Compression
    size: int
    slice: tuple[int, int] | None = None
    recent: Recent | None = None

    def unpack(self) -> bytes:
        return unpack(self.data[self.start : self.end], self.compression, self.size, self.start)

    def read(self) -> bytes:
        unpacked = self.recent.unpacked(self) if self.recent else self.unpack()
        if self.slice is None:
            return unpacked
        at, size = self.slice
        return unpacked[at : at + size]

    def __reduce__(self) -> tuple[object, ...]:
        # Not the whole file for each of its entries.
        bare = (self.data[self.start : self.end], 0, self.end - self.start, self.compression, self.size, self.slice)
        return type(self), bare


@dataclass(frozen=True)
class _Header:
    """The fixed part of an entry's header, its places checked against the container's end."""

    at: int
    kind: int
    header_bytes: int
    payload_bytes: int
    packed_bytes: int
    options_at: int
    version: Version
    number: int
    identifier_at: int
    identifier_bytes: int
    flags: int
    unpacked_bytes: int

    @classmethod
    def unpack(cls, data: bytes, at: int, end: int) -> _Header:
        """Read the fields of a header. Only their presence is checked."""
        if at + _ENTRY.size > end:
            raise FormatError("an entry is truncated inside its header", offset=at)
        kind, _, header, payload, packed, options, minor, major, number, id_at, id_bytes, flags, _, unpacked = (
            _ENTRY.unpack_from(data, at)
        )
        version = (major, minor)
        return cls(at, kind, header, payload, packed, options, version, number, id_at, id_bytes, flags, unpacked)

    @classmethod
    def read(cls, data: bytes, at: int, end: int) -> _Header:
        """Read a header that is followed by its payload, and check its sizes."""
        header = cls.unpack(data, at, end)
        if header.header_bytes < _ENTRY.size or header.payload_end > end:
            raise FormatError(
                f"an entry of {header.header_bytes} + {header.payload_bytes} bytes extends past the end of its fatbin",
                offset=at,
            )
        if header.packed_bytes > header.payload_bytes:
            raise FormatError(
                f"an entry declares {header.packed_bytes} compressed bytes, but contains {header.payload_bytes}",
                offset=at + 0x10,
            )
        return header

    @property
    def payload_at(self) -> int:
        return self.at + self.header_bytes

    @property
    def payload_end(self) -> int:
        return self.payload_at + self.payload_bytes

    @property
    def compression(self) -> Compression:
        if self.flags & FatbinFlag.ZSTD:
            return Compression.ZSTD
        return Compression.LZ4 if self.flags & FatbinFlag.LZ4 else Compression.NONE

    def stored(self, data: bytes) -> _Stored:
        """Where the payload is."""
        if self.compression is Compression.NONE:
            return _Stored(data, self.payload_at, self.payload_end, Compression.NONE, self.payload_bytes)
        end = self.payload_at + self.packed_bytes
        return _Stored(data, self.payload_at, end, self.compression, self.unpacked_bytes)

    def pair(self, data: bytes, end: int) -> tuple[int, int]:
        """Return the two numbers at ``options_at``, or zeros if there are none."""
        if self.options_at == 0:
            return 0, 0
        if self.at + self.options_at + _PAIR.size > end:
            raise FormatError("the options are outside the entry's header", offset=self.at + 0x14)
        first, second = _PAIR.unpack_from(data, self.at + self.options_at)
        return first, second

    def text(self, data: bytes, offset: int, size: int, end: int) -> str:
        """A text in the variable part of the header."""
        if offset == 0 or size == 0:
            return ""
        if self.at + offset + size > end:
            raise FormatError(f"a string of {size} bytes is outside the entry's header", offset=self.at)
        raw = data[self.at + offset : self.at + offset + size]
        return raw.decode("utf-8", "backslashreplace")


def read_entries(data: bytes, at: int, end: int, recent: Recent | None = None) -> tuple[list[FatbinEntry], int]:
    """Return the entry at ``at``, or several concatenated entries, and the offset of the next entry.

    ``recent`` is shared by all entries of a file.

    Raises:
        FormatError: the entry extends past ``end`` or is inconsistent.
    """
    header = _Header.read(data, at, end)
    if header.kind == _CONCATENATED:
        return list(_concatenated(data, header, recent or Recent())), header.payload_end
    return [_entry(data, header)], header.payload_end


def _entry(data: bytes, header: _Header) -> FatbinEntry:
    stored = header.stored(data)
    return _make(data, header, stored, header.payload_at, stored.end - stored.start, stored.size)


def _make(data: bytes, h: _Header, stored: _Stored, end: int, stored_bytes: int, size: int) -> FatbinEntry:
    try:
        kind = EntryKind(h.kind)
    except ValueError:
        kind = EntryKind.OTHER
    # Machine code keeps a copy of a section of the cubin where other kinds keep their options.
    options_at, options_bytes = (0, 0) if kind is EntryKind.CUBIN else h.pair(data, end)
    return FatbinEntry(
        kind=kind,
        code=h.kind,
        arch=_arch(kind, h),
        version=h.version,
        flags=h.flags,
        identifier=h.text(data, h.identifier_at, h.identifier_bytes, end),
        options=h.text(data, options_at, options_bytes, end).rstrip("\0 "),
        compression=stored.compression,
        offset=h.at,
        stored_bytes=stored_bytes,
        size=size,
        _stored=stored,
    )


def _arch(kind: EntryKind, h: _Header) -> Arch | None:
    if kind is EntryKind.TILEIR or (kind is EntryKind.OTHER and h.number == 0):
        return None  # nvFatbin writes 80 beside Tile IR, which is for every architecture
    suffix = ""
    if h.flags & (FatbinFlag.ARCH_SPECIFIC | FatbinFlag.FAMILY_SPECIFIC):
        suffix = "a" if h.flags & FatbinFlag.ARCH_SPECIFIC else "f"
    try:
        return Arch(_ARCH_KINDS.get(kind, ArchKind.REAL), h.number, suffix)
    except ArchError as e:
        raise FormatError(f"an entry has the unknown architecture {h.number}", offset=h.at + 0x1C) from e


def _concatenated(data: bytes, outer: _Header, recent: Recent) -> Iterator[FatbinEntry]:
    """Yield the entries that share one payload. Their headers follow each other in the outer header.

    In these headers, the field for the header's size contains the offset in the unpacked payload.
    """
    count, table_bytes = outer.pair(data, outer.payload_at)
    at = outer.at + outer.options_at + _PAIR.size
    end = outer.at + outer.options_at + table_bytes
    if end > outer.payload_at or count * _ENTRY.size > table_bytes:
        raise FormatError(f"a table of {count} entries doesn't fit in {table_bytes} bytes", offset=outer.at + 0x14)
    stored, taken = outer.stored(data), 0
    for _ in range(count):
        h = _Header.unpack(data, at, end)
        taken += h.payload_bytes
        if h.header_bytes + h.payload_bytes > stored.size or taken > stored.size:
            raise FormatError("concatenated entries extend past the end of the shared payload", offset=at)
        place = (h.header_bytes, h.payload_bytes)
        shared = _Stored(data, stored.start, stored.end, stored.compression, stored.size, place, recent)
        yield _make(data, h, shared, end, h.payload_bytes, h.payload_bytes)
        at += _ENTRY.size
        if h.identifier_at:
            at += _padded(h.identifier_bytes + 1)
        if h.options_at:
            at += _PAIR.size + _padded(h.pair(data, end)[1] + 1)


def _padded(size: int) -> int:
    return -(-size // 8) * 8
