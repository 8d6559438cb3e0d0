"""CUDA Tile IR: the version of the bytecode, and the kernels in it with what they take.

Bodies of functions are skipped by their size. Source: CUDA Tile IR 13.4, "Binary Format"; the bytecode writer of
cuda-tile 1.7; compared with what tileirdisasm 13.5 prints of bytecode of NVRTC 13.5 and cuda-tile 1.7.
"""

from __future__ import annotations

from collections.abc import Iterator

from cujit.arch import Arch
from cujit.arch.support import Version
from cujit.artifact import magic
from cujit.errors import FormatError, spell
from cujit.signature import Parameter, ParameterClass, Signature
from cujit.values import dataclass

_HEADER_BYTES = 12
_END, _STRINGS, _FUNCTIONS, _DEBUG, _TYPES = 0, 1, 2, 3, 5
_IS_ALIGNED = 0x80
_IS_KERNEL, _HAS_HINTS = 0x02, 0x04
_HINTS_ALWAYS_SINCE = (13, 5)
"""The version from which every kernel has hints, and every function attributes of its arguments."""
_FLAGS_SINCE = (13, 4)
"""The version from which a pointer begins with flags."""
_DEEPEST = 8
_VARINT_BYTES = 10

_NUMBERS: dict[int, tuple[str, int, ParameterClass]] = {
    0x00: ("bool", 1, ParameterClass.BOOL),
    0x01: ("", 1, ParameterClass.BITS),
    0x02: ("", 2, ParameterClass.BITS),
    0x03: ("", 4, ParameterClass.BITS),
    0x04: ("", 8, ParameterClass.BITS),
    0x05: ("__half", 2, ParameterClass.FLOAT),
    0x06: ("__nv_bfloat16", 2, ParameterClass.FLOAT),
    0x07: ("float", 4, ParameterClass.FLOAT),
    0x08: ("float", 4, ParameterClass.FLOAT),
    0x09: ("double", 8, ParameterClass.FLOAT),
    0x0A: ("__nv_fp8_e4m3", 1, ParameterClass.FLOAT),
    0x0B: ("__nv_fp8_e5m2", 1, ParameterClass.FLOAT),
}
"""The types of numbers by their tags: the name in C++, unless Tile IR leaves the sign open, and the size."""
_UNKNOWN = ("", 0, ParameterClass.UNKNOWN)
_POINTER, _TILE, _FUNCTION = 0x0C, 0x0D, 0x10


@dataclass(frozen=True)
class TileIr:
    """Contents of Tile IR: ``kernels`` by lowered name, or None if their encoding is unknown."""

    version: Version
    kernels: dict[str, Signature] | None
    has_lines: bool


def first_release_for(arch: Arch) -> Version | None:
    """Return the first CUDA release that compiles Tile IR for an architecture, or None.

    Source: release notes of CUDA Tile IR 13.1 to 13.5.
    """
    if arch.number // 10 in (10, 11, 12):
        return (13, 4) if arch.number == 107 else (13, 1)
    return {8: (13, 2), 9: (13, 3)}.get(arch.number // 10)


def read_tileir(data: bytes) -> TileIr:
    """Read the header, the sections and the kernels of Tile IR.

    Raises:
        FormatError: it is no Tile IR, or is damaged.
    """
    if not data.startswith(magic.TILEIR):
        raise FormatError(f"the data is not Tile IR: it begins with {spell(data[:8])}", offset=0)
    if len(data) < _HEADER_BYTES:
        raise FormatError(f"the Tile IR is truncated in its header, after {len(data)} bytes", offset=len(data))
    version = (data[8], data[9])
    sections = _sections(data)
    missing = {_STRINGS, _FUNCTIONS, _TYPES} - sections.keys()
    if missing:
        raise FormatError(f"the Tile IR lacks section {min(missing)}", offset=_HEADER_BYTES)
    names, types = _table(sections[_STRINGS], 4), _table(sections[_TYPES], 4)
    try:
        kernels: dict[str, Signature] | None = dict(_kernels(sections[_FUNCTIONS], version, names, types))
    except _UnknownEncodingError:
        kernels = None
    return TileIr(version, kernels, _has_lines(sections.get(_DEBUG)))


class _UnknownEncodingError(Exception):
    """An attribute of a later version, after which nothing can be read."""


class _Cursor:
    """Bytes that are read in order. ``at`` is the file offset of the next byte."""

    def __init__(self, data: bytes, at: int, end: int) -> None:
        self.data, self.start, self.at, self.end = data, at, at, end

    def byte(self) -> int:
        return self.take(1)[0]

    def take(self, size: int) -> bytes:
        if size > self.end - self.at:
            raise FormatError(f"the Tile IR is truncated: {size} bytes are missing", offset=self.at)
        taken = self.data[self.at : self.at + size]
        self.at += size
        return taken

    def varint(self) -> int:
        number = 0
        for place in range(_VARINT_BYTES):
            byte = self.byte()
            number |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return number
        raise FormatError("the Tile IR contains a number of more than 64 bits", offset=self.at)

    def align(self, to: int) -> None:
        self.take((self.start - self.at) % to)


def _sections(data: bytes) -> dict[int, _Cursor]:
    cursor, found = _Cursor(data, 0, len(data)), dict[int, _Cursor]()
    cursor.take(_HEADER_BYTES)
    while (head := cursor.byte()) != _END:
        kind, size = head & ~_IS_ALIGNED, cursor.varint()
        if kind in found:
            raise FormatError(f"the Tile IR contains two sections of kind {kind}", offset=cursor.at)
        if head & _IS_ALIGNED:
            alignment = cursor.varint()
            if alignment not in (1, 2, 4, 8, 16):
                raise FormatError(
                    f"the Tile IR contains a section with the invalid alignment {alignment}", offset=cursor.at
                )
            cursor.align(alignment)
        start = cursor.at
        cursor.take(size)
        found[kind] = _Cursor(data, start, start + size)
    return found


def _table(cursor: _Cursor, index_bytes: int) -> list[bytes]:
    """Read a table: the count, the offsets of the items, and the items."""
    count = cursor.varint()
    cursor.align(index_bytes)
    raw = cursor.take(count * index_bytes)
    offsets = [int.from_bytes(raw[i : i + index_bytes], "little") for i in range(0, len(raw), index_bytes)]
    items = cursor.take(cursor.end - cursor.at)
    ends = [*offsets[1:], len(items)]
    if any(first > last for first, last in zip(offsets, ends, strict=True)):
        raise FormatError("the offsets in a table of the Tile IR decrease", offset=cursor.start)
    return [items[first:last] for first, last in zip(offsets, ends, strict=True)]


def _kernels(
    cursor: _Cursor, version: Version, names: list[bytes], types: list[bytes]
) -> Iterator[tuple[str, Signature]]:
    for _ in range(cursor.varint()):
        name, kind = cursor.varint(), cursor.varint()
        flags = cursor.byte()
        cursor.varint()  # where it is in the source
        is_kernel = bool(flags & _IS_KERNEL)
        if flags & _HAS_HINTS or (is_kernel and version >= _HINTS_ALWAYS_SINCE):
            _skip_attribute(cursor)
        if version >= _HINTS_ALWAYS_SINCE:
            _skip_attribute(cursor)
        cursor.take(cursor.varint())
        if is_kernel:
            if name >= len(names):
                raise FormatError(
                    f"the Tile IR refers to kernel name {name}, but contains only {len(names)}", offset=cursor.at
                )
            yield names[name].decode("utf-8", "backslashreplace"), _signature(kind, types, version)


_INTEGER, _BOOL, _TYPE, _TEXT, _ARRAY, _DIVIDED, _DICTIONARY, _HINTS, _BOUNDED = 1, 3, 4, 5, 6, 8, 10, 11, 12


def _skip_attribute(cursor: _Cursor, depth: int = 0) -> None:
    if depth > _DEEPEST:
        raise FormatError(f"the attributes in the Tile IR are nested more than {_DEEPEST} deep", offset=cursor.at)
    tag = cursor.byte()
    if tag in (_ARRAY, _DICTIONARY, _HINTS):
        for _ in range(cursor.varint()):
            if tag != _ARRAY:
                cursor.varint()
            _skip_attribute(cursor, depth + 1)
    elif tag in (_TYPE, _TEXT):
        cursor.varint()
    elif tag == _BOOL:
        cursor.byte()
    elif tag in (_INTEGER, _DIVIDED, _BOUNDED):
        if tag != _BOUNDED:
            cursor.varint()
        bounds = {_INTEGER: lambda: 1, _DIVIDED: cursor.byte, _BOUNDED: cursor.byte}[tag]()
        for _ in range(bounds.bit_count()):
            cursor.varint()
    else:
        raise _UnknownEncodingError


def _signature(kind: int, types: list[bytes], version: Version) -> Signature:
    """Read the parameters of a function; one of an unknown type has size 0."""
    cursor = _type(kind, types)
    if cursor is None or cursor.varint() != _FUNCTION:
        raise FormatError(f"a kernel in the Tile IR is of type {kind}, which is not a function type")
    return Signature(tuple(_parameter(cursor.varint(), types, version) for _ in range(cursor.varint())))


def _type(number: int, types: list[bytes]) -> _Cursor | None:
    return _Cursor(types[number], 0, len(types[number])) if number < len(types) else None


def _parameter(number: int, types: list[bytes], version: Version) -> Parameter:
    """Read a parameter: a tile without dimensions, of numbers or pointers."""
    cursor = _type(number, types)
    tag = cursor.varint() if cursor is not None else -1
    if cursor is not None and tag == _TILE:
        cursor = _type(cursor.varint(), types)
        tag = cursor.varint() if cursor is not None else -1
    if cursor is not None and tag == _POINTER:
        if version >= _FLAGS_SINCE:
            cursor.varint()
        pointed = _type(cursor.varint(), types)
        pointee, *_ = _NUMBERS.get(-1 if pointed is None else pointed.varint(), _UNKNOWN)
        return Parameter(ParameterClass.POINTER, 8, 8, pointee and f"{pointee}*", pointee)
    name, size, kind = _NUMBERS.get(tag, _UNKNOWN)
    return Parameter(kind, size, size, name)


def _has_lines(debug: _Cursor | None) -> bool:
    """Return whether any operation has a location. The attribute number 0 means none."""
    if debug is None:
        return False
    functions = debug.varint()
    debug.align(4)
    debug.take(4 * functions)
    operations = debug.varint()
    debug.align(8)
    return any(debug.take(8 * operations))
