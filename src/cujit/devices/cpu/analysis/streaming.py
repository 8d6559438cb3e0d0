"""Which stores of a kernel may go past the cache.

A store of whole cache lines past the cache spares the processor reading them first. It is worth it for what no longer
would be in the cache when it is needed: what a launch writes in all, where that is more than the cache holds.

Such stores come out in any order. All are done when machine code ends, by a fence (where it ends by a fault, by the
locked operations of whoever waits for it); a kernel that may tell other blocks of its stores before that has none.
Source: Intel SDM volume 3, "Strengthening or Weakening the Memory-Ordering Model" and "Methods of Caching Available";
AMD64 APM volume 2, 7.4 "Memory Types".
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from cujit.devices.cpu.ir.program import Group, Memory, Op, Reg, SymbolAddress

__all__ = ["Uncached", "find_uncached"]

_ADDRESS_BITS = 64


@dataclass(frozen=True)
class Uncached:
    """``stores`` may go past the cache; ``thread_bytes`` is what a thread writes by them, each done once."""

    stores: frozenset[Op] = frozenset()
    thread_bytes: int = 0


def find_uncached(ops: Sequence[Op]) -> Uncached:
    """Find the stores to global memory that the kernel does not read: by no address made of the same parameter."""
    if any(op.form.tells_others for op in ops):
        return Uncached()
    stores = {op for op in ops if op.opcode == "st" and op.space == "global" and "evict_last" not in op.name}
    if not stores:
        return Uncached()
    made_of = _parameters_behind(ops)
    bases = [(op, made_of.get(reg.index, 0)) for op in ops for reg in _bases(op)]
    read = _joined(bits for op, bits in bases if op.opcode != "st")
    found = frozenset(op for op, bits in bases if op in stores and bits and not bits & read)
    return Uncached(found, sum(map(_bytes_stored, found)))


def _parameters_behind(ops: Sequence[Op]) -> dict[int, int]:
    """Tell by which parameters of 64 bits registers are computed: one bit for each parameter, by register."""
    places: dict[int, int] = {}
    found: dict[int, int] = {}
    changed = True
    while changed:
        changed = False
        for op in ops:
            bits = _bits_of(op, places, found)
            for reg in op.results:
                if reg is not None and bits & ~found.get(reg.index, 0):
                    found[reg.index] = found.get(reg.index, 0) | bits
                    changed = True
    return found


def _bits_of(op: Op, places: dict[int, int], found: dict[int, int]) -> int:
    """Tell what the results of one operation are made of; what comes out of memory is made of nothing known."""
    if op.opcode != "ld":
        return _joined(found.get(reg.index, 0) for reg in op.read_registers())
    assert isinstance(op.sources[0], Memory)
    at = op.sources[0].base
    if not isinstance(at, SymbolAddress) or at.slot.space != "param" or op.type.bits != _ADDRESS_BITS:
        return 0
    place = (at.slot.offset or 0) + at.offset + op.sources[0].offset
    return 1 << places.setdefault(place, len(places))


def _bases(op: Op) -> list[Reg]:
    """List the registers that hold the addresses of an operation."""
    return [s.base for s in op.sources if isinstance(s, Memory) and isinstance(s.base, Reg)]


def _bytes_stored(op: Op) -> int:
    data = op.sources[1]
    return op.type.bits // 8 * (len(data.items) if isinstance(data, Group) else 1)


def _joined(sets: Iterable[int]) -> int:
    return functools.reduce(operator.or_, sets, 0)
