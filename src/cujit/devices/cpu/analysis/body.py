"""A kernel made ready for machine code: flat, checked, and cut into blocks, with the functions that it calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from cujit.devices.cpu.analysis.nans import registers_of_any_nan
from cujit.devices.cpu.analysis.progress import needs_stack
from cujit.devices.cpu.analysis.streaming import Uncached, find_uncached
from cujit.devices.cpu.ir.cfg import Graph
from cujit.devices.cpu.ir.program import CLEAR, KernelProgram
from cujit.forks import cached_property

__all__ = ["Body"]


@dataclass(frozen=True)
class Body:
    """A kernel or a function: its program and graph; ``functions`` are, by name, those called and not inlined."""

    program: KernelProgram
    graph: Graph
    functions: Mapping[str, Body] = field(default_factory=dict)

    @property
    def whole(self) -> tuple[Body, ...]:
        """It, and the functions that it calls and that are not inlined."""
        return (self, *self.functions.values())

    @property
    def suspends(self) -> bool:
        """Whether every warp needs a stack of its own: it may wait, or call what may."""
        return self.calls or needs_stack(self.graph) or self.uses_cluster or self.clears

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
    def uncached(self) -> Uncached:
        """The stores that may go past the cache."""
        return find_uncached(self.program.ops)

    @cached_property
    def any_nan(self) -> frozenset[int]:
        """The registers, by number, that may hold any NaN for the one that GPUs give."""
        return registers_of_any_nan(self.program)
