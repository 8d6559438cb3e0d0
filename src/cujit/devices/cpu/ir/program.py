"""A kernel as the CPU device represents it: one flat list of operations over numbered registers.

``flatten`` creates the list. Every later pass reads or rewrites it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cujit.devices.shapes import WARP as WARP
from cujit.forks import cached_property
from cujit.values import dataclass, field

if TYPE_CHECKING:  # launches out of the cache have operations' kinds, and no table of what they mean
    from cujit.formats.ptx.isa.semantics import Form, Order, Type

CLEAR = "shared.clear"
"""Opcode of what sets a shared variable to zeros before any warp of the block goes on."""


@functools.cache
def type_bits(name: str) -> int:
    """Width in bits of a PTX fundamental type: ``f16x2`` is 32, ``pred`` 1.

    Source: PTX ISA 9.1, "Fundamental Types" and "Packed Data Types".
    """
    if name == "pred":
        return 1
    digits = name.lstrip("bsuf")
    if "x" in digits:
        width, count = digits.split("x")
        return int(width.removeprefix("bf")) * int(count)
    return int(digits)


class Reg:
    """A virtual register: its number, PTX name, type as declared and width in bits (1 for a predicate)."""

    __slots__ = ("bits", "index", "is_float", "name", "type")

    def __init__(self, index: int, name: str, type_: str) -> None:
        self.index = index
        self.name = name
        self.type = type_
        self.bits = type_bits(type_)
        self.is_float = type_ in ("f32", "f64")

    def __repr__(self) -> str:
        return self.name


@dataclass(eq=False)
class MemorySlot:
    """Named memory, and its place in its state space.

    ``space`` is ``global``, ``const``, ``shared``, ``local``, or ``param`` (kernel parameters). It is ``call`` for call
    parameters that don't yet have registers or a place in ``local``. ``offset`` counts bytes from the start of the
    space.
    """

    name: str
    space: str
    size: int
    align: int
    offset: int = 0
    dynamic: bool = False
    """An ``extern .shared`` array: it begins where static shared memory ends."""


@dataclass(frozen=True)
class IntConstant:
    """An integer, as written."""

    value: int


@dataclass(frozen=True)
class FloatConstant:
    """A float by its bits."""

    bits: int
    width: int


@dataclass(frozen=True)
class SymbolAddress:
    """The address of a slot in its own space, plus a byte offset."""

    slot: MemorySlot
    offset: int = 0


@dataclass(frozen=True)
class Special:
    """A special register, by name without the percent sign: ``tid.x``."""

    name: str


@dataclass(frozen=True)
class MemoryOperand:
    """``[base + offset]``; ``coords`` are the coordinates of ``[texture, {x, y}]``, ``[map, {x, y}]``."""

    base: Reg | SymbolAddress | None
    offset: int = 0
    coords: tuple[Operand, ...] = ()


@dataclass(frozen=True)
class OperandGroup:
    """``{a, b, …}``."""

    items: tuple[Operand, ...]


@dataclass(frozen=True)
class Negation:
    """``!p``."""

    item: Operand


UNKNOWN_OPERAND = Special("?")
"""Stands for an operand that was refused, so that nothing else is said of it."""

Operand = Reg | IntConstant | FloatConstant | SymbolAddress | Special | MemoryOperand | OperandGroup | Negation


@dataclass(eq=False)
class Op:
    """One operation: a form with operands. ``guard`` is its predicate, and ``targets`` are its labels.

    Memory operands are sources, for loads and for stores. A result that the PTX discards (``_``) is None.
    """

    form: Form
    results: tuple[Reg | None, ...] = ()
    sources: tuple[Operand, ...] = ()
    guard: Reg | None = None
    guard_negated: bool = False
    targets: tuple[str, ...] = ()
    line: int = 0
    text: str = ""
    parts: tuple[str, ...] = ()
    """The parts of registers that the operands name, as written: ``h1`` of ``%r1.h1``, "" where one names none."""

    @property
    def opcode(self) -> str:
        """The first word of the mnemonic."""
        return self.form.opcode

    @property
    def modifiers(self) -> tuple[str, ...]:
        """The other words."""
        return self.form.modifiers

    @property
    def name(self) -> str:
        """The whole mnemonic."""
        return ".".join((self.opcode, *self.modifiers))

    @property
    def type(self) -> Type:
        """The first operand type."""
        return self.form.types[0]

    @property
    def types(self) -> tuple[Type, ...]:
        """The operand types, in order."""
        return self.form.types

    @property
    def space(self) -> str:
        """The state space of the operation, as in ``Form``."""
        return self.form.space

    @property
    def order(self) -> Order:
        """How strong an access it is."""
        return self.form.order

    @property
    def scope(self) -> str:
        """The scope of the operation's memory order or of its barrier, or an empty string if unspecified."""
        return self.form.scope

    @property
    def memory(self) -> MemoryOperand:
        """Its first source, which is an operand in brackets."""
        memory = self.sources[0]
        assert isinstance(memory, MemoryOperand)
        return memory

    @property
    def result(self) -> Reg | None:
        """The register that the operation writes, or None if it writes none or may write several."""
        return self.results[0] if len(self.results) == 1 else None

    @property
    def written(self) -> list[Reg]:
        """The registers that it writes."""
        return [r for r in self.results if r is not None]

    @property
    def writes(self) -> int:
        """The registers that the operation writes, as a bit mask of their numbers."""
        return bits_in(self.written)

    @property
    def reads(self) -> int:
        """The registers that the operation reads, as a bit mask of their numbers."""
        return bits_in(self.read_registers())

    def read_registers(self) -> list[Reg]:
        """List the registers that it reads, its guard included; a guarded result is read too."""
        guarded = [] if self.guard is None else [self.guard, *self.written]
        return [*(reg for source in self.sources for reg in registers_in(source)), *guarded]


def bits_in(registers: Iterable[Reg]) -> int:
    """Return a set of registers as a bit mask of their numbers."""
    found = 0
    for reg in registers:
        found |= 1 << reg.index
    return found


def items_of(operand: Operand) -> tuple[Operand, ...]:
    """Return the operands in braces, or a single operand as a tuple."""
    return operand.items if isinstance(operand, OperandGroup) else (operand,)


def registers_in(operand: Operand) -> list[Reg]:
    """List the registers that an operand has."""
    return [operand] if isinstance(operand, Reg) else [reg for part in parts_of(operand) for reg in registers_in(part)]


def parts_of(operand: Operand) -> tuple[Operand, ...]:
    """Return the parts of an operand: the elements of a group, a negated operand, or the base and coordinates of
    memory.
    """
    if isinstance(operand, MemoryOperand):
        return operand.coords if operand.base is None else (operand.base, *operand.coords)
    return (
        operand.items if isinstance(operand, OperandGroup) else (operand.item,) if isinstance(operand, Negation) else ()
    )


@dataclass
class KernelProgram:
    """A kernel with its calls inlined, or a function that is called without inlining.

    ``called`` names the functions that it calls. ``functions`` contains all functions that a kernel may reach, by name.

    ``ops`` contains labels as ``Op(form_of("label"), targets=(name,))``. Sizes are in bytes: ``local_size`` per thread,
    ``shared_size`` of static shared memory per block, and ``parameters_size`` of the parameter buffer. If
    ``has_dynamic`` is set, dynamic shared memory follows the static shared memory.
    """

    name: str
    ops: list[Op] = field(default_factory=list)
    registers: list[Reg] = field(default_factory=list)
    local_size: int = 0
    shared_size: int = 0
    has_dynamic: bool = False
    parameters_size: int = 0
    called: list[str] = field(default_factory=list)
    functions: dict[str, KernelProgram] = field(default_factory=dict)

    @cached_property
    def wanted(self) -> frozenset[int]:
        """The numbers of the registers that an operation reads for more than preserving their values in inactive lanes.

        All operations must exist before the first use, because the result is cached.
        """
        found: set[int] = set()
        for op in self.ops:
            reads = op.read_registers()
            if op.guard is not None:
                reads = reads[: len(reads) - len(op.written)]
            found.update([reg.index for reg in reads])
        return frozenset(found)

    def register(self, name: str, type_: str) -> Reg:
        """Make a new register."""
        reg = Reg(len(self.registers), name, type_)
        self.registers.append(reg)
        return reg


# -- asynchronous copies ------------------------------------------------------------------------------------

_WAITS = frozenset({"wait_group", "wait_all", "test_wait", "try_wait"})
_AWAITED = frozenset({"alloc", "mma", "commit", "cp", "shift"})
_NO_COPIES = _WAITS | {"commit_group", "prefetch"}


def is_queued(op: Op) -> bool:
    """Return whether an operation is asynchronous, so that its effect may occur at any time before a wait for it."""
    signals = op.opcode in ("st", "red", "clusterlaunchcontrol") and "mbarrier::complete_tx::bytes" in op.modifiers
    in_tensor = op.opcode == "tcgen05" and not _AWAITED.isdisjoint(op.modifiers)
    return signals or in_tensor or (op.opcode == "cp" and _NO_COPIES.isdisjoint(op.modifiers))


def is_in_tensor_memory(op: Op) -> bool:
    """Whether an operation is a product in tensor memory, or a copy from shared memory to there."""
    return op.opcode == "tcgen05" and not {"mma", "cp"}.isdisjoint(op.modifiers)


def awaits_copies(op: Op) -> bool:
    """Return whether an operation waits for asynchronous copies, or tests whether they are complete."""
    return op.opcode in ("cp", "mbarrier") and not _WAITS.isdisjoint(op.modifiers)
