"""The positions of a module's variables in its memory, and their initial values."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping
from math import prod

from cujit.arch import Arch
from cujit.arch.multiprocessor import limits_of
from cujit.devices.cpu.frontend.callgraph import CallGraph, values_in
from cujit.devices.cpu.ir.program import IntConstant, MemorySlot, Operand, SymbolAddress, type_bits
from cujit.devices.cpu.ir.refusals import UNLINKED, Refusals
from cujit.devices.cpu.run.launch import SYSTEM_BYTES
from cujit.devices.cpu.run.mappings import aligned
from cujit.errors import LoadError
from cujit.formats.ptx.syntax import FloatLiteral, Function, Generic, Immediate, PtxModule, SymbolRef, Variable, flat


def variable_size(variable: Variable) -> int:
    """Return the size of a variable in bytes. The size of an array without declared dimensions is 0."""
    return type_bits(variable.type) // 8 * variable.vector * prod(variable.shape)


def slot_of(variable: Variable, space: str = "") -> MemorySlot:
    """Create the slot of a variable with its declared alignment, otherwise with its natural alignment."""
    align = variable.align or type_bits(variable.type) // 8 * variable.vector
    return MemorySlot(variable.name, space or variable.space, variable_size(variable), align)


def placed(slot: MemorySlot, end: int) -> int:
    """Place a slot after the offset ``end``, and return the end of the slot."""
    slot.offset = aligned(end, max(slot.align, 1))
    return slot.offset + slot.size


_DYNAMIC_ALIGN = 16
RESERVED = "%reserved"
"""Name of the shared variable that stands for the memory kept for libraries; no variable of a text has such a name."""

RESERVED_BYTES = 1024
"""Bytes of it. Source: CUDA C++ Programming Guide, "Shared Memory" of compute capability 8.x: 1 KB a block."""


class SharedMemory:
    """The shared variables of a kernel and of the functions that it calls."""

    def __init__(self, of_module: Mapping[str, Variable]) -> None:
        self.of_module = of_module
        self.slots: dict[str, MemorySlot] = {}
        self.size = 0
        """The bytes of all, without dynamic ones; the first lies behind those of the system."""
        self._placed: dict[int, MemorySlot] = {}
        self._dynamic: list[MemorySlot] = []

    def place(self, v: Variable) -> MemorySlot:
        """Return the slot of a variable, which is the same for every call of its function.

        ``extern`` variables are placed after all other variables.
        """
        if id(v) in self._placed:
            return self._placed[id(v)]
        slot = self._placed[id(v)] = slot_of(v)
        if not variable_size(v):
            slot.dynamic = True
            self._dynamic.append(slot)
        else:
            self._put(slot)
        return slot

    def _put(self, slot: MemorySlot) -> None:
        """Place a variable after the other variables, and after the bytes that the system reserves.

        As on an H200, the alignment is relative to the start of the first variable. Source:
        ``tests/goldens/windows.json``.
        """
        self.size = placed(slot, self.size)
        slot.offset += SYSTEM_BYTES

    @property
    def has_dynamic(self) -> bool:
        """Whether the launch sets the size of any variable."""
        return bool(self._dynamic)

    def reserved(self, register: str) -> Operand:
        """Return the value of a register that describes the shared memory reserved for libraries.

        Here, that memory is a separate variable.

        Source: PTX ISA 9.1, "%reserved_smem_offset_begin", …; ``cooperative_groups/details/memory.h``.
        """
        if RESERVED not in self.slots:
            self.slots[RESERVED] = MemorySlot(RESERVED, "shared", RESERVED_BYTES, 16)
            self._put(self.slots[RESERVED])
        if register.endswith("_cap"):
            return IntConstant(RESERVED_BYTES)
        return SymbolAddress(self.slots[RESERVED], RESERVED_BYTES if register.endswith("_end") else 0)

    @property
    def static_bytes(self) -> int:
        """Static shared memory in bytes, as assemblers count it, before ``finish``. Memory reserved for libraries
        doesn't count.
        """
        return self.size - (RESERVED_BYTES if RESERVED in self.slots else 0)

    def finish(self) -> None:
        """Place dynamic shared memory after the other variables, aligned to 16 bytes or to a larger declared alignment.

        Source: measured on an H200, where the padding reduces the available dynamic memory
        (``tests/goldens/launches.json``).
        """
        if self._dynamic:
            self.size = aligned(self.size, max(_DYNAMIC_ALIGN, *(slot.align for slot in self._dynamic)))
        for slot in self._dynamic:
            slot.offset = SYSTEM_BYTES + self.size


_TILE_IR = "7"
"""The number by which ``.language`` names Tile IR. Source: tileiras 13.5."""


def most_static_bytes(target: str, kernel: Function) -> int:
    """Return the most bytes of static shared memory that a kernel for a target may have.

    Source: ptxas 11.8, 12.9, 13.0 and 13.5, by bisection (``tests/toolkits``); of several releases the largest. Kernels
    of Tile IR have what a block can have at most, as tileiras calls ptxas with ``--enable-extended-smem=true``.
    """
    if any(name == "language" and value == (_TILE_IR,) for name, value in kernel.directives):
        return limits_of(Arch.parse(target)).block_shared_bytes
    if not target.endswith("a"):
        return 49_152
    return 101_376 if target.startswith("sm_12") else 232_448


class ModuleLayout:
    """The ``.global`` and ``.const`` variables of a module in one block of memory.

    ``pieces`` maps offsets in the block to initial values. The rest of the block, which has ``size`` bytes, is zero.
    ``relocations`` are ``(offset, slot, addend)``: places that receive the address of a variable once the block has an
    address. ``graph`` contains the calls of the module.
    """

    def __init__(self, module: PtxModule, refusals: Refusals) -> None:
        self._refusals = refusals
        self.shared = {v.name: v for v in module.variables if v.space == "shared"}
        self.target = module.target[0]
        self.slots: dict[str, MemorySlot] = {}
        self.relocations: list[tuple[int, MemorySlot, int]] = []
        named = [(name, v) for name, v in _named_variables(module) if v.space in ("global", "const")]
        self.graph = CallGraph(module)
        self.size = aligned(self._place(named, self.graph), 16)
        self.pieces: dict[int, bytearray] = {}
        for name, v in named:
            if v.initializer is not None:
                self._store(v, self.slots[name].offset)

    def _place(self, named: Iterable[tuple[str, Variable]], graph: CallGraph) -> int:
        """Assign places to variables, and to functions whose address is taken. Return the total size in bytes."""
        # Of an extern variable another definition of the module has the name, or another module.
        self.slots = {name: slot_of(v) for name, v in named if v.linkage != "extern"}
        # The address of a function is that of eight bytes of its own.
        self.slots |= {name: MemorySlot(name, "global", 8, 8) for name in graph.by_address}
        end = 0
        for slot in self.slots.values():
            # A variable of no bytes still has an address of its own.
            end = placed(slot, end) + (slot.size == 0)
        self.slots |= {new: self.slots[old] for new, old in graph.aliases.items() if old in self.slots}
        return end

    def _store(self, v: Variable, offset: int) -> None:
        width = type_bits(v.type) // 8
        piece, at, size = self.pieces.setdefault(offset, bytearray()), 0, variable_size(v)
        for item in values_in(v.initializer):
            piece += self._bytes_of(v, item, offset + at, width)
            at += width
            if at > size:
                raise LoadError(f"the initializer of {v.name} (line {v.line}) is longer than the variable")

    def _bytes_of(self, v: Variable, item: object, offset: int, width: int) -> bytes:
        symbol = item.symbol if isinstance(item, Generic) and item.mask is None else item
        if isinstance(item, Immediate):
            return (item.value & ((1 << 8 * width) - 1)).to_bytes(width, "little")
        if isinstance(item, FloatLiteral):
            return _float_bytes(item, width)
        if not isinstance(symbol, SymbolRef):
            self._refusals.add(v.line, f".{v.space} {v.name}", "an initialiser that takes bytes of an address")
        elif symbol.name not in self.slots or width != 8:
            self._refusals.add(v.line, f".{v.space} {v.name}", f"the address of {symbol.name}, {UNLINKED}")
        else:
            self.relocations.append((offset, self.slots[symbol.name], symbol.offset))
        return bytes(width)


def _named_variables(module: PtxModule) -> Iterator[tuple[str, Variable]]:
    """List the variables of a module and of its functions, each with the name that it has here."""
    yield from ((v.name, v) for v in module.variables)
    inside = (each for f in module.functions for each in flat(f.body))
    yield from ((inner_name(each), each) for each in inside if isinstance(each, Variable))


def inner_name(variable: Variable) -> str:
    """Return a unique name, within the module, for a variable of a function. Names in PTX do not contain ``@``."""
    return f"{variable.name}@{id(variable)}"


def _float_bytes(item: FloatLiteral, width: int) -> bytes:
    if 8 * width == item.width:
        return item.bits.to_bytes(width, "little")
    value = struct.unpack("<d" if item.width == 64 else "<f", item.bits.to_bytes(item.width // 8, "little"))[0]
    return struct.pack({4: "<f", 8: "<d", 2: "<e"}[width], value)
