"""The machine code of an object file in memory of this process, as LLVM's own loader puts it there, in a page or two.

For each object LLVM keeps an engine, a machine and three mappings: 50 KiB, and 0.4 ms of a first launch, where the code
itself has some 2 KiB. Measured with LLVM 22.1 on the kernels of ``benchmarks/kept.py``.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import struct
import sys
from collections.abc import Callable, Mapping, Sequence

from cujit.errors import CujitError, FormatError
from cujit.formats.elf import Elf, ElfSymbol, Section

_X86_64 = 62
_RELA = 4
_WRITABLE, _ALLOCATED = 1, 2
_UNWINDING = ".eh_frame"
"""What nobody reads: nothing unwinds through kernels. Debuggers do, and ask for LLVM's loader (``CUJIT_PERF``)."""

_ROW = struct.Struct("<QIIq")
_INT, _WORD = struct.Struct("<i"), struct.Struct("<Q")
_FIELDS = {1: (_WORD, False), 2: (_INT, True), 4: (_INT, True)}
"""Relocations by number (R_X86_64_64, PC32, PLT32): what is written, and whether it counts from its own place.

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
    """Code in memory. It is released with this, unless somebody detached it."""

    def __init__(self, size: int) -> None:
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._size, self._release = 0, _system().munmap
        self.memory = _system().mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0)
        if self.memory == _NOWHERE:
            raise CujitError(f"no memory for {size} bytes of machine code", code="out-of-memory")
        self._size = size
        self.addresses: dict[str, int] = {}

    def __del__(self, is_ending: Callable[[], bool] = sys.is_finalizing) -> None:
        if self._size and not is_ending():  # who comes later than this may still call it
            self._release(self.memory, self._size)

    def get_function_address(self, symbol: str) -> int:
        """Return the address of a function that the object has."""
        return self.addresses[symbol]

    def detach(self) -> None:
        """Keep the code for as long as the process lives."""
        self._size = 0

    def fill(self, image: bytes, written: int) -> None:
        """Copy the code in; from now on it may run, and nobody may write it but for what begins at ``written``."""
        ctypes.memmove(self.memory, image, len(image))
        if _system().mprotect(self.memory, written, mmap.PROT_READ | mmap.PROT_EXEC):
            raise CujitError("this system lets no process run code that it made", help="allow execmem, or use a GPU")


def place(elf: Elf, symbols: Sequence[ElfSymbol], address_of: Callable[[str], int | None]) -> LoadedObject | None:
    """Put an object into memory; None where it asks for more than is done here, as objects of other processors do.

    ``symbols`` are all of the object; ``address_of`` finds what it calls.

    Raises:
        FormatError: it is damaged.
        CujitError: there is no memory for it.
    """
    begins, written, size = _begins(elf.sections)
    if elf.machine != _X86_64 or not size:
        return None
    placed = LoadedObject(size)
    values = [_value(symbol, placed.memory, begins, address_of) for symbol in symbols]
    image = bytearray(size)
    for index, begin in begins.items():
        content = elf.content(elf.sections[index])
        image[begin : begin + len(content)] = content
    for table in elf.sections:
        if table.type == _RELA and table.info in begins:
            rows = elf.content(table)
            if not _relocate(image, begins[table.info], placed.memory, rows, values):
                return None
    placed.fill(bytes(image), written)
    known = zip(symbols, values, strict=True)
    placed.addresses = {symbol.name: value for symbol, value in known if value is not None}
    return placed


def _begins(sections: Sequence[Section]) -> tuple[dict[int, int], int, int]:
    """Lay out what is there while code runs: where each section begins, by its index.

    Then come where the sections begin that code writes, which is at a page, and the bytes of all.
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


def _value(
    symbol: ElfSymbol, memory: int, begins: Mapping[int, int], address_of: Callable[[str], int | None]
) -> int | None:
    """Find the address that a symbol stands for, None where it stands for something else."""
    if symbol.section:
        begin = begins.get(symbol.section)
        return None if begin is None else memory + begin + symbol.value
    return address_of(symbol.name) if symbol.name else None


def _relocate(image: bytearray, begin: int, memory: int, rows: bytes, values: Sequence[int | None]) -> bool:
    """Fill in the addresses of a section that begins at ``begin``; tell whether all were of known kinds.

    Raises:
        FormatError: one lies outside.
    """
    try:
        for offset, kind, symbol, addend in _ROW.iter_unpack(rows):
            field, is_relative = _FIELDS.get(kind, (None, False))
            value = values[symbol]
            if field is None or value is None:
                return False
            at = begin + offset
            value += addend - (memory + at if is_relative else 0)
            if field is _INT and value != (value + (1 << 31)) % (1 << 32) - (1 << 31):
                return False
            field.pack_into(image, at, value)
    except (struct.error, IndexError) as e:
        raise FormatError(f"a relocation outside of its object: {e}") from e
    return True
