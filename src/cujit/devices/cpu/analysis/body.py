"""A kernel made ready for machine code, and which of its stores may be non-temporal.

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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from cujit.devices.cpu.analysis.dataflow import joined, solve
from cujit.devices.cpu.analysis.nans import registers_of_any_nan
from cujit.devices.cpu.analysis.progress import polling_loops
from cujit.devices.cpu.ir.cfg import Graph
from cujit.devices.cpu.ir.program import CLEAR, KernelProgram, Memory, Op, Reg, SymbolAddress, items_of
from cujit.forks import cached_property

__all__ = ["Body"]


_ADDRESS_BITS = 64


@dataclass(frozen=True)
class Nontemporal:
    """``stores`` may go past the cache; ``thread_bytes`` is what a thread writes by them, each done once."""

    stores: frozenset[Op] = frozenset()
    thread_bytes: int = 0


@dataclass(frozen=True)
class Body:
    """A kernel or a function: its program and graph; ``functions`` are, by name, those called and not inlined."""

    program: KernelProgram
    graph: Graph
    functions: Mapping[str, Body] = field(default_factory=dict)

    @property
    def bodies(self) -> tuple[Body, ...]:
        """It, and the functions that it calls and that are not inlined."""
        return (self, *self.functions.values())

    @property
    def suspends(self) -> bool:
        """Whether every warp needs a stack of its own: it may stop half-way, take memory of it, or call what may."""
        stops = any(op.form.is_barrier or op.opcode == "alloca" for op in self.graph.ops)
        return stops or self.calls or self.uses_cluster or self.clears or bool(polling_loops(self.graph))

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
    def nontemporal(self) -> Nontemporal:
        """The stores that may go past the cache."""
        return _find_nontemporal(self.program.ops)

    @cached_property
    def any_nan(self) -> frozenset[int]:
        """The registers, by number, that may hold any NaN for the one that GPUs give."""
        return registers_of_any_nan(self.program)


# -- non-temporal stores --------------------------------------------------------------------------------------


def _find_nontemporal(ops: Sequence[Op]) -> Nontemporal:
    """Find the stores to global memory that the kernel does not read: by no address made of the same parameter."""
    stores = {op for op in ops if op.opcode == "st" and op.space == "global" and "evict_last" not in op.name}
    if not stores or any(op.form.tells_others for op in ops):
        return Nontemporal()
    made_of = _parameters_behind(ops)
    bases = [(op, made_of.get(reg.index, 0)) for op in ops for reg in _bases(op)]
    read = joined(bits for op, bits in bases if op.opcode != "st")
    found = frozenset(op for op, bits in bases if op in stores and bits and not bits & read)
    return Nontemporal(found, sum(op.type.bits // 8 * len(items_of(op.sources[1])) for op in found))


def _parameters_behind(ops: Sequence[Op]) -> dict[int, int]:
    """Tell by which parameters of 64 bits registers are computed: one bit for each parameter, by register."""
    places: dict[int, int] = {}
    found: dict[int, int] = {}

    def compute(op: Op) -> bool:
        bits = _bits_of(op, places, found)
        more = [reg.index for reg in op.written if bits & ~found.get(reg.index, 0)]
        found.update({index: found.get(index, 0) | bits for index in more})
        return bool(more)

    solve(ops, compute)
    return found


def _bits_of(op: Op, places: dict[int, int], found: dict[int, int]) -> int:
    """Tell what the results of one operation are made of; what comes out of memory is made of nothing known."""
    if op.opcode != "ld":
        return joined(found.get(reg.index, 0) for reg in op.read_registers())
    assert isinstance(op.sources[0], Memory)
    at = op.sources[0].base
    if not isinstance(at, SymbolAddress) or at.slot.space != "param" or op.type.bits != _ADDRESS_BITS:
        return 0
    place = (at.slot.offset or 0) + at.offset + op.sources[0].offset
    return 1 << places.setdefault(place, len(places))


def _bases(op: Op) -> list[Reg]:
    """List the registers that hold the addresses of an operation."""
    return [s.base for s in op.sources if isinstance(s, Memory) and isinstance(s.base, Reg)]
