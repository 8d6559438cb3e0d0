"""A kernel made ready for machine code: which of its stores may be non-temporal, which registers hold any NaN.

    ld.global.f32 x, [p+4];                 p and q come of different parameters, so that nothing reads what is stored:
    st.global.f32 [q], x;             ->    store <32 x float> %x, ptr %q, align 64, !nontemporal,
    ret;                                    if the launch writes more than the cache holds; sfence at the end

A store of whole cache lines past the cache spares the processor reading them first. It is worth it for what no longer
would be in the cache when it is needed: what a launch writes in all, where that is more than the cache holds.

Such stores come out in any order. All are done when machine code ends, by a fence (where it ends by a fault, by the
locked operations of whoever waits for it); a kernel that may tell other blocks of its stores before that has none.
Source: Intel SDM volume 3, "Strengthening or Weakening the Memory-Ordering Model" and "Methods of Caching Available";
AMD64 APM volume 2, 7.4 "Memory Types".
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

from cujit.devices.cpu.analysis.dataflow import joined, polling_loops, solve, writers_of
from cujit.devices.cpu.ir.cfg import ControlFlowGraph
from cujit.devices.cpu.ir.program import (
    CLEAR,
    FloatConstant,
    IntConstant,
    KernelProgram,
    MemoryOperand,
    Op,
    Operand,
    OperandGroup,
    Reg,
    SymbolAddress,
    is_queued,
    items_of,
    registers_in,
)  # fmt: skip
from cujit.forks import cached_property
from cujit.formats.ptx.isa.semantics import Collective, Trait
from cujit.values import closure, dataclass, field

_ADDRESS_BITS = 64

_STOPPING = ("alloca", "tcgen05")
"""Opcodes that need a stack for each warp: for memory that they take, or while other warps give back what they need."""


@dataclass(frozen=True)
class Nontemporal:
    """``stores`` may go past the cache."""

    stores: frozenset[Op]

    @property
    def thread_bytes(self) -> int:
        """What a thread writes by them, each done once."""
        return sum(op.type.bits // 8 * len(items_of(op.sources[1])) for op in self.stores)


@dataclass(frozen=True)
class Body:
    """A kernel or a function: its program and graph; ``functions`` are, by name, those called and not inlined."""

    program: KernelProgram
    graph: ControlFlowGraph
    functions: Mapping[str, Body] = field(default_factory=dict)
    contracts: bool = False
    """Whether sums of it, or of its functions, were contracted."""

    @property
    def bodies(self) -> tuple[Body, ...]:
        """It, and the functions that it calls and that are not inlined."""
        return (self, *self.functions.values())

    @property
    def suspends(self) -> bool:
        """Whether every warp needs a stack of its own: it may stop half-way, take memory of it, or call what may."""
        meets = any(op.form.collective > Collective.WARP for op in self.graph.ops)
        stops = meets or self.needs_stacks or bool(polling_loops(self.graph))
        return stops or self.calls or self.uses_cluster or self.clears

    @property
    def needs_stacks(self) -> bool:
        """Whether warps need stacks even where all meet at barriers alone: see ``_STOPPING``."""
        return any(op.opcode in _STOPPING for op in self.graph.ops)

    @property
    def calls(self) -> bool:
        """Whether it calls functions that are not inlined; by an address, perhaps none of them."""
        return bool(self.functions) or any(op.opcode == "call.function" for op in self.program.ops)

    @property
    def clears(self) -> bool:
        """Whether the first warp sets shared memory to zeros before the others begin."""
        return any(op.opcode == CLEAR for op in self.program.ops)

    @property
    def uses_cluster(self) -> bool:
        """Whether it may reach into other blocks of its cluster, which then have to be there beside it."""
        return any(op.form.names_cluster for op in self.program.ops)

    @cached_property
    def queues_copies(self) -> bool:
        """Whether it has asynchronous copies: blocks end with them done."""
        return any(is_queued(op) for op in self.program.ops)

    @cached_property
    def nontemporal(self) -> Nontemporal:
        """The stores that may go past the cache."""
        return Nontemporal(_find_nontemporal(self.program.ops))

    @cached_property
    def any_nan(self) -> frozenset[int]:
        """The registers, by number, that may hold any NaN for the one that GPUs give."""
        return _registers_of_any_nan(self.program)


# -- non-temporal stores --------------------------------------------------------------------------------------


def _find_nontemporal(ops: Sequence[Op]) -> frozenset[Op]:
    """Find the stores to global memory that the kernel does not read: by no address made of the same parameter."""
    stores = {op for op in ops if _leaves_cache(op)}
    if not stores or any(op.form.tells_others for op in ops):
        return frozenset()
    made_of, _ = parameters_behind(ops)
    bases = [(op, made_of.get(reg.index, 0)) for op in ops for reg in _bases(op)]
    read = joined(bits for op, bits in bases if op.opcode != "st")
    return frozenset(op for op, bits in bases if op in stores and bits and not bits & read)


def _leaves_cache(op: Op) -> bool:
    return op.opcode == "st" and op.space == "global" and "evict_last" not in op.name


def parameters_behind(ops: Sequence[Op]) -> tuple[dict[int, int], list[int]]:
    """Return which 64-bit parameters addresses are computed from: one bit for each parameter, by register; and the
    offset of each parameter, by bit.
    """
    writers, bases = writers_of(ops), (reg.index for op in ops for reg in _bases(op))
    behind = closure(bases, lambda reg: (r.index for op in writers.get(reg, ()) for r in op.read_registers()))
    computing = {op for reg in behind for op in writers.get(reg, ())}
    places: dict[int, int] = {}
    found: dict[int, int] = {}

    def compute(op: Op) -> bool:
        bits = _bits_of(op, places, found)
        more = [reg.index for reg in op.written if bits & ~found.get(reg.index, 0)]
        found.update({index: found.get(index, 0) | bits for index in more})
        return bool(more)

    solve([op for op in ops if op in computing], compute)
    return found, list(places)


def _bits_of(op: Op, places: dict[int, int], found: dict[int, int]) -> int:
    """Return what the results of one operation are computed from. A value from memory comes from no known parameter."""
    if op.opcode != "ld":
        return joined(found.get(reg.index, 0) for reg in op.read_registers())
    assert isinstance(op.sources[0], MemoryOperand)
    at = op.sources[0].base
    if not isinstance(at, SymbolAddress) or at.slot.space != "param" or op.type.bits != _ADDRESS_BITS:
        return 0
    place = at.slot.offset + at.offset + op.sources[0].offset
    each = range(place, place + len(op.results) * _ADDRESS_BITS // 8, _ADDRESS_BITS // 8)
    return joined(1 << places.setdefault(place, len(places)) for place in each)


def _bases(op: Op) -> list[Reg]:
    """List the registers that hold the addresses of an operation."""
    return [s.base for s in op.sources if isinstance(s, MemoryOperand) and isinstance(s.base, Reg)]


# -- where the NaNs of f32 arithmetic get the bits that GPUs give them ------------------------------------------

# An instruction that computes an f32 gives one NaN, 0x7fffffff, whatever the NaNs that go in; the processor gives
# others.
# What is made of a NaN by more arithmetic does not depend on its bits, so that a register that has nothing but such
# results may hold any NaN, and the right one is put in its place where the bits can be seen: where the register is
# stored, moved into one that has other values too, or read as an integer. Most code sees none but what it stores.
#
#     add.f32 a, x, y;                       a may hold any NaN: only arithmetic reads it
#     mul.f32 b, a, a;                 ->    b may, too
#     st.global.f32 [p], b;                  what is stored is 0x7fffffff where b is a NaN
#
# Source: measured on an H200; the manual leaves the bits open.

_CHANGES_VALUE = frozenset({"ftz", "rni", "rzi", "rmi", "rpi"})
"""With one of these, a conversion from f32 to f32 is more than a move."""


def gives_one_nan(op: Op) -> bool:
    """Whether the result is an f32 whose only NaN is that of GPUs."""
    types = op.types
    if not types or types[0] != "f32" or _is_choice(op):
        return False
    if op.opcode == "cvt":
        if types[1] == "bf16":
            return "ftz" in op.modifiers
        return types[1] == "f16" or (types[1] == "f32" and not _CHANGES_VALUE.isdisjoint(op.modifiers))
    return Trait.COMPUTES in op.form.meaning.traits


def _is_choice(op: Op) -> bool:
    """Whether ptxas makes a choice of a guarded change of sign, which keeps the bits of a NaN. Source: an H200."""
    return op.opcode in ("abs", "neg") and op.guard is not None and "ftz" not in op.modifiers


def sees_bits(op: Op) -> bool:
    """Whether what an operation does may depend on the bits of a NaN among its sources."""
    types = op.types
    if not types or types[-1] != "f32" or "xorsign" in op.modifiers or _is_choice(op):
        return True
    if op.opcode == "cvt":
        return types[0] in ("f64", "tf32") or (types[0] == "f32" and not gives_one_nan(op))
    traits = op.form.meaning.traits
    return not (Trait.COMPARES in traits or (Trait.COMPUTES in traits and len(types) == 1))


def _registers_of_any_nan(program: KernelProgram) -> frozenset[int]:
    """List the registers, by number, that have nothing but results of f32 arithmetic, and copies of these."""
    fixed: set[int] = set()
    computed: set[int] = set()
    copies: dict[int, list[int]] = {}
    for op in program.ops:
        copied = _copied(op)
        for reg in op.written:
            if gives_one_nan(op):
                computed.add(reg.index)
            elif copied is None or any(_may_be_nan(source) for source in copied):
                fixed.add(reg.index)
            else:
                for source in registers_in(OperandGroup(copied)):
                    copies.setdefault(source.index, []).append(reg.index)
    spread = functools.partial(closure, step=lambda reg: copies.get(reg, ()))
    return frozenset(spread(computed) - spread(fixed))


def _copied(op: Op) -> tuple[Operand, ...] | None:
    """What may become the result as it is; None for an operation that makes something of it."""
    copies = Trait.COPIES in op.form.meaning.traits and op.result is not None
    if not copies or op.types[-1:] not in (("f32",), ("b32",)):
        return None
    return op.sources[:2] if op.opcode == "selp" else op.sources


def _may_be_nan(operand: Operand) -> bool:
    """Whether an operand that is copied may be a NaN with bits of its own; of registers that is found out later."""
    if isinstance(operand, Reg):
        return operand.bits != 32
    if isinstance(operand, IntConstant):
        return operand.value & 0x7FFFFFFF > 0x7F800000
    if isinstance(operand, FloatConstant):
        infinity = 0x7F800000 if operand.width == 32 else 0x7FF0000000000000
        return operand.bits & ((1 << (operand.width - 1)) - 1) > infinity
    return True
