"""A loader that places the machine code of an object file in memory, as LLVM's loader does, but in a page or two.

For each object, LLVM keeps an engine, a target machine, and three mappings. They take 50 KiB, and 0.4 ms of a first
launch, for about 2 KiB of code. Measured with LLVM 22.1 on the kernels of ``benchmarks/kept.py``.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence

from cujit.errors import CujitError, FormatError
from cujit.formats.elf import Elf, ElfSymbol, Section, bare_header
from cujit.values import NamedTuple

_X86_64 = 62
_RELA = 4
_WRITABLE, _ALLOCATED = 1, 2
_UNWINDING = ".eh_frame"
"""What nobody reads: nothing unwinds through kernels. Debuggers do, and ask for LLVM's loader (``CUJIT_PERF``)."""

_HEAD = struct.Struct("<64sQQ5I")
_MARK = bare_header()
_PLACE = struct.Struct("<QQQ")
_ROW = struct.Struct("<QIIq")
_INT, _WORD = struct.Struct("<i"), struct.Struct("<Q")
_FILL = struct.Struct("<QQq")
_ABSOLUTE, _RELATIVE, _CALL = 1, 2, 4
_FIELDS = {_ABSOLUTE: _WORD, _RELATIVE: _INT, _CALL: _INT}
"""Relocations by number (R_X86_64_64, PC32, PLT32), and what is written. The last two count from their own place.

Source: System V ABI, AMD64 supplement, "Relocation Types".
"""


@functools.cache
def _system() -> ctypes.CDLL:
    library = ctypes.CDLL(None)
    library.mmap.restype = ctypes.c_void_p
    library.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_ssize_t)
    library.mprotect.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
    library.munmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t)
    return library


_NOWHERE = ctypes.c_void_p(-1).value


class LoadedObject:
    """Machine code in memory. The memory is released with this object, unless it was detached."""

    def __init__(self, size: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._size, self._release = 0, _system().munmap
        self.memory = _system().mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if self.memory == _NOWHERE:
            raise CujitError(f"there isn't enough memory for {size} bytes of machine code", code="out-of-memory")
        self._size = size
        self.functions: Mapping[str, tuple[int, int, int]] = {}

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._size and not is_ending():  # who comes later than this may still call it
            self._release(self.memory, self._size)

    def get_function_address(self, symbol: str) -> int:
        """Return the address of a function that the object has."""
        return int(self.memory + self.functions[symbol][0])

    def detach(self) -> None:
        """Keep the code for as long as the process lives."""
        self._size = 0

    def protect(self, written: int) -> None:
        """Make the code before ``written`` executable and read-only. Only the memory from ``written`` on stays
        writable.
        """
        if _system().mprotect(self.memory, written, mmap.PROT_READ | mmap.PROT_EXEC):
            raise CujitError(
                "this system doesn't allow a process to run code that it generated", help="allow execmem, or use a GPU"
            )


class PositionFreeCode(NamedTuple):
    """An object's code for any address. Every distance within the code is filled in.

    ``image`` is the start of the ``size`` bytes, and the rest is zero. The code writes only from ``written`` on, which
    is a page boundary. ``needs`` contains the names of the functions that the object calls but doesn't define. ``rows``
    contains a row of bytes for each address field: offset, index in ``needs``, and addend. An index of ``len(needs)``
    means the memory itself. ``functions`` contains the offset of each function, and the offset and size of its section.
    """

    image: bytes
    written: int
    size: int
    needs: tuple[str, ...]
    rows: bytes
    functions: Mapping[str, tuple[int, int, int]]

    def to_bytes(self) -> bytes:
        """Write the code after an ELF header that names no machine and no section."""
        names = "\n".join([*self.needs, *self.functions]).encode()
        counts = len(self.image), len(self.needs), len(self.functions), len(self.rows), len(names)
        places = [_PLACE.pack(*place) for place in self.functions.values()]
        return b"".join((_HEAD.pack(_MARK, self.written, self.size, *counts), self.rows, *places, names, self.image))

    @classmethod
    def of_bytes(cls, data: bytes) -> PositionFreeCode:
        """Read the output of ``to_bytes``. The cache's checksum guarantees that the data is complete."""
        _, written, size, image_bytes, needed, functions, row_bytes, name_bytes = _HEAD.unpack_from(data)
        places_at = _HEAD.size + row_bytes
        names_at = places_at + functions * _PLACE.size
        image_at = names_at + name_bytes
        names = data[names_at:image_at].decode().split("\n")
        places = _PLACE.iter_unpack(data[places_at:names_at])
        return cls(
            data[image_at : image_at + image_bytes],
            written,
            size,
            tuple(names[:needed]),
            data[_HEAD.size : places_at],
            dict(zip(names[needed:], places, strict=True)),
        )


def is_position_free(data: bytes) -> bool:
    """Return whether ``PositionFreeCode.to_bytes`` wrote these bytes. Otherwise they are an object file."""
    return data.startswith(_MARK)


def lay_out(elf: Elf, symbols: Sequence[ElfSymbol]) -> PositionFreeCode | None:
    """Return an object's code for any address, or None if only LLVM can load it, as for another processor.

    ``symbols`` are all symbols of the object.

    Raises:
        FormatError: the object is damaged.
    """
    needs = {name: None for name in (each.name for each in symbols if not each.section) if name}
    begins, written, size = _begins(elf.sections)
    if elf.machine != _X86_64 or not size:
        return None
    image = bytearray(
        max((begin + elf.sections[i].size for i, begin in begins.items() if elf.sections[i].is_in_file), default=0)
    )
    for index, begin in begins.items():
        content = elf.content(elf.sections[index])
        image[begin : begin + len(content)] = content
    linker = _Linker(image, symbols, begins, {name: k for k, name in enumerate(needs)})
    for table in elf.sections:
        if table.type == _RELA and table.info in begins:
            section = elf.sections[table.info]
            if not linker.link(begins[table.info], section.size if section.is_in_file else 0, elf.content(table)):
                return None
    functions = {
        symbol.name: (begins[symbol.section] + symbol.value, begins[symbol.section], elf.sections[symbol.section].size)
        for symbol in symbols
        if symbol.name and symbol.section in begins
    }
    return PositionFreeCode(bytes(image), written, size, tuple(needs), b"".join(linker.rows), functions)


def _begins(sections: Sequence[Section]) -> tuple[dict[int, int], int, int]:
    """Lay out the allocated sections, and return the offset of each section by its index.

    Also return the offset of the writable sections, which is a page boundary, and the total size in bytes.
    """
    begins: dict[int, int] = {}
    there = [s for s in sections if s.flags & _ALLOCATED and s.size and s.name != _UNWINDING]
    size = written = 0
    for is_written in (0, _WRITABLE):
        for section in there:
            if section.flags & _WRITABLE == is_written:
                align = max(section.align, 1)
                begins[section.index] = -(-size // align) * align
                size = begins[section.index] + section.size
        if not is_written:
            size = written = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
    return begins, written, size


class _Linker:
    """Fills in the distances within an object; ``rows`` lists the relocations that depend on addresses."""

    def __init__(
        self, image: bytearray, symbols: Sequence[ElfSymbol], begins: Mapping[int, int], needs: Mapping[str, int]
    ) -> None:
        self.rows: list[bytes] = []
        self._image = image
        self._symbols = symbols
        self._begins = begins
        self._needs = needs

    def link(self, begin: int, size: int, table: bytes) -> bool:
        """Apply a table of relocations to the section at ``begin``. Return False if only LLVM can apply them.

        Raises:
            FormatError: a relocation is outside its section, or refers to no symbol.
        """
        try:
            for offset, kind, index, addend in _ROW.iter_unpack(table):
                symbol, field = self._symbols[index], _FIELDS.get(kind)
                if field is None:
                    return False
                if offset + field.size > size:
                    raise FormatError(f"a relocation is outside its section: {offset} of {size} bytes")
                at = begin + offset
                is_own = symbol.section in self._begins
                if not (is_own or (symbol.name in self._needs and kind == _ABSOLUTE)):
                    return False
                if not is_own:
                    self.rows.append(_FILL.pack(at, self._needs[symbol.name], addend))
                elif kind == _ABSOLUTE:
                    self.rows.append(
                        _FILL.pack(at, len(self._needs), self._begins[symbol.section] + symbol.value + addend)
                    )
                else:
                    _INT.pack_into(self._image, at, self._begins[symbol.section] + symbol.value + addend - at)
        except IndexError as e:
            raise FormatError(f"a relocation has no symbol: {e}") from e
        except struct.error:  # too far away
            return False
        return True


def place(code: PositionFreeCode, addresses: Iterable[int]) -> LoadedObject:
    """Load code into memory.

    Args:
        code: the result of ``lay_out``.
        addresses: the addresses of the functions in ``needs``, in the same order.

    Raises:
        CujitError: there is not enough memory, or the system doesn't allow generated code.
    """
    placed = LoadedObject(code.size)
    values = [*addresses, placed.memory]
    ctypes.memmove(placed.memory, code.image, len(code.image))
    _native(placed.memory, code.rows, struct.pack(f"<{len(values)}Q", *values))
    placed.protect(code.written)
    placed.functions = code.functions
    return placed


def relocate(memory: int, rows: bytes, values: bytes) -> None:
    """Write addresses into the code at ``memory``. ``place`` uses this function if there is no native function.

    Args:
        memory: the address of the code.
        rows: the ``rows`` of a ``PositionFreeCode``.
        values: the base addresses to which the rows refer, as bytes.
    """
    words = [value for (value,) in _WORD.iter_unpack(values)]
    for at, index, addend in _FILL.iter_unpack(rows):
        ctypes.c_uint64.from_address(memory + at).value = words[index] + addend


_native: Callable[[int, bytes, bytes], object] = relocate


def use_native(function: Callable[[int, bytes, bytes], object]) -> None:
    """Set the native function with which ``place`` writes addresses."""
    global _native
    _native = function
